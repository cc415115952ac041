//! Creates the child, which shares the parent's memory and runs on its own stack. The parent sleeps until
//! the child's exec.
//!
//! The child's half runs in the parent's memory, where nothing allocates, locks, panics or unwinds, and each call is
//! made by its number: the C library's calls that change credentials would change every thread of the parent.

#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, unused_imports, reason = "clone3 is called on x86-64 only")
)]

use std::ffi::c_char;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::{io, mem};

use super::raw_syscall::{self, syscall};
use super::{Left, StopWatch};
use crate::base::signal::AllBlocked;
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::nolibc::call;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
use crate::process::nolibc::steps::clone as nolibc;
use crate::process::nolibc::steps::{self, Failed, Stdio, Steps, bit, check};
use crate::process::nolibc::{number, step};
use crate::process::pidfd::pidfds_are_refused;
use crate::process::start::layout::{self, Closure};
use crate::process::start::{Credentials, UnixOptions, UnsetGroups};

/// The flag to reset handlers: Linux 5.5, and only through clone3 (the low 32 bits are full); clone(2).
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// A substitute for an errno: the child has to join its cgroup by a file, which the caller has not opened.
pub(super) const NOT_BORN_IN_CGROUP: i32 = i32::MAX - 2;

/// True once `clone3` has been refused; then no call tries again.
static CLONE3_REFUSED: AtomicBool = AtomicBool::new(!cfg!(target_arch = "x86_64"));

fn clone3_is_refused() -> bool {
    is_forced(Forced::NoClone3)
        || is_forced(Forced::NoSharedMemory)
        || CLONE3_REFUSED.load(Ordering::Relaxed)
}

/// True once a child was born in its cgroup. Then the next one needs no file by which it joins.
static BORN_IN_CGROUP: AtomicBool = AtomicBool::new(false);

/// Returns true if a child will be born in its cgroup.
pub(super) fn is_born_in_cgroup() -> bool {
    BORN_IN_CGROUP.load(Ordering::Relaxed)
}

/// The entry function of a new process.
pub(super) type EntryFn = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// A process that shares this process's memory until it execs.
pub(super) struct CloneRequest<'a> {
    pub(super) stack: &'a Stack,
    /// The cgroup to be born in. Only `clone3` can do that, so a process that starts with the parent's
    /// handlers has to join it.
    pub(super) cgroup: Option<RawFd>,
    /// True if it has no file by which it could join the cgroup.
    pub(super) must_be_born_in_cgroup: bool,
    /// The entry function if its handlers are reset.
    pub(super) after_clone3: EntryFn,
    /// The entry function if it has the parent's handlers.
    pub(super) after_clone: EntryFn,
    pub(super) argument: *mut libc::c_void,
    /// The place for a pidfd of it, if one is wanted and possible.
    pub(super) pidfd: Option<*mut libc::c_int>,
}

/// Creates the child and returns when it has loaded its program, or has ended without.
pub(super) fn create(setup: &ChildSetup<'_>, stack: &Stack) -> io::Result<(i32, Option<OwnedFd>)> {
    // Without this, a signal that arrived in the child before exec would run a handler of this program in a
    // second process that shares its memory.
    let _blocked = AllBlocked::new();
    let mut pidfd = -1;
    let request = CloneRequest {
        stack,
        cgroup: setup.cgroup,
        must_be_born_in_cgroup: setup.cgroup.is_some() && setup.cgroup_procs.is_none(),
        after_clone3: run_with_defaults,
        after_clone: run_with_inherited_handlers,
        argument: std::ptr::from_ref(setup).cast_mut().cast(),
        pidfd: Some(&raw mut pidfd),
    };
    let shared = if setup.shares_handles.load(Ordering::Relaxed) { libc::CLONE_FILES } else { 0 };
    let limit = setup.options.start_limit.as_ref();
    if setup.changes_identity() || limit.is_some() {
        // The kernel sets it too, but only when the child runs.
        let mark = stack.mark();
        mark.store(1, Ordering::Relaxed);
        // SAFETY: as below. The wait ends when the child does not use the memory any more: it has left it, or is
        // killed, and the kernel only reads until it does.
        match unsafe { begin(&request, MARKED | shared) } {
            Ok(pid) => {
                let raw = (pidfd >= 0).then_some(pidfd);
                let left = StopWatch::new(pid, raw).wait_until_zero(mark, limit);
                if left != Left::ByItself {
                    setup.errno.store(UNANSWERED, Ordering::Relaxed);
                    setup.is_stuck.store(left == Left::Stuck, Ordering::Relaxed);
                }
                return Ok((pid, super::own_pidfd(pidfd)));
            }
            Err(error) => {
                mark.store(0, Ordering::Relaxed);
                // An emulator has only vfork (qemu-user).
                if error.raw_os_error() != Some(libc::EINVAL) {
                    return Err(error);
                }
            }
        }
    }
    // SAFETY: nothing else uses the stack, neither entry returns, and the setup stays where it is until the
    // child has exec'd or ended. A child that shares the handles changes none before it has its own.
    let pid = unsafe { begin(&request, libc::CLONE_VFORK | shared) }?;
    Ok((pid, super::own_pidfd(pidfd)))
}

