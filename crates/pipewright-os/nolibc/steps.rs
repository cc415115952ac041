//! The steps of a start from clone to exec, the same for a child of this library and for a command of the supervisor;
//! and the raw system calls that they are made of.
//!
//! The parts of one side alone stand with it: the host changes the root directory, the user and the groups, runs
//! closures, and closes handles (`start/linux/clone.rs`). The supervisor reads the steps from a plan
//! (`supervisor/start.rs`).

use core::cell::Cell;
use core::ffi::{c_char, c_int};

use super::step;

/// Everything that the steps need, made before the process exists.
pub(crate) struct Steps<'a> {
    /// The set of signals that get their default action.
    pub(crate) default_signals: u64,
    /// True if SIGCHLD was ignored in the process that the child comes from, and no longer is in its parent.
    pub(crate) ignores_sigchld: Cell<bool>,
    /// The control groups that it joins, each by its open `cgroup.procs`, for the limits of its tree.
    pub(crate) groups: &'a [i32],
    pub(crate) group: Group,
    /// The terminal that becomes the controlling one of its session.
    pub(crate) own_terminal: Option<i32>,
    /// The terminal on which its group becomes the foreground job.
    pub(crate) foreground: Option<i32>,
    /// The working directory that it would have had without a supervisor, as a handle.
    pub(crate) host_dir: Option<i32>,
    pub(crate) stdio: [Stdio; 3],
    pub(crate) moves: &'a [Move],
    /// The resource limits, each three words: resource, soft, hard.
    pub(crate) limits: &'a [u64],
    pub(crate) umask: Option<u32>,
    pub(crate) nice: Option<i32>,
    /// A string, or null.
    pub(crate) current_dir: *const c_char,
    /// Arrays of strings that end with null.
    pub(crate) argv: *const *const c_char,
    pub(crate) envp: *const *const c_char,
    /// The paths to try, up to the first null.
    pub(crate) candidates: &'a [*const c_char],
    /// True if the candidates come from a search, false if they are the one given path.
    pub(crate) searches: bool,
    /// The set of signals that are blocked in the program.
    pub(crate) mask: u64,
    /// True if the parent will start another child when this one reports [`STOP_PENDING`].
    pub(crate) may_retry: Cell<bool>,
    /// True if this process has its parent's memory. A core dump would be one of it.
    pub(crate) shares_memory: Cell<bool>,
}

/// The process group of the child.
#[derive(Clone, Copy)]
pub(crate) enum Group {
    Same,
    Own,
    Join(i32),
    Session,
}

/// One of the child's standard handles.
#[derive(Clone, Copy)]
pub(crate) enum Stdio {
    /// The parent's.
    Kept,
    /// None, as in the host.
    Closed,
    /// A copy of that handle.
    From(i32),
}

/// A handle for the child, and its number in the child.
pub(crate) struct Move {
    pub(crate) from: i32,
    pub(crate) to: i32,
    /// The child's copy of it, away from the target numbers; `from` stays unchanged, for another attempt.
    moved: Cell<i32>,
}

impl Move {
    pub(crate) fn new(from: i32, to: i32) -> Move {
        Move { from, to, moved: Cell::new(from) }
    }
}

/// The step that failed, and its error number.
pub(crate) type Failed = (u32, i32);

/// A substitute for an error number: a stop signal is pending, and the parent, which has to stop as well, must return
/// from its sleep first; or one that would dump the parent's memory.
pub(crate) const STOP_PENDING: i32 = i32::MAX;

const AT_FDCWD: usize = -100_isize as usize;
/// The lowest number that no standard handle has.
const FIRST_OTHER: i32 = 3;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;

const SIGCHLD: usize = 17;

