//! An input that is a named pipe. Its open waits for a writer, which may never come: within the time of its job, and without a
//! stop of the batch.

use std::fs::{File, OpenOptions};
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::error::{OneLine, Quoted};
use pipewright_os::base::late_open::{self, LateOpen};

use crate::executor::{Attempt, AttemptOutcome};
use crate::job::JobStdin;

/// The input of an attempt.
#[derive(Debug, Default)]
pub(super) enum Stdin {
    /// The start opens it.
    #[default]
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
    Over(AttemptOutcome),
}

impl Stdin {
    /// Returns true if the attempt can start, or the reason why it never can.
    pub(super) fn open(
        &mut self,
        attempt: &Attempt,
        idle_timeout: Option<Duration>,
    ) -> Result<bool, String> {
        let JobStdin::File(path) = &attempt.stdin else { return Ok(true) };
        if !matches!(self, Stdin::AtStart) || !late_open::waits(path) {
            return Ok(true);
        }
        let mut read = OpenOptions::new();
        read.read(true);
        let open = LateOpen::start(path, read).map_err(|error| failed(attempt, &error))?;
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
        Ok(false)
    }

    /// Looks if the pipe is open now. The time that this took is no longer the job's.
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
                *self = Stdin::Over(waited);
                Look::Over(AttemptOutcome::NotStarted(failed(attempt, &error)))
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

    /// Returns the open pipe, for a start.
    pub(super) fn file(&self) -> Option<io::Result<File>> {
        match self {
            Stdin::Open(file) => Some(file.try_clone()),
            _ => None,
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

fn failed(attempt: &Attempt, error: &io::Error) -> String {
    let path = match &attempt.stdin {
        JobStdin::File(path) => path.as_os_str(),
        _ => "stdin".as_ref(),
    };
    format!("cannot open {} for stdin: {}", Quoted(path), OneLine(&error.to_string()))
}
