//! The log of a batch for people and scripts: counts, a table, JSON lines, a page, the output of a job.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pipewright_os::base::error::{OneLine, Quoted};
use pipewright_os::base::private_file::OpenFolder;
use serde::Serialize;

use crate::job::JobId;
use crate::journal::read::{AttemptFilter, JobQuery, Log};
use crate::journal::rows::{AttemptRow, Counts, JobRow, RunningRow};
use crate::journal::{JobState, LogError, system_time};
use crate::vocabulary::{AttemptKey, AttemptOutcome, Failure, JobOutcome};
use crate::watch::text::{columns, duration, line};
use crate::watch::{BatchFacts, PageModel, named};

/// The log of a batch, open for reading. A runner may write to it meanwhile.
///
/// ```
/// use pipewright_batch::{Batch, Job, JobFilter, LogView};
/// # let dir = std::env::temp_dir().join(format!("log-view-doc-{}", std::process::id()));
/// # std::fs::create_dir(&dir)?;
/// # let path = dir.join("run.db");
/// Batch::new().log(&path).run(["true", "false"].map(Job::new))?;
/// let log = LogView::open(&path)?;
/// assert!(log.summary()?.starts_with("2 jobs: 1 succeeded, 1 failed\n"));
/// let mut failed = Vec::new();
/// log.write_json(&JobFilter { state: Some("failed".parse()?), ..JobFilter::default() }, &mut failed)?;
/// assert_eq!(failed.iter().filter(|byte| **byte == b'\n').count(), 1);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LogView {
    log: Log,
}

/// The jobs to list. The default is all.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobFilter {
    /// Only jobs in this state.
    pub state: Option<LoggedState>,
    /// This number of the slowest attempts, slowest first.
    pub slowest: Option<u32>,
}

/// A state that a job can have in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedState(JobState);

impl LoggedState {
    /// Returns the words of all states.
    pub fn names() -> impl Iterator<Item = &'static str> {
        JobState::words()
    }
}

impl std::str::FromStr for LoggedState {
    type Err = String;

    fn from_str(text: &str) -> Result<LoggedState, String> {
        // Tables call a started job so while it has a process.
        let text = if text == "running" { JobState::Started.name() } else { text };
        let state = JobState::ALL.into_iter().find(|state| state.name() == text);
        let names = || LoggedState::names().collect::<Vec<_>>().join(", ");
        state
            .map(LoggedState)
            .ok_or_else(|| format!("no state is called {text:?}; there are {}", names()))
    }
}

