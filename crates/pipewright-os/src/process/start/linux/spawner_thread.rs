//! Threads that never end, to start children that are killed when their parent ends.
//!
//! The kernel sends the parent-death signal when the *thread* that created the child ends (prctl(2)). A
//! child started from a worker thread would die with that thread, while the program still runs
//! (It4innovations/hyperqueue#823, nekename/OpenDeck#329). So the attributes that a child inherits from its
//! starting thread (affinity, scheduling, per-thread namespaces) come from one of the threads here.
//!
//! Rights are the exception. A sandbox belongs to a thread, and a new thread gets the sandbox of the thread
//! that starts it. So callers with different rights have different threads here, and the first caller of a
//! kind starts the threads of that kind.
//!
//! A start can hang (in a working directory on a file system that does not respond). A caller that has
//! waited for a moment without progress, while all threads are in a start, starts another thread of its kind.
//!
//! The main thread starts children itself: it ends with the process (unless a C program ends it alone, by
//! `pthread_exit`), and handing work to a thread and back costs as much as a start.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Gid;

use crate::base::generation::PerProcess;
use crate::base::service_thread;
use crate::process::procfs;

type BoxedTask = Box<dyn FnOnce() + Send + 'static>;

/// The time to wait for busy threads, twice. A start takes a hundredth of it.
const STUCK_AFTER: Duration = Duration::from_millis(50);

/// The maximum number of kinds of callers, which is more than any program has.
const MAX_POOLS: usize = 64;

/// The thread pools. A fork starts without any: it has neither the threads nor the work queued for them.
static POOLS: PerProcess<Mutex<Vec<&'static ThreadPool>>> =
    PerProcess::new(|| Mutex::new(Vec::new()));

/// The threads for callers with the same rights.
struct ThreadPool {
    sandbox: Sandbox,
    state: Mutex<PoolState>,
    work_added: Condvar,
}

#[derive(Default)]
struct PoolState {
    waiting: VecDeque<BoxedTask>,
    threads: usize,
    /// The number of threads that are in a start.
    busy: usize,
    /// The number of starts that a thread has begun.
    starts_begun: u64,
}

/// Runs `work` on a thread that lives as long as this process and has the rights of the calling one.
/// Returns when it has run or panicked.
pub(crate) fn run(work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
    if rustix::thread::gettid() == rustix::process::getpid() {
        work();
        return Ok(());
    }
    run_in(pool_for(Sandbox::here())?, work)
}

fn run_in(pool: &'static ThreadPool, work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
    let progress = AtomicU8::new(WAITING);
    let completion = CompletionGuard { progress: &progress, caller: thread::current() };
    let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        let completion = completion;
        // Dropped first: when the caller continues, this thread counts as one that takes more work.
        let _busy = BusyGuard(pool);
        completion.progress.store(RUNNING, Ordering::Relaxed);
        work();
    });
    // SAFETY: only the lifetime changes. This function does not return while the closure may still use what it
    // borrows: the closure drops its completion guard last, when it has run, has panicked or is discarded, and
    // this function waits for that drop.
    let boxed: BoxedTask =
        unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, BoxedTask>(boxed) };
    let submitted = pool.submit(boxed);
    let mut stuck_at = None;
    loop {
        match progress.load(Ordering::Acquire) {
            DONE => return submitted,
            WAITING => {
                let since = Instant::now();
                thread::park_timeout(STUCK_AFTER);
                if since.elapsed() >= STUCK_AFTER {
                    stuck_at = pool.add_thread_if_stuck(stuck_at);
                }
            }
            _ => thread::park(),
        }
    }
}

/// The states of a start.
const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;

/// A guard that informs the caller, when it is dropped, that nothing borrowed from the caller is in use any
/// more.
struct CompletionGuard<'a> {
    progress: &'a AtomicU8,
    caller: Thread,
}

impl Drop for CompletionGuard<'_> {
    fn drop(&mut self) {
        // A copy: once the state is DONE, the caller and its data may be gone.
        let caller = self.caller.clone();
        self.progress.store(DONE, Ordering::Release);
        caller.unpark();
    }
}

