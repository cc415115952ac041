//! The parent's half of a start.

mod clone;
mod contained;
mod raw_syscall;
mod slot;
mod spawner_thread;
mod supervisor_program;

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{io, mem, ptr};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};

use super::layout::{self, AbortOnPanic, Closure, Layout};
use super::{ChildStdio, Group, Inherit, ParentExit, Plan, SpawnError, StartLimit, Step};
use crate::base::generation::PerProcess;
use crate::base::handle::Handle;
use crate::base::poll::poll_again;
use crate::base::signal::{AllBlocked, Signal};
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::child::{ChildHandle, Containment, linux as exit};
use crate::process::nolibc::call;
use crate::process::nolibc::steps::{Move, STOP_PENDING, Stdio, Steps};
use crate::process::nolibc::{number, step, steps as nolibc};
use crate::process::pidfd::open_pidfd;
use crate::process::procfs;
use clone::{ChildSetup, FailureReport, Stack};

pub(super) use super::layout::{is_path, search_dirs};
pub(super) use clone::leaving;
pub(crate) use contained::start_contained;
pub(crate) use contained::{SLOT_LIMITS, SlotLimits, start_limited};
pub(super) use slot::new_slot;
pub(crate) use supervisor_program::try_supervisor;

pub(super) fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    if let Some(contain) = plan.contain {
        return (contain.start)(plan, contain.ends_with_parent);
    }
    let layout = Layout::new(plan)?;
    let lists = Lists::of(plan)?;
    start(&child_setup(plan, &layout, &lists), start_uncontained)
}

/// False: what holds a tree here ends it.
pub(super) const GUARDS_GROUPS: bool = false;

pub(super) fn parent_exit() -> ParentExit {
    ParentExit { run: spawner_thread::run }
}

pub(super) fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    let layout = Layout::new(plan)?;
    let lists = Lists::of(plan)?;
    let setup = child_setup(plan, &layout, &lists);
    let mut locked = plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    // If the exec fails, this process continues with the signal mask that it had.
    let _mask = AllBlocked::new();
    // SAFETY: the setup borrows live data, and this thread is the one that becomes the program.
    unsafe { clone::become_program(&setup, closures) };
    Err(failure(&setup)
        .unwrap_or_else(|| SpawnError::new(Step::Exec, io::Error::from_raw_os_error(libc::ENOENT))))
}

/// The maximum number of attempts if stop signals interrupt a start. Each time this process is stopped and
/// continued first, so only a person, or a storm of signals, can use them up.
const MOST_STOPS: usize = 100;

/// True once a child has been refused a copy of the handles that it shared.
static HANDLES_REFUSED: AtomicBool = AtomicBool::new(false);

