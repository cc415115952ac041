//! The child's half of a start: what runs between clone and exec.
//!
//! It shares the memory of the parent, whose calling thread sleeps meanwhile and whose other
//! threads do not: so nothing here allocates, locks, panics or unwinds, and credentials are
//! changed by bare system calls (the C library's would tell every thread of the parent).

use std::cell::Cell;
use std::ffi::c_char;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::super::{Group, Identity, Resource, ResourceLimit, Step, UnixOptions};

/// Everything the child needs, made before it exists.
pub(super) struct Job<'a> {
    pub(super) stdio: [Option<RawFd>; 3],
    pub(super) moves: &'a [Move],
    pub(super) close_others: bool,
    pub(super) options: &'a UnixOptions,
    pub(super) drops_groups: bool,
    pub(super) current_dir: *const c_char,
    pub(super) chroot: *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    pub(super) candidates: *const *const c_char,
    /// Whether the candidates are places to search, not the one path that was given.
    pub(super) searches: bool,
    pub(super) parent_pid: i32,
    /// The parent will start another child if this one says [`STOP_PENDING`].
    pub(super) may_try_again: bool,
    /// Where it failed, and why: written by the child, read by the parent. 0 is "it did not".
    pub(super) failed_step: AtomicU32,
    pub(super) errno: AtomicI32,
}

impl Job<'_> {
    pub(super) fn changes_identity(&self) -> bool {
        self.options.identity != Identity::default()
    }
}

/// In place of an errno: a stop signal waits to be delivered, and the parent, which is to be
/// stopped as well, has to come out of its sleep first.
pub(super) const STOP_PENDING: i32 = i32::MAX;

/// A handle for the child, and the number that it is to have there.
pub(super) struct Move {
    from: RawFd,
    pub(super) to: RawFd,
    /// Where the child has put it out of the way; `from` stays as it is, for another try.
    lifted: Cell<RawFd>,
}

impl Move {
    pub(super) fn new(from: RawFd, to: RawFd) -> Move {
        Move { from, to, lifted: Cell::new(from) }
    }
}

// SAFETY: a spawn is handed to the immortal thread while its caller waits: one thread at a time
// touches the cells.
unsafe impl Sync for Move {}

/// What the child finds installed for each signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handlers {
    /// The defaults, and what was ignored: `CLONE_CLEAR_SIGHAND` saw to it.
    AreReset,
    /// Functions of the parent.
    AreInherited,
}

/// A step that failed; the reason is in errno.
struct Failed(Step);

