//! The backends that perform plain calls: on threads, started as they are needed up to a limit, or on the calling
//! thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pipewright_os::base::generation::Generation;
use pipewright_os::base::service_thread;
use pipewright_os::disk::file::{FileRequest, FinishedRequest};

use super::{Backend, CallMonitor, WakeFn, cancelled, remove};
use crate::class::Observation;

#[derive(Debug)]
pub(crate) struct PoolBackend {
    shared: Arc<Shared>,
    /// The requests that have not been submitted.
    pushed: VecDeque<(usize, FileRequest)>,
    max_threads: usize,
    /// The process that has the threads. A fork has none of them, but may have a lock that one of them held.
    made_in: Generation,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled when there is work, or when the pool closes.
    work: Condvar,
    /// Signalled when a request is finished, or to interrupt a wait.
    done: Condvar,
    /// True if start times were requested.
    times: bool,
    on_finished: std::sync::OnceLock<WakeFn>,
}

#[derive(Debug, Default)]
struct State {
    work: VecDeque<(usize, FileRequest)>,
    done: VecDeque<(FinishedRequest, Observation)>,
    threads: usize,
    /// The number of threads that wait for work.
    idle: usize,
    /// The number of operations that threads are performing.
    running: usize,
    woken: bool,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl PoolBackend {
    pub(crate) fn new(max_threads: usize, times: bool) -> PoolBackend {
        let shared = Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            times,
            on_finished: std::sync::OnceLock::new(),
        };
        PoolBackend {
            shared: Arc::new(shared),
            pushed: VecDeque::new(),
            max_threads: max_threads.max(1),
            made_in: Generation::current(),
        }
    }

    /// Fails in a fork of the process that has the threads.
    fn check_home(&self) -> io::Result<()> {
        if self.made_in.is_current() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Sets a function to call after each finished request.
    pub(super) fn set_on_finished(&mut self, wake: WakeFn) {
        // Ignored: it is set only once.
        let _ = self.shared.on_finished.set(wake);
    }

    /// Starts threads for work that no idle thread can take.
    fn start_threads(&self, mut state: MutexGuard<'_, State>) {
        let needed = state.work.len().saturating_sub(state.idle);
        let new = needed.min(self.max_threads.saturating_sub(state.threads));
        state.threads += new;
        let waiting = state.idle.min(state.work.len());
        drop(state);
        for _ in 0..waiting {
            self.shared.work.notify_one();
        }
        for _ in 0..new {
            let shared = Arc::clone(&self.shared);
            if service_thread::start(c"pw-disk-worker", move || shared.work()).is_err() {
                self.shared.state().threads -= 1;
            }
        }
        if self.shared.state().threads == 0 {
            // No thread could be started, so do the work here.
            self.shared.drain();
        }
    }
}

impl Shared {
    /// Performs requests until the pool closes. Runs on each thread of the pool.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((token, request)) = state.work.pop_front() {
                state.running += 1;
                drop(state);
                let done = self.perform(token, request);
                state = self.state();
                state.running -= 1;
                state = self.finish(state, done);
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn perform(&self, token: usize, mut request: FileRequest) -> (FinishedRequest, Observation) {
        let started_at = self.times.then(Instant::now);
        let result = request.perform();
        (FinishedRequest { token, request, result, ran: true }, Observation::Thread { started_at })
    }

    fn finish<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        done: (FinishedRequest, Observation),
    ) -> MutexGuard<'a, State> {
        state.done.push_back(done);
        self.done.notify_one();
        let Some(wake) = self.on_finished.get() else { return state };
        // Not under the lock: the thread that wakes takes it at once.
        drop(state);
        wake();
        self.state()
    }

    fn drain(&self) {
        let mut state = self.state();
        while let Some((token, request)) = state.work.pop_front() {
            drop(state);
            let done = self.perform(token, request);
            state = self.state();
            state = self.finish(state, done);
        }
    }
}

impl Backend for PoolBackend {
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.pushed.push_back((token, request));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.check_home()?;
        if !self.pushed.is_empty() {
            let mut state = self.shared.state();
            state.work.append(&mut self.pushed);
            self.start_threads(state);
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.submit()?;
        let mut state = self.shared.state();
        while state.done.is_empty() && !state.woken {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.woken = false;
        Ok(())
    }

    fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        self.check_home().ok()?;
        self.shared.state().done.pop_front()
    }

    fn cancel(&mut self, token: usize) {
        if self.check_home().is_err() {
            return;
        }
        let mut state = self.shared.state();
        let found = remove(&mut self.pushed, token).or_else(|| remove(&mut state.work, token));
        if let Some(request) = found {
            let done = (cancelled(token, request), Observation::Nothing);
            drop(self.shared.finish(state, done));
        }
    }

    fn waker(&self) -> Option<WakeFn> {
        let shared = Arc::clone(&self.shared);
        Some(Box::new(move || {
            shared.state().woken = true;
            shared.done.notify_one();
        }))
    }
}

impl Drop for PoolBackend {
    fn drop(&mut self) {
        if self.check_home().is_err() {
            return;
        }
        let mut state = self.shared.state();
        state.closed = true;
        // Requests that have not started never will.
        state.work.clear();
        self.shared.work.notify_all();
        // Wait for those that have: no write may happen after the drop.
        while state.running > 0 {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[derive(Debug)]
pub(crate) struct CallerBackend {
    pushed: VecDeque<(usize, FileRequest)>,
    done: VecDeque<(FinishedRequest, Observation)>,
    monitor: Option<CallMonitor>,
}

impl CallerBackend {
    pub(crate) fn new(classes: bool, times: bool) -> CallerBackend {
        let monitor = classes.then(|| CallMonitor::new(times));
        CallerBackend { pushed: VecDeque::new(), done: VecDeque::new(), monitor }
    }
}

impl Backend for CallerBackend {
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.pushed.push_back((token, request));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        while let Some((token, mut request)) = self.pushed.pop_front() {
            let before = self.monitor.as_ref().map(CallMonitor::snapshot);
            let result = request.perform();
            let observation = match (&self.monitor, before) {
                (Some(monitor), Some(before)) => monitor.observe_inline(before),
                _ => Observation::Nothing,
            };
            let finished = FinishedRequest { token, request, result, ran: true };
            self.done.push_back((finished, observation));
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.submit()
    }

    fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        self.done.pop_front()
    }

    fn cancel(&mut self, token: usize) {
        if let Some(request) = remove(&mut self.pushed, token) {
            self.done.push_back((cancelled(token, request), Observation::Nothing));
        }
    }

    fn waker(&self) -> Option<WakeFn> {
        None
    }
}
