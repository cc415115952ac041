//! The facts of a game, beside what the log says: each beginning and end of each job, and each byte that was printed;
//! and an executor that loses nodes, fails to start, and ends attempts in any order and by any code, as a seed says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright::Source;
use rusqlite::Connection;

use super::{Line, Random};
use crate::executor::{Attempt, Executor, ExecutorEvent, MachineMemory, OutputSink};
use crate::job::JobId;
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

/// The end of a job's last beginning, as the world knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Last {
    /// It has never begun.
    #[default]
    None,
    Running,
    Succeeded,
    /// It has failed by itself.
    Failed,
    /// Nobody can know: it was stopped, lost or killed.
    Doubt,
}

/// The facts about a job.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    pub(super) once: bool,
    pub(super) begins: u32,
    pub(super) has_succeeded: bool,
    pub(super) last: Last,
    /// Another attempt was due in this run when its last one ended.
    pub(super) is_due: bool,
    /// It has failed, and another attempt was due, in this run or an earlier one.
    pub(super) is_retried: bool,
    /// A start has failed, so that the job may have failed without a beginning.
    pub(super) start_failed: bool,
    /// The process died after the log had its intent: it may have begun.
    pub(super) may_have_begun: bool,
    /// The bytes that its last success has written.
    pub(super) output: String,
}

/// A row of the table `jobs`, as of the last commit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) id: JobId,
    pub(super) number: i64,
    pub(super) name: Option<String>,
    pub(super) state: String,
    pub(super) last_attempt: Option<i64>,
    pub(super) is_removed: bool,
    pub(super) runs: bool,
    pub(super) outcome: Option<String>,
    pub(super) code: Option<i32>,
    pub(super) folder: Option<String>,
}

/// The options of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) retry_failed: bool,
    pub(super) rerun_unknown: bool,
    pub(super) retries: u32,
    pub(super) keeps_folders: bool,
    /// The part of attempts that lack a descriptor for their files, in percent.
    pub(super) shortage: usize,
    /// The number of the run, for messages.
    pub(super) run: usize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) jobs: HashMap<JobId, Truth>,
    /// The last input: its lines, in order.
    pub(super) input: Vec<(JobId, Line)>,
    pub(super) options: Options,
    pub(super) rows: BTreeMap<u32, Row>,
    pub(super) printed: Vec<u8>,
    /// Folders that were on disk before a commit.
    pub(super) synced: HashSet<PathBuf>,
    /// The process is dead: nothing counts any more.
    pub(super) is_frozen: bool,
    /// The reader of the output takes nothing at the moment.
    pub(super) is_reader_busy: bool,
    /// A falsehood: the row of the audit, or a word, and the facts.
    pub(super) wrong: Vec<(&'static str, String)>,
    /// The files as of the last commit: the log, and its write-ahead log.
    pub(super) committed: [Vec<u8>; 2],
    pub(super) commits: u64,
    /// Everything that has happened, line by line.
    pub(super) story: Vec<String>,
}

/// The world, which the executor, the printing thread and the thread of the log share.
#[derive(Debug, Clone, Default)]
pub(super) struct World(Arc<Mutex<State>>);

impl World {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a stream that notes what is printed while the process lives.
    pub(super) fn stream(&self) -> Box<dyn Write + Send> {
        Box::new(Stream(self.clone(), self.lock().options.run))
    }
}

