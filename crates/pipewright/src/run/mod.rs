//! A run: waits for started children until they end, feeds them, reads from them, and stops them.
//!
//! A start creates an [`ActiveRun`] or, if the caller keeps the child, a [`SpawnedRun`]. Either owns the children, the
//! options and a [`RunState`]. The state is the same for every way to wait: [`RunState::before`] returns the events to
//! wait for, and [`RunState::after`] handles the results. Between the two a thread blocks or a task is suspended.
//!
//! | file | idea |
//! |---|---|
//! | `started.rs` | a child that has just been started, and the parent's ends of its streams |
//! | `active.rs` | a run that goes on to its end |
//! | `spawned.rs` | the run of a child that the caller holds |
//! | `steps.rs` | a run that hands out chunks as they arrive |
//! | `future.rs` | a run as a future |
//! | `suspended.rs` | a run between two waits for a child that the caller holds |
//! | `state.rs` | the state of a run, and one step of it |
//! | `info.rs` | the facts about a run that no step changes |
//! | `stop_policy.rs` | the times and phases of stopping, killing and giving up the streams; no system call |
//! | `stop_targets.rs` | the processes that a stop reaches |
//! | `sink.rs` | the part of a stream that is kept |
//! | `stream.rs` | one stream: read, copied to a tee, given up |
//! | `tee.rs` | a copy of a stream to one of this process's own, or to a handle |
//! | `tee_map.rs` | a copy of a stream with changes |
//! | `tee_with.rs` | a copy of a stream to a closure |
//! | `terminal.rs` | the terminal of a child, which a run holds |
//! | `read_coalescer.rs` | a delay of the next read |
//! | `foreground.rs` | a child in the foreground of the terminal |
//! | `process.rs` | the owner of a child, which leaves no zombie |
//! | `background.rs` | rules that are enforced while no caller waits |
//! | `options.rs` | the options that commands and pipelines have in common |
//! | `option_setters.rs` | their setters, stated once |
//! | `on_demand.rs` | code that only the programs that ask for it contain |

mod active;
mod background;
mod foreground;
#[cfg(feature = "tokio")]
mod future;
mod info;
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
mod tee_map;
mod tee_with;
mod terminal;

pub(crate) use active::{ActiveRun, Decide, decided};
pub(crate) use background::Enforcement;
pub(crate) use foreground::{ForegroundJob, OpenForeground};
#[cfg(feature = "tokio")]
pub(crate) use future::RunFuture;
pub(crate) use info::RunInfo;
pub(crate) use option_setters::option_setters;
pub(crate) use options::RunSettings;
pub(crate) use process::{Children, OwnedProcess, Processes};
pub(crate) use spawned::SpawnedRun;
pub(crate) use started::{Collect, OutputEnd, ParentEnds, Started};
pub(crate) use state::{RunState, SLOTS};
pub use steps::{ChildEnd, RunHandle};
pub(crate) use steps::{Steps, StepsDescriptor};
pub(crate) use stop_targets::StopTargets;
pub(crate) use stream::Chunk;
pub(crate) use suspended::{StopRequest, SuspendedRun};
pub(crate) use tee::{OpenTee, TeeTarget};
pub(crate) use tee_map::open_tee_map;
pub(crate) use tee_with::{OpenTeeWith, open_tee_with};
pub(crate) use terminal::{HeldTerminal, TerminalEnds};
