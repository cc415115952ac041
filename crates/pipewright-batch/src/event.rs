//! Events of a batch, and the final states of its jobs.

use std::fmt;
use std::time::Duration;

use crate::executor::{AttemptEnd, AttemptKey};
use crate::job::JobId;

/// A report of a running batch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// An attempt has been started.
    #[non_exhaustive]
    Started {
        /// The attempt.
        key: AttemptKey,
        /// The slot, from 1.
        slot: u32,
        /// The command, quoted for a shell. Invalid Unicode is replaced.
        command: String,
    },
    /// An attempt has ended.
    #[non_exhaustive]
    Ended {
        /// The end.
        end: Box<AttemptEnd>,
        /// The command, as in [`Event::Started`].
        command: String,
        /// The last lines of stderr, or of stdout if stderr is empty: at most 2 KiB.
        last_lines: String,
    },
    /// The job will be tried again after this delay.
    #[non_exhaustive]
    Retrying {
        /// The number of the job.
        job: u64,
        /// The delay.
        delay: Duration,
    },
    /// The job is over.
    #[non_exhaustive]
    Settled {
        /// The number of the job.
        job: u64,
        /// The identity of the job.
        id: JobId,
        /// The final state.
        state: JobState,
    },
    /// All jobs have been read.
    #[non_exhaustive]
    InputEnded {
        /// The number of jobs.
        jobs: u64,
    },
    /// The number of jobs that can run at once has changed: a node has come or gone.
    #[non_exhaustive]
    Capacity {
        /// The number of slots.
        slots: u32,
    },
    /// The batch ends early: nothing more is started.
    Halted(Halt),
    /// A message for the user: one line.
    Note(String),
}

/// The final state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobState {
    /// It succeeded in this run.
    Succeeded,
    /// It succeeded in an earlier run, according to the log.
    SucceededBefore,
    /// Its last attempt failed. The text is the reason.
    Failed(String),
    /// It failed in an earlier run, according to the log.
    FailedBefore,
    /// It was not started, because a job in its `after` did not succeed. The text names that job.
    Skipped(String),
    /// It was started, and stopped because the batch ended early.
    Stopped,
    /// It was not started, because the batch ended early.
    NotRun,
    /// It runs at most once, and may have run: it is not run again.
    Unknown,
    /// It can never start. The text is the reason.
    Refused(String),
}

/// The reason why a batch ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Halt {
    /// A request to let the running jobs end.
    Drain,
    /// A request to stop the running jobs.
    Stop,
    /// Too many jobs have failed.
    Failures,
    /// The time of the whole batch is over.
    Timeout,
    /// The input cannot be read any further.
    Input,
    /// The log cannot be written.
    Log,
    /// The reader of stdout is gone, as `head` is after its last line.
    ReaderGone,
    /// The output of jobs cannot be printed.
    Output,
}

impl JobState {
    /// Returns the word that the log, events and reports use.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            JobState::Succeeded | JobState::SucceededBefore => "succeeded",
            JobState::Failed(_) | JobState::FailedBefore => "failed",
            JobState::Skipped(_) => "skipped",
            JobState::Stopped => "stopped",
            JobState::NotRun => "not_run",
            JobState::Unknown => "unknown",
            JobState::Refused(_) => "refused",
        }
    }

    /// Returns the reason, if the state has one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            JobState::Failed(reason) | JobState::Skipped(reason) | JobState::Refused(reason) => {
                Some(reason)
            }
            _ => None,
        }
    }
}

impl Halt {
    /// Returns the word that the log and events use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Halt::Drain => "drained",
            Halt::Stop => "stopped",
            Halt::Failures => "failures",
            Halt::Timeout => "timed_out",
            Halt::Input => "input",
            Halt::Log => "log",
            Halt::ReaderGone => "reader_gone",
            Halt::Output => "output",
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Halt::Drain => "interrupted",
            Halt::Stop => "stopped",
            Halt::Failures => "the limit of failures is reached",
            Halt::Timeout => "the time of the batch is over",
            Halt::Input => "the input cannot be read",
            Halt::Log => "the log cannot be written",
            Halt::ReaderGone => "the reader of the output is gone",
            Halt::Output => "the output cannot be written",
        })
    }
}