/// Runs in the child and never comes back.
///
/// # Safety
/// Only in a process of its own, on a stack of its own, with `job` alive until exec or exit.
pub(super) unsafe fn run(job: &Job<'_>, handlers: Handlers) -> ! {
    if handlers == Handlers::AreInherited {
        reset_handlers();
    }
    // SAFETY: as this function's.
    unsafe { become_program_in_child(job) };
    // SAFETY: ends this process without touching what belongs to the parent (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

/// Does what the plan says to this process and loads the program. Returns if something failed.
///
/// # Safety
/// Changes this process; `job`'s pointers must be good.
pub(super) unsafe fn become_program(job: &Job<'_>) {
    // SAFETY: as this function's.
    unsafe { attempt(job, false) };
}

unsafe fn become_program_in_child(job: &Job<'_>) {
    // SAFETY: as this function's.
    unsafe { attempt(job, job.options.kill_on_parent_exit) };
}

unsafe fn attempt(job: &Job<'_>, dies_with_parent: bool) {
    // SAFETY: as this function's.
    if let Err(Failed(step)) = unsafe { prepare_and_exec(job, dies_with_parent) } {
        let errno = errno();
        job.failed_step.store(number_of(step), Ordering::Relaxed);
        job.errno.store(errno, Ordering::Relaxed);
    }
}

/// # Safety
/// As [`become_program`].
unsafe fn prepare_and_exec(job: &Job<'_>, dies_with_parent: bool) -> Result<(), Failed> {
    // Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop
    // when its reader is gone (rust-lang/rust#62569).
    set_default(libc::SIGPIPE);
    join_group(job.options.group)?;
    lift(job.moves)?;
    place_stdio(job.stdio)?;
    if job.close_others {
        close_others()?;
    }
    place(job.moves)?;
    limit(&job.options.limits)?;
    if let Some(mask) = job.options.umask {
        // SAFETY: a number; umask has no error.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    if let Some(add) = job.options.nice {
        be_nicer(add)?;
    }
    // SAFETY: null or a string that the layout owns.
    unsafe { change_root(job.chroot)? };
    change_identity(&job.options.identity, job.drops_groups)?;
    if !job.current_dir.is_null() {
        // After the change of user, as std has it: the directory must be that user's to enter.
        // SAFETY: a string that the layout owns.
        check(unsafe { libc::chdir(job.current_dir) }, Step::CurrentDir)?;
    }
    if dies_with_parent {
        tie_to_parent(job.parent_pid)?;
    }
    // SAFETY: arrays that the layout owns, each ended by NULL.
    unsafe { exec_first(job) };
    Err(Failed(Step::Exec))
}

fn join_group(group: Group) -> Result<(), Failed> {
    let result = match group {
        Group::Same => 0,
        // SAFETY: numbers; 0 is this process.
        Group::Own => unsafe { libc::setpgid(0, 0) },
        // SAFETY: as above.
        Group::Join(group) => unsafe { libc::setpgid(0, group as libc::pid_t) },
        // SAFETY: no argument.
        Group::Session => unsafe { libc::setsid() },
    };
    check(result, Step::Group)
}

/// Moves sources out of the way of what will be placed: 0 to 2, and each other's targets.
fn lift(moves: &[Move]) -> Result<(), Failed> {
    for (index, place) in moves.iter().enumerate() {
        let from = place.from;
        place.lifted.set(from);
        let is_target = |fd: RawFd| moves.iter().any(|other| other.to == fd);
        if from > libc::STDERR_FILENO && (from == place.to || !is_target(from)) {
            continue;
        }
        // The lowest free number, unless somebody is to have it. The copies in between stay open
        // until exec, so that none is offered twice.
        let mut copy = from;
        loop {
            copy = duplicate_from(copy, 3, Step::Inherit(index))?;
            if !is_target(copy) {
                break;
            }
        }
        place.lifted.set(copy);
    }
    Ok(())
}

fn place_stdio(stdio: [Option<RawFd>; 3]) -> Result<(), Failed> {
    let mut sources = stdio;
    for (target, source) in sources.iter_mut().enumerate() {
        // A parent with closed standard handles gets pipes numbered 0 to 2, and dup2 in order
        // would overwrite one before it is used (oven-sh/bun#41751).
        match source {
            Some(fd) if *fd <= libc::STDERR_FILENO && *fd != target as RawFd => {
                *fd = duplicate_from(*fd, 3, Step::Stdio(target as u8))?;
            }
            _ => {}
        }
    }
    for (target, source) in sources.into_iter().enumerate() {
        if let Some(fd) = source {
            put(fd, target as RawFd, Step::Stdio(target as u8))?;
        }
    }
    Ok(())
}

fn place(moves: &[Move]) -> Result<(), Failed> {
    for (index, place) in moves.iter().enumerate() {
        put(place.lifted.get(), place.to, Step::Inherit(index))?;
    }
    Ok(())
}

/// Makes `to` a copy of `from` that survives exec.
fn put(from: RawFd, to: RawFd, step: Step) -> Result<(), Failed> {
    if from == to {
        // dup2 of a descriptor onto itself would leave it close-on-exec.
        // SAFETY: numbers.
        return check(unsafe { libc::fcntl(from, libc::F_SETFD, 0) }, step);
    }
    // SAFETY: numbers; what `to` was before is this process's own copy.
    check(unsafe { libc::dup2(from, to) }, step)
}

fn duplicate_from(fd: RawFd, lowest: RawFd, step: Step) -> Result<RawFd, Failed> {
    // SAFETY: numbers.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) };
    check(copy, step)?;
    Ok(copy)
}

/// Marks everything from 3 on close-on-exec.
fn close_others() -> Result<(), Failed> {
    if !crate::fallback::NO_CLOSE_RANGE {
        // SAFETY: numbers. Linux 5.11 for the flag.
        let result = unsafe {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        };
        if result == 0 {
            return Ok(());
        }
    }
    close_others_one_by_one()
}

/// Without close_range: what `/proc/self/fd` lists. Not every number up to the limit, of which
/// there can be a billion.
fn close_others_one_by_one() -> Result<(), Failed> {
    // Bare calls: the C library's open and close are cancellation points.
    // SAFETY: a C string and flags.
    let dir = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/fd".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        )
    };
    check(dir as i32, Step::CloseOthers)?;
    let mut buffer = DirBuffer([0; 1024]);
    loop {
        // SAFETY: the kernel writes at most the length given.
        let length = unsafe {
            libc::syscall(libc::SYS_getdents64, dir, buffer.0.as_mut_ptr(), buffer.0.len())
        };
        match usize::try_from(length) {
            Err(_) => return Err(Failed(Step::CloseOthers)),
            Ok(0) => break,
            Ok(length) => mark_listed(buffer.0.get(..length).unwrap_or(&[])),
        }
    }
    // SAFETY: opened above.
    unsafe { libc::syscall(libc::SYS_close, dir) };
    Ok(())
}