/// Starts the child of the setup, and starts it again if a stop interrupts the start. If a child that shared the
/// handles fails, another one gets a copy of all: a path may name one of them (`/proc/self/fd/7`).
fn start<T>(
    setup: &ChildSetup<'_>,
    once: impl Fn(&ChildSetup<'_>) -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let mut stops = 0;
    let mut may_share = setup.close_others
        && setup.needs_no_handles()
        && !HANDLES_REFUSED.load(Relaxed)
        && !is_forced(Forced::NoSharedMemory);
    let mut may_close = setup.close_others && !setup.names_handle;
    loop {
        setup.reset(stops < MOST_STOPS, may_share, may_close);
        let done = once(setup);
        let errno = done.as_ref().err().and_then(|error| error.source.raw_os_error());
        match errno {
            Some(STOP_PENDING) => stops += 1,
            Some(errno) if setup.shares_handles.load(Relaxed) => {
                (may_share, may_close) = (false, false);
                if errno == clone::HANDLES_SHARED {
                    HANDLES_REFUSED.store(true, Relaxed);
                }
            }
            // A link may lead to one of the handles. Not in groups, which the supervisor has removed with its attempt.
            Some(libc::ENOENT)
                if may_close
                    && setup.cgroup.is_none()
                    && setup.steps.groups.is_empty()
                    && setup.failed_step.load(Relaxed) == step::EXEC =>
            {
                may_close = false;
            }
            _ => return done,
        }
    }
}

/// Starts a child of this process.
fn start_uncontained(setup: &ChildSetup<'_>) -> Result<ChildHandle, SpawnError> {
    let Some(thread) = setup.options.kill_on_parent_exit else {
        return start_on_this_thread(setup);
    };
    // The kernel takes the *thread* as the parent (prctl(2), PR_SET_PDEATHSIG).
    let mut started = None;
    (thread.run)(&mut || started = Some(start_on_this_thread(setup)))
        .and_then(|()| {
            started.ok_or_else(|| io::Error::other("the thread that starts children has failed"))
        })
        .map_err(|error| SpawnError::new(Step::ParentDeath, error))?
}

fn start_on_this_thread(setup: &ChildSetup<'_>) -> Result<ChildHandle, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let _dumpable = setup.changes_identity().then(DumpableGuard::new);
    let mut hooks = setup.options.pre_exec.lock();
    let mut pipe = ErrorPipe::new(setup, hooks.is_some());
    // A system that gives the child a copy of the memory may do anything with the handles.
    let shares_handles = setup.may_share_handles.load(Relaxed) && matches!(pipe, ErrorPipe::None);
    setup.shares_handles.store(shares_handles, Relaxed);
    let mut create = || match &mut hooks {
        None => Stack::take().and_then(|stack| clone::create(setup, &stack)),
        Some(hooks) => (hooks.fork)(setup, &mut hooks.closures).map(|pid| (pid, None)),
    };
    let mut created = create();
    if created.as_ref().is_err_and(|error| pipe.gives_way(setup, error)) {
        created = create();
    }
    let (pid, pidfd) = created.map_err(create_error)?;
    // Without one, the child is known by its number.
    let pidfd = pidfd.or_else(|| open_pidfd(pid).ok().flatten());
    let watch = StopWatch::new(pid, pidfd.as_ref().map(AsRawFd::as_raw_fd));
    let mut exit = ChildHandle(exit::ChildHandle::new(pid, pidfd));
    if matches!(setup.options.group, Group::Own | Group::Session) {
        exit.0.containment = Containment::Group;
    }
    let finished = pipe.finish(setup, watch);
    if finished.is_err() {
        // The result of the start is unknown, so the child must not run. Ignored: it has ended on its own.
        let _ = exit.signal(Signal::KILL);
    }
    match finished.map_err(SpawnError::unknown).err().or_else(|| failure(setup)) {
        None => Ok(exit),
        Some(error) => {
            // It has exited; leave no zombie. One that the kernel does not end now is left. Ignored: it has been
            // reaped elsewhere.
            let _ = if setup.is_stuck.load(Relaxed) {
                exit.try_wait().map(drop)
            } else {
                exit.wait().map(drop)
            };
            Err(error)
        }
    }
}

fn failure(setup: &ChildSetup<'_>) -> Option<SpawnError> {
    match setup.errno.load(Relaxed) {
        0 => None,
        clone::UNANSWERED => Some(SpawnError::unanswered()),
        errno => Some(SpawnError::new(
            layout::step_of(setup.failed_step.load(Relaxed)),
            io::Error::from_raw_os_error(errno),
        )),
    }
}

/// Returns true if a path goes through a folder of handles, as `/proc/self/fd/7` and `/dev/fd/7` do.
fn names_handle(path: &(impl AsRef<OsStr> + ?Sized)) -> bool {
    let mut folders = path.as_ref().as_bytes().split(|byte| *byte == b'/');
    folders.any(|name| name == b"fd")
}

fn child_setup<'a>(plan: &'a Plan<'a>, layout: &'a Layout, lists: &'a Lists) -> ChildSetup<'a> {
    let unix = plan.unix;
    let steps = Steps {
        default_signals: default_signals(plan),
        ignores_sigchld: Cell::new(false),
        groups: &[],
        group: match unix.group {
            Group::Same => nolibc::Group::Same,
            Group::Own => nolibc::Group::Own,
            Group::Join(group) => nolibc::Group::Join(group),
            Group::Session => nolibc::Group::Session,
        },
        own_terminal: own_terminal(plan).map(AsRawFd::as_raw_fd),
        foreground: plan
            .foreground
            .filter(|_| unix.group == Group::Own)
            .map(|foreground| foreground.terminal().as_raw_fd()),
        host_dir: None,
        stdio: plan.stdio.map(|stdio| match stdio {
            ChildStdio::Inherit => Stdio::Kept,
            ChildStdio::Handle(handle) => Stdio::From(handle.as_raw_fd()),
        }),
        moves: &lists.moves,
        limits: &lists.limits,
        umask: unix.umask,
        nice: unix.nice,
        current_dir: layout.current_dir(),
        argv: layout.argv(),
        envp: layout.envp(),
        candidates: layout.candidate_list(),
        searches: !is_path(plan.program),
        mask: if unix.std_rules { nolibc::own_mask() } else { 0 },
        may_retry: Cell::new(false),
        shares_memory: Cell::new(false),
    };
    ChildSetup {
        steps,
        close_others: matches!(plan.inherit, Inherit::List(_)),
        options: unix,
        unset_groups: unix.unset_groups(),
        chroot: layout.chroot(),
        cgroup: None,
        cgroup_procs: None,
        parent_pid: match unix.kill_on_parent_exit {
            Some(_) => std::process::id() as i32,
            None => 0,
        },
        failed_step: AtomicU32::new(0),
        errno: AtomicI32::new(0),
        has_begun: AtomicBool::new(false),
        is_stuck: AtomicBool::new(false),
        report_to: AtomicI32::new(-1),
        may_share_handles: AtomicBool::new(false),
        names_handle: names_handle(plan.program) || plan.current_dir.is_some_and(names_handle),
        may_close_early: AtomicBool::new(false),
        shares_handles: AtomicBool::new(false),
    }
}

/// Returns the set of signals that get their default action.
fn default_signals(plan: &Plan<'_>) -> u64 {
    let signals = plan.unix.default_signals.iter().map(|signal| signal.number());
    // Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop when its reader is gone
    // (rust-lang/rust#62569).
    let pipe = (!plan.unix.keeps_ignored_pipe).then_some(libc::SIGPIPE);
    signals.chain(pipe).fold(0, |set, signal| set | nolibc::bit(signal as usize))
}

/// Returns the terminal that the child takes. Only a session can take one.
fn own_terminal<'a>(plan: &Plan<'a>) -> Option<&'a Handle> {
    plan.terminal.filter(|_| plan.unix.group == Group::Session)?.handle()
}

