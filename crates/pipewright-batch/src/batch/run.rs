//! A batch that runs, its counts and its exit code.

use std::time::{Duration, Instant};
use std::{fmt, io};

use pipewright_os::base::generation::AtHome;

use crate::driver::{BatchError, Control, Driver};
use crate::executor::Executor;
use crate::output::{OutputError, Unprinted};
use crate::source::InputError;
use crate::vocabulary::{AttemptOutcome, Event, Halt, JobOutcome};
use crate::watch::{Totals, Watchers};

/// A batch that runs: an iterator of its events.
///
/// The thread that calls `next` does the work: it starts jobs, reads their output and records their ends. Between two
/// calls only the timeouts of running jobs are kept, so do not wait long between them.
///
/// # Drop
/// Kills the running jobs. The run stays with the process that started it: in a fork of that, the drop does nothing,
/// and no more events come.
///
/// ```
/// use pipewright_batch::{Batch, Event, Job};
/// let mut run = Batch::new().jobs(2).start(["true", "false"].map(Job::new))?;
/// for event in &mut run {
///     if let Event::Settled { job, outcome, .. } = event? {
///         println!("job {job}: {}", outcome.name());
///     }
/// }
/// assert_eq!(run.finish()?.failed, 1);
/// # Ok::<(), pipewright_batch::BatchError>(())
/// ```
#[derive(Debug)]
#[must_use = "a run does nothing until its events are taken"]
pub struct Run<E = Box<dyn Executor>> {
    driver: AtHome<Driver<E>>,
    watchers: AtHome<Watchers>,
    summary: Summary,
    started: Instant,
    has_failed: bool,
}

impl<E: Executor> Run<E> {
    pub(super) fn new(driver: Driver<E>, watchers: Watchers) -> Run<E> {
        Run {
            driver: AtHome::new(driver),
            watchers: AtHome::new(watchers),
            summary: Summary::default(),
            started: Instant::now(),
            has_failed: false,
        }
    }

    /// Returns a control, which drains or stops this run from another thread.
    #[must_use]
    pub fn control(&self) -> Control {
        self.driver.control()
    }

    /// Returns the counts so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Shows a message to the user: one line on stderr, above the progress. Never waits for stderr.
    pub fn note(&mut self, message: &str) {
        if self.watchers.is_at_home() {
            self.watchers.message(message);
        }
    }

    /// Waits for the next event, but no longer than `until`. Returns `None` after that time and after the last event:
    /// [`is_finished`](Self::is_finished) tells them apart.
    ///
    /// # Errors
    /// As for `next`: the executor has failed, or this is a fork of the process that started the batch.
    pub fn next_until(&mut self, until: Option<Instant>) -> Result<Option<Event>, BatchError> {
        if self.has_failed {
            return Ok(None);
        }
        if !self.driver.is_at_home() {
            self.has_failed = true;
            let words =
                "the batch stays with the process that started it, and this is a fork of that";
            return Err(BatchError::Executor(io::Error::new(io::ErrorKind::Unsupported, words)));
        }
        let event = self.wait(until).map_err(|error| {
            self.has_failed = true;
            self.driver.abandon();
            BatchError::Executor(error)
        })?;
        if let Some(event) = &event {
            self.summary.count(event);
            self.watchers.event(event);
        }
        self.summary.elapsed = self.started.elapsed();
        Ok(event)
    }

    /// Waits as [`Self::next_until`] does, and draws the progress meanwhile.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Event>> {
        if let Some(event) = self.driver.next_ready_event() {
            return Ok(Some(event));
        }
        self.watchers.flush();
        loop {
            let (added, total) = self.driver.added();
            let tick = self.watchers.tick(added, total);
            let wake = until.into_iter().chain(tick).min();
            let event = self.driver.next_event_until(wake)?;
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if event.is_some() || is_late || self.driver.is_finished() {
                return Ok(event);
            }
        }
    }

    /// Returns true if there are no more events.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.has_failed || self.driver.is_finished()
    }

    /// Runs the rest, and returns the counts.
    ///
    /// # Errors
    /// The batch has lost its executor, or output or the log could not be written.
    pub fn finish(mut self) -> Result<Summary, BatchError> {
        while self.next_until(None)?.is_some() {}
        let mut summary = std::mem::take(&mut self.summary);
        summary.input_error = self.driver.take_input_error();
        (summary.incomplete_outputs, summary.output_error) = self.driver.take_lost_output();
        let how = summary.halted.map_or("finished", Halt::name);
        let until = self.driver.readers_until();
        let closed = self.driver.close(summary.exit_code(), how, until);
        match self.driver.unprinted() {
            Unprinted::Nothing => {}
            Unprinted::Kept(outputs) => summary.kept_outputs = outputs,
            Unprinted::Discarded => summary.discarded_output = true,
        }
        // Readers that take nothing are given up at the end of the batch's time.
        if self.driver.unprinted() != Unprinted::Nothing {
            summary.halted.get_or_insert(Halt::Timeout);
        }
        // Also if the log has failed: the reports are whole then.
        let reported =
            self.watchers.into_inner().finish(&summary.totals(how, closed.is_ok()), until);
        closed?;
        reported.map_err(|(path, source)| BatchError::Report { path, source })?;
        summary.elapsed = self.started.elapsed();
        Ok(summary)
    }
}