/// Aligned as the kernel's directory entries are.
#[repr(align(8))]
struct DirBuffer([u8; 1024]);

/// struct linux_dirent64: inode 8, offset 8, length 2, type 1, then the name (getdents(2)).
fn mark_listed(mut entries: &[u8]) {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    while let Some(&[low, high]) = entries.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if let Some(fd) = number(entries.get(NAME_AT..length).unwrap_or(&[])) {
            if fd > libc::STDERR_FILENO {
                // Ignored: the only error is that it is not open.
                // SAFETY: numbers.
                unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
        }
        match entries.get(length.max(1)..) {
            Some(rest) => entries = rest,
            None => return,
        }
    }
}

fn number(name: &[u8]) -> Option<RawFd> {
    let mut number: RawFd = 0;
    let mut digits = 0;
    for byte in name.iter().take_while(|byte| **byte != 0) {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(RawFd::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some(number)
}

fn limit(limits: &[ResourceLimit]) -> Result<(), Failed> {
    for (index, limit) in limits.iter().enumerate() {
        let value = libc::rlimit64 {
            rlim_cur: limit.soft.unwrap_or(libc::RLIM64_INFINITY),
            rlim_max: limit.hard.unwrap_or(libc::RLIM64_INFINITY),
        };
        // SAFETY: this process, a live value, and no place for the old one.
        let result = unsafe {
            libc::syscall(
                libc::SYS_prlimit64,
                0,
                resource(limit.resource),
                &raw const value,
                ptr::null::<libc::rlimit64>(),
            )
        };
        check(result as i32, Step::Limit(index))?;
    }
    Ok(())
}

fn resource(resource: Resource) -> libc::c_uint {
    match resource {
        Resource::AddressSpace => libc::RLIMIT_AS,
        Resource::CoreDump => libc::RLIMIT_CORE,
        Resource::CpuTime => libc::RLIMIT_CPU,
        Resource::Data => libc::RLIMIT_DATA,
        Resource::FileSize => libc::RLIMIT_FSIZE,
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
        Resource::Stack => libc::RLIMIT_STACK,
    }
}

fn be_nicer(add: i32) -> Result<(), Failed> {
    // The bare call tells 20 minus the niceness, so that no answer looks like an error
    // (getpriority(2)).
    // SAFETY: numbers; 0 is this process.
    let raw = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
    let nice = (20 - raw as i32).saturating_add(add).clamp(-20, 19);
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice) };
    check(result as i32, Step::Nice)
}