/// The lists of a plan as the child reads them. Usually empty, and then without an allocation.
struct Lists {
    /// The inherited handles, with their numbers in the child.
    moves: Vec<Move>,
    /// The resource limits, each three words.
    limits: Vec<u64>,
}

impl Lists {
    fn of(plan: &Plan<'_>) -> Result<Lists, SpawnError> {
        let list = plan.inherit.list();
        layout::check_numbers(list)?;
        let place =
            |entry: &(Handle, _)| Move::new(entry.0.as_raw_fd(), layout::number_in_child(entry));
        Ok(Lists { moves: list.iter().map(place).collect(), limits: limits(plan).collect() })
    }
}

/// Returns the resource limits of a plan, each three words: resource, soft, hard.
fn limits<'a>(plan: &Plan<'a>) -> impl Iterator<Item = u64> + use<'a> {
    const NO_LIMIT: u64 = libc::RLIM64_INFINITY;
    plan.unix.limits.iter().flat_map(|limit| {
        let number = u64::from(limit.resource.number());
        [number, limit.soft.unwrap_or(NO_LIMIT), limit.hard.unwrap_or(NO_LIMIT)]
    })
}

/// Takes ownership of the pidfd that `CLONE_PIDFD` wrote.
fn own_pidfd(raw: RawFd) -> Option<OwnedFd> {
    // SAFETY: the kernel made the descriptor for this call, and it is owned nowhere else.
    (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}

// A pipe through which a child that does not share the parent's memory reports its error.
//
// A child with closures is forked. Besides, an emulator may turn a vfork into a plain fork (qemu-user,
// valgrind): then the child writes its result into a copy, and the parent does not wait for the exec
// either. So until a start has shown that memory is shared here, each start has a pipe that the exec
// closes.

/// True once a child has been seen to write to the parent's memory.
static MEMORY_IS_SHARED: AtomicBool = AtomicBool::new(false);

/// The pipe for the report of a child that does not share the parent's memory.
enum ErrorPipe {
    /// Not needed.
    None,
    Ends(OwnedFd, OwnedFd),
    /// Could not be created.
    Failed(Errno),
}

impl ErrorPipe {
    /// Creates the pipe for a setup, if it may be needed.
    fn new(setup: &ChildSetup<'_>, is_forked: bool) -> ErrorPipe {
        if !is_forked && MEMORY_IS_SHARED.load(Ordering::Relaxed) {
            return ErrorPipe::None;
        }
        match ends(setup) {
            Ok((read, write)) => {
                setup.report_to.store(write.as_raw_fd(), Ordering::Relaxed);
                ErrorPipe::Ends(read, write)
            }
            Err(error) => ErrorPipe::Failed(error),
        }
    }

    /// Gives its handles up if the start has found none: it is needed only where memory is not shared. Returns true if
    /// it has.
    fn gives_way(&mut self, setup: &ChildSetup<'_>, error: &io::Error) -> bool {
        match (&self, Errno::from_io_error(error)) {
            (ErrorPipe::Ends(..), Some(errno @ (Errno::MFILE | Errno::NFILE))) => {
                setup.report_to.store(-1, Ordering::Relaxed);
                *self = ErrorPipe::Failed(errno);
                true
            }
            _ => false,
        }
    }

    /// Copies the child's report into the setup, once the child has been created.
    ///
    /// # Errors
    /// The result of the start is unknown.
    fn finish(self, setup: &ChildSetup<'_>, mut watch: StopWatch) -> io::Result<()> {
        if setup.has_begun.load(Ordering::Relaxed) {
            MEMORY_IS_SHARED.store(true, Ordering::Relaxed);
            return Ok(());
        }
        match self {
            // The child was killed before its first instruction.
            ErrorPipe::None => Ok(()),
            ErrorPipe::Failed(error) => Err(error.into()),
            ErrorPipe::Ends(read, write) => {
                drop(write);
                while setup.changes_identity() && !is_readable(&read) && !watch.has_ended() {}
                let mut report = [0; size_of::<FailureReport>()];
                // The pipe ends with the exec, or with the child. An incomplete report counts as none.
                let count = retry_on_intr(|| rustix::io::read(&read, &mut report))?;
                if count == report.len() {
                    setup.record(report);
                }
                Ok(())
            }
        }
    }
}

/// Waits a moment for a report, or for the end of the pipe. An error is for the read.
fn is_readable(read: &OwnedFd) -> bool {
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE_NANOS };
    let mut polled = [PollFd::new(read, PollFlags::IN)];
    !matches!(poll_again(&mut polled, Some(&pause)), Ok(0) | Err(Errno::INTR))
}