/// Creates a process and sleeps until it has exec'd or ended.
///
/// # Safety
/// Nothing else may use the stack. The entries must not return, and must do nothing that is unsafe in a
/// process that shares the memory of a running one. The target of the argument must stay valid until the
/// new process has exec'd or ended. Signals must be blocked.
pub(super) unsafe fn vfork(request: &CloneRequest<'_>) -> io::Result<i32> {
    // SAFETY: as this function's.
    unsafe { begin(request, libc::CLONE_VFORK) }
}

/// Creates a process that runs beside this one. Once it runs, its stack is not reused before the process
/// has left it.
///
/// # Safety
/// As for [`vfork`]. In addition, the caller keeps the target of the argument valid for as long as the new
/// process uses it, and keeps the stack until the new process runs. The new process must not use `errno`
/// while the thread whose thread-local storage it shares does.
pub(super) unsafe fn clone_without_waiting(request: &CloneRequest<'_>) -> io::Result<i32> {
    // SAFETY: as this function's.
    unsafe { begin(request, MARKED) }
}

/// Creates a process like [`vfork`]. The stack is not reused before the new process has left it, even if
/// the parent is killed meanwhile.
///
/// # Safety
/// As for [`clone_without_waiting`].
pub(super) unsafe fn vfork_unattended(request: &CloneRequest<'_>) -> io::Result<i32> {
    // SAFETY: as this function's.
    unsafe { begin(request, libc::CLONE_VFORK | MARKED) }
}

/// The flags that maintain [`Stack::mark`].
const MARKED: libc::c_int = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;

unsafe fn begin(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let mut flags = flags | libc::CLONE_VM | libc::SIGCHLD;
    if is_forced(Forced::NoSharedMemory) {
        // qemu-user does this.
        if flags & libc::CLONE_VFORK == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        flags &= !(libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES);
    }
    let wants_pidfd = request.pidfd.is_some() && !pidfds_are_refused();
    let with_pidfd = if wants_pidfd { flags | libc::CLONE_PIDFD } else { flags };
    if !clone3_is_refused() {
        // SAFETY: as this function's.
        match unsafe { clone3(request, with_pidfd) } {
            // The kernel may have refused the cgroup; then the child gets that error when it joins the cgroup.
            Err(error) if is_refused(&error) => {
                if request.must_be_born_in_cgroup {
                    BORN_IN_CGROUP.store(false, Ordering::Relaxed);
                    return Err(io::Error::from_raw_os_error(NOT_BORN_IN_CGROUP));
                }
                let unknown = error.raw_os_error() == Some(libc::ENOSYS);
                if unknown || request.cgroup.is_none() {
                    CLONE3_REFUSED.store(true, Ordering::Relaxed);
                }
            }
            done => {
                if done.is_ok() && request.cgroup.is_some() {
                    BORN_IN_CGROUP.store(true, Ordering::Relaxed);
                }
                return done;
            }
        }
    }
    if request.must_be_born_in_cgroup {
        BORN_IN_CGROUP.store(false, Ordering::Relaxed);
        return Err(io::Error::from_raw_os_error(NOT_BORN_IN_CGROUP));
    }
    // SAFETY: as this function's.
    match unsafe { clone(request, with_pidfd) } {
        Err(error) if wants_pidfd && error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: as this function's.
            unsafe { clone(request, flags) }
        }
        done => done,
    }
}

