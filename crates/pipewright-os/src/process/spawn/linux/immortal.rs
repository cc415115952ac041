//! Threads that never end, to start children that are killed when their parent does.
//!
//! The kernel sends the parent-death signal when the *thread* that made the child ends
//! (prctl(2)): a child started from a worker thread would die with it, in the middle of a healthy
//! program (It4innovations/hyperqueue#823, nekename/OpenDeck#329). What a child inherits of the
//! thread that starts it (affinity, scheduling, per-thread namespaces) it has from one of these.
//!
//! Not what it may do. A sandbox is of a thread, and a thread has that of the one that has started it. So
//! callers that may do different things have different threads here, and the first of the kind starts theirs.
//!
//! A start can hang (in a working directory of a file system that does not answer). Who has waited in
//! vain for a moment starts another thread of the kind.
//!
//! The main thread needs no stand-in: it ends with the process (unless a C program ends it alone,
//! by `pthread_exit`), and two hand-overs between threads cost as much as a start.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::sandbox::Sandbox;
use crate::base::generation::PerProcess;
use crate::base::service_thread;

type Work = Box<dyn FnOnce() + Send + 'static>;

/// The time to wait for busy threads, twice. A start takes a hundredth of it.
const PATIENCE: Duration = Duration::from_millis(50);

/// More kinds of callers than any program has.
const MOST_DESKS: usize = 64;

/// A fork has none: neither the threads nor what was left for them are in it.
static DESKS: PerProcess<Mutex<Vec<&'static Desk>>> = PerProcess::new(|| Mutex::new(Vec::new()));

/// The threads for callers that may do the same things.
struct Desk {
    sandbox: Sandbox,
    state: Mutex<State>,
    called: Condvar,
}

struct State {
    waiting: VecDeque<Work>,
    threads: usize,
    /// The number of starts that a thread has begun.
    begun: u64,
}

/// Runs `work` on a thread that lasts as long as this process and may do what the calling one may, and
/// waits until it has run, or has panicked.
pub(crate) fn run(work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
    if rustix::thread::gettid() == rustix::process::getpid() {
        work();
        return Ok(());
    }
    let desk = desk_for(Sandbox::here())?;
    let progress = AtomicU8::new(WAITING);
    let ticket = Ticket { progress: &progress, caller: thread::current() };
    let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        ticket.progress.store(BEGUN, Ordering::Relaxed);
        work();
        drop(ticket);
    });
    // SAFETY: only the lifetime changes. This function does not return before the closure is gone:
    // its ticket is dropped when it has run, has panicked or is thrown away, and that is waited for.
    let boxed: Work = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Work>(boxed) };
    let called = desk.call(boxed);
    let mut stuck_at = None;
    loop {
        match progress.load(Ordering::Acquire) {
            DONE => return called,
            WAITING => {
                let since = Instant::now();
                thread::park_timeout(PATIENCE);
                if since.elapsed() >= PATIENCE {
                    stuck_at = desk.see_to_it_that_it_moves(stuck_at);
                }
            }
            _ => thread::park(),
        }
    }
}

/// The states of a start.
const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const DONE: u8 = 2;

/// Tells the caller, when it is dropped, that nothing of the caller's is in use any more.
struct Ticket<'a> {
    progress: &'a AtomicU8,
    caller: Thread,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // A copy: once it is done, the caller and what it lent may be gone.
        let caller = self.caller.clone();
        self.progress.store(DONE, Ordering::Release);
        caller.unpark();
    }
}

/// The desk for callers in that sandbox. It is there for as long as this process.
fn desk_for(sandbox: Sandbox) -> io::Result<&'static Desk> {
    let mut desks = DESKS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(desk) = desks.iter().find(|desk| desk.sandbox == sandbox) {
        return Ok(desk);
    }
    if desks.len() == MOST_DESKS {
        let words = "too many threads with rights of their own have started children that end with this process";
        return Err(io::Error::other(words));
    }
    let state = Mutex::new(State { waiting: VecDeque::new(), threads: 0, begun: 0 });
    let desk: &Desk = Box::leak(Box::new(Desk { sandbox, state, called: Condvar::new() }));
    desks.push(desk);
    Ok(desk)
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&'static self, work: Work) -> io::Result<()> {
        let mut state = self.state();
        if state.threads == 0 {
            self.add_thread(&mut state)?;
        }
        state.waiting.push_back(work);
        self.called.notify_one();
        Ok(())
    }

    /// Starts a thread, which has the sandbox of the calling one.
    fn add_thread(&'static self, state: &mut State) -> io::Result<()> {
        service_thread::start(c"pipewright-spwn", || self.serve())?;
        state.threads += 1;
        Ok(())
    }

    /// Starts another thread if none has begun anything since `stuck_at`. Gives how far they are.
    fn see_to_it_that_it_moves(&'static self, stuck_at: Option<u64>) -> Option<u64> {
        let mut state = self.state();
        if stuck_at == Some(state.begun) && !state.waiting.is_empty() {
            // Ignored: no room for another thread, and the others may still come.
            let _ = self.add_thread(&mut state);
        }
        Some(state.begun)
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            let Some(work) = state.waiting.pop_front() else {
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.begun += 1;
            drop(state);
            // A panic would end the thread, and with it every child that it ever started. Ignored: the
            // caller sees that there is no answer.
            let _ = catch_unwind(AssertUnwindSafe(work));
            state = self.state();
        }
    }
}