/// Does all steps up to the change of the user. `cgroup` is the open `cgroup.procs` of the tree, with the step of its
/// failure, if this process was not born in that cgroup.
pub(crate) fn enter(steps: &Steps<'_>, cgroup: Option<(i32, u32)>) -> Result<(), Failed> {
    each(steps.default_signals, |signal| _ = set_handler(signal, DEFAULT));
    if steps.ignores_sigchld.get() {
        set_handler(SIGCHLD, IGNORED);
    }
    if let Some((procs, failed_step)) = cgroup {
        join_cgroup(procs, failed_step)?;
    }
    for procs in steps.groups {
        join_cgroup(*procs, step::TREE_LIMITS)?;
    }
    join_group(steps.group)?;
    if let Some(terminal) = steps.own_terminal {
        const TIOCSCTTY: usize = 0x540e;
        // 0 does not take the terminal from another session.
        check(call(number::IOCTL, [terminal as usize, TIOCSCTTY, 0, 0, 0, 0]), step::TERMINAL)?;
    }
    if let Some(terminal) = steps.foreground {
        become_foreground(terminal);
    }
    if let Some(dir) = steps.host_dir {
        check(call(number::FCHDIR, [dir as usize, 0, 0, 0, 0, 0]), step::CURRENT_DIR)?;
    }
    move_sources_away(steps.moves)?;
    place_stdio(steps.stdio)?;
    for (index, place) in steps.moves.iter().enumerate() {
        place_one(place.moved.get(), place.to, step::with_index(step::INHERIT, index))?;
    }
    set_limits(steps.limits)?;
    if let Some(mask) = steps.umask {
        call(number::UMASK, [mask as usize, 0, 0, 0, 0, 0]);
    }
    steps.nice.map_or(Ok(()), add_nice)
}

/// Enters the working directory. After the change of the user, as in std: that user must be allowed to enter it.
pub(crate) fn enter_directory(steps: &Steps<'_>) -> Result<(), Failed> {
    if steps.current_dir.is_null() {
        return Ok(());
    }
    check(call(number::CHDIR, [steps.current_dir as usize, 0, 0, 0, 0, 0]), step::CURRENT_DIR)
}

/// Moves this process into a cgroup.
fn join_cgroup(procs: i32, failed_step: u32) -> Result<(), Failed> {
    // 0 means the writing process itself (cgroups(7)).
    let result = call(number::WRITE, [procs as usize, b"0".as_ptr() as usize, 1, 0, 0, 0]);
    check(result, failed_step)
}

fn join_group(group: Group) -> Result<(), Failed> {
    let result = match group {
        Group::Same => 0,
        Group::Own => call(number::SETPGID, [0; 6]),
        Group::Join(id) => call(number::SETPGID, [0, id as usize, 0, 0, 0, 0]),
        Group::Session => call(number::SETSID, [0; 6]),
    };
    check(result, step::GROUP)
}

/// Makes the group that this process leads the foreground group of the terminal. SIGTTOU, which would stop
/// a background job, is blocked until exec.
fn become_foreground(terminal: i32) {
    const TIOCSPGRP: usize = if cfg!(target_arch = "powerpc64") { 0x8004_7476 } else { 0x5410 };
    let group = own_pid();
    // Ignored: the terminal has hung up, and the child will notice that.
    call(number::IOCTL, [terminal as usize, TIOCSPGRP, &raw const group as usize, 0, 0, 0]);
}

/// Moves sources away from the numbers that will be assigned: 0 to 2, and each other's targets.
fn move_sources_away(moves: &[Move]) -> Result<(), Failed> {
    for (index, place) in moves.iter().enumerate() {
        let from = place.from;
        place.moved.set(from);
        let is_target = |fd: i32| moves.iter().any(|other| other.to == fd);
        if from >= FIRST_OTHER && (from == place.to || !is_target(from)) {
            continue;
        }
        // Take the lowest free number that is not a target. The copies in between stay open until exec, so
        // that no number is offered twice.
        let mut copy = from;
        loop {
            copy = duplicate(copy, step::with_index(step::INHERIT, index))?;
            if !is_target(copy) {
                break;
            }
        }
        place.moved.set(copy);
    }
    Ok(())
}

fn place_stdio(mut sources: [Stdio; 3]) -> Result<(), Failed> {
    for (target, source) in sources.iter_mut().enumerate() {
        // A parent with closed standard handles gets pipes numbered 0 to 2, and dup2 in order would
        // overwrite one before it is used (oven-sh/bun#41751).
        match source {
            Stdio::From(fd) if *fd < FIRST_OTHER && *fd != target as i32 => {
                *fd = duplicate(*fd, step::with_index(step::STDIO, target))?;
            }
            _ => {}
        }
    }
    for (target, source) in sources.into_iter().enumerate() {
        match source {
            Stdio::Kept => {}
            Stdio::Closed => _ = call(number::CLOSE, [target, 0, 0, 0, 0, 0]),
            Stdio::From(fd) => {
                place_one(fd, target as i32, step::with_index(step::STDIO, target))?;
            }
        }
    }
    Ok(())
}