/// Returns true if `clone` may succeed instead: ENOSYS from an old kernel, or from a filter older than the
/// call; EPERM from a filter that should return ENOSYS; EINVAL if a flag is not known; E2BIG if the cgroup
/// field is not known.
fn is_refused(error: &io::Error) -> bool {
    let refusals = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::E2BIG];
    error.raw_os_error().is_some_and(|errno| refusals.contains(&errno))
}

#[cfg(target_arch = "x86_64")]
unsafe fn clone3(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let new = new_process(request, request.after_clone3);
    let flags = (flags & !libc::SIGCHLD) as u64 | CLONE_CLEAR_SIGHAND;
    // SAFETY: as this function's.
    number_or_error(unsafe { nolibc::clone3(flags, Stack::BYTES, request.cgroup, &new) })
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone3(_: &CloneRequest<'_>, _: libc::c_int) -> io::Result<i32> {
    // Nobody has tried it there: clone does the same, with handlers reset one by one.
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn new_process(request: &CloneRequest<'_>, entry: EntryFn) -> nolibc::NewProcess {
    nolibc::NewProcess {
        stack_top: request.stack.top(),
        entry,
        argument: request.argument,
        pidfd: request.pidfd.unwrap_or(std::ptr::null_mut()),
        child_tid: request.stack.mark().as_ptr(),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn number_or_error(result: isize) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result as i32) }
}

/// Creates a process on the given stack that begins at `after_clone`.
///
/// # Safety
/// As for [`vfork`] and [`clone_without_waiting`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let new = new_process(request, request.after_clone);
    // SAFETY: as this function's. The stack's mark is its lowest word.
    number_or_error(unsafe { nolibc::clone(flags as u64, &new) })
}

/// Creates a process with the C library's clone, on other processors. Nothing is supervised there, so no
/// stack is marked.
///
/// # Safety
/// As for the function above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let pidfd: *mut std::os::fd::RawFd = request.pidfd.unwrap_or(std::ptr::null_mut());
    // SAFETY: the child runs the entry on a stack of its own, with an argument that the parent keeps where
    // it is. The kernel writes the pidfd where the parent's tid would go (clone(2)).
    let pid = unsafe {
        libc::clone(
            request.after_clone,
            request.stack.top().cast(),
            flags,
            request.argument,
            pidfd,
            std::ptr::null_mut::<libc::c_void>(),
            request.stack.mark().as_ptr(),
        )
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

extern "C" fn run_with_defaults(setup: *mut libc::c_void) -> libc::c_int {
    run(setup, Handlers::Reset)
}

extern "C" fn run_with_inherited_handlers(setup: *mut libc::c_void) -> libc::c_int {
    run(setup, Handlers::Inherited)
}

fn run(setup: *mut libc::c_void, handlers: Handlers) -> ! {
    // SAFETY: the parent keeps the setup alive and untouched until this process has exec'd or ended.
    let setup = unsafe { &*setup.cast_const().cast::<ChildSetup<'_>>() };
    // SAFETY: this is the child, on its own stack.
    unsafe { run_shared(setup, handlers) }
}

/// The size of a stack: enough for a chain of system calls, and a whole number of pages of any size that
/// Linux has. The child's deepest frame holds 1 KiB of directory entries.
const STACK_BYTES: usize = 64 << 10;

/// The number of pooled stacks: three for each thread that is starting a supervised child, one for each
/// that is starting another child.
const POOLED_STACKS: usize = 48;

static POOL: StackPool = StackPool::new();

struct StackPool {
    places: [Place; POOLED_STACKS],
    /// The stacks that have no place, and were given back while a process was on them: a list, each with the address of
    /// the next. In a fork of this process they stay busy for ever.
    busy: AtomicPtr<u8>,
}

/// The place of a stack. Once there is one, it stays, so that its mark can be read at any time.
struct Place {
    base: AtomicPtr<u8>,
    is_taken: AtomicBool,
}

/// A mapping that belongs to one start at a time; its drop returns it to the pool.
pub(super) struct Stack {
    base: NonNull<u8>,
}

impl Place {
    const fn new() -> Place {
        Place { base: AtomicPtr::new(ptr::null_mut()), is_taken: AtomicBool::new(false) }
    }

    fn base(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.base.load(Ordering::Acquire))
    }

    /// Takes its stack, or maps one, unless another start has it or a process is on it.
    fn take(&self) -> Option<io::Result<NonNull<u8>>> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let found = match self.base() {
            None => map().inspect(|base| self.base.store(base.as_ptr(), Ordering::Release)),
            Some(base) if !is_used(base) => return Some(Ok(base)),
            Some(_) => {
                self.is_taken.store(false, Ordering::Release);
                return None;
            }
        };
        if found.is_err() {
            self.is_taken.store(false, Ordering::Release);
        }
        Some(found)
    }
}

