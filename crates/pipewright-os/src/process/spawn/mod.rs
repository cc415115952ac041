//! Starts a child from a plan.

mod check;
mod contain;
mod error;
mod names;
mod options;
mod plan;
mod slot;
mod snapshot;
mod under_way;

#[cfg(any(target_os = "macos", test))]
mod groups;
#[cfg(unix)]
mod layout;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod listed;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "linux")]
pub(crate) use linux::try_supervisor;
#[cfg(target_os = "linux")]
use linux::{start_contained, start_limited};
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(target_os = "macos")]
use macos::{start_contained, start_limited};
#[cfg(unix)]
mod pre_exec;
#[cfg(unix)]
mod steps;
#[cfg(any(windows, test))]
mod wide;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
use windows::{start_contained, start_limited};

use std::cmp::Ordering;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

pub use contain::Contain;
pub use error::{BadInput, SpawnError, Step};
#[cfg(unix)]
pub(crate) use plan::UnsetGroups;
pub use plan::{
    ChildStdio, Credentials, Env, Group, Inherit, ParentExit, Plan, Resource, ResourceLimit,
    Search, UnixOptions, WindowsOptions,
};
#[cfg(unix)]
pub use pre_exec::PreExec;
pub use slot::{Begun, RequestedStart, TreeSlot};
pub use snapshot::EnvSnapshot;
pub use under_way::StartsUnderWay;

use crate::process::child::ChildHandle;

/// Starts a child.
///
/// When this returns `Ok`, the new program has been loaded, or a signal has ended the child before: a
/// program that cannot be executed is an error here, not an exit code later. After an error there is no
/// child, no zombie and no handle.
///
/// The child has only the stdio and the handles that the plan lists, an empty signal mask, SIGPIPE at its
/// default, and no handler of this program. It ignores the signals that this program ignores (so that
/// `nohup` works). With [`UnixOptions::std_rules`] the signal mask is the calling thread's. The environment
/// comes from the plan: a start never reads `environ`.
///
/// # Platform
/// Linux: one call for every option, `clone3(CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_CLEAR_SIGHAND)`, on
/// a stack of this library's. The child runs only async-signal-safe code and reports its error through
/// shared memory. The size of this process does not matter, because nothing of it is copied. If `clone3` is
/// refused, `clone` replaces it; if pidfds are refused, the child has none. A child with `pre_exec` closures
/// is forked.
///
/// macOS: `posix_spawn` with `POSIX_SPAWN_CLOEXEC_DEFAULT`, which copies nothing of this process either. It
/// has no option for a user, groups, a root directory, a umask, a niceness, a resource limit or a closure.
/// A child with one of those is forked, which costs more the larger this process is, and executes its
/// program by the same call (`POSIX_SPAWN_SETEXEC`). With a working directory, a program with a relative
/// path is passed to the system as an absolute path, which a script sees in `$0`. If the system has one
/// error number for several steps inside the call, the failed step is determined afterwards. Numbers of
/// handles end at 10240.
///
/// Windows: `CreateProcessW` with `PROC_THREAD_ATTRIBUTE_HANDLE_LIST`, for which inheritable copies of the
/// stdio handles are made, and `PROC_THREAD_ATTRIBUTE_JOB_LIST`. A missing library of the program shows as
/// an exit code (`0xC0000135`), because the child searches for it.
///
/// # Errors
/// [`SpawnError`] names the step that failed and keeps the system's error.
pub fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    match plan.slot {
        Some(_) => begin(plan)?.finish(plan),
        None => {
            let _under_way = under_way::begin();
            imp::spawn(plan)
        }
    }
}

/// Begins a start as [`spawn`] does, and does not wait for another process that starts the child. Nothing has started the
/// child if this is an error.
///
/// # Platform
/// Linux: in a [`TreeSlot`], this returns once the supervisor has been asked. Otherwise the child has been started.
///
/// # Errors
/// As for [`spawn`]. Errors of the child itself come from [`Begun::finish`].
pub fn begin(plan: &Plan<'_>) -> Result<Begun, SpawnError> {
    match plan.slot {
        Some(slot) => Arc::clone(&slot.0).begin(plan),
        None => {
            let _under_way = under_way::begin();
            imp::spawn(plan).map(Begun::Started)
        }
    }
}

/// True where a process group that holds a tree ends with this process, whatever ends that (see [`Contain::tree`]), and nothing holds
/// trees better.
///
/// # Platform
/// macOS: true.
pub const GUARDS_GROUPS: bool = imp::GUARDS_GROUPS;

/// Returns the setting for [`UnixOptions::kill_on_parent_exit`].
#[must_use]
pub fn parent_exit() -> ParentExit {
    imp::parent_exit()
}

/// Returns true if a program is given as a path, and so not searched for: it has a separator (Windows: `/`,
/// `\`, or the colon of a drive).
#[must_use]
pub fn is_path(program: &OsStr) -> bool {
    imp::is_path(program)
}

/// Returns the directories, in order, in which a program without a separator in its name is searched for.
///
/// # Platform
/// Unix: those of the plan's [`Search`]. Windows: as in std: those of the plan, if it has an environment of
/// its own; the directory of this program, the system's, those of this process's `PATH`. Never the working
/// directory.
pub fn search_dirs(plan: &Plan<'_>) -> impl Iterator<Item = PathBuf> {
    imp::search_dirs(plan)
}

/// Compares the names of two environment variables; equal means the same variable.
///
/// # Platform
/// Unix: byte by byte. Windows: `CompareStringOrdinal`, ignoring case.
#[must_use]
pub fn compare_names(one: &OsStr, other: &OsStr) -> Ordering {
    names::compare(one, other)
}

/// The variables without which programs do not work. A child that inherits no environment gets them
/// anyway.
///
/// # Platform
/// Windows: `SystemRoot`, without which neither sockets nor random numbers work (rust-lang/rust#114737).
/// Unix: none.
pub const REQUIRED_VARIABLES: &[&str] = names::REQUIRED;

/// Replaces this process by the program of the plan. Returns only on failure; then the changes to this
/// process up to the failing step stay.
///
/// # Platform
/// Linux: `execve`. macOS: `posix_spawn` with `POSIX_SPAWN_SETEXEC`. Windows has no such call:
/// `Unsupported`.
///
/// # Errors
/// As for [`spawn`].
pub fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    imp::exec(plan)
}