struct Stream(World, usize);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let is_dead = |state: &State| state.is_frozen || state.options.run != self.1;
        while state.is_reader_busy && !is_dead(&state) {
            drop(state);
            std::thread::park_timeout(Duration::from_micros(50));
            state = self.0.lock();
        }
        // A dead process prints nothing, and notes nothing as printed.
        if is_dead(&state) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.printed.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    pub(super) fn note(&mut self, row: &'static str, facts: String) {
        let run = self.options.run;
        self.tell(format!("WRONG, {row}: {facts}"));
        self.wrong.push((row, format!("run {run}: {facts}")));
    }

    /// Adds a line to the story.
    pub(super) fn tell(&mut self, line: String) {
        self.story.push(line);
    }

    /// Returns the job that has a name in the last input: the first one that is named so.
    pub(super) fn named(&self, name: &str) -> Option<JobId> {
        self.input.iter().find(|(_, line)| line.name.as_deref() == Some(name)).map(|(id, _)| *id)
    }

    /// Returns true if two jobs of the last input have one name.
    pub(super) fn clashes(&self) -> bool {
        let mut names = HashSet::new();
        self.input.iter().filter_map(|(_, line)| line.name.as_ref()).any(|name| !names.insert(name))
    }

    /// Notes that an attempt begins, and checks that it may. `runs` is false if its start fails.
    pub(super) fn begins(&mut self, id: JobId, attempt: u32, runs: bool) {
        if self.is_frozen {
            return;
        }
        let truth = self.jobs.get(&id).cloned().unwrap_or_default();
        let Options { retry_failed, rerun_unknown, .. } = self.options;
        let may_again = match truth.last {
            Last::Running => false,
            _ if !truth.once => true,
            Last::None => true,
            Last::Succeeded => false,
            Last::Failed => attempt > 1 || retry_failed || truth.is_retried,
            Last::Doubt => rerun_unknown,
        };
        if !may_again {
            self.note("twice", format!("{id} begins again: {truth:?}"));
        }
        if let Some(row) = self.rows.values().find(|row| row.id == id).cloned() {
            let is_over = row.state == "succeeded"
                || row.state == "failed" && !retry_failed && attempt == 1
                || row.state == "unknown" && !rerun_unknown;
            if is_over {
                self.note("over", format!("{id} begins, and the log has it: {row:?}"));
            }
        }
        let line = self.input.iter().find(|(it, _)| *it == id).map(|(_, line)| line.clone());
        for name in line.into_iter().flat_map(|line| line.after) {
            let awaited = self.named(&name).and_then(|id| self.jobs.get(&id));
            if !awaited.is_some_and(|awaited| awaited.has_succeeded) {
                self.note("after", format!("{id} begins after {name:?}: {awaited:?}"));
            }
        }
        self.tell(format!("begins {id}, attempt {attempt}, runs: {runs}"));
        let truth = self.jobs.entry(id).or_default();
        if runs {
            truth.begins += 1;
            truth.last = Last::Running;
        } else {
            truth.start_failed = true;
        }
    }

    /// Looks at the log after a commit.
    pub(super) fn committed(&mut self, connection: &Connection) {
        if self.is_frozen {
            return;
        }
        self.commits += 1;
        let rows = read_rows(connection);
        for (row, now) in &rows {
            let before = self.rows.get(row).cloned();
            if before.as_ref() != Some(now) {
                let Row { id, state, last_attempt, is_removed, runs, .. } = now;
                let facts = (last_attempt, is_removed, runs);
                self.tell(format!("commit {}: {id} {state} {facts:?}", self.commits));
            }
            self.check_row(before, now);
        }
        self.rows = rows;
    }

    fn check_row(&mut self, before: Option<Row>, now: &Row) {
        let was = before.as_ref().map_or("", |row| &row.state);
        let has_new_attempt = before.as_ref().is_none_or(|it| it.last_attempt != now.last_attempt);
        let is_overwritten = match was {
            "succeeded" => now.state != "succeeded",
            "failed" | "unknown" => now.state != was && now.state != "started" && !has_new_attempt,
            _ => false,
        };
        if is_overwritten {
            self.note("final", format!("{before:?} became {now:?}"));
        }
        let truth = self.jobs.get(&now.id).cloned().unwrap_or_default();
        if now.state == "succeeded" && was != "succeeded" {
            if !truth.has_succeeded {
                self.note("ok", format!("{now:?} is not true: {truth:?}"));
            }
            if self.options.keeps_folders {
                self.check_folder(now, &truth);
            }
        }
        let has_failed = now.outcome.as_deref() == Some("exited") && now.code != Some(0);
        let is_undecided = now.state == "started" && !now.runs && has_failed && has_new_attempt;
        if is_undecided && self.options.retries == 0 {
            self.note("halves", format!("an end without its decision: {now:?}"));
        }
        // One that a killed run may have begun is unknown again if it was to run again, and did not.
        let has_surely_not_run = truth.begins == 0 && !truth.may_have_begun;
        if now.state == "unknown" && was != "unknown" && has_surely_not_run {
            self.note("unknown", format!("{now:?} did surely not run"));
        }
    }

    /// Checks that a job that is recorded as ok has its output, on disk.
    fn check_folder(&mut self, row: &Row, truth: &Truth) {
        let folder = PathBuf::from(row.folder.clone().unwrap_or_default());
        let found = std::fs::read_to_string(folder.join("stdout"));
        if found.as_ref().ok() != Some(&truth.output) {
            self.note("output", format!("{row:?}: {found:?}, and not {:?}", truth.output));
        }
        if !self.synced.contains(&folder) {
            self.note("synced", format!("{row:?}"));
        }
    }
}