/// Creates the ends, with numbers that no handle will be placed under and that the setup does not name. A
/// handle that other code has closed is an error, and must not be confused with one of these.
fn ends(setup: &ChildSetup<'_>) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let is_named = |fd: RawFd| {
        let is_moved = setup.steps.moves.iter().any(|place| place.from == fd || place.to == fd);
        let is_source = |stdio: &Stdio| matches!(stdio, Stdio::From(source) if *source == fd);
        fd <= libc::STDERR_FILENO || is_moved || setup.steps.stdio.iter().any(is_source)
    };
    let move_away = |mut end: OwnedFd| {
        while is_named(end.as_raw_fd()) {
            end = rustix::io::fcntl_dupfd_cloexec(&end, end.as_raw_fd() + 1)?;
        }
        Ok(end)
    };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((move_away(read)?, move_away(write)?))
}

// A child that another user stops between its change of user and its exec.
//
// From that change on, the new user may send the child signals, and SIGSTOP cannot be blocked. Its parent would sleep
// until the exec for as long as that user likes, deaf to every timeout. So the start of a child that changes its user
// waits in slices, and looks at the child between two of them. So does a start with a limit: its file or its directory
// may never answer.

/// The time between two looks: most starts are over before the first.
const PAUSE_NANOS: i64 = 5_000_000;
/// The number of looks that find the child stopped, before it is killed: a tenth of a second.
const MOST_STOPPED_LOOKS: u32 = 20;
/// The longest time between two looks at a child that waits for a file.
const LONGEST_PAUSE_NANOS: i64 = 80_000_000;
/// The number of looks at a killed child, before it is left: a second. The kernel does not end it now, and it runs
/// nothing.
const KILLED_LOOKS: u32 = 200;