impl StackPool {
    const fn new() -> StackPool {
        StackPool {
            places: [const { Place::new() }; POOLED_STACKS],
            busy: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Takes a stack that no process is on any more.
    fn take(&self) -> io::Result<NonNull<u8>> {
        if let Some(found) = self.places.iter().find_map(Place::take) {
            return found;
        }
        let mut found = None;
        let mut next = self.busy.swap(ptr::null_mut(), Ordering::Acquire);
        while let Some(base) = NonNull::new(next) {
            next = link(base).load(Ordering::Relaxed);
            if found.is_none() && !is_used(base) {
                found = Some(base);
            } else {
                self.put(base);
            }
        }
        found.map_or_else(map, Ok)
    }

    fn put(&self, base: NonNull<u8>) {
        let raw = base.as_ptr();
        if let Some(place) =
            self.places.iter().find(|place| place.base.load(Ordering::Relaxed) == raw)
        {
            place.is_taken.store(false, Ordering::Release);
            return;
        }
        if !is_used(base) {
            // SAFETY: the mapping is whole and owned here alone, and the child that ran on it has left it.
            let _ = unsafe { libc::munmap(raw.cast(), guard_bytes() + STACK_BYTES) };
            return;
        }
        // The list is only ever taken as a whole, so its first entry cannot have been removed and added
        // again (ABA).
        let add = |first| {
            link(base).store(first, Ordering::Relaxed);
            Some(raw)
        };
        let _ = self.busy.fetch_update(Ordering::Release, Ordering::Relaxed, add);
    }

    /// Returns the processes that are on stacks with a place. A 1 is no number of one: a start has set it (`create`).
    fn processes(&self) -> Vec<i32> {
        let marks = self.places.iter().filter_map(Place::base);
        marks.map(|base| mark(base).load(Ordering::Acquire)).filter(|pid| *pid > 1).collect()
    }
}

impl Stack {
    pub(super) fn take() -> io::Result<Stack> {
        POOL.take().map(|base| Stack { base })
    }

    /// Returns the lowest usable byte.
    pub(super) fn low(&self) -> *mut u8 {
        low(self.base)
    }

    /// The number of usable bytes above [`low`](Self::low).
    #[cfg(target_arch = "x86_64")]
    pub(super) const BYTES: usize = STACK_BYTES;

    /// Returns the address one past the highest byte, which is page-aligned.
    pub(super) fn top(&self) -> *mut u8 {
        self.low().wrapping_add(STACK_BYTES)
    }
}

/// Returns the numbers of processes that have not left the stacks of this process: their start is under way, or has
/// left them behind.
pub(in crate::process::start) fn leaving() -> Vec<i32> {
    POOL.processes()
}

impl Drop for Stack {
    fn drop(&mut self) {
        POOL.put(self.base);
    }
}

impl Stack {
    /// Returns the address of a word below the deepest frame. It is not 0 while a process that no caller waits for is
    /// on the stack. The kernel sets it before that process begins and clears it when the process execs or ends
    /// (`CLONE_CHILD_SETTID` and `CLONE_CHILD_CLEARTID`, clone(2)). If this process set it, it would stay set if the
    /// process that calls clone were killed just before the call. (One that looks for stops does, and then one stack is
    /// lost.)
    pub(super) fn mark(&self) -> &AtomicI32 {
        mark(self.base)
    }
}

fn is_used(base: NonNull<u8>) -> bool {
    mark(base).load(Ordering::Acquire) != 0
}

fn mark<'a>(base: NonNull<u8>) -> &'a AtomicI32 {
    // SAFETY: the lowest word of a live mapping, page-aligned; otherwise only the kernel writes to it.
    unsafe { AtomicI32::from_ptr(low(base).cast()) }
}

/// Returns the word above the mark, also below the deepest frame.
fn link<'a>(base: NonNull<u8>) -> &'a AtomicPtr<u8> {
    // SAFETY: as above, and nothing else writes to this one.
    unsafe { AtomicPtr::from_ptr(low(base).wrapping_add(mem::size_of::<*mut u8>()).cast()) }
}

fn low(base: NonNull<u8>) -> *mut u8 {
    base.as_ptr().wrapping_add(guard_bytes())
}

/// Returns the size of the guard page below the stack, which is never accessible: a child that overran its
/// stack would fault, not write into the parent's heap.
fn guard_bytes() -> usize {
    crate::base::memory::page_bytes()
}

fn map() -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh private mapping, at an address that the kernel chooses.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            guard_bytes() + STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the first page of the new mapping. Ignored: it works without a guard page as well.
    let _ = unsafe { libc::mprotect(base, guard_bytes(), libc::PROT_NONE) };
    NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Everything that the child needs, made before the child exists.
pub(in crate::process::start) struct ChildSetup<'a> {
    pub(super) steps: Steps<'a>,
    pub(super) close_others: bool,
    pub(super) options: &'a UnixOptions,
    pub(super) unset_groups: UnsetGroups,
    /// A string, or null.
    pub(super) chroot: *const c_char,
    /// The cgroup to be born in, and the file that a child which was not born there writes to.
    pub(super) cgroup: Option<RawFd>,
    pub(super) cgroup_procs: Option<RawFd>,
    /// The process whose end kills the child: this one. 0: none.
    pub(super) parent_pid: i32,
    /// The step that failed, and its error: written by the child, read by the parent. 0 is success.
    pub(super) failed_step: AtomicU32,
    pub(super) errno: AtomicI32,
    /// True if the child runs and shares the parent's memory.
    pub(super) has_begun: AtomicBool,
    /// True if the child was killed at the limit of the start, and has not ended.
    pub(super) is_stuck: AtomicBool,
    /// The pipe for the report of a child that may not share the parent's memory. Negative: none.
    pub(super) report_to: AtomicI32,
    /// True if the program or the working directory is named by a handle of the parent.
    pub(super) names_handle: bool,
    /// True if the child may close the handles that it does not inherit before it executes the program.
    pub(super) may_close_early: AtomicBool,
    /// True if the child may begin with the parent's handles themselves, and if it does: it copies those that it needs.
    pub(super) may_share_handles: AtomicBool,
    pub(super) shares_handles: AtomicBool,
}

/// A failed step and its error, as bytes for a pipe.
pub(super) type FailureReport = [u8; 8];

// SAFETY: a setup is passed to the spawner thread while its caller waits: one thread at a time uses the cells
// and follows the pointers.
unsafe impl Sync for ChildSetup<'_> {}

impl ChildSetup<'_> {
    /// Clears the results of an earlier attempt.
    pub(super) fn reset(&self, may_retry: bool, may_share_handles: bool, may_close_early: bool) {
        self.steps.may_retry.set(may_retry);
        self.steps.shares_memory.set(false);
        self.may_share_handles.store(may_share_handles, Ordering::Relaxed);
        self.may_close_early.store(may_close_early, Ordering::Relaxed);
        self.shares_handles.store(false, Ordering::Relaxed);
        self.failed_step.store(0, Ordering::Relaxed);
        self.errno.store(0, Ordering::Relaxed);
        self.has_begun.store(false, Ordering::Relaxed);
        self.is_stuck.store(false, Ordering::Relaxed);
        self.report_to.store(-1, Ordering::Relaxed);
    }