impl LogView {
    /// Opens a log.
    ///
    /// # Errors
    /// The file is missing, is no log, is damaged, or is that of a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<LogView, LogError> {
        Log::open(path.as_ref()).map(|log| LogView { log })
    }

    /// Returns the largest amount of memory that each job has used at one time, in bytes.
    pub(crate) fn peaks(&self) -> Result<HashMap<JobId, u64>, LogError> {
        self.log.peaks()
    }

    /// Writes the command of each job that [`Batch::resume_log`](crate::Batch::resume_log) would start now, one a line,
    /// quoted for a shell.
    ///
    /// # Errors
    /// The log cannot be read or does not have all jobs (then the error is of kind `Other`, and contains a
    /// [`LogError`]), or the writer fails.
    pub fn write_commands_to_run(
        &self,
        retry_failed: bool,
        rerun_unknown: bool,
        writer: &mut impl Write,
    ) -> io::Result<()> {
        let mut written = Ok(());
        let read = self.log.for_each_to_run(retry_failed, rerun_unknown, |mut command| {
            command.push(b'\n');
            written = writer.write_all(&command);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        read.map_err(io::Error::other)?;
        written
    }

    /// Returns the [note](crate::Batch::note_input) of the last run.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn input(&self) -> Result<Option<String>, LogError> {
        self.log.input()
    }

    /// Returns a few lines about the batch: counts, its runs, and outputs that a power cut has taken.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn summary(&self) -> Result<String, LogError> {
        let mut text = format!("{}\n", counts_line(&self.log.counts()?));
        for run in self.log.runs()? {
            let how = match (&run.how, run.ended) {
                (Some(how), _) => how.clone(),
                (None, Some(_)) => "ended".to_owned(),
                (None, None) => "runs, or was killed".to_owned(),
            };
            let time = run
                .ended
                .map_or(String::new(), |ended| format!(" after {:.1} s", ended - run.started));
            text.push_str(&format!("run {}: {how}{time}, {} slots\n", run.number, run.slots));
        }
        for lost in self.log.lost_outputs()? {
            text.push_str(&format!("{lost}\n"));
        }
        Ok(text)
    }

    /// Writes a table. `width` is that of the terminal; `None`: as wide as the commands.
    ///
    /// # Errors
    /// The log cannot be read (then the error is of kind `Other`, and contains a [`LogError`]), or the writer fails.
    pub fn write_table(
        &self,
        filter: &JobFilter,
        width: Option<usize>,
        writer: &mut impl Write,
    ) -> io::Result<()> {
        let mut has_heading = false;
        self.for_each_part(filter, |rows| {
            let heading = !std::mem::replace(&mut has_heading, true);
            write_table(rows, width, heading, writer)
        })
    }

    /// Writes JSON lines: see `docs/json.md`.
    ///
    /// # Errors
    /// As for [`write_table`](Self::write_table).
    pub fn write_json(&self, filter: &JobFilter, writer: &mut impl Write) -> io::Result<()> {
        self.for_each_part(filter, |rows| write_json(rows, writer))
    }

    /// Returns the number of attempts that have ended so far, for [`write_new`](Self::write_new).
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn position(&self) -> Result<u64, LogError> {
        Ok(self.log.last_attempt()?.unwrap_or(0))
    }

    /// Writes the attempts that have ended since that position as lines of a table. Returns the new position, and
    /// whether the batch runs.
    ///
    /// # Errors
    /// As for [`write_table`](Self::write_table).
    pub fn write_new(
        &self,
        position: u64,
        width: Option<usize>,
        writer: &mut impl Write,
    ) -> io::Result<(u64, bool)> {
        // Before the attempts: those of a run that ends in between are still read.
        let runs = self.log.runs().map_err(io::Error::other)?;
        let is_running = runs.last().is_some_and(|run| run.ended.is_none());
        let filter = AttemptFilter { after: Some(position), ..AttemptFilter::default() };
        let (mut new, mut written) = (position, Ok(()));
        let read = self.log.for_each_attempt(&filter, |attempt| {
            new = attempt.row;
            written = write_table(&[of_attempt(&attempt)], width, false, writer);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        read.map_err(io::Error::other)?;
        written.map(|()| (new, is_running))
    }

    /// Calls the function for some rows at a time.
    fn for_each_part(
        &self,
        filter: &JobFilter,
        mut each: impl FnMut(&[TableRow]) -> io::Result<()>,
    ) -> io::Result<()> {
        const PART: usize = 256;
        // A row of a log that somebody else has made may be long.
        const PART_BYTES: usize = 1 << 20;
        let mut part = Vec::with_capacity(PART);
        let mut bytes = 0;
        let mut written = Ok(());
        let mut add = |row: TableRow| {
            bytes += row.command.len() + row.reason.as_ref().map_or(0, String::len);
            part.push(row);
            if part.len() == PART || bytes > PART_BYTES {
                written = each(&part);
                part.clear();
                bytes = 0;
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let read = match filter.slowest {
            Some(count) => {
                let state = filter.state.map(|state| state.0);
                let filter =
                    AttemptFilter { state, slowest: Some(count), ..AttemptFilter::default() };
                self.log.for_each_attempt(&filter, |attempt| add(of_attempt(&attempt)))
            }
            None => for_each_job(&self.log, filter.state.map(|state| state.0), add),
        };
        read.map_err(io::Error::other)?;
        written?;
        each(&part)
    }
}

fn counts_line(counts: &Counts) -> String {
    let word = |(word, count): (&str, u64)| format!("{count} {}", word.replace('_', " "));
    let states: Vec<String> = counts.by_state().map(word).collect();
    let jobs = if counts.jobs == 1 { "job" } else { "jobs" };
    match states.is_empty() {
        true => format!("{} {jobs}", counts.jobs),
        false => format!("{} {jobs}: {}", counts.jobs, states.join(", ")),
    }
}

// The page about a batch, from its log.

impl LogView {
    /// Returns a page about the batch: HTML with everything in it.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn page(&self) -> Result<String, LogError> {
        let (batch, runs) = (self.log.batch()?, self.log.runs()?);
        let started = runs.first().map_or(batch.created, |run| run.started);
        let facts = BatchFacts {
            command: self.log.last_command()?,
            slots: runs.iter().map(|run| run.slots).max().unwrap_or(1),
            started: system_time(started),
            log: Some(self.log.path().display().to_string()),
        };
        let mut page = PageModel::new(facts);
        let last = runs.last().filter(|run| run.ended.is_none());
        let is_running = last.map(|_| self.log.is_running()).transpose()?;
        let this = last.filter(|_| is_running == Some(Some(true)));
        let mut seen = SeenAttempts::new(this.map(|run| run.number));
        self.log.for_each_attempt_of_input(|attempt| {
            seen.add(&attempt);
            let end = &attempt.end;
            let last_lines = attempt.stderr_tail.as_deref().unwrap_or_default();
            let text = &named(&attempt.job.command, attempt.job.name.as_deref());
            page.ended(attempt.job.row.into(), end, attempt.slot.unwrap_or(0), text, last_lines);
            ControlFlow::Continue(())
        })?;
        let running = if this.is_some() { self.log.running()? } else { Vec::new() };
        running.iter().for_each(|attempt| seen.runs(attempt));
        let end = runs.iter().filter_map(|run| run.ended).fold(started, f64::max);
        page.lasts_until(system_time(end));
        let mut before = 0;
        self.log.for_each_job_of_input(|job| {
            if let Some(outcome) = job.state.outcome().filter(|_| seen.is_over(&job)) {
                let text = named(&job.command, job.name.as_deref());
                page.settled(job.row.into(), job.number, &text, outcome, job.reason.as_deref());
                before += u64::from(!seen.is_of_this_run(&job));
            }
            ControlFlow::Continue(())
        })?;
        match self.log.removed_jobs()? {
            0 => {}
            1 => page.note("1 job that the last input does not have is left out"),
            jobs => {
                page.note(&format!("{jobs} jobs that the last input does not have are left out"));
            }
        }
        match this {
            None => {
                match is_running {
                    Some(Some(_)) => page.note("the last run was killed, and can be resumed"),
                    Some(None) => page.note("the last run runs, or was killed"),
                    None => {}
                }
                page.is_over();
            }
            Some(run) => {
                for attempt in running {
                    let RunningRow { job, attempt, slot, since, .. } = attempt;
                    let key = AttemptKey { job: job.number, attempt };
                    let text = &named(&job.command, job.name.as_deref());
                    page.started(key, slot.unwrap_or(0), text, system_time(since));
                }
                page.added(self.log.jobs_of_input()?);
                page.runs_since(system_time(run.started), before);
                page.lasts_until(SystemTime::now());
            }
        }
        Ok(page.html())
    }
}

/// The attempts that tell which jobs are over while a run goes on: the log has the ends of earlier runs for jobs that
/// this one does again.
struct SeenAttempts {
    /// The number of the run. `None`: none goes on.
    run: Option<u32>,
    /// The rows of the jobs that it has tried.
    tried: HashSet<u32>,
    /// Those that had failed before.
    failed: HashSet<u32>,
    /// It does jobs again that had failed.
    retries_failed: bool,
}

impl SeenAttempts {
    fn new(run: Option<u32>) -> SeenAttempts {
        SeenAttempts { run, tried: HashSet::new(), failed: HashSet::new(), retries_failed: false }
    }

    fn add(&mut self, attempt: &AttemptRow) {
        let (job, outcome) = (attempt.job.row, &attempt.end.outcome);
        // The jobs of these were not over.
        let is_end = !matches!(outcome, AttemptOutcome::Interrupted | AttemptOutcome::Cancelled);
        match self.run {
            None => {}
            Some(run) if attempt.run == run => self.tries(job),
            Some(_) if is_end && !outcome.is_success() => drop(self.failed.insert(job)),
            Some(_) => {}
        }
    }

    fn runs(&mut self, attempt: &RunningRow) {
        if self.run == Some(attempt.run) {
            self.tries(attempt.job.row);
        }
    }

    fn tries(&mut self, job: u32) {
        self.tried.insert(job);
        self.retries_failed |= self.failed.contains(&job);
    }

    /// Returns true if the end of the job is from this run. Ends without an attempt are from the first one.
    fn is_of_this_run(&self, job: &JobRow) -> bool {
        self.run == Some(1) || self.tried.contains(&job.row)
    }

    /// Returns true if this run does not do the job again.
    fn is_over(&self, job: &JobRow) -> bool {
        match job.state.outcome() {
            _ if self.run.is_none() || self.is_of_this_run(job) => true,
            Some(JobOutcome::Failed | JobOutcome::Skipped) => !self.retries_failed,
            outcome => !matches!(outcome, Some(JobOutcome::NotRun | JobOutcome::Stopped)),
        }
    }
}

// The output of a job.

/// The reason why the output of a job cannot be shown.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutputQueryError {
    /// The log cannot be read.
    Log(LogError),
    /// No job has that number, name or identity.
    NoSuchJob(String),
    /// Several jobs have that number or name, or an identity that begins so.
    Ambiguous(String),
    /// The log has no output of the job: the batch had no output directory, and the job wrote nothing to stderr.
    NoOutput(u64),
    /// A file cannot be read, or the writer failed.
    Io {
        /// The file. `None`: the writer failed.
        path: Option<PathBuf>,
        /// The system's error.
        source: io::Error,
    },
}

impl LogView {
    /// Writes the output of a job, which is named by its number, its name, or the first digits of its identity: the
    /// files of the output directory, or else the last lines that the log has.
    ///
    /// # Errors
    /// No single job has that name, the log has no output of it, or a file cannot be copied.
    pub fn write_output(
        &self,
        job: &str,
        stdout: &mut impl Write,
        stderr: &mut impl Write,
    ) -> Result<(), OutputQueryError> {
        let found = self.find(job)?;
        let attempts = self.log.attempts_of(found.row).map_err(OutputQueryError::Log)?;
        let Some(last) = attempts.last() else {
            return Err(OutputQueryError::NoOutput(found.number));
        };
        if let Some(folder) = &last.output_path {
            let folder = Path::new(folder);
            copy(folder, "stdout", stdout)?;
            return copy(folder, "stderr", stderr);
        }
        match &last.stderr_tail {
            Some(tail) if !tail.is_empty() => {
                let written = writeln!(stderr, "{}", tail.trim_end_matches('\n'));
                written.map_err(|source| OutputQueryError::Io { path: None, source })
            }
            _ => Err(OutputQueryError::NoOutput(found.number)),
        }
    }

    fn find(&self, job: &str) -> Result<JobRow, OutputQueryError> {
        let mut queries = vec![JobQuery::Name(job)];
        queries.extend(job.parse().ok().map(JobQuery::Number));
        if job.len() >= 4 && job.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            queries.push(JobQuery::Identity(job));
        }
        for query in queries {
            let mut found = self.log.find(query, 2).map_err(OutputQueryError::Log)?;
            match (found.pop(), found.is_empty()) {
                (Some(job), true) => return Ok(job),
                (Some(_), false) => return Err(OutputQueryError::Ambiguous(job.to_owned())),
                (None, _) => {}
            }
        }
        Err(OutputQueryError::NoSuchJob(job.to_owned()))
    }
}