/// # Safety
/// `root` is null or a C string.
unsafe fn change_root(root: *const c_char) -> Result<(), Failed> {
    if root.is_null() {
        return Ok(());
    }
    // SAFETY: as this function's.
    check(unsafe { libc::chroot(root) }, Step::Chroot)?;
    // A working directory outside the new root is the way out of it (chroot(2)); and a relative
    // one that comes next is meant to be inside.
    // SAFETY: a C string.
    check(unsafe { libc::chdir(c"/".as_ptr()) }, Step::Chroot)
}

fn change_identity(identity: &Identity, drops_groups: bool) -> Result<(), Failed> {
    let set_groups = |groups: &[u32]| {
        // SAFETY: an array of that length.
        let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
        check(result as i32, Step::Identity)
    };
    if let Some(groups) = &identity.groups {
        set_groups(groups)?;
    } else if drops_groups {
        // A root process that only changes its user would keep root's groups.
        set_groups(&[])?;
    }
    if let Some(group) = identity.group {
        // SAFETY: numbers.
        let result = unsafe { libc::syscall(libc::SYS_setgid, group) };
        check(result as i32, Step::Identity)?;
    }
    if let Some(user) = identity.user {
        // SAFETY: numbers.
        let result = unsafe { libc::syscall(libc::SYS_setuid, user) };
        check(result as i32, Step::Identity)?;
    }
    Ok(())
}

/// After the change of user, which would clear it (prctl(2), PR_SET_PDEATHSIG).
fn tie_to_parent(parent: i32) -> Result<(), Failed> {
    // SAFETY: numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    check(result, Step::ParentDeath)?;
    // It may have ended before it could be watched; then nobody would ever send the signal.
    // SAFETY: no argument. 0: the parent is in another pid namespace, where it cannot be seen.
    let now = unsafe { libc::getppid() };
    if now != parent && now != 0 {
        set_errno(libc::ESRCH);
        return Err(Failed(Step::ParentDeath));
    }
    Ok(())
}

/// Whether a signal that stops is waiting to be delivered.
fn a_stop_is_pending() -> bool {
    let mut pending = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a live set.
    if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
        return false;
    }
    [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].into_iter().any(|signal| {
        // SAFETY: filled in by the call above.
        unsafe { libc::sigismember(pending.as_ptr(), signal) == 1 }
    })
}

fn set_blocked(all: bool) {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let fill = if all { libc::sigfillset } else { libc::sigemptyset };
    // SAFETY: both fill what they are given.
    unsafe { fill(set.as_mut_ptr()) };
    // SAFETY: the set is filled; SIG_SETMASK with it has no error.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) };
}

/// The kernel's struct sigaction begins with the handler, and SIG_DFL with no flags is all zeroes.
type KernelAction = [usize; 8];

/// The kernel's signal sets have 64 bits.
const SIGSET_BYTES: usize = 8;

/// The handler of a signal; `None` for what has none.
fn handler_of(signal: libc::c_int) -> Option<libc::sighandler_t> {
    let mut now: KernelAction = [0; 8];
    // Bare calls: the C library's may lock.
    // SAFETY: asks only, into an array that is larger than the kernel's struct.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            ptr::null::<KernelAction>(),
            now.as_mut_ptr(),
            SIGSET_BYTES,
        )
    };
    (result == 0).then_some(now[0])
}

fn set_default(signal: libc::c_int) {
    let default: KernelAction = [0; 8];
    // SAFETY: SIG_DFL is no function.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            default.as_ptr(),
            ptr::null_mut::<KernelAction>(),
            SIGSET_BYTES,
        )
    };
}

/// A handler of the parent would run in a second process that shares its memory.
fn reset_handlers() {
    for signal in 1..=64 {
        let handler = handler_of(signal);
        if handler.is_some_and(|it| it != libc::SIG_DFL && it != libc::SIG_IGN) {
            set_default(signal);
        }
    }
}