/// Reads what the log says.
pub(super) fn read_rows(connection: &Connection) -> BTreeMap<u32, Row> {
    let query = "SELECT jobs.id, identity, name, state, last_attempt, removed IS NOT NULL, \
                 running.job IS NOT NULL, outcome, code, output_path, jobs.number FROM jobs \
                 LEFT JOIN running ON running.job = jobs.id \
                 LEFT JOIN attempts ON attempts.id = last_attempt";
    let mut query = connection.prepare(query).unwrap();
    let rows = query.query_map([], |row| {
        let identity: [u8; 16] = row.get(1)?;
        let id = JobId::from_bytes(identity);
        Ok((
            row.get(0)?,
            Row {
                id,
                number: row.get(10)?,
                name: row.get(2)?,
                state: row.get(3)?,
                last_attempt: row.get(4)?,
                is_removed: row.get(5)?,
                runs: row.get(6)?,
                outcome: row.get(7)?,
                code: row.get(8)?,
                folder: row.get(9)?,
            },
        ))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

// An executor that loses nodes, fails to start, and ends attempts in any order and by any code, as a seed says.

#[derive(Debug)]
struct Running {
    key: AttemptKey,
    id: JobId,
    outcome: AttemptOutcome,
    is_stopped: bool,
    /// Its output is lost, so that a success is none.
    lacks_file: bool,
    sink: Option<Box<dyn OutputSink>>,
}

/// The executor.
#[derive(Debug)]
pub(super) struct Simulated {
    pub(super) random: Random,
    pub(super) world: World,
    pub(super) folders: Option<PathBuf>,
    /// The part of successes, in percent.
    pub(super) successes: usize,
    /// The part of attempts that lack a descriptor for their files, in percent.
    pub(super) shortage: usize,
    running: Vec<Running>,
}

impl Simulated {
    pub(super) fn new(random: Random, world: World, folders: Option<PathBuf>) -> Simulated {
        Simulated { random, world, folders, successes: 65, shortage: 0, running: Vec::new() }
    }

    fn end(&mut self, at: usize) -> ExecutorEvent {
        let mut attempt = self.running.swap_remove(at);
        let (key, id) = (attempt.key, attempt.id);
        let mut state = self.world.lock();
        let has_begun = !matches!(attempt.outcome, AttemptOutcome::NotStarted(_));
        let run = state.options.run;
        let retries = state.options.retries;
        let truth = state.jobs.entry(id).or_default();
        let text = format!("<{id} {} of run {run}>\n", truth.begins);
        let is_ok = attempt.outcome == AttemptOutcome::Exited(0) && !attempt.lacks_file;
        // What could not be started is not tried again, unless that is asked for.
        truth.is_due = !is_ok && has_begun && key.attempt <= retries;
        if has_begun {
            truth.last = match &attempt.outcome {
                _ if is_ok => Last::Succeeded,
                AttemptOutcome::Exited(1..) if !attempt.is_stopped => Last::Failed,
                _ => Last::Doubt,
            };
            truth.is_retried = truth.is_due && truth.last == Last::Failed;
            if is_ok {
                truth.has_succeeded = true;
                truth.output.clone_from(&text);
            }
        }
        state.tell(format!("ends {id}: {}, stopped: {}", attempt.outcome, attempt.is_stopped));
        drop(state);
        if let Some(mut sink) = attempt.sink.take().filter(|_| has_begun) {
            sink.write(Source::Stdout, text.as_bytes());
        }
        let mut end = AttemptEnd::without_run(key, attempt.outcome);
        end.is_lost_with_node = self.random.percent(50);
        ExecutorEvent::Ended(Box::new(end))
    }
}

impl Executor for Simulated {
    fn start(&mut self, attempt: Attempt) {
        let Attempt { key, id, output, .. } = attempt;
        let outcome = match self.random.below(100) {
            it if it < self.successes => AttemptOutcome::Exited(0),
            it if it < 85 => AttemptOutcome::Exited(1),
            it if it < 90 => AttemptOutcome::Lost("node gone".into()),
            it if it < 95 => AttemptOutcome::NotStarted("no such file".into()),
            _ => AttemptOutcome::Exited(3),
        };
        let file = self.folders.as_ref();
        let file = file.map(|it| it.join(format!("{:06}-{id}", key.job)).join("stdout"));
        if let Some(file) = file.as_ref().filter(|_| self.random.percent(self.shortage)) {
            // The file cannot be opened: there is a folder in its place.
            let _ = std::fs::create_dir(file);
        }
        let lacks_file = file.is_some_and(|file| file.is_dir());
        let runs = !matches!(outcome, AttemptOutcome::NotStarted(_));
        let mut state = self.world.lock();
        state.begins(id, key.attempt, runs);
        drop(state);
        self.running.push(Running {
            key,
            id,
            outcome,
            is_stopped: false,
            lacks_file,
            sink: output,
        });
    }

    fn stop(&mut self, key: AttemptKey) {
        for attempt in &mut self.running {
            let has_begun = !matches!(attempt.outcome, AttemptOutcome::NotStarted(_));
            if attempt.key == key && has_begun {
                attempt.is_stopped = true;
                attempt.outcome = match self.random.below(5) {
                    0 => AttemptOutcome::Exited(0),
                    1 => AttemptOutcome::Exited(1),
                    2 => AttemptOutcome::Lost("node gone".into()),
                    3 => AttemptOutcome::Exited(143),
                    _ => AttemptOutcome::Cancelled,
                };
            }
        }
    }

    fn next_event(&mut self, _until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        if self.running.is_empty() || !self.random.percent(60) {
            return Ok(None);
        }
        let at = self.random.below(self.running.len());
        Ok(Some(self.end(at)))
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        None
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        // Nobody ever waits in it.
        Ok(Box::new(|| {}))
    }
}
