//! Starts a child from a plan.

#[cfg(unix)]
mod layout;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
mod plan;
mod slot;
#[cfg(any(windows, test))]
mod wide;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::cmp::Ordering;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::{fmt, io};

use imp::{start_contained, start_limited};

use super::child::ChildHandle;
use crate::base::generation::PerProcess;

#[cfg(unix)]
pub use layout::PreExec;
#[cfg(unix)]
pub(crate) use layout::UnsetGroups;
#[cfg(target_os = "linux")]
pub(crate) use linux::try_supervisor;
pub use plan::{
    ChildStdio, Credentials, Env, Group, Inherit, ParentExit, Plan, Resource, ResourceLimit,
    Search, StartLimit, UnixOptions, WindowsOptions,
};
pub use slot::{Begun, RequestedStart, TreeSlot};

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
            let _under_way = begin_start();
            imp::spawn(plan)
        }
    }
}

/// Begins a start as [`spawn`] does, and does not wait for another process that starts the child. Nothing has started
/// the child if this is an error.
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
            let _under_way = begin_start();
            imp::spawn(plan).map(Begun::Started)
        }
    }
}

/// True where a process group that holds a tree ends with this process, whatever ends that (see [`Contain::tree`]), and
/// nothing holds trees better.
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
    #[cfg(windows)]
    return windows::compare_names(one, other);
    #[cfg(not(windows))]
    one.cmp(other)
}

/// The variables without which programs do not work. A child that inherits no environment gets them
/// anyway.
///
/// # Platform
/// Windows: `SystemRoot`, without which neither sockets nor random numbers work (rust-lang/rust#114737).
/// Unix: none.
pub const REQUIRED_VARIABLES: &[&str] = if cfg!(windows) { &["SystemRoot"] } else { &[] };

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

/// Refuses a value that no system takes.
fn check_values(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let has_nul = |text: &OsStr| contains(text.as_encoded_bytes(), 0);
    let bad = |input| Err(SpawnError::bad(input));
    let std_rules = plan.unix.std_rules;
    if plan.program.is_empty() {
        // execvp(3) returns this error. (On Windows std refuses an empty name, too.)
        let not_found = SpawnError { step: Step::Exec, source: io::ErrorKind::NotFound.into() };
        return if std_rules && cfg!(unix) { Err(not_found) } else { bad(BadInput::EmptyProgram) };
    }
    if has_nul(plan.program) || plan.arg0.is_some_and(has_nul) {
        return bad(BadInput::NulInProgram);
    }
    if let Some(index) = plan.args.iter().position(|arg| has_nul(arg)) {
        return bad(BadInput::NulInArg(index));
    }
    if let Env::Exactly(variables) = plan.env {
        let is_bad = |(name, value): &(OsString, OsString)| match std_rules {
            true => has_nul(name) || has_nul(value),
            false => is_bad_name(name) || has_nul(value),
        };
        if let Some(index) = variables.iter().position(is_bad) {
            return bad(BadInput::BadVariable(index));
        }
    }
    let dirs = [plan.current_dir, plan.unix.chroot.as_deref()];
    if dirs.iter().flatten().any(|dir| has_nul(dir.as_os_str())) {
        return bad(BadInput::NulInDirectory);
    }
    Ok(())
}

/// Returns true if the text contains the byte. Not inlined: many places call it, and none is time-critical.
#[inline(never)]
fn contains(text: &[u8], byte: u8) -> bool {
    text.contains(&byte)
}

/// Returns true if the name is not valid. It may start with `=`, as std allows, but not contain it
/// elsewhere.
fn is_bad_name(name: &OsString) -> bool {
    let name = name.as_encoded_bytes();
    name.is_empty() || contains(name, 0) || contains(&name[1..], b'=')
}

/// A snapshot of this process's environment, for [`Env::Inherit`].
///
/// # Platform
/// Unix: a copy made by [`std::env::vars_os`]. `environ` itself must not be read while another
/// thread may be in [`std::env::set_var`]: the C library moves and frees the array, std's lock
/// around it is private, and the safety rule of `set_var` allows readers through `std::env` only.
/// The copy keeps the order and keeps duplicates. It lacks entries without a `=` after their first
/// byte, which std does not return.
///
/// Windows: empty. `CreateProcessW` copies the environment itself, under the lock that
/// `SetEnvironmentVariableW` takes.
pub struct EnvSnapshot {
    #[cfg(unix)]
    variables: Vec<(OsString, OsString)>,
}

impl EnvSnapshot {
    /// Takes the snapshot.
    #[must_use]
    pub fn take() -> EnvSnapshot {
        EnvSnapshot {
            #[cfg(unix)]
            variables: std::env::vars_os().collect(),
        }
    }