/// Makes `to` a copy of `from` that survives exec.
fn place_one(from: i32, to: i32, failed_step: u32) -> Result<(), Failed> {
    let result = if from == to {
        const F_SETFD: usize = 2;
        // A copy of a descriptor onto itself would leave it close-on-exec.
        call(number::FCNTL, [from as usize, F_SETFD, 0, 0, 0, 0])
    } else {
        call(number::DUP3, [from as usize, to as usize, 0, 0, 0, 0])
    };
    check(result, failed_step)
}

fn duplicate(fd: i32, failed_step: u32) -> Result<i32, Failed> {
    const F_DUPFD_CLOEXEC: usize = 1030;
    let lowest = FIRST_OTHER as usize;
    let copy = call(number::FCNTL, [fd as usize, F_DUPFD_CLOEXEC, lowest, 0, 0, 0]);
    check(copy, failed_step).map(|()| copy as i32)
}

fn set_limits(limits: &[u64]) -> Result<(), Failed> {
    for (index, limit) in limits.chunks_exact(3).enumerate() {
        if let [resource, values @ ..] = limit {
            let place = values.as_ptr() as usize;
            let result = call(number::PRLIMIT64, [0, *resource as usize, place, 0, 0, 0]);
            check(result, step::with_index(step::LIMIT, index))?;
        }
    }
    Ok(())
}

fn add_nice(add: i32) -> Result<(), Failed> {
    // The call returns 20 minus the niceness, so that no result looks like an error (getpriority(2)).
    let raw = call(number::GETPRIORITY, [0; 6]) as i32;
    let nice = (20 - raw).saturating_add(add);
    // The kernel limits it to -20..19.
    check(call(number::SETPRIORITY, [0, 0, nice as isize as usize, 0, 0, 0]), step::NICE)
}

/// Executes the first candidate that can be executed, in the way execvp(3) goes through PATH. Returns the most
/// informative error, or [`STOP_PENDING`] if the attempt has to be repeated.
///
/// Signals are unblocked only at the last moment: a stop that arrived before exec would stop this process with its
/// parent still asleep, and the two would hold the terminal for ever (nextest-rs/nextest#470). A core dump would be one
/// of the parent's memory. `unblocks` is false if the mask is the program's already.
pub(crate) fn execute(steps: &Steps<'_>, unblocks: bool) -> i32 {
    const X_OK: usize = 1;
    let [argv, envp] = [steps.argv as usize, steps.envp as usize];
    let mut forbidden = false;
    for path in steps.candidates.iter().map(|path| *path as usize).take_while(|path| *path != 0) {
        if steps.searches {
            let result = call(number::FACCESSAT, [AT_FDCWD, path, X_OK, 0, 0, 0]);
            // It answers for the real user; only the exec shows what the effective user may do.
            if result != 0 && result != -(EACCES as isize) {
                continue;
            }
        }
        if unblocks {
            let pending = pending();
            if steps.may_retry.get() && pending & (STOPS | DUMPS) != 0 {
                return STOP_PENDING;
            }
            if steps.shares_memory.get() && would_dump(pending & DUMPS) {
                kill_self(0);
            }
            set_mask(steps.mask);
        }
        let error = -call(number::EXECVE, [path, argv, envp, 0, 0, 0]) as i32;
        if unblocks {
            set_mask(u64::MAX);
        }
        match error {
            ENOENT | ENOTDIR | ESTALE | ENODEV | ETIMEDOUT => {}
            // A later candidate may be allowed; if none is, this is the error to report.
            EACCES => forbidden = true,
            _ => return error,
        }
        if !steps.searches {
            return error;
        }
    }
    if forbidden { EACCES } else { ENOENT }
}