fn copy(folder: &Path, name: &str, writer: &mut impl Write) -> Result<(), OutputQueryError> {
    let failed = |source| OutputQueryError::Io { path: Some(folder.join(name)), source };
    // A job can have replaced the file by a pipe.
    let opened = OpenFolder::open(folder).and_then(|folder| folder.open_to_read(name));
    let mut file = opened.map_err(failed)?;
    io::copy(&mut file, writer).map_err(failed)?;
    writer.flush().map_err(|source| OutputQueryError::Io { path: None, source })
}

impl fmt::Display for OutputQueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputQueryError::Log(error) => write!(f, "{error}"),
            OutputQueryError::NoSuchJob(job) => {
                write!(
                    f,
                    "no job of the log has the number, name or identity {}",
                    Quoted(job.as_ref())
                )
            }
            OutputQueryError::Ambiguous(job) => {
                write!(
                    f,
                    "several jobs of the log have the number or name {}, or an identity that begins so: name one by \
                     the digits of its identity",
                    OneLine(job)
                )
            }
            OutputQueryError::NoOutput(number) => {
                write!(
                    f,
                    "the log has no output of job {number}: run the batch with --output-dir to keep it"
                )
            }
            OutputQueryError::Io { path: Some(path), source } => {
                let (path, source) = (Quoted(path.as_os_str()), source.to_string());
                write!(f, "cannot copy {path}: {}", OneLine(&source))
            }
            OutputQueryError::Io { path: None, source } => {
                write!(f, "cannot write the output: {}", OneLine(&source.to_string()))
            }
        }
    }
}