    /// Returns the `PATH` in the snapshot. With duplicates that is the first, as in getenv(3).
    ///
    /// # Platform
    /// Windows: `None`; the search reads the variable itself.
    #[must_use]
    pub fn search_path(&self) -> Option<&OsStr> {
        let named = |(name, _): &&(OsString, OsString)| name == "PATH";
        self.variables().iter().find(named).map(|(_, value)| value.as_os_str())
    }

    #[cfg(unix)]
    fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    #[cfg(windows)]
    fn variables(&self) -> &[(OsString, OsString)] {
        &[]
    }
}

/// Leaves the values out: they may be secrets.
impl fmt::Debug for EnvSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvSnapshot").finish_non_exhaustive()
    }
}

/// The step at which a start failed, and the system's error.
#[derive(Debug)]
pub struct SpawnError {
    /// The step that failed.
    pub step: Step,
    /// The system's error.
    pub source: io::Error,
}

/// A step between the request for a child and its existence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Checking the plan.
    Check(BadInput),
    /// Creating the child: its stack, its handle, the process itself.
    Create,
    /// Creating the containment of its tree: its cgroup, its supervisor.
    Contain,
    /// Holding the limits of its tree.
    TreeLimits,
    /// Joining or creating its process group or session.
    Group,
    /// Making its terminal its controlling one.
    Terminal,
    /// Setting the resource limit with that index in the plan.
    Limit(usize),
    /// Setting the file mode mask.
    Umask,
    /// Setting the scheduling priority.
    Nice,
    /// Changing the root directory.
    Chroot,
    /// Changing user or groups.
    Identity,
    /// Changing the working directory.
    CurrentDir,
    /// Redirecting its stdin (0), stdout (1) or stderr (2).
    Stdio(u8),
    /// Passing the inherited handle with that index in the plan.
    Inherit(usize),
    /// Closing the handles that it does not inherit.
    CloseOthers,
    /// Making its life depend on this process.
    ParentDeath,
    /// Taking it out of the job that this process is in.
    Breakaway,
    /// Running the closures of `pre_exec`.
    PreExec,
    /// Loading the program.
    Exec,
    /// Learning the result of the start. The command may have run; it does not run on.
    Confirm,
}