/// The signals that stop: SIGTSTP, SIGTTIN, SIGTTOU.
const STOPS: u64 = 0b111 << (20 - 1);
/// The signals that dump core: SIGQUIT to SIGFPE, SIGSEGV, SIGXCPU and SIGXFSZ, SIGSYS. One for the whole group, such
/// as Ctrl-\, would dump the memory that this process shares with its parent, and before Linux 5.16 end the parent too.
pub(crate) const DUMPS: u64 =
    0b11_1111 << (3 - 1) | 1 << (11 - 1) | 0b11 << (24 - 1) | 1 << (31 - 1);

/// Returns the set of that signal alone.
pub(crate) const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// Calls the function with each signal of a set.
pub(crate) fn each(mut signals: u64, mut found: impl FnMut(usize)) {
    while signals != 0 {
        found(signals.trailing_zeros() as usize + 1);
        signals &= signals - 1;
    }
}

/// Returns the pending signals.
fn pending() -> u64 {
    let mut pending = 0_u64;
    // Ignored: then none is known to be pending.
    call(number::RT_SIGPENDING, [&raw mut pending as usize, SIGSET_BYTES, 0, 0, 0, 0]);
    pending
}

/// Returns true if one of the signals has its default action.
fn would_dump(signals: u64) -> bool {
    let mut found = false;
    each(signals, |signal| found |= has_default(signal));
    found
}

/// Makes this process end without a core dump if one of those signals arrives after the last look at the pending ones.
/// The exec restores the default.
pub(crate) fn die_without_dump(signals: u64) {
    each(signals, |signal| {
        if has_default(signal) {
            let mut action: Action = [0; 8];
            action[0] = kill_self as extern "C" fn(c_int) as usize;
            if cfg!(target_arch = "x86_64") {
                // The kernel refuses to call a function that has nowhere to return to. This one never returns.
                const SA_RESTORER: usize = 0x0400_0000;
                (action[1], action[2]) = (SA_RESTORER, action[0]);
            }
            set_action(signal, &action);
        }
    });
}

/// Ends this process at once, without a dump.
extern "C" fn kill_self(_: c_int) {
    const SIGKILL: usize = 9;
    loop {
        call(number::KILL, [own_pid() as usize, SIGKILL, 0, 0, 0, 0]);
    }
}

/// Returns the number of this process.
pub(crate) fn own_pid() -> i32 {
    call(number::GETPID, [0; 6]) as i32
}

/// The kernel's struct sigaction, which begins with the handler. All zeroes is the default action without flags. It is
/// larger than this on no processor.
pub(crate) type Action = [usize; 8];

/// The handlers that are no functions.
pub(crate) const DEFAULT: usize = 0;
pub(crate) const IGNORED: usize = 1;

/// The size of the kernel's signal sets, which have 64 bits.
const SIGSET_BYTES: usize = 8;

/// Returns the action of a signal; `None` for a number that no signal has.
pub(crate) fn action_of(signal: usize) -> Option<Action> {
    let mut action: Action = [0; 8];
    let place = action.as_mut_ptr() as usize;
    let result = call(number::RT_SIGACTION, [signal, 0, place, SIGSET_BYTES, 0, 0]);
    (result == 0).then_some(action)
}

/// Sets the action of a signal. A function in it is a signal handler, with the flags that the kernel requires with it.
pub(crate) fn set_action(signal: usize, action: &Action) {
    call(number::RT_SIGACTION, [signal, action.as_ptr() as usize, 0, SIGSET_BYTES, 0, 0]);
}

/// Sets the action of a signal to one that is no function. Returns the handler that it had.
pub(crate) fn set_handler(signal: usize, handler: usize) -> usize {
    let (mut action, mut before): (Action, Action) = ([0; 8], [0; 8]);
    action[0] = handler;
    let (to, from) = (action.as_ptr() as usize, before.as_mut_ptr() as usize);
    call(number::RT_SIGACTION, [signal, to, from, SIGSET_BYTES, 0, 0]);
    before[0]
}

fn has_default(signal: usize) -> bool {
    action_of(signal).is_some_and(|action| action[0] == DEFAULT)
}

/// Sets the set of blocked signals.
pub(crate) fn set_mask(mask: u64) {
    const SIG_SETMASK: usize = 2;
    let place = &raw const mask as usize;
    call(number::RT_SIGPROCMASK, [SIG_SETMASK, place, 0, SIGSET_BYTES, 0, 0]);
}