impl std::error::Error for OutputQueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OutputQueryError::Log(error) => Some(error),
            OutputQueryError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

// Attempts and jobs of the log as rows of a table.

fn of_attempt(attempt: &AttemptRow) -> TableRow {
    let mut row = of_job(&attempt.job);
    row.attempts = attempt.end.key.attempt;
    row.elapsed =
        (attempt.end.outcome != AttemptOutcome::Interrupted).then_some(attempt.end.elapsed);
    row.exit = Some(exit_words(&attempt.end.outcome));
    row
}

fn of_job(job: &JobRow) -> TableRow {
    TableRow {
        job: job.number,
        name: job.name.clone(),
        state: job.state.name().to_owned(),
        attempts: 0,
        elapsed: None,
        exit: None,
        // The end of the attempt says the same about other failures.
        reason: job.reason.clone().filter(|_| match job.state.failure() {
            Some(failure) => matches!(failure, Failure::StartFailed | Failure::Lost),
            None => true,
        }),
        command: job.command.clone(),
    }
}

fn of_running(running: &RunningRow) -> TableRow {
    let mut row = of_job(&running.job);
    row.state = "running".to_owned();
    row.attempts = running.attempt;
    row.elapsed = SystemTime::now().duration_since(system_time(running.since)).ok();
    row
}