/// A guard that counts its thread as in a start, from the time when the thread has taken the work.
struct BusyGuard(&'static ThreadPool);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.state().busy -= 1;
    }
}

/// Returns the pool for callers in that sandbox, which exists as long as this process.
fn pool_for(sandbox: Sandbox) -> io::Result<&'static ThreadPool> {
    let mut pools = POOLS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.iter().find(|pool| pool.sandbox == sandbox) {
        return Ok(pool);
    }
    if pools.len() == MAX_POOLS {
        let message = "too many threads with different rights have started children that end with this process";
        return Err(io::Error::other(message));
    }
    let pool = ThreadPool::new(sandbox);
    pools.push(pool);
    Ok(pool)
}

impl PoolState {
    /// Returns true if work waits, no thread has begun a start since `stuck_at`, and none is free. A free thread that
    /// has not begun yet waits for a processor, and another one, which would never end, would wait for it too.
    fn is_stuck(&self, stuck_at: Option<u64>) -> bool {
        stuck_at == Some(self.starts_begun) && !self.waiting.is_empty() && self.busy >= self.threads
    }
}

impl ThreadPool {
    fn new(sandbox: Sandbox) -> &'static ThreadPool {
        let state = Mutex::new(PoolState::default());
        Box::leak(Box::new(ThreadPool { sandbox, state, work_added: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, work: BoxedTask) -> io::Result<()> {
        let mut state = self.state();
        if state.threads == 0 {
            self.add_thread(&mut state)?;
        }
        state.waiting.push_back(work);
        self.work_added.notify_one();
        Ok(())
    }

    /// Starts a thread, which gets the sandbox of the calling one.
    fn add_thread(&'static self, state: &mut PoolState) -> io::Result<()> {
        service_thread::start(c"pipewright-spwn", || self.run_queue())?;
        state.threads += 1;
        Ok(())
    }

    /// Starts another thread if none has begun a start since `stuck_at`. Returns the number of starts
    /// begun.
    fn add_thread_if_stuck(&'static self, stuck_at: Option<u64>) -> Option<u64> {
        let mut state = self.state();
        if state.is_stuck(stuck_at) {
            // Ignored: there is no room for another thread, and the others may still continue.
            let _ = self.add_thread(&mut state);
        }
        Some(state.starts_begun)
    }

    fn run_queue(&self) {
        let mut state = self.state();
        loop {
            let Some(work) = state.waiting.pop_front() else {
                state = self.work_added.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.starts_begun += 1;
            state.busy += 1;
            drop(state);
            // A panic would end the thread, and with it every child that it ever started. Ignored: the
            // caller notices that there is no result.
            let _ = catch_unwind(AssertUnwindSafe(work));
            state = self.state();
        }
    }
}

/// The rights of a thread. A new thread gets those of the thread that starts it.
///
/// A Landlock domain is not included, because the kernel does not report it. It also reports only the
/// number of seccomp filters, not the filters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sandbox {
    /// Users, groups, capabilities, `no_new_privs`, and the mode and number of seccomp filters.
    status: Vec<u8>,
    /// The label of SELinux, AppArmor or Smack.
    label: Vec<u8>,
    secure_bits: i32,
    session_keyring: i64,
}

/// The lines of `/proc/thread-self/status` (proc(5)) to compare, by their beginnings.
const LINES: [&[u8]; 6] = [b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp"];

impl Sandbox {
    /// Returns the rights of the calling thread.
    pub(super) fn here() -> Sandbox {
        Sandbox {
            status: procfs::read("/proc/thread-self/status")
                .map_or_else(|_| without_proc(), filter),
            label: label(),
            secure_bits: secure_bits(),
            session_keyring: session_keyring(),
        }
    }
}

/// Returns the label of this thread; empty if no security module has labels.
fn label() -> Vec<u8> {
    static NO_LABELS: AtomicBool = AtomicBool::new(false);
    if NO_LABELS.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let mut label = [0; 1024];
    let mut read = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/thread-self/attr/current", flags, Mode::empty())?;
        rustix::io::read(file, &mut label)
    };
    match read() {
        Ok(count) => label.iter().take(count).copied().collect(),
        Err(error) => {
            // No label can appear later. Other errors say nothing about labels.
            let no_labels = matches!(error, Errno::INVAL | Errno::NOENT);
            NO_LABELS.store(no_labels, Ordering::Relaxed);
            Vec::new()
        }
    }
}

fn filter(status: Vec<u8>) -> Vec<u8> {
    let lines = status.split_inclusive(|byte| *byte == b'\n');
    let lines_to_compare =
        lines.filter(|line| LINES.iter().any(|beginning| line.starts_with(beginning)));
    lines_to_compare.flatten().copied().collect()
}

/// Returns the facts that system calls report, for systems without `/proc`.
fn without_proc() -> Vec<u8> {
    format!("{:?}", Rights::here()).into_bytes()
}

/// The rights of a thread that a few system calls report. Without the label, and with the mode of seccomp only, but as
/// cheap as each start in a slot needs it: the caller may have given up any of them since the last one, and nothing
/// tells of that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// Real, effective and saved.
    users: [u32; 3],
    groups: [u32; 3],
    supplementary: Supplementary,
    /// Effective, permitted and inheritable, twice 32 bits.
    capabilities: [u32; 6],
    no_new_privs: i32,
    seccomp: i32,
    secure_bits: i32,
    session_keyring: i64,
    /// The device and the number of the root directory.
    root: Option<(u64, u64)>,
}

impl Rights {
    /// Returns the rights of the calling thread.
    pub(super) fn here() -> Rights {
        const VERSION_3: u32 = 0x2008_0522;
        let header = [VERSION_3, 0];
        let mut capabilities = [0_u32; 6];
        let place = capabilities.as_mut_ptr();
        // SAFETY: a live header, for this thread, and room for what that version writes.
        unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), place) };
        Rights {
            users: users(),
            groups: groups(),
            supplementary: Supplementary::here(),
            capabilities,
            // SAFETY: reads only.
            no_new_privs: unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) },
            // SAFETY: reads only.
            seccomp: unsafe { libc::prctl(libc::PR_GET_SECCOMP) },
            secure_bits: secure_bits(),
            session_keyring: session_keyring(),
            root: rustix::fs::stat("/").ok().map(|root| (root.st_dev, root.st_ino)),
        }
    }
}