/// The way in which a child has left this process's memory.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// By its exec, or by its end.
    ByItself,
    /// By a kill before its exec, at the limit of the start.
    Killed,
    /// It was killed too, and has not ended.
    Stuck,
}

/// A child of this process that has not executed its program yet.
struct StopWatch {
    pid: i32,
    pidfd: Option<RawFd>,
    stops: u32,
}

impl StopWatch {
    fn new(pid: i32, pidfd: Option<RawFd>) -> StopWatch {
        StopWatch { pid, pidfd, stops: 0 }
    }

    /// Waits until the child has executed its program or has ended: the kernel clears that word then, and wakes this
    /// process (`CLONE_CHILD_CLEARTID`). At the limit, kills a child that has not executed it.
    fn wait_until_zero(mut self, word: &AtomicI32, limit: Option<&StartLimit>) -> Left {
        let since = limit.map(|_| Instant::now());
        let is_over = || match (limit, since) {
            (Some(StartLimit::Time(limit)), Some(since)) => since.elapsed() >= *limit,
            (Some(StartLimit::Flag(flag)), _) => flag.load(Relaxed),
            _ => false,
        };
        let mut pause = PAUSE_NANOS;
        while !self.has_left(word, pause) {
            if is_over() {
                return self.kill(word);
            }
            if limit.is_some() {
                pause = (pause * 2).min(LONGEST_PAUSE_NANOS);
            }
        }
        Left::ByItself
    }

    /// Waits for one pause. Returns true if the child has left this process's memory.
    fn has_left(&mut self, word: &AtomicI32, pause: i64) -> bool {
        const FUTEX_WAIT: usize = 0;
        let pause = [0, pause];
        loop {
            let value = word.load(Ordering::Acquire);
            if value == 0 {
                return true;
            }
            let (place, time) = (ptr::from_ref(word) as usize, pause.as_ptr() as usize);
            let wait = [place, FUTEX_WAIT, value as usize, time, 0, 0];
            if call(libc::SYS_futex as usize, wait) == -(libc::ETIMEDOUT as isize) {
                // Some kernels do not clear the word of a child that dumps core.
                return self.has_ended();
            }
        }
    }

    /// Kills the child, unless it has executed its program.
    fn kill(mut self, word: &AtomicI32) -> Left {
        // From now on it runs nothing of a program, which it may be about to execute.
        self.signal(libc::SIGSTOP);
        if word.load(Ordering::Acquire) == 0 {
            self.signal(libc::SIGCONT);
            return Left::ByItself;
        }
        self.signal(libc::SIGKILL);
        match (0..KILLED_LOOKS).any(|_| self.has_left(word, PAUSE_NANOS)) {
            true => Left::Killed,
            false => Left::Stuck,
        }
    }