    fn fail(&self, (step, errno): Failed) {
        self.failed_step.store(step, Ordering::Relaxed);
        self.errno.store(errno, Ordering::Relaxed);
        let pipe = self.report_to.load(Ordering::Relaxed);
        if pipe >= 0 {
            let report = ((u64::from(step) << 32) | u64::from(errno as u32)).to_ne_bytes();
            let place = report.as_ptr() as usize;
            call(number::WRITE, [pipe as usize, place, report.len(), 0, 0, 0]);
        }
    }

    /// Records the report that a child sent through the pipe.
    pub(super) fn record(&self, report: FailureReport) {
        let report = u64::from_ne_bytes(report);
        self.failed_step.store((report >> 32) as u32, Ordering::Relaxed);
        self.errno.store(report as i32, Ordering::Relaxed);
    }

    /// Returns true if the child needs no handle but the standard streams of its parent.
    ///
    /// Only such a child shares the handles. One of the others may have been closed by other code, and its number may
    /// belong to the pidfd by now.
    pub(super) fn needs_no_handles(&self) -> bool {
        let is_standard =
            |source: &Stdio| !matches!(source, Stdio::From(fd) if *fd > libc::STDERR_FILENO);
        let Steps { stdio, moves, groups, foreground, own_terminal, .. } = &self.steps;
        let has_terminal = foreground.is_some() || own_terminal.is_some();
        stdio.iter().all(is_standard) && moves.is_empty() && groups.is_empty() && !has_terminal
    }