/// Returns the set of signals that this thread blocks.
pub(crate) fn own_mask() -> u64 {
    let mut mask = 0_u64;
    call(number::RT_SIGPROCMASK, [0, 0, &raw mut mask as usize, SIGSET_BYTES, 0, 0]);
    mask
}

/// Returns the failure of a step whose call has that result, if it is one.
pub(crate) fn check(result: isize, failed_step: u32) -> Result<(), Failed> {
    if result < 0 { Err((failed_step, -result as i32)) } else { Ok(()) }
}

/// A handle to wait for: the kernel's struct pollfd.
#[repr(C)]
pub(crate) struct PollFd {
    pub(crate) fd: i32,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

/// Waits for these handles, at most for that time. The result is that of the call. A lack of memory says nothing about
/// the handles, and is gone the next moment: the wait is tried again, with growing pauses that last 1 s in all.
pub(crate) fn poll(polled: &mut [PollFd], nanos: Option<i64>) -> isize {
    const ENOMEM: isize = 12;
    const LONGEST_PAUSE_NANOS: i64 = 512_000_000;
    let mut pause = 1_000_000;
    loop {
        let result = poll_once(polled, nanos);
        if result != -ENOMEM || pause > LONGEST_PAUSE_NANOS {
            return result;
        }
        // Ignored: a wait for nothing needs no memory.
        poll_once(&mut [], Some(pause));
        pause *= 2;
    }
}

fn poll_once(polled: &mut [PollFd], nanos: Option<i64>) -> isize {
    // The kernel writes the time that is left to it.
    let mut time = [0, nanos.unwrap_or(0)];
    let time = if nanos.is_some() { time.as_mut_ptr() as usize } else { 0 };
    call(number::PPOLL, [polled.as_mut_ptr() as usize, polled.len(), time, 0, SIGSET_BYTES, 0])
}

/// The creation of a process, clone(2) and clone3(2) as assembly.
///
/// The C library's function stores its error in `errno`, which a process that runs in this process's memory shares with
/// a thread. musl's (1.2.4 and later) returns `EINVAL` for `CLONE_CHILD_CLEARTID`, which shows when a child has left
/// its stack. And the supervisor has no library.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) mod clone {
    use core::arch::asm;
    use core::ffi::{c_int, c_void};

    /// The stack, the entry and the places of a new process.
    pub(crate) struct NewProcess {
        /// One past the highest byte of its stack, page-aligned.
        pub(crate) stack_top: *mut u8,
        pub(crate) entry: extern "C" fn(*mut c_void) -> c_int,
        pub(crate) argument: *mut c_void,
        /// The place of the pidfd (`CLONE_PIDFD`).
        pub(crate) pidfd: *mut c_int,
        /// The place of its number (`CLONE_CHILD_SETTID`, `CLONE_CHILD_CLEARTID`).
        pub(crate) child_tid: *mut c_int,
    }

    /// The arguments of a call that creates a process, in their order for this processor.
    type Arguments = [usize; 5];

    /// Creates a process on the given stack that begins at the entry. A negative result is an error number.
    ///
    /// # Safety
    /// Nothing else may use the stack. The entry must not return, and must do nothing that is unsafe in a process that
    /// shares the memory of a running one. The argument must stay valid for as long as the new process uses it.
    pub(crate) unsafe fn clone(flags: u64, new: &NewProcess) -> isize {
        let (flags, stack) = (flags as usize, new.stack_top as usize);
        // The kernel writes the pidfd where the parent's tid would go.
        let (pidfd, child_tid) = (new.pidfd as usize, new.child_tid as usize);
        // The thread pointer is not set. On x86-64 it comes after the place of the number.
        const NO_THREAD_POINTER: usize = 0;
        #[cfg(target_arch = "x86_64")]
        let (number, arguments) = (56, [flags, stack, pidfd, child_tid, NO_THREAD_POINTER]);
        #[cfg(not(target_arch = "x86_64"))]
        let (number, arguments) = (220, [flags, stack, pidfd, NO_THREAD_POINTER, child_tid]);
        // SAFETY: as the caller promises.
        unsafe { create(number, arguments, new) }
    }

    /// The arguments of clone3(2).
    #[repr(C, align(8))]
    struct CloneArgs {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }

    /// Creates a process as [`clone`] does, by clone3(2): in a cgroup, if one is given (Linux 5.7), and with flags
    /// beyond 32 bits. Its end sends SIGCHLD.
    ///
    /// # Safety
    /// As for [`clone`].
    pub(crate) unsafe fn clone3(
        flags: u64,
        stack_bytes: usize,
        cgroup: Option<i32>,
        new: &NewProcess,
    ) -> isize {
        const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
        const SIGCHLD: u64 = 17;
        let arguments = CloneArgs {
            flags: if cgroup.is_some() { flags | CLONE_INTO_CGROUP } else { flags },
            pidfd: new.pidfd as u64,
            child_tid: new.child_tid as u64,
            parent_tid: 0,
            exit_signal: SIGCHLD,
            stack: new.stack_top as u64 - stack_bytes as u64,
            stack_size: stack_bytes as u64,
            tls: 0,
            set_tid: 0,
            set_tid_size: 0,
            cgroup: cgroup.unwrap_or(0) as u64,
        };
        /// The number on all processors.
        const CLONE3: isize = 435;
        let place = &raw const arguments as usize;
        // SAFETY: as the caller promises. The kernel makes the stack's top from its start and its size.
        unsafe { create(CLONE3, [place, size_of::<CloneArgs>(), 0, 0, 0], new) }
    }

    /// Makes a call that creates a process, which begins at the entry. The stack is among the arguments.
    ///
    /// # Safety
    /// As for [`clone`].
    #[cfg(target_arch = "x86_64")]
    unsafe fn create(number: isize, arguments: Arguments, new: &NewProcess) -> isize {
        let result: isize;
        // SAFETY: the call returns twice. In the parent it is an ordinary system call, which clobbers rcx and r11.
        // In the child every other register is unchanged and rsp is the top of the stack, page-aligned and used
        // by nothing else, so the call starts the entry with a stack aligned as the ABI requires; it never
        // returns. The parent keeps the argument where it is.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r12",
                "call r9",
                "ud2",
                "2:",
                inlateout("rax") number => result,
                in("rdi") arguments[0],
                in("rsi") arguments[1],
                in("rdx") arguments[2],
                in("r10") arguments[3],
                in("r8") arguments[4],
                in("r9") new.entry,
                in("r12") new.argument,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        result
    }

    /// Does the same.
    ///
    /// # Safety
    /// As for x86-64.
    #[cfg(target_arch = "aarch64")]
    unsafe fn create(number: isize, arguments: Arguments, new: &NewProcess) -> isize {
        let result: isize;
        // SAFETY: as for x86-64. The call clobbers x0, and the kernel preserves no more of the SVE registers than the C
        // ABI does.
        unsafe {
            asm!(
                "svc #0",
                "cbnz x0, 2f",
                "mov x29, xzr",
                "mov x30, xzr",
                "mov x0, x6",
                "blr x5",
                "brk #1",
                "2:",
                in("x8") number,
                inlateout("x0") arguments[0] => result,
                in("x1") arguments[1],
                in("x2") arguments[2],
                in("x3") arguments[3],
                in("x4") arguments[4],
                in("x5") new.entry,
                in("x6") new.argument,
                clobber_abi("C"),
            );
        }
        result
    }

    /// Does the same.
    ///
    /// # Safety
    /// As for x86-64.
    #[cfg(target_arch = "riscv64")]
    unsafe fn create(number: isize, arguments: Arguments, new: &NewProcess) -> isize {
        let result: isize;
        // SAFETY: as for x86-64. The call clobbers a0, and the kernel discards the vector registers, which the C ABI
        // does not preserve either.
        unsafe {
            asm!(
                "ecall",
                "bnez a0, 2f",
                "li s0, 0",
                "mv a0, a6",
                "jalr a5",
                "ebreak",
                "2:",
                in("a7") number,
                inlateout("a0") arguments[0] => result,
                in("a1") arguments[1],
                in("a2") arguments[2],
                in("a3") arguments[3],
                in("a4") arguments[4],
                in("a5") new.entry,
                in("a6") new.argument,
                clobber_abi("C"),
            );
        }
        result
    }
}