    /// Looks at the child. If it is stopped, continues it; if it is so again and again, kills it. Returns true if it
    /// has ended.
    fn has_ended(&mut self) -> bool {
        const P_PID: usize = 1;
        const P_PIDFD: usize = 3;
        const OPTIONS: libc::c_int =
            libc::WNOHANG | libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
        let mut info = [0_i32; 32];
        let place = info.as_mut_ptr() as usize;
        let look = |kind, number| {
            call(number::WAITID, [kind, number as usize, place, OPTIONS as usize, 0, 0])
        };
        let looked = match self.pidfd {
            Some(pidfd) => look(P_PIDFD, pidfd),
            None => look(P_PID, self.pid),
        };
        // After its number and an error number.
        let [_, _, code, ..] = info;
        match (looked, code) {
            (0, libc::CLD_STOPPED) => {
                self.stops += 1;
                self.signal(if self.stops > MOST_STOPPED_LOOKS {
                    libc::SIGKILL
                } else {
                    libc::SIGCONT
                });
                false
            }
            (0, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => true,
            // Other code of this process has reaped it.
            _ => looked == -(libc::ECHILD as isize),
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // Ignored: it has ended, or this process has given up the right to.
        let _ = match self.pidfd {
            Some(pidfd) => {
                let arguments = [pidfd as usize, signal as usize, 0, 0, 0, 0];
                call(libc::SYS_pidfd_send_signal as usize, arguments)
            }
            None => call(number::KILL, [self.pid as usize, signal as usize, 0, 0, 0, 0]),
        };
    }
}

// Creates a child by `fork(2)`, for `pre_exec` closures: they may do things that a process which shares
// the parent's memory must not do.
//
// The child reports its failure through a pipe, because its memory is a copy. This calls
// the C library's `fork`, not the system call, so that the library's own state and that of
// `pthread_atfork` are consistent if a closure allocates.

/// A function that forks a child, which runs the closures, and returns the child's pid.
pub(super) type Fork = fn(&ChildSetup<'_>, &mut Vec<Closure>) -> io::Result<i32>;

pub(super) const FORK: Fork = fork;

#[expect(
    clippy::disallowed_methods,
    reason = "only fork leaves a process in which a closure can be run"
)]
fn fork(setup: &ChildSetup<'_>, closures: &mut Vec<Closure>) -> io::Result<i32> {
    // Without this, a signal that arrived in the child before its handlers are reset would run a handler of
    // the parent.
    let _blocked = AllBlocked::new();
    // SAFETY: the child runs only the code of this module, and never returns from here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: this is the child.
        0 => unsafe { run_forked_child(setup, closures) },
        pid => Ok(pid),
    }
}

