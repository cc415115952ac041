//! An input that is a file. Its open may wait: for the writer of a named pipe, or for a mount that does not answer. It
//! waits within the time of its job, and without a stop of the batch.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::error::{OneLine, Quoted};
use pipewright_os::base::late_open::LateOpen;

use crate::executor::Attempt;
use crate::job::JobStdin;
use crate::vocabulary::AttemptOutcome;

/// The input of an attempt.
#[derive(Debug, Default)]
pub(super) enum Stdin {
    #[default]
    New,
    /// The start opens it, because no other thread can.
    AtStart,
    Opening {
        open: LateOpen,
        since: Instant,
        /// The time at which the wait is over, and the outcome then.
        until: Option<(Instant, AttemptOutcome)>,
    },
    Open(File),
    /// The wait has ended.
    Over(Duration),
}

/// An input that was looked at.
pub(super) enum Look {
    Open,
    Waits,
    Failed(io::Error),
    Over(AttemptOutcome),
}

/// Wakes the thread of the executor.
pub(super) type Waker = Box<dyn FnOnce() + Send>;

impl Stdin {
    /// Returns true if the attempt can start. Otherwise the waker is called once the file is open.
    pub(super) fn open(
        &mut self,
        attempt: &Attempt,
        idle_timeout: Option<Duration>,
        waker: impl FnOnce() -> Waker,
    ) -> bool {
        let JobStdin::File(path) = &attempt.stdin else { return true };
        if !matches!(self, Stdin::New) {
            return true;
        }
        let waker = waker();
        let Ok(open) = LateOpen::start_with(path, |path| File::open(path), waker) else {
            *self = Stdin::AtStart;
            return true;
        };
        let since = Instant::now();
        let limits = [
            (attempt.timeout, AttemptOutcome::TimedOut),
            (idle_timeout, AttemptOutcome::IdleTimedOut),
        ];
        // A limit beyond the range of the clock never ends.
        let ends = limits.into_iter().filter_map(|(limit, outcome)| {
            limit.and_then(|limit| since.checked_add(limit)).map(|end| (end, outcome))
        });
        let until = ends.min_by_key(|(end, _)| *end);
        *self = Stdin::Opening { open, since, until };
        false
    }

    /// Looks if the file is open now. The time that this took is no longer the job's.
    pub(super) fn look(&mut self, attempt: &mut Attempt) -> Look {
        let Stdin::Opening { open, since, until } = self else { return Look::Open };
        let waited = since.elapsed();
        match open.take() {
            Some(Ok(file)) => {
                attempt.timeout = attempt.timeout.map(|limit| limit.saturating_sub(waited));
                *self = Stdin::Open(file);
                Look::Open
            }
            Some(Err(error)) => {
                *self = Stdin::New;
                Look::Failed(error)
            }
            None => match until.take_if(|(end, _)| Instant::now() >= *end) {
                Some((_, outcome)) => {
                    *self = Stdin::Over(waited);
                    Look::Over(outcome)
                }
                None => Look::Waits,
            },
        }
    }

    /// Returns the open file, for a start. A pipe stays open for another start, since what was written to it comes
    /// once.
    pub(super) fn file(&mut self) -> Option<io::Result<File>> {
        match std::mem::replace(self, Stdin::New) {
            Stdin::Open(file) if file.metadata().is_ok_and(|found| found.is_file()) => {
                Some(Ok(file))
            }
            Stdin::Open(file) => {
                let copy = file.try_clone();
                *self = Stdin::Open(file);
                Some(copy)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns the time that an attempt has waited that did not start.
    pub(super) fn waited(&self) -> Duration {
        match self {
            Stdin::Over(waited) => *waited,
            Stdin::Opening { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        }
    }
}

/// Returns the message of an input that cannot be opened.
pub(super) fn failed(attempt: &Attempt, error: &io::Error) -> String {
    let path = match &attempt.stdin {
        JobStdin::File(path) => path.as_os_str(),
        _ => "stdin".as_ref(),
    };
    format!("cannot open {} for stdin: {}", Quoted(path), OneLine(&error.to_string()))
}