/// Loads the first candidate that can be loaded, as execvp(3) goes through PATH. Returns when none
/// can, with the telling reason in errno; [`STOP_PENDING`] where it is not the moment to try.
///
/// Signals are let in at the last moment only: a stop that arrived before exec would stop this
/// process with its parent still asleep, and the two of them would hold the terminal for ever
/// (nextest-rs/nextest#470).
///
/// # Safety
/// `job`'s pointers must be good.
unsafe fn exec_first(job: &Job<'_>) {
    let mut forbidden = false;
    let mut next = job.candidates;
    loop {
        // SAFETY: not past the NULL at the end.
        let path = unsafe { *next };
        if path.is_null() {
            break;
        }
        // SAFETY: the NULL at the end is still ahead, or is next.
        next = unsafe { next.add(1) };
        // SAFETY: a C string.
        if job.searches && unsafe { libc::access(path, libc::X_OK) } != 0 {
            forbidden |= errno() == libc::EACCES;
            continue;
        }
        if job.may_try_again && a_stop_is_pending() {
            set_errno(STOP_PENDING);
            return;
        }
        set_blocked(false);
        // SAFETY: as this function's.
        unsafe { libc::execve(path, job.argv, job.envp) };
        let error = errno();
        set_blocked(true);
        set_errno(error);
        match error {
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            // One further on may be ours to run; if none is, this is what to say.
            libc::EACCES => forbidden = true,
            _ => return,
        }
        if !job.searches {
            return;
        }
    }
    set_errno(if forbidden { libc::EACCES } else { libc::ENOENT });
}

fn check(result: libc::c_int, step: Step) -> Result<(), Failed> {
    if result < 0 { Err(Failed(step)) } else { Ok(()) }
}

fn errno() -> i32 {
    // SAFETY: takes nothing; the location is this thread's, or that of the sleeping thread whose
    // storage the child shares.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: a live int that no other running thread touches.
    unsafe { *location }
}

fn set_errno(errno: i32) {
    // SAFETY: as above.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *location = errno };
}

/// A step as a number, for the word that parent and child share.
fn number_of(step: Step) -> u32 {
    let (step, index) = match step {
        Step::Check(_) | Step::Create => (0, 0),
        Step::Group => (1, 0),
        Step::Limit(index) => (2, index),
        Step::Umask => (3, 0),
        Step::Nice => (4, 0),
        Step::Chroot => (5, 0),
        Step::Identity => (6, 0),
        Step::CurrentDir => (7, 0),
        Step::Stdio(target) => (8, usize::from(target)),
        Step::Inherit(index) => (9, index),
        Step::CloseOthers => (10, 0),
        Step::ParentDeath => (11, 0),
        Step::Exec => (12, 0),
    };
    step | ((index as u32) << 8)
}

/// The way back from [`number_of`].
pub(super) fn step_of(number: u32) -> Step {
    let index = (number >> 8) as usize;
    match number & 0xff {
        1 => Step::Group,
        2 => Step::Limit(index),
        3 => Step::Umask,
        4 => Step::Nice,
        5 => Step::Chroot,
        6 => Step::Identity,
        7 => Step::CurrentDir,
        8 => Step::Stdio(index as u8),
        9 => Step::Inherit(index),
        10 => Step::CloseOthers,
        11 => Step::ParentDeath,
        12 => Step::Exec,
        _ => Step::Create,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_the_word_between_parent_and_child() {
        for step in [
            Step::Create,
            Step::Group,
            Step::Limit(3),
            Step::Umask,
            Step::Nice,
            Step::Chroot,
            Step::Identity,
            Step::CurrentDir,
            Step::Stdio(2),
            Step::Inherit(7),
            Step::CloseOthers,
            Step::ParentDeath,
            Step::Exec,
        ] {
            assert_eq!(step_of(number_of(step)), step);
        }
    }

    #[test]
    fn only_whole_numbers_are_descriptors() {
        assert_eq!(number(b"17\0junk"), Some(17));
        for name in [&b".\0"[..], b"..\0", b"\0", b"1a\0", b"99999999999\0"] {
            assert_eq!(number(name), None);
        }
    }
}