fn users() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: places for three numbers.
    unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    [real, effective, saved]
}

fn groups() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: places for three numbers.
    unsafe { libc::getresgid(&raw mut real, &raw mut effective, &raw mut saved) };
    [real, effective, saved]
}

/// The supplementary groups of a thread: of most a few, which one call reports.
#[derive(Debug, PartialEq, Eq)]
enum Supplementary {
    Few {
        groups: [u32; FEW_GROUPS],
        /// -1 if they are not reported: a filter refuses the call.
        count: i32,
    },
    Many(Vec<Gid>),
}

const FEW_GROUPS: usize = 32;

impl Supplementary {
    fn here() -> Supplementary {
        let mut groups = [0; FEW_GROUPS];
        // SAFETY: room for that many groups.
        let count = unsafe { libc::getgroups(FEW_GROUPS as libc::c_int, groups.as_mut_ptr()) };
        if count < 0 {
            // EINVAL: there are more.
            if let Ok(many) = rustix::process::getgroups() {
                return Supplementary::Many(many);
            }
        }
        Supplementary::Few { groups, count }
    }
}

fn secure_bits() -> i32 {
    // SAFETY: reads only.
    unsafe { libc::prctl(libc::PR_GET_SECUREBITS) }
}

/// Returns the number of the session keyring. A filter may refuse the call; then the error is compared.
fn session_keyring() -> i64 {
    const KEYCTL_GET_KEYRING_ID: i32 = 0;
    const KEY_SPEC_SESSION_KEYRING: i32 = -3;
    // SAFETY: numbers; no keyring is made.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::skipped::{Need, skipped};

    fn state(threads: usize, busy: usize) -> PoolState {
        let waiting = VecDeque::from([Box::new(|| ()) as BoxedTask]);
        PoolState { waiting, threads, busy, starts_begun: 7 }
    }

    #[test]
    fn only_a_pool_whose_threads_are_all_in_a_start_is_stuck() {
        assert!(state(1, 1).is_stuck(Some(7)));
        assert!(state(3, 3).is_stuck(Some(7)));
        // On a busy machine a free thread may need longer than that until it runs.
        assert!(!state(1, 0).is_stuck(Some(7)));
        assert!(!state(3, 2).is_stuck(Some(7)));
        // The first look, a start that was begun since, and no work.
        assert!(!state(1, 1).is_stuck(None));
        assert!(!state(1, 1).is_stuck(Some(6)));
        let idle = PoolState { waiting: VecDeque::new(), ..state(1, 1) };
        assert!(!idle.is_stuck(Some(7)));
    }

    #[test]
    fn a_start_that_has_ended_leaves_no_thread_busy_also_after_a_panic() {
        let pool = ThreadPool::new(Sandbox::here());
        for _ in 0..100 {
            run_in(pool, &mut || ()).unwrap();
            // There is no result, which the caller finds out by itself.
            run_in(pool, &mut || std::panic::resume_unwind(Box::new(()))).unwrap();
            let state = pool.state();
            assert_eq!((state.busy, state.threads), (0, 1));
        }
    }

    #[test]
    fn a_start_that_hangs_delays_no_other_one() {
        let pool = ThreadPool::new(Sandbox::here());
        let (hold, held) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let held = Mutex::new(held);
            scope.spawn(move || {
                run_in(pool, &mut || drop(held.lock().map(|held| held.recv()))).unwrap()
            });
            while pool.state().busy == 0 {
                thread::yield_now();
            }
            run_in(pool, &mut || ()).unwrap();
            assert_eq!(pool.state().threads, 2);
            drop(hold);
        });
    }

    #[test]
    fn sandboxes_differ_after_no_new_privs() {
        let here = Sandbox::here();
        assert!(here.status.starts_with(b"Uid:"), "{here:?}");
        assert!(String::from_utf8_lossy(&here.status).contains("\nNoNewPrivs:\t"), "{here:?}");
        let given_up = std::thread::spawn(|| {
            let before = Sandbox::here();
            // SAFETY: numbers; the setting belongs to this thread alone.
            let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            (before, done, Sandbox::here(), without_proc())
        });
        let (before, done, after, by_calls) = given_up.join().unwrap();
        assert_eq!((&before, done), (&here, 0));
        let had_given_up = String::from_utf8_lossy(&here.status).contains("NoNewPrivs:\t1");
        assert_eq!(after == here, had_given_up);
        assert_eq!(by_calls == without_proc(), had_given_up);
    }

    /// Sets the groups of the calling thread alone, and returns its rights.
    fn with_groups(count: u32) -> Rights {
        let groups: Vec<u32> = (1..=count).collect();
        // SAFETY: live numbers; the call itself, unlike that of the C library, is for this thread alone.
        let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
        assert_eq!(done, 0);
        Rights::here()
    }

    #[test]
    fn rights_differ_by_each_group_however_many_there_are() {
        if !rustix::process::geteuid().is_root() {
            return skipped(Need::Root, "only root may choose its groups");
        }
        let in_a_thread = || {
            let counts = [0, 1, FEW_GROUPS as u32, FEW_GROUPS as u32 + 1, FEW_GROUPS as u32 + 2];
            let all = counts.map(with_groups);
            assert!(matches!(all[2].supplementary, Supplementary::Few { count: 32, .. }));
            assert!(matches!(all[3].supplementary, Supplementary::Many(_)));
            for (index, rights) in all.iter().enumerate() {
                assert_eq!(*rights, with_groups(counts[index]));
                assert!(all[..index].iter().all(|others| others != rights), "{index}");
            }
        };
        std::thread::spawn(in_a_thread).join().unwrap();
    }
}
