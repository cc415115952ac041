//! An executor that loses nodes, fails to start, and ends attempts in any order and by any code, as a seed says.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use pipewright::Source;

use super::Random;
use super::world::{Last, World};
use crate::executor::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, Executor, ExecutorEvent, MachineMemory,
    OutputSink,
};
use crate::job::JobId;

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
        // Another attempt is due, also after one that could not be started.
        truth.is_due = !is_ok && key.attempt <= retries;
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
