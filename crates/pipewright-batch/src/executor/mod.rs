//! Executors: engines that run attempts of jobs.
//!
//! | file | contents |
//! |---|---|
//! | `attempt.rs` | an attempt |
//! | `local.rs` | the executor of this machine |
//! | `memory.rs` | the memory where the attempts run |
//! | `sink.rs` | the receiver of an attempt's output |

mod attempt;
mod local;
mod memory;
mod sink;

use std::io;
use std::time::Instant;

pub use attempt::Attempt;
pub use local::{Containing, Local, LocalSettings};
pub use memory::MachineMemory;
pub use sink::{NodeFiles, NodeOutput, OutputSink};

pub(crate) use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

/// An engine that runs attempts of jobs, on this machine or elsewhere.
///
/// One thread calls all methods. A batch starts at most one attempt of a job at a time, and at most one attempt in a slot.
/// Each started attempt has exactly one [`ExecutorEvent::Ended`], also if it could not be started, was stopped or was lost.
/// When that event is returned, no process of the attempt that the executor knows runs any more.
pub trait Executor: Send {
    /// Starts an attempt. A failure is an event too: [`AttemptOutcome::NotStarted`].
    fn start(&mut self, attempt: Attempt);

    /// Returns true if attempts may have to wait for a place: one that must be noted before it begins is then not started, but
    /// [placed](Self::place). The default is false.
    fn places_first(&self) -> bool {
        false
    }

    /// Finds a place for an attempt. [`ExecutorEvent::Placed`] follows once it has one, and [`begin`](Self::begin) starts it.
    fn place(&mut self, attempt: Attempt) {
        self.start(attempt);
    }

    /// Starts an attempt that has a place. Others are ignored.
    fn begin(&mut self, key: AttemptKey) {
        let _ = key;
    }

    /// Stops an attempt: the stop signal, then a kill after the grace period. Its end is reported as that of others. An
    /// attempt that has ended is ignored.
    fn stop(&mut self, key: AttemptKey);

    /// Returns the attempts that were not started yet, because they wait for room. If they are stopped, they end as
    /// [`AttemptOutcome::NotStarted`]. The default is none.
    fn waiting(&self) -> Vec<AttemptKey> {
        Vec::new()
    }

    /// Waits for the next event, but no longer than `until`. Returns `None` after that time, after a wake, and at once if
    /// nothing runs.
    ///
    /// # Errors
    /// The executor itself has failed, and will report no more events.
    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>>;

    /// Returns a function that makes [`next_event`](Self::next_event) return early: the call that waits now, or the next one
    /// that would wait. It may be called from any thread.
    ///
    /// # Errors
    /// No more handles are available.
    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>>;

    /// Returns true if events can come while nothing runs. [`next_event`](Self::next_event) then waits for them. The default is
    /// false.
    fn expects_events(&self) -> bool {
        false
    }

    /// Returns the memory where the attempts run. `None`: it is unknown, and the batch only counts what jobs state.
    fn memory(&mut self) -> Option<MachineMemory>;
}

/// A report of an executor.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExecutorEvent {
    /// A message for the user: one line.
    Note(String),
    /// An attempt has a place, and waits for [`Executor::begin`]. If it loses the place, this comes again.
    Placed(AttemptKey),
    /// The process of an attempt that has been started. Short ones may end without this event.
    Runs {
        /// The attempt.
        key: AttemptKey,
        /// The number of its process, on this machine.
        pid: u32,
    },
    /// The end of an attempt. Nothing more is reported about it.
    Ended(Box<AttemptEnd>),
    /// The number of CPUs that all attempts together may use from now on. Those that run keep theirs. Without this event it is
    /// the number of slots of the batch.
    Capacity {
        /// The number of CPUs.
        cpus: u32,
    },
    /// No attempt can have more CPUs than that, and no more will come: one that needs more is started all the same, and the
    /// executor refuses it. `None`: that may change.
    Largest {
        /// The number of CPUs.
        cpus: Option<u32>,
    },
}
