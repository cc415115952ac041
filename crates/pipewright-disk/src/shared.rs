//! An engine for any number of threads and tasks: the thread that drives it, the inbox for what they leave to it, and
//! the futures that return its results.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::{fmt, mem};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::memory::AlignedBuf;
use pipewright_os::base::service_thread;
use pipewright_os::base::wake::block_on;
use pipewright_os::disk::file::Action;

use crate::backend::WakeFn;
use crate::engine::{BackendKind, Engine, EngineOptions, UnavailableBackend, read_cached};
use crate::operation::verb;
use crate::{DiskFile, Done, Error, Operation, OperationId, Result};

/// An [`Engine`] on its own thread, shared by any number of threads and tasks. Clones share one engine.
///
/// Each method returns a [`Pending`]: a future for any executor. A thread without an executor
/// [waits](Pending::wait) for it. Operations beyond [`depth`](EngineOptions::depth) wait in memory with their buffers,
/// in any number: limit them yourself if you start many.
///
/// The methods read cached data on the calling thread, without waking another thread
/// ([`EngineOptions::cached_first`]).
///
/// # Drop
/// Dropping the last clone doesn't block. The engine's thread performs all operations that were started, and ends.
///
/// ```
/// use pipewright_disk::{DiskFile, EngineOptions, SharedEngine};
/// let path = std::env::temp_dir().join(format!("pipewright-shared-{}", std::process::id()));
/// let file = DiskFile::options().read(true).write(true).create(true).open(&path)?;
/// let engine = SharedEngine::new(EngineOptions::default())?;
///
/// // In an async function: `engine.write_all_at(...).await`.
/// let done = engine.write_all_at(&file, file.buffer(4096)?, 0).wait();
/// assert_eq!(done.result?.bytes, 4096);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), pipewright_disk::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedEngine(Arc<Inner>);