    /// Returns true if the child closes what it does not inherit before the exec.
    fn closes_early(&self, scope: CredentialScope) -> bool {
        // Not those of a process that becomes the program itself: after a failed exec it goes on with them.
        self.may_close_early.load(Ordering::Relaxed) && scope == CredentialScope::Child
    }

    pub(super) fn changes_identity(&self) -> bool {
        self.options.identity != Credentials::default()
    }
}

/// A substitute for an errno: the child could not copy the handles that it shares. It has changed none.
pub(super) const HANDLES_SHARED: i32 = i32::MAX - 1;

/// A substitute for an errno: the child was killed before its exec, at the limit of the start.
pub(super) const UNANSWERED: i32 = i32::MAX - 3;

/// The signal handlers that the child starts with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handlers {
    /// The defaults, and ignored signals: by `CLONE_CLEAR_SIGHAND`.
    Reset,
    /// The parent's functions.
    Inherited,
}

/// Runs in the child and never returns.
///
/// # Safety
/// The caller is a new process on its own stack, and `setup` stays alive until exec or exit.
pub(super) unsafe fn run_shared(setup: &ChildSetup<'_>, handlers: Handlers) -> ! {
    setup.has_begun.store(true, Ordering::Relaxed);
    setup.steps.shares_memory.set(true);
    let cgroup = match handlers {
        // clone3 created the child inside the cgroup.
        Handlers::Reset => None,
        Handlers::Inherited => {
            reset_handlers();
            setup.cgroup_procs
        }
    };
    // Only the signals that a terminal or a program sends to a whole group: each takes two calls.
    steps::die_without_dump(bit(libc::SIGQUIT as usize) | bit(libc::SIGABRT as usize));
    // A child that shares the handles needs the standard ones (`needs_no_handles`) and that of its cgroup: a copy up to
    // the highest of them costs the same however many its parent has.
    let highest = cgroup.unwrap_or(libc::STDERR_FILENO);
    if setup.shares_handles.load(Ordering::Relaxed) && !unshare_handles(highest) {
        setup.fail((step::CLOSE_OTHERS, HANDLES_SHARED));
    } else {
        // SAFETY: as this function's.
        setup.fail(unsafe { attempt(setup, cgroup, CredentialScope::Child, &mut []) });
    }
    loop {
        // This touches nothing that belongs to the parent (no atexit, no flush).
        call(number::EXIT_GROUP, [127, 0, 0, 0, 0, 0]);
    }
}

/// Runs like [`run_shared`], in a forked child. The child has its own memory, so this function returns, with the
/// failure in a setup that the parent does not see.
///
/// # Safety
/// Call this only in a forked process. `setup`'s pointers must be valid.
pub(super) unsafe fn run_forked(setup: &ChildSetup<'_>, closures: &mut [Closure]) {
    // A closure may unblock signals, and the parent's handlers are not prepared to run in two processes.
    reset_handlers();
    // SAFETY: as this function's.
    setup.fail(unsafe { attempt(setup, setup.cgroup_procs, CredentialScope::Child, closures) });
}

/// Applies the plan to this process and executes the program. Returns if something failed. Then SIGPIPE has
/// its earlier action again: a write to a closed pipe must not end this process if it did not before.
///
/// # Safety
/// This changes the calling process. `setup`'s pointers must be valid.
pub(super) unsafe fn become_program(setup: &ChildSetup<'_>, closures: &mut [Closure]) {
    const SIGPIPE: usize = libc::SIGPIPE as usize;
    let before = steps::action_of(SIGPIPE);
    // SAFETY: as this function's.
    setup.fail(unsafe { attempt(setup, None, CredentialScope::Process, closures) });
    if let Some(action) = before {
        steps::set_action(SIGPIPE, &action);
    }
}

