//! A run: sees started children through to their ends, feeds them, reads from them, and stops them.
//!
//! A start makes an [`ActiveRun`] or, if the caller keeps the child, a [`SpawnedRun`]. Either owns the children, the
//! options and a [`RunState`]. The state is the same for every way to wait: [`RunState::before`] says what to wait
//! for, and [`RunState::after`] does what the wait brought. Between the two a thread blocks or a task is suspended.
//!
//! | file | idea |
//! |---|---|
//! | `started.rs` | a child that has just been started, and the parent's ends of its streams |
//! | `active.rs` | a run that is seen through to its end |
//! | `spawned.rs` | the run of a child that the caller holds |
//! | `steps.rs` | a run that hands out what comes |
//! | `future.rs` | a run as a future |
//! | `suspended.rs` | a run between two waits for a child that the caller holds |
//! | `state.rs` | the state of a run, and one step of it |
//! | `stop_policy.rs` | when to stop, to kill and to give up reading: times and phases, no system call |
//! | `stop_targets.rs` | the processes that a stop reaches |
//! | `sink.rs` | the part of a stream that is kept |
//! | `stream.rs` | one stream: read, passed on, given up |
//! | `tee.rs` | a copy of a stream for this process's own |
//! | `read_coalescer.rs` | a delay of the next read |
//! | `foreground.rs` | a child that has the terminal |
//! | `process.rs` | the owner of a child, which leaves no zombie |
//! | `background.rs` | the rules of runs whose callers are away |
//! | `options.rs` | the options that commands and pipelines have in common |
//! | `option_setters.rs` | their setters, stated once |
//! | `on_demand.rs` | code that only those programs contain that ask for it |

mod active;
mod background;
mod foreground;
#[cfg(feature = "tokio")]
mod future;
pub(crate) mod on_demand;
mod option_setters;
mod options;
mod process;
mod read_coalescer;
mod sink;
mod spawned;
mod started;
mod state;
mod steps;
mod stop_policy;
mod stop_targets;
mod stream;
mod suspended;
mod tee;

pub(crate) use active::{ActiveRun, Decide, decided};
pub(crate) use background::Enforcement;
pub(crate) use foreground::OpenForeground;
#[cfg(feature = "tokio")]
pub(crate) use future::RunFuture;
pub(crate) use option_setters::option_setters;
pub(crate) use options::Options;
pub(crate) use process::{Process, Processes};
pub(crate) use spawned::SpawnedRun;
pub(crate) use started::{Collect, OutputEnd, ParentEnds, Started};
pub(crate) use state::{RunInfo, RunState, SLOTS};
pub(crate) use steps::Steps;
pub(crate) use stop_targets::StopTargets;
pub(crate) use stream::Chunk;
pub(crate) use suspended::{StopRequest, SuspendedRun};
pub(crate) use tee::{OpenTee, TeeTarget};
