//! A thread that never ends, to start children that are killed when their parent does.
//!
//! The kernel sends the parent-death signal when the *thread* that made the child ends
//! (prctl(2)): a child started from a worker thread would die with it, in the middle of a healthy
//! program (It4innovations/hyperqueue#823, nekename/OpenDeck#329). What a child inherits of the
//! thread that starts it (affinity, scheduling, per-thread namespaces) it has from this one.
//!
//! The main thread needs no stand-in: it ends with the process (unless a C program ends it alone,
//! by `pthread_exit`), and two hand-overs between threads cost as much as a start.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use crate::helper;

type Work = Box<dyn FnOnce() + Send + 'static>;

static DESK: Mutex<Desk> = Mutex::new(Desk { waiting: Vec::new(), staffed_in: None });
static CALLED: Condvar = Condvar::new();

struct Desk {
    waiting: Vec<Work>,
    /// The process whose thread serves here: after a fork the child has this value and not the
    /// thread.
    staffed_in: Option<u32>,
}

/// Runs `work` on a thread that lasts as long as this process, and waits until it has run, or has
/// panicked.
pub(crate) fn run(work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
    if rustix::thread::gettid() == rustix::process::getpid() {
        work();
        return Ok(());
    }
    let done = AtomicBool::new(false);
    let ticket = Ticket { done: &done, caller: thread::current() };
    let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        work();
        drop(ticket);
    });
    // SAFETY: only the lifetime changes. This function does not return before the closure is gone:
    // its ticket is dropped when it has run, has panicked or is thrown away, and that is waited for.
    let boxed: Work = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Work>(boxed) };
    let called = call(boxed);
    while !done.load(Ordering::Acquire) {
        thread::park();
    }
    called
}

/// Tells the caller, when it is dropped, that nothing of the caller's is in use any more.
struct Ticket<'a> {
    done: &'a AtomicBool,
    caller: Thread,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // A copy: once the flag is up, the caller and what it lent may be gone.
        let caller = self.caller.clone();
        self.done.store(true, Ordering::Release);
        caller.unpark();
    }
}

fn desk() -> MutexGuard<'static, Desk> {
    DESK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn call(work: Work) -> io::Result<()> {
    let mut desk = desk();
    let process = std::process::id();
    if desk.staffed_in != Some(process) {
        // What a fork brought along belongs to callers that are not in this process: it must
        // neither be run nor be dropped.
        std::mem::forget(std::mem::take(&mut desk.waiting));
        helper::start(c"pipewright-spwn", serve)?;
        desk.staffed_in = Some(process);
    }
    desk.waiting.push(work);
    CALLED.notify_one();
    Ok(())
}

fn serve() {
    let mut desk = desk();
    loop {
        while desk.waiting.is_empty() {
            desk = CALLED.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        let work = desk.waiting.remove(0);
        drop(desk);
        // A panic would end the thread, and with it every child that it ever started. Ignored: the
        // caller sees that there is no answer.
        let _ = catch_unwind(AssertUnwindSafe(work));
        desk = self::desk();
    }
}