fn exit_words(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Exited(code) => format!("exit {code}"),
        AttemptOutcome::Signaled(_) => outcome.signal_name().unwrap_or_default(),
        other => other.name().replace('_', " "),
    }
}

/// Calls the function for the row of each job: those that run, those that have ended in the order of their ends, and
/// the others.
fn for_each_job(
    log: &Log,
    state: Option<JobState>,
    mut each: impl FnMut(TableRow) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let mut is_over = false;
    let mut call = |row| {
        let flow = each(row);
        is_over |= flow.is_break();
        flow
    };
    if state.is_none_or(|state| state == JobState::Started) {
        for running in log.running()? {
            if call(of_running(&running)).is_break() {
                return Ok(());
            }
        }
    }
    let filter = AttemptFilter::default();
    log.for_each_attempt(&filter, |attempt| {
        let is_last = attempt.job.last_attempt == Some(attempt.row);
        let is_over = attempt.job.state != JobState::Started;
        if is_last && is_over && has_state(&attempt.job, state) {
            call(of_attempt(&attempt))
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if is_over {
        return Ok(());
    }
    log.for_each_job(state, |job| match job.last_attempt {
        Some(_) => ControlFlow::Continue(()),
        None if job.state == JobState::Started => ControlFlow::Continue(()),
        None => each(of_job(&job)),
    })
}

/// Compares without the class of a failure.
fn has_state(job: &JobRow, state: Option<JobState>) -> bool {
    state.is_none_or(|state| state.name() == job.state.name())
}

// Jobs as a table for a terminal, or as JSON lines: `pipewright.jobs/1`.

const SCHEMA: &str = "pipewright.jobs/1";

/// The widths of the columns before the command, in this order: state, number, tries, time, exit.
const WIDTHS: [usize; 5] = [9, 7, 5, 10, 10];

/// The narrowest terminal for which a table is made.
const LEAST_COLUMNS: usize = 60;

/// The facts of a job that tables show.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TableRow {
    /// The number in its run, from 1.
    pub(crate) job: u64,
    /// The name that the input gives it.
    pub(crate) name: Option<String>,
    /// The word of its state: `succeeded`, `failed`, `running`, ...
    pub(crate) state: String,
    /// The number of its attempts.
    pub(crate) attempts: u32,
    /// The time that its last attempt took.
    #[serde(rename = "elapsed_seconds", serialize_with = "seconds")]
    pub(crate) elapsed: Option<Duration>,
    /// The end of its last attempt in words: `exit 1`, `SIGKILL`, `timed out`.
    pub(crate) exit: Option<String>,
    /// One line, if there is more to say.
    pub(crate) reason: Option<String>,
    pub(crate) command: String,
}

fn seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

/// Writes the jobs as JSON lines.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_json<W: Write>(rows: &[TableRow], writer: &mut W) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        schema: &'static str,
        #[serde(flatten)]
        row: &'a TableRow,
    }
    for row in rows {
        let mut bytes = serde_json::to_vec(&Line { schema: SCHEMA, row })?;
        bytes.push(b'\n');
        writer.write_all(&bytes)?;
    }
    Ok(())
}

