//! Threads that never end, to start children that are killed when their parent ends.
//!
//! The kernel sends the parent-death signal when the *thread* that created the child ends (prctl(2)). A
//! child started from a worker thread would die with that thread, in the middle of a healthy program
//! (It4innovations/hyperqueue#823, nekename/OpenDeck#329). So the attributes that a child inherits from its
//! starting thread (affinity, scheduling, per-thread namespaces) come from one of the threads here.
//!
//! Rights are the exception. A sandbox belongs to a thread, and a new thread gets the sandbox of the thread
//! that starts it. So callers with different rights have different threads here, and the first caller of a
//! kind starts the threads of that kind.
//!
//! A start can hang (in a working directory on a file system that does not respond). A caller that has
//! waited for a moment without progress starts another thread of its kind.
//!
//! The main thread starts children itself: it ends with the process (unless a C program ends it alone, by
//! `pthread_exit`), and handing work to a thread and back costs as much as a start.

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

/// The maximum number of kinds of callers, which is more than any program has.
const MOST_DESKS: usize = 64;

/// The thread pools. A fork starts without any: it has neither the threads nor the work queued for them.
static DESKS: PerProcess<Mutex<Vec<&'static Desk>>> = PerProcess::new(|| Mutex::new(Vec::new()));

/// The threads for callers with the same rights.
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

/// Runs `work` on a thread that lives as long as this process and has the rights of the calling one.
/// Returns when it has run or panicked.
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
    // SAFETY: only the lifetime changes. This function does not return before the closure is gone: its
    // ticket is dropped when it has run, has panicked or is discarded, and this function waits for that.
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

/// A guard that informs the caller, when it is dropped, that nothing borrowed from the caller is in use any
/// more.
struct Ticket<'a> {
    progress: &'a AtomicU8,
    caller: Thread,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // A copy: once the state is DONE, the caller and what it lent may be gone.
        let caller = self.caller.clone();
        self.progress.store(DONE, Ordering::Release);
        caller.unpark();
    }
}

/// Returns the pool for callers in that sandbox, which exists as long as this process.
fn desk_for(sandbox: Sandbox) -> io::Result<&'static Desk> {
    let mut desks = DESKS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(desk) = desks.iter().find(|desk| desk.sandbox == sandbox) {
        return Ok(desk);
    }
    if desks.len() == MOST_DESKS {
        let words = "too many threads with different rights have started children that end with this process";
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

    /// Starts a thread, which gets the sandbox of the calling one.
    fn add_thread(&'static self, state: &mut State) -> io::Result<()> {
        service_thread::start(c"pipewright-spwn", || self.serve())?;
        state.threads += 1;
        Ok(())
    }

    /// Starts another thread if none has begun a start since `stuck_at`. Returns the number of starts
    /// begun.
    fn see_to_it_that_it_moves(&'static self, stuck_at: Option<u64>) -> Option<u64> {
        let mut state = self.state();
        if stuck_at == Some(state.begun) && !state.waiting.is_empty() {
            // Ignored: there is no room for another thread, and the others may still continue.
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
            // caller notices that there is no result.
            let _ = catch_unwind(AssertUnwindSafe(work));
            state = self.state();
        }
    }
}