/// A value that a plan must not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadInput {
    /// An empty program name.
    EmptyProgram,
    /// A NUL byte in the program's name.
    NulInProgram,
    /// A NUL byte in that argument, counted from 0.
    NulInArg(usize),
    /// An environment variable without a name, with `=` in its name, or with a NUL byte.
    BadVariable(usize),
    /// A NUL byte in the working directory or the root directory.
    NulInDirectory,
    /// The inherited handle with that index is one of the standard three, or has their number.
    InheritIsStdio(usize),
    /// Two inherited handles would have the same number; this is the second.
    InheritTwice(usize),
    /// An argument, counted from 0, for a batch file that `cmd.exe` could interpret as something else.
    BatchArg(usize),
    /// The name of a batch file that `cmd.exe` could interpret as something else.
    BatchName,
    /// `CREATE_SUSPENDED`: the child could not be resumed.
    Suspended,
    /// A child of a [`TreeSlot`] cannot have the option that this setter sets.
    NotInSlot(&'static str),
    /// A limit of the tree that cannot be meant, for this reason.
    TreeLimits(&'static str),
    /// The slot still has a tree.
    SlotInUse,
    /// The slot belongs to the process that this one was forked from.
    SlotOfParent,
}

impl SpawnError {
    fn new(step: Step, source: io::Error) -> SpawnError {
        SpawnError { step, source }
    }

    /// Creates the error of a start whose result is unknown: nobody may start the command again without being told.
    #[cfg(target_os = "linux")]
    fn unknown(source: io::Error) -> SpawnError {
        SpawnError::new(Step::Confirm, source)
    }

    /// Creates the error of a start that was ended at its limit.
    #[cfg(target_os = "linux")]
    fn unanswered() -> SpawnError {
        SpawnError::new(Step::Exec, io::ErrorKind::TimedOut.into())
    }

    /// Creates the error for an option that this system does not have, named by its setter.
    #[cold]
    fn unsupported(option: &str, system: &str) -> SpawnError {
        let message = format!("`{option}` is for {system} only");
        SpawnError::new(Step::Create, io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// Creates the error for a bad input. Not inlined: one copy for the many places that check something.
    #[cold]
    #[inline(never)]
    fn bad(input: BadInput) -> SpawnError {
        SpawnError {
            step: Step::Check(input),
            source: io::Error::new(io::ErrorKind::InvalidInput, input.to_string()),
        }
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadInput::EmptyProgram => f.write_str("the command is empty"),
            BadInput::NulInProgram => f.write_str("NUL byte in the program's name"),
            BadInput::NulInArg(index) => write!(f, "NUL byte in argument {}", index + 1),
            BadInput::BadVariable(_) => {
                f.write_str("an environment variable has no name, = in its name, or a NUL byte")
            }
            BadInput::NulInDirectory => f.write_str("NUL byte in a directory's name"),
            BadInput::InheritIsStdio(index) => {
                write!(f, "inherit[{index}] would replace a standard handle")
            }
            BadInput::InheritTwice(index) => {
                write!(f, "inherit[{index}] has the same number as an earlier entry")
            }
            BadInput::BatchArg(index) => {
                write!(f, "argument {} is not safe for cmd.exe, which runs batch files", index + 1)
            }
            BadInput::NotInSlot(option) => {
                write!(f, "`{option}` is not supported for a command in a tree slot")
            }
            BadInput::TreeLimits(mistake) => f.write_str(mistake),
            BadInput::SlotInUse => {
                f.write_str("the tree slot is in use: wait for its command, and drop its handle")
            }
            BadInput::SlotOfParent => {
                f.write_str("the tree slot belongs to the process that this one was forked from")
            }
            BadInput::Suspended => f.write_str("CREATE_SUSPENDED: the child could not be resumed"),
            BadInput::BatchName => {
                f.write_str("the name of the batch file is not safe for cmd.exe")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Check(input) => input.fmt(f),
            Step::Create => f.write_str("create the process"),
            Step::Group => f.write_str("set its process group or session"),
            Step::Terminal => f.write_str("make its terminal the controlling one"),
            Step::Limit(index) => write!(f, "set resource limit {index}"),
            Step::Umask => f.write_str("set its umask"),
            Step::Nice => f.write_str("set its priority"),
            Step::Chroot => f.write_str("change its root directory"),
            Step::Identity => f.write_str("change its user or groups"),
            Step::CurrentDir => f.write_str("change to its working directory"),
            Step::Stdio(0) => f.write_str("redirect its stdin"),
            Step::Stdio(1) => f.write_str("redirect its stdout"),
            Step::Stdio(_) => f.write_str("redirect its stderr"),
            Step::Inherit(index) => write!(f, "pass it inherit[{index}]"),
            Step::CloseOthers => f.write_str("close the handles that it does not inherit"),
            Step::ParentDeath => f.write_str("make it end with its parent"),
            Step::Breakaway => f.write_str("take it out of this process's job"),
            Step::Contain => f.write_str("contain its process tree"),
            Step::TreeLimits => f.write_str("limit its process tree"),
            Step::PreExec => f.write_str("run its pre_exec closures"),
            Step::Exec => f.write_str("load the program"),
            Step::Confirm => f.write_str("confirm the start"),
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            // The source has the same text.
            Step::Check(_) => self.source.fmt(f),
            step => write!(f, "cannot {step}: {}", self.source),
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The containment to start a child with.
///
/// It refers to the code by a pointer, so that programs which never use it do not contain that code.
#[derive(Debug, Clone, Copy)]
pub struct Contain {
    pub(crate) start: StartFn,
    pub(crate) ends_with_parent: bool,
    /// The limits of a slot's tree.
    pub(crate) slot_limits: Option<imp::SlotLimits>,
}

/// A function that starts a contained child.
pub(crate) type StartFn = fn(&Plan<'_>, ends_with_parent: bool) -> Result<ChildHandle, SpawnError>;

impl Contain {
    /// Contains the child and everything it ever starts. With `ends_with_parent`, the tree ends when this
    /// process does, however that ends.
    ///
    /// # Platform
    /// Linux, best first: a cgroup, a supervisor, a process group; with `ends_with_parent` one of the first
    /// two, or an error.
    ///
    /// macOS has only a process group, so a process that leaves it is out of reach. With `ends_with_parent` the
    /// group also has a guard: a `/bin/sh` that waits for the end of a pipe, which the kernel closes when
    /// this process ends, and then kills the group. The guard runs before the child does. It also kills
    /// what is left of the group when the [`ChildHandle`] of the child is dropped. A fork of this process
    /// that has not executed another program holds the pipe too. If the guard is killed, the group
    /// continues to run. For a child in a session of its own or in another group: `Unsupported`.
    ///
    /// Windows: a job that the child is born in (`PROC_THREAD_ATTRIBUTE_JOB_LIST`), inside any job that
    /// this process is in, with `JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`: it always ends with this process.
    #[must_use]
    pub fn tree(ends_with_parent: bool) -> Contain {
        Contain { start: start_contained, ends_with_parent, slot_limits: None }
    }

    /// Contains the child as [`tree`](Self::tree) does, with the limits of the plan. In a slot, the slot contains it.
    ///
    /// # Platform
    /// Linux: the cgroup of the tree, if the controllers of the limits can be used in cgroup v2; else groups of cgroup
    /// v1, beside the containment. macOS: `Unsupported`. Windows: the limits of the job.
    #[must_use]
    pub fn limited_tree(ends_with_parent: bool) -> Contain {
        let slot_limits = imp::SLOT_LIMITS;
        Contain { start: start_limited, ends_with_parent, slot_limits }
    }
}

// A new process gets a copy of all handles, and closes those that it does not inherit before it executes its program.
// Until then it holds the pipes of other threads open, and their children seem to have left somebody behind. The time
// is short, but has no limit on a busy machine. So the thread waits for a fact: the starts that were under way are
// over.

/// The starts of a process, counted by the epoch in which they began. The next epoch begins once none of the epoch
/// before is left: after two of them, all that were under way are over.
struct Starts {
    epoch: AtomicU64,
    counts: [AtomicUsize; 2],
}

/// A fork has none: the threads that have begun them are not there.
static STARTS: PerProcess<Starts> = PerProcess::new(Starts::new);

impl Starts {
    const fn new() -> Starts {
        Starts { epoch: AtomicU64::new(0), counts: [const { AtomicUsize::new(0) }; 2] }
    }

    fn count(&self, epoch: u64) -> &AtomicUsize {
        &self.counts[usize::from(epoch % 2 == 1)]
    }

    fn begin(&self) -> UnderWay<'_> {
        loop {
            let epoch = self.epoch.load(SeqCst);
            let count = self.count(epoch);
            count.fetch_add(1, SeqCst);
            let under_way = UnderWay(count);
            if self.epoch.load(SeqCst) == epoch {
                return under_way;
            }
            // The epoch has ended without this start, whose drop takes it back.
        }
    }

    /// Begins the next epoch, if it may. Returns the current one.
    fn advance(&self) -> u64 {
        let epoch = self.epoch.load(SeqCst);
        if self.count(epoch + 1).load(SeqCst) == 0 {
            // Ignored: another thread has begun it.
            let _ = self.epoch.compare_exchange(epoch, epoch + 1, SeqCst, SeqCst);
        }
        self.epoch.load(SeqCst)
    }

    fn has_ended(&self, epoch: u64) -> bool {
        // Twice: if nothing is under way, the first look sees it.
        self.advance().max(self.advance()) >= epoch + 2
    }
}

/// A start, until it is dropped.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Records that a start begins.
fn begin_start() -> UnderWay<'static> {
    STARTS.get().begin()
}

/// The starts that were under way at a time, in this process and by this library.
///
/// Starts by other code of the process are not known.
#[derive(Debug)]
pub struct StartsUnderWay {
    epoch: u64,
    /// The processes of the starts that have not executed their programs, once the starts are over.
    leaving: Option<Vec<i32>>,
}

impl StartsUnderWay {
    /// Returns those that are under way now.
    #[must_use]
    pub fn now() -> StartsUnderWay {
        StartsUnderWay { epoch: STARTS.get().epoch.load(SeqCst), leaving: None }
    }

    /// Returns true once all of them are over, and none of their processes holds a handle that it does not inherit.
    ///
    /// # Platform
    /// Linux: the supervisor of a tree executes its program a moment after the start is over.
    #[must_use]
    pub fn are_over(&mut self) -> bool {
        if !STARTS.get().has_ended(self.epoch) {
            return false;
        }
        let now = imp::leaving();
        let leaving = self.leaving.get_or_insert_with(|| now.clone());
        leaving.retain(|process| now.contains(process));
        leaving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_over_once_each_that_was_under_way_is() {
        let starts = Starts::new();
        let now = || starts.epoch.load(SeqCst);
        assert!(starts.has_ended(now()), "none is under way");
        let (first, second) = (starts.begin(), starts.begin());
        let asked = now();
        assert!(!starts.has_ended(asked));
        let third = starts.begin();
        drop(first);
        assert!(!starts.has_ended(asked), "the second is under way");
        drop(second);
        let is_over = starts.has_ended(asked);
        let fourth = starts.begin();
        drop(third);
        assert!(is_over || starts.has_ended(asked), "later starts do not count");
        let asked = now();
        drop(starts.begin());
        assert!(!starts.has_ended(asked), "the fourth is under way, whichever epoch it is in");
        drop(fourth);
        assert!(starts.has_ended(asked));
    }

    #[test]
    fn starts_that_never_pause_are_over_too() {
        let starts = Starts::new();
        let mut before = starts.begin();
        for _ in 0..10 {
            let asked = starts.epoch.load(SeqCst);
            let next = starts.begin();
            assert!(!starts.has_ended(asked));
            drop(std::mem::replace(&mut before, next));
            let mut turns = 0;
            while !starts.has_ended(asked) {
                let next = starts.begin();
                drop(std::mem::replace(&mut before, next));
                turns += 1;
                assert!(turns < 4, "one start is under way at each time, and never the same");
            }
        }
    }
}
