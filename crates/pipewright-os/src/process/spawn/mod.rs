//! Starts a child from a plan.

mod check;
mod contain;
mod error;
mod names;
mod plan;
mod snapshot;

#[cfg(unix)]
mod layout;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod listed;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "linux")]
use linux::start_held;
#[cfg(target_os = "linux")]
pub(crate) use linux::try_supervisor;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(target_os = "macos")]
use macos::start_held;
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
use windows::start_held;

use std::cmp::Ordering;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::PathBuf;

pub use contain::Contain;
pub use error::{BadInput, SpawnError, Step};
#[cfg(unix)]
pub(crate) use plan::UnsetGroups;
pub use plan::{
    ChildStdio, Env, Group, Identity, Inherit, ParentExit, Plan, Resource, ResourceLimit, Search,
    UnixOptions, WindowsOptions,
};
#[cfg(unix)]
pub use pre_exec::PreExec;
pub use snapshot::EnvSnapshot;

use crate::process::child::ChildHandle;

/// Starts a child.
///
/// When this returns `Ok` the new program has been loaded, or a signal has ended the child before:
/// a program that cannot be executed is an error here, not an exit code later. After an error there is no child, no zombie and no handle.
///
/// The child has the stdio and the handles that the plan lists and no other, an empty signal mask,
/// SIGPIPE at its default, and no handler of this program; what this program ignores it ignores
/// (so that `nohup` works). With [`UnixOptions::std_rules`] the signal mask is the calling thread's.
/// The environment comes from the plan: a start never reads `environ`.
///
/// # Platform
/// Linux: one path for every option: `clone3(CLONE_VM | CLONE_VFORK | CLONE_PIDFD |
/// CLONE_CLEAR_SIGHAND)` on a stack of our own; the child runs async-signal-safe code only and
/// reports its error through shared memory. The size of this process does not matter, because
/// nothing of it is copied. Where `clone3` is refused: `clone`; where the pidfd is: none. A child
/// with `pre_exec` closures is forked.
///
/// macOS: `posix_spawn` with `POSIX_SPAWN_CLOEXEC_DEFAULT`; nothing of this process is copied either.
/// It has no option for a user, groups, a root directory, a umask, a niceness, a resource limit or a
/// closure: a child with one of those is forked, which costs more the larger this process is, and becomes its
/// program by the same call (`POSIX_SPAWN_SETEXEC`). With a working directory, a program that is
/// named by a relative path is given to the system as an absolute one, which a script sees in `$0`.
/// Which of several steps inside the call has failed is found out afterwards, where the system has
/// one number for them. Numbers of handles end at 10240.
///
/// Windows: `CreateProcessW` with `PROC_THREAD_ATTRIBUTE_HANDLE_LIST`, for which copies of the
/// stdio handles are made that can be inherited, and `PROC_THREAD_ATTRIBUTE_JOB_LIST`. A library
/// that the program needs and that is missing shows as an exit code (`0xC0000135`), because it is
/// looked for by the child.
///
/// # Errors
/// [`SpawnError`] names the step that failed and keeps the system's error.
pub fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    imp::spawn(plan)
}

/// For [`UnixOptions::kill_on_parent_exit`].
#[must_use]
pub fn parent_exit() -> ParentExit {
    ParentExit { run: imp::run_forever }
}

/// Whether a program is named by a path, and so not searched for: it has a separator (Windows: `/`,
/// `\`, or the colon of a drive).
#[must_use]
pub fn is_path(program: &OsStr) -> bool {
    imp::is_path(program)
}

/// The directories in which a program without a separator in its name is searched for, in order.
///
/// # Platform
/// Unix: those of the plan's [`Search`]. Windows: as std has it: those of the plan, where it has an
/// environment of its own; that of our own program, the system's, those of our `PATH`. Never the
/// working directory.
pub fn search_dirs(plan: &Plan<'_>) -> impl Iterator<Item = PathBuf> {
    imp::search_dirs(plan)
}

/// How the names of two environment variables stand to each other; equal is the same variable.
///
/// # Platform
/// Unix: byte by byte. Windows: `CompareStringOrdinal`, which takes capital and small letters for
/// the same.
#[must_use]
pub fn compare_names(one: &OsStr, other: &OsStr) -> Ordering {
    names::compare(one, other)
}

/// The variables without which programs do not work, so that a child which inherits no environment
/// has them all the same.
///
/// # Platform
/// Windows: `SystemRoot`, without which neither sockets nor random numbers are to be had
/// (rust-lang/rust#114737). Unix: none.
pub const LASTING_VARIABLES: &[&str] = names::LASTING;

/// Replaces this process by the program of the plan. Returns only if that fails, and then what the
/// plan changed about this process up to the failing step stays changed.
///
/// # Platform
/// Linux: `execve`. macOS: `posix_spawn` with `POSIX_SPAWN_SETEXEC`. Windows has no such call:
/// `Unsupported`.
///
/// # Errors
/// As [`spawn`].
pub fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    imp::exec(plan)
}