/// Applies the plan and executes the program. Returns the failure.
///
/// # Safety
/// As for [`become_program`].
unsafe fn attempt(
    setup: &ChildSetup<'_>,
    cgroup: Option<RawFd>,
    scope: CredentialScope,
    closures: &mut [Closure],
) -> Failed {
    // SAFETY: as this function's.
    match unsafe { prepare(setup, cgroup, scope, closures) } {
        Ok(()) => (step::EXEC, steps::execute(&setup.steps, closures.is_empty())),
        Err(failed) => failed,
    }
}

/// # Safety
/// As for [`become_program`].
unsafe fn prepare(
    setup: &ChildSetup<'_>,
    cgroup: Option<RawFd>,
    scope: CredentialScope,
    closures: &mut [Closure],
) -> Result<(), Failed> {
    let closes_early = setup.closes_early(scope) && closures.is_empty();
    if setup.close_others && !closes_early {
        close_others()?;
    }
    steps::enter(&setup.steps, cgroup.map(|procs| (procs, step::CONTAIN)))?;
    change_root(setup.chroot)?;
    change_identity(&setup.options.identity, setup.unset_groups, scope)?;
    steps::enter_directory(&setup.steps)?;
    if scope == CredentialScope::Child && setup.parent_pid != 0 {
        die_with_parent(setup.parent_pid)?;
    }
    if !closures.is_empty() {
        // A closure may change the mask, so it is set before the closures run, and not again afterwards.
        steps::set_mask(setup.steps.mask);
        layout::run_closures(closures).map_err(|errno| (step::PRE_EXEC, errno))?;
    }
    // Before the exec, which wakes the parent some time before it closes them: they keep other threads' pipes open.
    if closes_early {
        let inherited = setup.steps.moves.iter().map(|place| place.to);
        // The exec closes it, and a failed one is reported by it. The first children of a process have one.
        let report = Some(setup.report_to.load(Ordering::Relaxed)).filter(|pipe| *pipe >= 0);
        let kept = inherited.chain(report);
        raw_syscall::close_from(libc::STDERR_FILENO + 1, kept).or_else(|_| close_others())?;
    }
    Ok(())
}

/// Resets all handlers: one of the parent's would run in a second process that shares its memory.
fn reset_handlers() {
    for signal in 1..=64 {
        let handler = steps::action_of(signal).map(|[handler, ..]| handler);
        if handler.is_some_and(|it| it != steps::DEFAULT && it != steps::IGNORED) {
            steps::set_handler(signal, steps::DEFAULT);
        }
    }
}

/// Copies the handles up to a number from those that the child shares with its parent. Returns false if the system
/// refuses; then they are still shared.
///
/// A child that is created with a copy of all handles takes longer the more its parent has: 0.2 ms for each thousand.
fn unshare_handles(highest: RawFd) -> bool {
    // The flag is as old as the call, Linux 5.9. Nothing is closed in the parent.
    let is_closed = !is_forced(Forced::NoCloseRange)
        && close_range(highest + 1, libc::CLOSE_RANGE_UNSHARE).is_ok();
    is_closed || syscall(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0]).is_ok()
}

/// Marks all handles from 3 on close-on-exec. Those that the child gets are copies, and are made later.
fn close_others() -> Result<(), Failed> {
    // The flag exists since Linux 5.11.
    if !is_forced(Forced::NoCloseRange) && close_range(3, libc::CLOSE_RANGE_CLOEXEC).is_ok() {
        return Ok(());
    }
    raw_syscall::each_open(|fd| {
        if fd > libc::STDERR_FILENO {
            const CLOEXEC: usize = libc::FD_CLOEXEC as usize;
            // Ignored: the only error is that it is not open.
            call(number::FCNTL, [fd as usize, libc::F_SETFD as usize, CLOEXEC, 0, 0, 0]);
        }
    })
    .map_err(|errno| (step::CLOSE_OTHERS, errno))
}