/// The shared part. Closes the inbox when the last clone is dropped.
#[derive(Debug)]
struct Inner {
    inbox: Arc<Inbox>,
    backend: BackendKind,
    unavailable_backends: Vec<UnavailableBackend>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl SharedEngine {
    /// Starts an engine on its own thread.
    ///
    /// # Errors
    /// As for [`Engine::new`]; the thread cannot be started.
    pub fn new(options: EngineOptions) -> Result<SharedEngine> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Callers read cached data themselves.
        let own = EngineOptions { cached_first: false, ..options };
        let work = move || match Engine::with_wakes(own, true) {
            Err(error) => drop(sender.send(Err(error))),
            Ok(engine) => {
                let inbox = Arc::new(Inbox::new(options, engine.waker()));
                let started =
                    (Arc::clone(&inbox), engine.backend(), engine.unavailable_backends().to_vec());
                if sender.send(Ok(started)).is_ok() {
                    drive(engine, &inbox);
                }
            }
        };
        let no_thread = |error| Error::system("start the thread of an engine", None, error);
        service_thread::start(c"pw-disk-driver", work).map_err(no_thread)?;
        let (inbox, backend, unavailable_backends) = receiver
            .recv()
            .map_err(|_| no_thread(std::io::Error::other("the thread ended early")))??;
        Ok(SharedEngine(Arc::new(Inner { inbox, backend, unavailable_backends })))
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> BackendKind {
        self.0.backend
    }

    /// Returns the preferred backends that are unavailable here, each with the reason.
    #[must_use]
    pub fn unavailable_backends(&self) -> &[UnavailableBackend] {
        &self.0.unavailable_backends
    }

    /// Starts an operation. It runs even if the [`Pending`] is never polled. Dropping the `Pending` cancels it.
    pub fn start(&self, mut operation: Operation) -> Pending {
        let inbox = &self.0.inbox;
        let id = inbox.next_id();
        if let Some(completion) = read_cached(inbox.options(), &mut operation) {
            let Operation { file, buffer, .. } = operation;
            let done = Done { id, file, buffer, result: Ok(completion) };
            return Pending::ready(inbox.with_order(done));
        }
        if !inbox.is_at_home() {
            let Operation { file, buffer, action, .. } = operation;
            return Pending::ready(result_in_a_fork(id, file, buffer, action));
        }
        let oneshot = Arc::new(Oneshot::default());
        let pending = Pending::waiting(id, &operation, Arc::clone(&oneshot), Arc::clone(inbox));
        inbox.push(QueuedOperation { id, operation, oneshot });
        pending
    }

    /// Reads up to the length of the buffer. See [`Operation::read_at`].
    pub fn read_at(&self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Pending {
        self.start(Operation::read_at(file, buffer, offset))
    }

    /// Reads until the buffer is full. See [`Operation::read_exact_at`].
    pub fn read_exact_at(&self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Pending {
        self.start(Operation::read_exact_at(file, buffer, offset))
    }

    /// Writes as much of the buffer as one call accepts. See [`Operation::write_at`].
    pub fn write_at(&self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Pending {
        self.start(Operation::write_at(file, buffer, offset))
    }

    /// Writes the whole buffer. See [`Operation::write_all_at`].
    pub fn write_all_at(&self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Pending {
        self.start(Operation::write_all_at(file, buffer, offset))
    }

    /// Flushes data and metadata to the disk. See [`Operation::sync_all`].
    pub fn sync_all(&self, file: &DiskFile) -> Pending {
        self.start(Operation::sync_all(file))
    }

    /// Flushes data to the disk. See [`Operation::sync_data`].
    pub fn sync_data(&self, file: &DiskFile) -> Pending {
        self.start(Operation::sync_data(file))
    }

    /// Allocates disk space. See [`Operation::preallocate`].
    pub fn preallocate(&self, file: &DiskFile, offset: u64, bytes: u64) -> Pending {
        self.start(Operation::preallocate(file, offset, bytes))
    }
}

/// Returns the result of an operation whose engine stays with the process that this one is a fork of.
fn result_in_a_fork(id: OperationId, file: DiskFile, buffer: AlignedBuf, action: Action) -> Done {
    let words = "the engine stays with the process that started it, and this is a fork of that";
    let no_driver = std::io::Error::new(std::io::ErrorKind::Unsupported, words);
    let error = Error::system(verb(action), Some(file.path()), no_driver);
    Done { id, file, buffer, result: Err(error) }
}

struct Inbox {
    contents: Mutex<Contents>,
    /// Wakes the driver of an engine that cannot be interrupted. Such an engine waits only here.
    arrived: Condvar,
    waker: Option<WakeFn>,
    options: EngineOptions,
    next_id: AtomicU64,
    next_order: AtomicU64,
    made_in: Generation,
}

/// The contents of the inbox.
#[derive(Debug, Default)]
struct Contents {
    new: VecDeque<QueuedOperation>,
    cancelled: Vec<OperationId>,
    /// True if nothing will be added any more.
    closed: bool,
    /// True if the driver waits and has to be woken.
    asleep: bool,
}

/// An operation, and the place for its result.
#[derive(Debug)]
struct QueuedOperation {
    id: OperationId,
    operation: Operation,
    oneshot: Arc<Oneshot>,
}

impl Inbox {
    fn new(options: EngineOptions, waker: Option<WakeFn>) -> Inbox {
        Inbox {
            contents: Mutex::default(),
            arrived: Condvar::new(),
            waker,
            options,
            next_id: AtomicU64::new(0),
            next_order: AtomicU64::new(0),
            made_in: Generation::current(),
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // No code panics while it holds this lock.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the next operation.
    fn next_id(&self) -> OperationId {
        OperationId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the options that the caller asked for.
    fn options(&self) -> &EngineOptions {
        &self.options
    }

    fn push(&self, operation: QueuedOperation) {
        self.leave(|contents| contents.new.push_back(operation));
    }

    fn cancel(&self, id: OperationId) {
        self.leave(|contents| contents.cancelled.push(id));
    }

    fn close(&self) {
        self.leave(|contents| contents.closed = true);
    }

    /// Returns true in the process that has the driver: not in a fork of it.
    fn is_at_home(&self) -> bool {
        self.made_in.is_current()
    }

    fn leave(&self, what: impl FnOnce(&mut Contents)) {
        if !self.is_at_home() {
            return;
        }
        let mut contents = self.contents();
        what(&mut contents);
        // One wake-up is enough for everything that is added before the driver takes it.
        let was_asleep = mem::take(&mut contents.asleep);
        drop(contents);
        if was_asleep {
            match &self.waker {
                Some(wake) => wake(),
                None => self.arrived.notify_one(),
            }
        }
    }

    fn take(&self) -> Contents {
        let mut contents = self.contents();
        let closed = contents.closed;
        mem::replace(&mut *contents, Contents { closed, ..Contents::default() })
    }

    /// Prepares the driver's wait. Returns false if there is something to do.
    fn fall_asleep(&self, is_idle: bool) -> bool {
        let mut contents = self.contents();
        let is_over = is_idle && contents.closed;
        if is_over || !contents.new.is_empty() || !contents.cancelled.is_empty() {
            return false;
        }
        // Set under the lock that `leave` takes: what is added from now on wakes the driver, before or during its wait.
        contents.asleep = true;
        if self.waker.is_none() && is_idle {
            while contents.asleep {
                contents = self.arrived.wait(contents).unwrap_or_else(PoisonError::into_inner);
            }
        }
        true
    }

    /// Numbers a finished operation in the order of completion.
    fn with_order(&self, mut done: Done) -> Done {
        // Not the engine's own number: it does not know the reads of cached data that callers performed themselves.
        let order = self.next_order.fetch_add(1, Ordering::Relaxed);
        if let Ok(completion) = &mut done.result {
            completion.order = order;
        }
        done
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Runs until the inbox is closed and everything in it is done.
fn drive(engine: Engine, inbox: &Inbox) {
    EngineDriver { engine, inbox, waiting: VecDeque::new(), in_flight: HashMap::new() }.work();
}

struct EngineDriver<'a> {
    engine: Engine,
    inbox: &'a Inbox,
    /// Operations beyond the depth of the engine.
    waiting: VecDeque<QueuedOperation>,
    /// The submitted operations, by the engine's number: the number that the caller has, the place for the result,
    /// and the file.
    in_flight: HashMap<OperationId, (OperationId, Arc<Oneshot>, DiskFile)>,
}

impl EngineDriver<'_> {
    fn work(mut self) {
        let mut broken = None;
        loop {
            let contents = self.inbox.take();
            self.waiting.extend(contents.new);
            if !contents.cancelled.is_empty() {
                self.cancel(&contents.cancelled.into_iter().collect());
            }
            if let Some(error) = &broken {
                self.give_up(error);
            }
            self.queue();
            let result = self.engine.submit();
            self.deliver();
            // Operations for which there is room now are submitted before the next wait.
            let goes_on = !self.waiting.is_empty() && self.engine.has_room();
            let is_idle = self.engine.is_empty() && self.waiting.is_empty();
            if contents.closed && is_idle {
                return;
            }
            let result = result.and_then(|()| {
                if goes_on || !self.inbox.fall_asleep(is_idle) {
                    return Ok(());
                }
                self.engine.wait()
            });
            broken = result.err();
        }
    }

    /// Queues as many operations as the engine has room for.
    fn queue(&mut self) {
        while self.engine.has_room() {
            let Some(QueuedOperation { id, operation, oneshot }) = self.waiting.pop_front() else {
                return;
            };
            let file = operation.file().clone();
            if let Ok(number) = self.engine.queue(operation) {
                self.in_flight.insert(number, (id, oneshot, file));
            }
        }
    }

    /// Delivers the finished operations.
    fn deliver(&mut self) {
        while let Some(done) = self.engine.try_next() {
            let Some((id, oneshot, file)) = self.in_flight.remove(&done.id) else { continue };
            // Dropped before the caller is told, who may close the file: Windows removes no open file.
            drop(file);
            oneshot.complete(self.inbox.with_order(Done { id, ..done }));
        }
    }

    /// Cancels operations whose futures were dropped. Their buffers are freed when the system has released
    /// them. All are cancelled in one pass: searching the waiting operations once for each would take minutes
    /// if tens of thousands are dropped together.
    fn cancel(&mut self, ids: &HashSet<OperationId>) {
        self.waiting.retain(|queued| !ids.contains(&queued.id));
        for (number, (id, ..)) in &self.in_flight {
            if ids.contains(id) {
                self.engine.cancel(*number);
            }
        }
    }

    /// Fails all operations, because the system stopped reporting completions.
    fn give_up(&mut self, error: &Error) {
        let fail = |id, file: DiskFile, buffer| {
            let result = Err(error.again(file.path()));
            Done { id, file, buffer, result }
        };
        for (_, (id, oneshot, file)) in self.in_flight.drain() {
            // The engine keeps the buffer forever.
            oneshot.complete(fail(id, file, AlignedBuf::default()));
        }
        for queued in self.waiting.drain(..) {
            let file = queued.operation.file().clone();
            queued.oneshot.complete(fail(queued.id, file, queued.operation.into_buffer()));
        }
    }
}

/// The place for the result of one operation.
#[derive(Debug, Default)]
struct Oneshot(Mutex<OneshotState>);

#[derive(Debug, Default)]
enum OneshotState {
    /// No result, and the future was not polled.
    #[default]
    Empty,
    /// No result; the task to wake.
    Polled(Waker),
    Done(Box<Done>),
    /// The future was dropped.
    Abandoned,
}

impl Oneshot {
    fn state(&self) -> MutexGuard<'_, OneshotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result and wakes the task. Called by the driver.
    fn complete(&self, done: Done) {
        let before = {
            let mut state = self.state();
            let next = match &*state {
                OneshotState::Abandoned => return,
                _ => OneshotState::Done(Box::new(done)),
            };
            mem::replace(&mut *state, next)
        };
        if let OneshotState::Polled(waker) = before {
            waker.wake();
        }
    }

    fn poll(&self, context: &Context<'_>) -> Option<Box<Done>> {
        let mut state = self.state();
        match mem::take(&mut *state) {
            OneshotState::Done(done) => Some(done),
            OneshotState::Polled(waker) if waker.will_wake(context.waker()) => {
                *state = OneshotState::Polled(waker);
                None
            }
            // The first poll, or another task than the one before.
            _ => {
                *state = OneshotState::Polled(context.waker().clone());
                None
            }
        }
    }

    /// Discards the result. Returns true if there is none yet.
    fn abandon(&self) -> bool {
        let before = mem::replace(&mut *self.state(), OneshotState::Abandoned);
        !matches!(before, OneshotState::Done(_))
    }
}

// The caller's side of an operation. The driver leaves the result in the `Oneshot`, and the `Pending` takes it out.

/// A started operation: await it, or [wait](Pending::wait) for it.
///
/// The operation stays with the process that started it. In a fork of that, its result is an error of the kind
/// [`Unsupported`](crate::ErrorKind::Unsupported), without the buffer.
///
/// # Drop
/// Cancels the operation if it has not started; in a fork, nothing. A write that has started continues. The buffer and
/// the file are freed when the system has released them.
#[derive(Debug)]
#[must_use = "dropping it cancels the operation"]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    Waiting {
        id: OperationId,
        file: DiskFile,
        action: Action,
        oneshot: Arc<Oneshot>,
        inbox: Arc<Inbox>,
    },
    Ready(Box<Done>),
    Taken,
}

impl Pending {
    fn waiting(
        id: OperationId,
        operation: &Operation,
        oneshot: Arc<Oneshot>,
        inbox: Arc<Inbox>,
    ) -> Pending {
        let (file, action) = (operation.file().clone(), operation.action);
        Pending(State::Waiting { id, file, action, oneshot, inbox })
    }

    fn ready(done: Done) -> Pending {
        Pending(State::Ready(Box::new(done)))
    }

    /// Blocks the calling thread until the operation is done. Needs no runtime.
    pub fn wait(self) -> Done {
        let mut this = pin!(self);
        block_on(|context| this.as_mut().poll(context))
    }
}

impl Future for Pending {
    type Output = Done;

    /// # Panics
    /// If it is polled again after it was ready, as for any future.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        if let State::Waiting { id, file, action, oneshot, inbox } = &self.0 {
            // The driver is another thread, which a fork does not have, and may have held the lock.
            let done = match inbox.is_at_home() {
                true => oneshot.poll(context),
                false => {
                    let buffer = AlignedBuf::default();
                    Some(Box::new(result_in_a_fork(*id, file.clone(), buffer, *action)))
                }
            };
            match done {
                Some(done) => self.0 = State::Ready(done),
                None => return Poll::Pending,
            }
        }
        match mem::replace(&mut self.0, State::Taken) {
            State::Ready(done) => Poll::Ready(*done),
            State::Waiting { .. } | State::Taken => panic!("polled after it was ready"),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Waiting { id, oneshot, inbox, .. } = &self.0 {
            // In a fork, another thread may have had the lock, for ever.
            if inbox.is_at_home() && oneshot.abandon() {
                inbox.cancel(*id);
            }
        }
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "clippy knows no helper of tests below such a condition")]
mod tests {
    use pipewright_test_macros::isolated_test;
    use pipewright_tests::watchdog::in_a_fork;

    use super::*;

    /// Returns an operation whose driver never completes it, and the driver's half.
    fn pending() -> (Pending, Arc<Oneshot>, Arc<Inbox>) {
        let oneshot = Arc::new(Oneshot::default());
        let inbox = Arc::new(Inbox::new(EngineOptions::default(), None));
        let file = DiskFile::options().read(true).open(std::env::current_exe().unwrap()).unwrap();
        let operation = Operation::read_at(&file, file.buffer(4096).unwrap(), 0);
        let (half, inbox_of_pending) = (Arc::clone(&oneshot), Arc::clone(&inbox));
        (Pending::waiting(OperationId(0), &operation, half, inbox_of_pending), oneshot, inbox)
    }

    #[isolated_test]
    fn a_fork_drops_an_operation_whose_driver_was_about_to_complete_it() {
        let (pending, oneshot, inbox) = pending();
        let mut pending = Some(pending);
        let driver = oneshot.state();
        assert!(in_a_fork(|| drop(pending.take())), "the fork hangs");
        drop(driver);
        drop(pending);
        assert_eq!(inbox.take().cancelled, [OperationId(0)]);
    }

    #[isolated_test]
    fn an_operation_that_a_fork_waits_for_is_an_error_there() {
        let (pending, oneshot, _inbox) = pending();
        let mut pending = Some(pending);
        let driver = oneshot.state();
        let waits = || {
            let error = pending.take().unwrap().wait().result.unwrap_err();
            assert_eq!(error.kind(), &crate::ErrorKind::Unsupported);
            assert!(error.to_string().ends_with("this is a fork of that"), "{error}");
        };
        assert!(in_a_fork(waits), "the fork hangs");
        drop(driver);
    }
}