/// Runs in the child and never returns.
///
/// # Safety
/// Call this only in a forked process. `setup`'s pointers must be valid.
unsafe fn run_forked_child(setup: &ChildSetup<'_>, closures: &mut [Closure]) -> ! {
    let no_unwinding = AbortOnPanic;
    // SAFETY: as this function's.
    unsafe { clone::run_forked(setup, closures) };
    mem::forget(no_unwinding);
    // SAFETY: ends this process without touching the parent's resources (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

// Keeps this process dumpable while children change their user.
//
// A change of user makes a process undumpable (prctl(2), PR_SET_DUMPABLE). That flag belongs to the
// memory, which a child still shares with this process. Without this, the first child that gets
// another user would end this process's core dumps and make root the owner of its `/proc/self`.
//
// The flag is restored when no child shares the memory any more, and not before: another user
// could trace a child that runs as that user, and so read this process's memory. A start that hangs delays
// the restoration of the flag, but no other start.

static STARTS: PerProcess<Mutex<Starts>> = PerProcess::new(|| Mutex::new(Starts::NONE));

/// The starts in progress.
struct Starts {
    count: usize,
    /// The flag before the first of them.
    was_dumpable: bool,
}

impl Starts {
    const NONE: Starts = Starts { count: 0, was_dumpable: false };

    fn begin(&mut self, flag: impl FnOnce() -> Flag) {
        if self.count == 0 {
            self.was_dumpable = flag() == DUMPABLE;
        }
        self.count += 1;
    }

    /// Ends a start. Returns true if the flag has to be restored.
    fn end(
        &mut self,
        flag: impl FnOnce() -> Flag,
        is_by_change_of_user: impl FnOnce(Flag) -> bool,
    ) -> bool {
        self.count = self.count.saturating_sub(1);
        if self.count > 0 || !self.was_dumpable {
            return false;
        }
        match flag() {
            DUMPABLE => false,
            // If a change of user gives another value, other code of this program has set it.
            flag => is_by_change_of_user(flag),
        }
    }
}

/// A value of `PR_GET_DUMPABLE`.
type Flag = i32;

const DUMPABLE: Flag = 1;

/// A start in progress. The drop of the last one restores the flag.
struct DumpableGuard(());

impl DumpableGuard {
    fn new() -> DumpableGuard {
        starts().begin(flag);
        DumpableGuard(())
    }
}

impl Drop for DumpableGuard {
    fn drop(&mut self) {
        // By now the child has its own memory, or has ended. Under the lock, because the next start has to
        // find the original flag.
        let mut starts = starts();
        if starts.end(flag, is_by_change_of_user) {
            // SAFETY: numbers; 1 is always allowed.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, DUMPABLE) };
        }
    }
}

/// Locks the starts, for a few calls only, never for a whole start.
fn starts() -> MutexGuard<'static, Starts> {
    STARTS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn flag() -> Flag {
    // SAFETY: reads only.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }
}

/// Returns true if a change of user sets the flag to that value. The value is `fs.suid_dumpable`: 0, or 2
/// if a collector of core dumps has set that. It is read again only if the flag differs from the last one.
fn is_by_change_of_user(flag: Flag) -> bool {
    static LAST: AtomicI32 = AtomicI32::new(-1);
    if LAST.load(Ordering::Relaxed) == flag {
        return true;
    }
    let Ok(text) = procfs::read("/proc/sys/fs/suid_dumpable") else {
        // The default; read again next time.
        return flag == 0;
    };
    let number = procfs::words(&text).next().and_then(procfs::number);
    let now = number.and_then(|number| Flag::try_from(number).ok()).unwrap_or(0);
    LAST.store(now, Ordering::Relaxed);
    now == flag
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_child_that_is_stopped_goes_on_and_one_that_stays_so_is_killed() {
        // It stops itself before and after each look.
        let mut child = Command::new("sh");
        child.args(["-c", "kill -STOP $$; exec sh -c 'while :; do kill -STOP $$; done'"]);
        let mut child = child.spawn().unwrap();
        let word = AtomicI32::new(1);
        StopWatch::new(child.id() as i32, None).wait_until_zero(&word, None);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let mut child = Command::new("sh").args(["-c", "kill -STOP $$; exit 7"]).spawn().unwrap();
        StopWatch::new(child.id() as i32, None).wait_until_zero(&word, None);
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn a_child_without_its_program_is_killed_at_the_limit_of_its_start_and_another_is_not() {
        let flag = Arc::new(AtomicBool::new(true));
        for limit in [StartLimit::Time(Duration::from_millis(20)), StartLimit::Flag(flag)] {
            let mut child = Command::new("sleep").arg("600").spawn().unwrap();
            let watch = || StopWatch::new(child.id() as i32, None);
            // It has not left: the word keeps its value.
            let left = watch().wait_until_zero(&AtomicI32::new(1), Some(&limit));
            assert_eq!(left, Left::Killed, "{limit:?}");
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
        let mut child = Command::new("sh");
        child.args(["-c", "read line; exit 7"]);
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        // It executes its program at the very moment.
        let left = StopWatch::new(child.id() as i32, None).kill(&AtomicI32::new(0));
        assert_eq!(left, Left::ByItself);
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(7), "it goes on");
    }

    #[test]
    fn a_wait_ends_with_the_word() {
        // Its value for ever: only a child of this process is looked at.
        StopWatch::new(0, None).wait_until_zero(&AtomicI32::new(0), None);
    }

    #[test]
    fn last_start_restores_the_dumpable_flag() {
        let mut starts = Starts::NONE;
        starts.begin(|| DUMPABLE);
        // The first one's change of user has made it undumpable.
        starts.begin(|| unreachable!("asked once"));
        assert!(!starts.end(|| 0, |flag| flag == 0), "the other one's child shares the memory");
        assert!(starts.end(|| 0, |flag| flag == 0));
        starts.begin(|| 0);
        assert!(!starts.end(|| 0, |flag| flag == 0), "it was not dumpable before");
    }

    #[test]
    fn a_flag_set_by_other_code_is_kept() {
        let mut starts = Starts::NONE;
        starts.begin(|| DUMPABLE);
        assert!(!starts.end(|| 0, |flag| flag == 2), "a change of user would have made it 2");
        starts.begin(|| DUMPABLE);
        assert!(starts.end(|| 2, |flag| flag == 2));
        starts.begin(|| DUMPABLE);
        assert!(!starts.end(|| DUMPABLE, |flag| flag == 0), "no child has changed its user");
    }
}
