//! A run: waits for started children until they end, feeds them, reads from them, and stops them.
//!
//! A start creates a [`Run`] or, if the caller keeps the child, a [`SpawnedRun`]. Either owns the children, the settings and a
//! state. The state is the same for every way to wait: [`RunState::before`](state::RunState::before) returns the events to wait
//! for, and [`RunState::after`](state::RunState::after) handles the results. Between the two a thread blocks or a task is
//! suspended.
//!
//! | file | idea |
//! |---|---|
//! | `started.rs` | a child that has just been started, and the parent's ends of its streams |
//! | `run.rs` | the owner of a run, and its steps |
//! | `task.rs` | the same for tasks, and a run as a future |
//! | `spawned.rs` | a child that the caller holds, waits for and stops, from several threads |
//! | `state.rs` | the state of a run, and one step of it |
//! | `stop_policy.rs` | the times and phases of stopping, killing and giving up the streams; no system call |
//! | `stop_targets.rs` | the processes that a stop reaches |
//! | `stream.rs` | one stream: read with a delay, kept, copied to a tee, given up |
//! | `tee.rs` | a copy of a stream to one of this process's own, to a handle, to a closure, or changed by one |
//! | `foreground.rs` | a child in the foreground of the terminal |
//! | `process.rs` | the owners of children, which leave no zombie, and a handle to them |
//! | `background.rs` | rules that are enforced while no caller waits, and the place of a run's state meanwhile |
//! | `options.rs` | the options that commands and pipelines have in common, and their setters, stated once |
//! | `on_demand.rs` | code that only the programs that ask for it contain |

mod background;
mod foreground;
pub(crate) mod on_demand;
mod options;
mod process;
#[expect(clippy::module_inception, reason = "the owner of a run")]
mod run;
mod spawned;
mod started;
mod state;
mod stop_policy;
mod stop_targets;
mod stream;
#[cfg(feature = "tokio")]
mod task;
mod tee;

pub(crate) use foreground::{ForegroundJob, OpenForeground};
pub(crate) use options::{RunSettings, option_setters};
pub use process::{ChildEnd, RunHandle};
pub(crate) use process::{Children, OwnedProcess, Processes, deciding_stage};
pub(crate) use run::{Decide, Resumed, Run, RunDescriptor};
pub(crate) use spawned::{SpawnedRun, StopRequest, spawned_verbs};
pub(crate) use started::{
    Collect, HeldTerminal, OutputEnd, ParentEnds, RunInfo, Started, TerminalEnds,
};
pub(crate) use state::SLOTS;
pub(crate) use stop_targets::StopTargets;
pub(crate) use stream::Chunk;
#[cfg(feature = "tokio")]
pub(crate) use task::RunFuture;
pub(crate) use tee::{OpenTee, OpenTeeWith, TeeTarget, open_tee_map, open_tee_with};