fn close_range(first: RawFd, flags: libc::c_uint) -> Result<usize, i32> {
    let all = [first as usize, libc::c_uint::MAX as usize, flags as usize, 0, 0, 0];
    syscall(libc::SYS_close_range, all)
}

/// Changes the root directory to that of a string, or does nothing for null.
fn change_root(root: *const c_char) -> Result<(), Failed> {
    if root.is_null() {
        return Ok(());
    }
    check(call(libc::SYS_chroot as usize, [root as usize, 0, 0, 0, 0, 0]), step::CHROOT)?;
    // A working directory outside the new root is a way out of it (chroot(2)), and a relative one that
    // follows is meant to be inside.
    check(call(number::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]), step::CHROOT)
}

/// The threads whose user and groups change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CredentialScope {
    /// The single thread of a child. The C library's calls would change every thread of the parent.
    Child,
    /// All threads of this process, which continues if the exec fails (nptl(7)).
    Process,
}

fn change_identity(
    identity: &Credentials,
    unset: UnsetGroups,
    scope: CredentialScope,
) -> Result<(), Failed> {
    if let Some(groups) = &identity.groups {
        set_groups(groups, scope)?;
    } else if unset != UnsetGroups::Kept {
        match set_groups(&[], scope) {
            Err((_, libc::EPERM)) if unset == UnsetGroups::DroppedIfPermitted => {}
            dropped => dropped?,
        }
    }
    if let Some(group) = identity.group {
        let result = match scope {
            CredentialScope::Child => {
                call(libc::SYS_setgid as usize, [group as usize, 0, 0, 0, 0, 0])
            }
            // SAFETY: numbers.
            CredentialScope::Process => of_library(unsafe { libc::setgid(group) }),
        };
        check(result, step::IDENTITY)?;
    }
    if let Some(user) = identity.user {
        let result = match scope {
            CredentialScope::Child => {
                call(libc::SYS_setuid as usize, [user as usize, 0, 0, 0, 0, 0])
            }
            // SAFETY: numbers.
            CredentialScope::Process => of_library(unsafe { libc::setuid(user) }),
        };
        check(result, step::IDENTITY)?;
    }
    Ok(())
}

fn set_groups(groups: &[u32], scope: CredentialScope) -> Result<(), Failed> {
    let (count, first) = (groups.len(), groups.as_ptr());
    let result = match scope {
        CredentialScope::Child => {
            call(libc::SYS_setgroups as usize, [count, first as usize, 0, 0, 0, 0])
        }
        // SAFETY: an array of that length.
        CredentialScope::Process => of_library(unsafe { libc::setgroups(count, first) }),
    };
    check(result, step::IDENTITY)
}

/// Returns the result of a call of the C library as the kernel would.
fn of_library(result: libc::c_int) -> isize {
    match result {
        0.. => result as isize,
        _ => -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
    }
}

/// Makes the child die with its parent. Runs after the change of user, which would clear the setting
/// (prctl(2), PR_SET_PDEATHSIG).
fn die_with_parent(parent: i32) -> Result<(), Failed> {
    let death = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0, 0];
    check(call(number::PRCTL, death), step::PARENT_DEATH)?;
    // The parent may have ended before the setting; then the signal would never be sent.
    // 0: the parent is in another pid namespace and invisible from here.
    let now = call(libc::SYS_getppid as usize, [0; 6]) as i32;
    if now != parent && now != 0 {
        return Err((step::PARENT_DEATH, libc::ESRCH));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_stacks_are_neither_lost_nor_reused() {
        let pool = StackPool::new();
        let mut all: Vec<_> = (0..POOLED_STACKS + 8).map(|_| pool.take().unwrap()).collect();
        for (base, pid) in all.iter().zip(2..) {
            mark(*base).store(pid, Ordering::Relaxed);
            pool.put(*base);
        }
        assert_eq!(pool.processes(), (2..2 + POOLED_STACKS as i32).collect::<Vec<_>>());
        let new = pool.take().unwrap();
        assert!(!all.contains(&new), "a process is on each of the others");
        for base in &all {
            mark(*base).store(0, Ordering::Relaxed);
        }
        assert!(pool.processes().is_empty());
        let mut taken: Vec<_> = all.iter().map(|_| pool.take().unwrap()).collect();
        taken.sort();
        all.sort();
        assert_eq!(taken, all, "each once");
        pool.put(new);
    }
}