impl<E: Executor> Iterator for Run<E> {
    type Item = Result<Event, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_until(None).transpose()
    }
}

// Counts of a batch, and its exit code.

/// Counts of a batch. Each job is counted once.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Jobs that succeeded, in this run or in an earlier one.
    pub succeeded: u64,
    /// Those of them that succeeded in an earlier run.
    pub succeeded_before: u64,
    /// Jobs that failed, in this run or in an earlier one, or can never start.
    pub failed: u64,
    /// Jobs that were not started, because one that they wait for did not succeed.
    pub skipped: u64,
    /// Jobs that were stopped, because the batch ended early.
    pub stopped: u64,
    /// Jobs that were not started, because the batch ended early. Jobs that were not read are not counted.
    pub not_run: u64,
    /// Jobs that run at most once, and may have run.
    pub unknown: u64,
    /// The input was read to its end.
    has_all_jobs: bool,
    /// The reason for an early end.
    pub halted: Option<Halt>,
    /// The error of the input that ended the batch.
    pub input_error: Option<InputError>,
    /// Jobs whose output could not be stored completely. They ran on.
    pub incomplete_outputs: u64,
    /// The first error that cost output of a job.
    pub output_error: Option<OutputError>,
    /// Outputs that were not printed, and are kept beside the log: a resumed batch prints them.
    pub kept_outputs: usize,
    /// Output was discarded, because a reader did not take it in time after a stop.
    pub discarded_output: bool,
    /// Processes that jobs left running, and that were killed.
    pub leftovers_killed: u64,
    /// The first job that could not be started: its number, and the reason.
    pub not_started: Option<(u64, String)>,
    /// The time since the start.
    pub elapsed: Duration,
}

impl Summary {
    pub(super) fn count(&mut self, event: &Event) {
        match event {
            Event::Settled { outcome, before, .. } => {
                *match outcome {
                    JobOutcome::Succeeded => &mut self.succeeded,
                    JobOutcome::Failed | JobOutcome::Refused => &mut self.failed,
                    JobOutcome::Skipped => &mut self.skipped,
                    JobOutcome::Stopped => &mut self.stopped,
                    JobOutcome::NotRun => &mut self.not_run,
                    JobOutcome::Unknown => &mut self.unknown,
                } += 1;
                let is_old = *before && *outcome == JobOutcome::Succeeded;
                self.succeeded_before += u64::from(is_old);
            }
            Event::Ended { end, .. } => {
                self.leftovers_killed += u64::from(end.leftovers_killed);
                // One that an early end has stopped before its start has no reason of its own.
                let is_over = self.halted.is_some();
                if let (AttemptOutcome::NotStarted(reason), false) = (&end.outcome, is_over) {
                    self.not_started.get_or_insert_with(|| (end.key.job, reason.clone()));
                }
            }
            Event::InputEnded { .. } => self.has_all_jobs = true,
            Event::Halted(halt) => self.halted = Some(*halt),
            _ => {}
        }
    }

    /// Returns the exit code of a tool that ran the batch: 0 if all jobs succeeded, 123 if some did not (as xargs), 124
    /// after the timeout of the batch, 125 after an error of the input, the log or the output, 141 if the reader of the
    /// output is gone.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        let Summary { failed, skipped, stopped, not_run, unknown, .. } = self;
        match self.halted {
            _ if self.input_error.is_some() => 125,
            Some(Halt::Timeout) => 124,
            Some(Halt::Log | Halt::Output) => 125,
            Some(Halt::ReaderGone) => 141,
            _ if self.output_error.is_some() => 125,
            // What was wanted is there; the other jobs were not.
            Some(Halt::Successes) => 0,
            // Jobs that were never read have not run either.
            Some(_) if !self.has_all_jobs => 123,
            _ if failed + skipped + stopped + not_run + unknown > 0 => 123,
            _ => 0,
        }
    }

    /// Returns the counts for the reports. `is_closed`: the log and the output were written.
    pub(super) fn totals(&self, how: &'static str, is_closed: bool) -> Totals {
        Totals {
            exit_code: is_closed.then(|| self.exit_code()),
            how,
            succeeded: self.succeeded,
            failed: self.failed,
            skipped: self.skipped,
            stopped: self.stopped,
            not_run: self.not_run,
            unknown: self.unknown,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ok", self.succeeded)?;
        if self.succeeded_before > 0 {
            write!(f, " ({} before)", self.succeeded_before)?;
        }
        write!(f, ", {} failed, {} skipped, {} unknown", self.failed, self.skipped, self.unknown)?;
        for (count, word) in [(self.stopped, "stopped"), (self.not_run, "not run")] {
            if count > 0 {
                write!(f, ", {count} {word}")?;
            }
        }
        write!(f, " in {:.1} s", self.elapsed.as_secs_f64())?;
        match self.halted {
            Some(halt) => write!(f, " ({halt})"),
            None => Ok(()),
        }
    }
}
