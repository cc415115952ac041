//! A batch that runs.

use std::io;
use std::time::Instant;

use pipewright_os::base::generation::AtHome;

use super::{BatchError, Summary};
use crate::driver::{Control, Driver};
use crate::executor::Executor;
use crate::output::Unprinted;
use crate::vocabulary::{Event, Halt};
use crate::watch::Watchers;

/// A batch that runs: an iterator of its events.
///
/// The thread that calls `next` does the work: it starts jobs, reads their output and records their ends. Nothing happens
/// between two calls, so do not wait long between them.
///
/// # Drop
/// Kills the running jobs. The run stays with the process that started it: in a fork of that, the drop does nothing, and no more
/// events come.
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
