//! Failures of the log and of the output, while jobs run.

use std::time::{Duration, Instant};

use pipewright::Source;

use super::Timer;
use super::{Driver, Event, Executor};
use crate::journal::{LostOutput, Report};
use crate::output::OutputError;
use crate::scheduler;

/// The time after which a batch ends whose log cannot be written. Until then it only starts nothing.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

impl<E: Executor> Driver<E> {
    pub(super) fn look_at_log(&mut self) {
        // Nothing is started after the note that nothing will be.
        self.carry_out_decisions();
        while let Some(report) = self.log.next_report() {
            match report {
                Report::Durable(key) => {
                    let (job, attempt) = super::log::attempt_of(key);
                    match self.live.get(job).is_some_and(|live| live.running == Some(attempt)) {
                        true => self.executor.begin(key),
                        false => self.report(scheduler::Event::Intended { job, attempt }),
                    }
                }
                Report::LostOutput(LostOutput { job, reason }) => {
                    self.lost_output.0 += 1;
                    let error = OutputError::lost(reason.clone());
                    self.lost_output.1.get_or_insert(error);
                    let note = format!("job {job} is not done: {reason}");
                    self.events.push_back(Event::Note(note));
                }
                Report::Failed(error) => {
                    let note = format!("{error}; no job is started until it can be written");
                    self.events.push_back(Event::Note(note));
                    self.log_failed_since = Some(Instant::now());
                    let due = Instant::now().checked_add(LOG_PATIENCE);
                    self.timers.extend(due.map(|due| (due, Timer::LogTimeout)));
                    self.report(scheduler::Event::LogFailed);
                }
                Report::Works => {
                    self.log_failed_since = None;
                    self.events.push_back(Event::Note("the log can be written again".to_owned()));
                    self.report(scheduler::Event::LogWorks);
                }
            }
        }
    }

    /// Ends the batch if its log still fails: jobs that have ended are not known to a resumed batch otherwise.
    pub(super) fn give_up_log(&mut self) {
        if self.log_failed_since.is_some_and(|since| since.elapsed() >= LOG_PATIENCE) {
            self.log_timed_out = self.scheduler.halted().is_none();
            self.report(scheduler::Event::Drain);
        }
    }

    /// Ends the batch early if its output cannot be printed: what the jobs write would be lost.
    pub(super) fn look_at_output(&mut self) {
        if self.is_reader_gone() {
            self.report(scheduler::Event::Stop);
        } else if self.has_output_failed() {
            self.report(scheduler::Event::Drain);
        }
    }

    pub(super) fn is_reader_gone(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.is_reader_gone(Source::Stdout))
    }

    pub(super) fn has_output_failed(&self) -> bool {
        self.output.as_ref().is_some_and(|output| output.failure().is_some())
    }
}
