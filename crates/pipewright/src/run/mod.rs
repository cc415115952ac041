//! A run: waits for started children until they end, feeds them, reads from them, and stops them.
//!
//! A start creates a [`Run`] or, if the caller keeps the child, a [`SpawnedRun`]. Either owns the children, the
//! settings and a state. The state is the same for every way to wait: [`RunState::before`](state::RunState::before)
//! returns the events to wait for, and [`RunState::after`](state::RunState::after) handles the results. Between the two
//! a thread blocks or a task is suspended.
//!
//! | file | idea |
//! |---|---|
//! | `run.rs` | a child that has just been started, and its owner; the owner of a run, and its steps |
//! | `task.rs` | the same for tasks, and a run as a future |
//! | `spawned.rs` | a child that the caller holds, waits for and stops, from several threads |
//! | `state.rs` | the state of a run, and one step of it |
//! | `stop.rs` | the times and phases of stopping, killing and giving up the streams; the processes that a stop reaches |
//! | `stream.rs` | one stream: read with a delay, kept, copied to a tee, given up |
//! | `ends.rs` | the start and the end of a stream, what is left out between them, and its file |
//! | `tee.rs` | a copy of a stream: to a stream of this process, to a handle, to a closure |
//! | `process.rs` | several children of one run, a handle to them, a child in the foreground of the terminal |
//! | `background.rs` | rules that are enforced while no caller waits, and the place of a run's state meanwhile |
//! | `options.rs` | the rules of a run, and the setters that commands and pipelines have in common |
//! | `on_demand.rs` | code that only the programs that ask for it contain |

mod background;
mod ends;
pub(crate) mod on_demand;
mod options;
mod process;
#[expect(clippy::module_inception, reason = "the owner of a run")]
mod run;
mod spawned;
mod state;
mod stop;
mod stream;
#[cfg(feature = "tokio")]
mod task;
mod tee;

pub use ends::{HeadAndTail, KeptEnds, SpillFailed};
pub use options::{Limit, Linger};
pub(crate) use options::{Rules, RunSettings, option_setters};
pub use process::{ChildEnd, RunHandle};
pub(crate) use process::{ForegroundJob, OpenForeground, Processes, deciding_stage};
pub use run::Next;
pub(crate) use run::{
    Children, Collect, Decide, HeldTerminal, Launched, OutputEnd, OwnedProcess, ParentEnds,
    Resumed, Run, RunDescriptor, RunInfo, Started, TerminalEnds, poll_next_by,
};
pub(crate) use spawned::{SpawnedRun, StopRequest, spawned_verbs};
pub(crate) use state::SLOTS;
pub(crate) use stop::{StopTargets, earlier};
pub(crate) use stream::{Chunk, LateTee};
#[cfg(feature = "tokio")]
pub(crate) use task::{RunFuture, check_runtime, check_runtime_to_wait, poll_within_budget};
pub(crate) use tee::{
    OpenTee, OpenTeeFile, OpenTeeWith, TeeTarget, open_tee_lines, open_tee_map, open_tee_with,
};