/// Writes the jobs as a table of that width, `None`: as wide as the commands are. Call it with `heading` for the first
/// rows and without for the next ones.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_table<W: Write>(
    rows: &[TableRow],
    width: Option<usize>,
    heading: bool,
    writer: &mut W,
) -> io::Result<()> {
    let width = width.map_or(usize::MAX, |width| width.max(LEAST_COLUMNS));
    if heading {
        let words = ["state", "job", "tries", "time", "exit"].map(str::to_owned);
        write_row(&words, "command", width, writer)?;
    }
    for row in rows {
        let cells = [
            row.state.replace('_', " "),
            row.job.to_string(),
            row.attempts.to_string(),
            row.elapsed.map_or_else(String::new, duration),
            row.exit.clone().unwrap_or_default(),
        ];
        let name = row.name.as_ref().map(|name| format!("[{name}] ")).unwrap_or_default();
        let reason = row.reason.as_ref().map(|reason| format!("  ({reason})")).unwrap_or_default();
        write_row(&cells, &format!("{name}{}{reason}", row.command), width, writer)?;
    }
    Ok(())
}

fn write_row<W: Write>(
    cells: &[String; 5],
    last: &str,
    most: usize,
    writer: &mut W,
) -> io::Result<()> {
    let mut text = String::new();
    for (place, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        // A number is shown whole, and the command gets less space.
        let cell = if (1..3).contains(&place) { cell.clone() } else { line(cell, width) };
        let blanks = " ".repeat(width.saturating_sub(columns(&cell)));
        // Numbers are aligned to the right.
        match place {
            1..4 => text.extend([blanks, cell]),
            _ => text.extend([cell, blanks]),
        }
        text.push_str("  ");
    }
    text.push_str(last);
    writeln!(writer, "{}", line(&text, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(job: u64, seconds: f64) -> TableRow {
        TableRow {
            job,
            name: None,
            state: "succeeded".to_owned(),
            attempts: 1,
            elapsed: Some(Duration::from_secs_f64(seconds)),
            exit: Some("exit 0".to_owned()),
            reason: None,
            command: format!("./convert {job}"),
        }
    }

    fn table(rows: &[TableRow], width: Option<usize>) -> String {
        let mut text = Vec::new();
        write_table(rows, width, true, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_table_has_a_line_for_each_job() {
        let failed = TableRow {
            state: "failed".to_owned(),
            attempts: 3,
            exit: Some("timed out".to_owned()),
            name: Some("b".to_owned()),
            reason: Some("gave up".to_owned()),
            ..row(2, 75.0)
        };
        let waiting =
            TableRow { state: "not_run".into(), elapsed: None, exit: None, ..row(3, 0.0) };
        assert_eq!(
            table(&[row(1, 0.25), failed, waiting], None),
            "\
state          job  tries        time  exit        command
succeeded        1      1      250 ms  exit 0      ./convert 1
failed           2      3  1 min 15 s  timed out   [b] ./convert 2  (gave up)
not run          3      1                          ./convert 3
"
        );
    }

    #[test]
    fn json_has_one_object_a_line() {
        let mut text = Vec::new();
        write_json(&[row(1, 0.5), TableRow { command: "a\nb".into(), ..row(2, 1.0) }], &mut text)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["schema"], &lines[0]["elapsed_seconds"]),
            (&SCHEMA.into(), &0.5.into())
        );
        assert_eq!(lines[1]["command"], "a\nb");
        let docs =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md"));
        let docs = docs.unwrap();
        let section = docs.split("## ").find(|it| it.contains("pipewright.jobs/1`\n")).unwrap();
        for field in lines[0].as_object().unwrap().keys() {
            assert!(section.contains(&format!("`{field}`")), "{field} is not documented");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(
            command in ".{0,200}|[\u{0}-\u{1f}日]{0,80}", name in prop::option::of(".{0,30}"),
            state in ".{0,20}", exit in prop::option::of(".{0,30}"), job in any::<u64>(), attempts in any::<u32>(),
            width in 60_usize..200,
        ) {
            let row = TableRow { command, name, state, exit, attempts, ..row(job, 1e9) };
            for line in table(&[row], Some(width)).lines() {
                prop_assert!(columns(line) <= width, "{line:?}");
            }
        }
    }

    #[test]
    fn rows_of_a_log_are_a_table_or_json() {
        let row = TableRow {
            job: 1,
            name: None,
            state: "running".to_owned(),
            attempts: 1,
            elapsed: None,
            exit: None,
            reason: None,
            command: "true".to_owned(),
        };
        let (mut table, mut json) = (Vec::new(), Vec::new());
        write_table(std::slice::from_ref(&row), Some(80), false, &mut table).unwrap();
        write_json(&[row], &mut json).unwrap();
        assert!(String::from_utf8(table).unwrap().starts_with("running "));
        assert!(json.ends_with(b"}\n"));
    }
}
