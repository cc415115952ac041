//! Events and decisions: the words in which the scheduler and its driver speak. Names in their messages are quoted,
//! escaped and cut, so that a message stays one bounded line.

use std::fmt::{self, Display, Formatter, Write as _};
use std::sync::Arc;
use std::time::Duration;

use crate::vocabulary::{Failure, JobOutcome};

/// The number of a job, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNumber(pub(crate) u64);

/// A report from the executor, the log, the input or the user.
///
/// A late report (about a job that was settled meanwhile, or about an attempt before the current one) changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The last job has been added.
    InputEnded,
    /// The log holds the intent of this attempt durably.
    Intended { job: JobNumber, attempt: u32 },
    /// A started attempt has ended, with everything that belongs to it.
    Ended { job: JobNumber, attempt: u32, result: Result<(), Failure> },
    /// A started attempt has failed in a way that no retry was chosen for, though one was for others of its class.
    Failed { job: JobNumber, attempt: u32, failure: Failure },
    /// A started attempt has ended with success, and its output could not be stored.
    Unstored { job: JobNumber, attempt: u32 },
    /// A started attempt is over, and its answer is lost though its executor lives: it may have run to its end.
    Unanswered { job: JobNumber, attempt: u32 },
    /// The delay of a [`Decision::Retry`] is over.
    RetryDue { job: JobNumber },
    /// The log cannot be written.
    LogFailed,
    /// The log can be written again, and holds what it owed.
    LogWorks,
    /// Memory that all jobs which name their needs may use together from now on.
    MemoryAvailable { bytes: u64 },
    /// The new CPU count, at most one a slot: nodes come and go. Jobs that run keep theirs.
    Capacity { cpus: u32 },
    /// No job can ever have more CPUs than that: it is started, and refused by the executor. `None`: that is not known.
    Largest { cpus: Option<u32> },
    /// A started attempt only waits for a place when the batch ends early. It is stopped, and has not run.
    Withdrawn { job: JobNumber },
    /// The number of CPUs that jobs may use from now on: the permits that a jobserver has given. Jobs that run keep
    /// theirs. Without this event the slots are the only limit.
    Permits { cpus: u32 },
    /// The memory of the machine as it is, no matter what jobs state.
    Pressure(Pressure),
    /// Jobs that may run at once from now on, because of the machine: 0 starts none. Jobs that run go on.
    MostJobs { jobs: usize },
    /// The pause after a start is over ([`Config::spaced`](super::Config::spaced)).
    PauseOver,
    /// Start nothing new, and let the running jobs end.
    Drain,
    /// Start nothing new, and stop the running jobs.
    Stop,
}

/// Pressure on the memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Memory is free: start jobs.
    None,
    /// Memory is short: start a job only if none runs.
    Hold,
    /// Memory is out: stop the job that was started last, and start a job only if none runs. Each report stops one job.
    Shed,
}

/// An order to the driver. Decisions are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Write the intent of this attempt to the log.
    ///
    /// With `durable` (the job is a `once` job), [`Event::Intended`] has to follow when the intent is durable, and the
    /// job starts only then. Otherwise its [`Decision::Start`] is the next decision, and does not wait for the log.
    ///
    /// It is decided once: a log that fails writes the intent when it works again. If the job is settled before its
    /// start, the intent is void, and has to be taken out of the log: this attempt did not run.
    Intend { job: JobNumber, attempt: u32, durable: bool },
    /// Start the job in that slot. Slots are numbered from 1. Attempts too.
    Start { job: JobNumber, slot: u32, attempt: u32 },
    /// Stop the running attempt. Its [`Event::Ended`] is still expected.
    Stop { job: JobNumber },
    /// The attempt has failed: send [`Event::RetryDue`] after this delay.
    Retry { job: JobNumber, delay: Duration },
    /// The attempt was stopped under pressure and did not succeed, was lost with its executor, or ran out of memory and
    /// gets more: the job waits for another attempt, which is no retry.
    Requeue { job: JobNumber, cause: Requeued },
    /// The job is over. Nothing more is decided about it.
    Settle { job: JobNumber, end: JobEnd },
}

/// The reason for another attempt that is no retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeued {
    /// It was stopped because memory is short.
    Pressure,
    /// It was lost with its executor.
    Lost,
    /// It ran out of memory, and gets more.
    MoreMemory,
}

/// The end of a job: its word, and beside it what the word does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobEnd {
    pub(crate) outcome: JobOutcome,
    pub(crate) cause: Option<Cause>,
}

/// The cause of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The class of the failure of its last attempt.
    Failure(Failure),
    /// Its last attempt succeeded, and its output is lost.
    Unstored,
    /// This job in its `after` did not succeed.
    After(JobNumber),
    /// It can never start.
    Refusal(Refusal),
}

impl From<JobOutcome> for JobEnd {
    fn from(outcome: JobOutcome) -> JobEnd {
        JobEnd { outcome, cause: None }
    }
}

impl From<Cause> for JobEnd {
    fn from(cause: Cause) -> JobEnd {
        let outcome = match cause {
            Cause::Failure(_) | Cause::Unstored => JobOutcome::Failed,
            Cause::After(_) => JobOutcome::Skipped,
            Cause::Refusal(_) => JobOutcome::Refused,
        };
        JobEnd { outcome, cause: Some(cause) }
    }
}

/// The reason why a job can never start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No job has a name that its `after` contains.
    UnknownAfter { name: Box<str> },
    /// It waits for itself. Each job of the cycle has the next one in its `after`, and the last one has the first.
    Cycle { names: Arc<[Box<str>]> },
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnknownAfter { name } => {
                write!(f, "no job is named {}, which is in its \"after\"", Shown(name))
            }
            Refusal::Cycle { names } => write!(f, "waits for itself: {}", ShownCycle(names)),
        }
    }
}

// Names in messages: quoted, escaped and cut, so that a message stays one bounded line.

/// Characters of a name that a message shows.
const MOST_CHARACTERS: usize = 60;

/// Names of a cycle that a message shows.
const MOST_NAMES: usize = 6;

/// A name in quotes.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(MOST_CHARACTERS) {
            write!(f, "{}", character.escape_debug())?;
        }
        f.write_str(if characters.next().is_some() { "…\"" } else { "\"" })
    }
}

/// A cycle: each job waits for the next one, and the last one for the first.
pub(crate) struct ShownCycle<'a>(pub(crate) &'a [Box<str>]);

impl Display for ShownCycle<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for name in self.0.iter().take(MOST_NAMES) {
            write!(f, "{} after ", Shown(name))?;
        }
        let hidden = self.0.len().saturating_sub(MOST_NAMES);
        if hidden > 0 {
            write!(f, "{hidden} more after ")?;
        }
        self.0.first().map_or(Ok(()), |first| write!(f, "{}", Shown(first)))
    }
}