/// Makes one raw system call: no library, no `errno`, nothing that another thread could see. A negative result is an
/// error number. Each caller passes what its call requires, and memory that the kernel writes to is live.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) fn call(number: usize, arguments: [usize; 6]) -> isize {
    use core::arch::asm;
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: as the caller promises.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above. The kernel preserves no more of the SVE registers than the C ABI does.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc #0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b,
            in("x2") c, in("x3") d, in("x4") e, in("x5") f, clobber_abi("C"));
    }
    // SAFETY: as above. The kernel discards the vector registers, which the C ABI does not preserve either.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        asm!("ecall", in("a7") number, inlateout("a0") a as isize => result, in("a1") b,
            in("a2") c, in("a3") d, in("a4") e, in("a5") f, clobber_abi("C"));
    }
    result
}

/// Makes the call through the C library, on other processors. There nothing is supervised, so the thread whose `errno`
/// this changes is inside clone.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: as the caller promises.
    let result = unsafe { libc::syscall(number as libc::c_long, a, b, c, d, e, f) };
    if result != -1 {
        return result as isize;
    }
    // SAFETY: no arguments; the location is that of the thread whose storage this process has.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: a live number.
    -unsafe { *location } as isize
}

/// The numbers of the system calls that both programs make. The supervisor has no library that knows them.
pub(crate) mod number {
    /// Defines numbers: that on x86-64, that on aarch64 and riscv64, and the C library's for the others, where only the
    /// host runs.
    macro_rules! numbers {
        ($($name:ident = $x86_64:literal, $generic:literal, $other:ident;)*) => {
            $(
                #[cfg(target_arch = "x86_64")]
                pub(crate) const $name: usize = $x86_64;
                #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
                pub(crate) const $name: usize = $generic;
                #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
                pub(crate) const $name: usize = libc::$other as usize;
            )*

            #[cfg(test)]
            const ALL: &[(usize, libc::c_long)] = &[$(($name, libc::$other)),*];
        };
    }

    numbers! {
        READ = 0, 63, SYS_read;
        WRITE = 1, 64, SYS_write;
        CLOSE = 3, 57, SYS_close;
        LSEEK = 8, 62, SYS_lseek;
        MMAP = 9, 222, SYS_mmap;
        RT_SIGACTION = 13, 134, SYS_rt_sigaction;
        RT_SIGPROCMASK = 14, 135, SYS_rt_sigprocmask;
        IOCTL = 16, 29, SYS_ioctl;
        GETPID = 39, 172, SYS_getpid;
        SENDTO = 44, 206, SYS_sendto;
        SENDMSG = 46, 211, SYS_sendmsg;
        RECVMSG = 47, 212, SYS_recvmsg;
        EXECVE = 59, 221, SYS_execve;
        WAIT4 = 61, 260, SYS_wait4;
        KILL = 62, 129, SYS_kill;
        FCNTL = 72, 25, SYS_fcntl;
        CHDIR = 80, 49, SYS_chdir;
        FCHDIR = 81, 50, SYS_fchdir;
        UMASK = 95, 166, SYS_umask;
        SETPGID = 109, 154, SYS_setpgid;
        SETSID = 112, 157, SYS_setsid;
        RT_SIGPENDING = 127, 136, SYS_rt_sigpending;
        GETPRIORITY = 140, 141, SYS_getpriority;
        SETPRIORITY = 141, 140, SYS_setpriority;
        PRCTL = 157, 167, SYS_prctl;
        GETDENTS64 = 217, 61, SYS_getdents64;
        EXIT_GROUP = 231, 94, SYS_exit_group;
        WAITID = 247, 95, SYS_waitid;
        OPENAT = 257, 56, SYS_openat;
        UNLINKAT = 263, 35, SYS_unlinkat;
        FACCESSAT = 269, 48, SYS_faccessat;
        PPOLL = 271, 73, SYS_ppoll;
        SIGNALFD4 = 289, 74, SYS_signalfd4;
        DUP3 = 292, 24, SYS_dup3;
        PRLIMIT64 = 302, 261, SYS_prlimit64;
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn the_numbers_are_those_of_the_c_library() {
            assert!(super::ALL.iter().all(|(ours, theirs)| *ours == *theirs as usize));
        }
    }
}
