//! An engine: operations in, completions out, on the thread that made it.

mod blocking;
mod failure;
mod inline;
mod options;
mod select;
mod slots;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::aligned::AlignedBuf;
use pipewright_os::disk::file::{Action, Finished, Request};

use crate::backend::Backend;
use crate::class::{Observation, class_of};
use crate::progress::{Next, Progress};
use crate::{Completion, Done, Error, ErrorKind, Operation, OperationId, Result, Times};

use failure::failure;
pub(crate) use inline::read_cached;
pub use options::{BackendKind, EngineOptions};
pub use select::UnavailableBackend;
use slots::{Slot, Slots};

/// Carries out operations on files, many at a time, and hands each back when it is done.
///
/// It belongs to the thread that made it: an operation is handed over and taken back without a lock, and
/// without another thread. [`SharedEngine`](crate::SharedEngine) is for any number of threads and tasks.
///
/// [`queue`](Engine::queue) many, [`submit`](Engine::submit), and take them back by [`next`](Engine::next);
/// or have one done, and wait for it: [`read_at`](Engine::read_at) and its kin, which need no runtime.
///
/// # Platform
/// See [`BackendKind`].
///
/// # Drop
/// What has not begun is cancelled. Waits for the rest, so that nothing is written to a file or to memory
/// afterwards. A disk or a server that never answers keeps it waiting.
///
/// ```
/// use pipewright_disk::{DiskFile, Engine, EngineOptions, Operation};
/// let path = std::env::temp_dir().join(format!("pipewright-engine-{}", std::process::id()));
/// std::fs::write(&path, vec![7; 64 << 10]).unwrap();
/// let file = DiskFile::options().read(true).open(&path)?;
///
/// let mut engine = Engine::new(EngineOptions { depth: 16, ..EngineOptions::default() })?;
/// for block in 0..16 {
///     let operation = Operation::read_at(&file, file.buffer(4096)?, block * 4096);
///     engine.queue(operation).expect("there is room for 16");
/// }
/// engine.submit()?;
/// while let Some(done) = engine.next()? {
///     assert_eq!(done.result?.bytes, 4096);
///     assert!(done.buffer.iter().all(|byte| *byte == 7));
/// }
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), pipewright_disk::Error>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    // Dropped first: waits for what uses the files that the slots hold.
    backend: Box<dyn Backend>,
    kind: BackendKind,
    unavailable_backends: Vec<UnavailableBackend>,
    slots: Slots,
    done: VecDeque<Done>,
    options: EngineOptions,
    next_id: u64,
    next_order: u64,
}

/// More would be memory for their places alone: 100 MiB and more, for requests that no disk ever holds.
const MAX_DEPTH: usize = 1 << 20;

impl Engine {
    /// Makes an engine.
    ///
    /// # Errors
    /// [`ErrorKind::NoBackend`]: the backend that was asked for cannot be used, and why.
    /// [`BackendKind::Auto`] always finds one. [`ErrorKind::InvalidInput`]: a depth of 0, or of
    /// more than 2^20.
    pub fn new(options: EngineOptions) -> Result<Engine> {
        Engine::with_wakes(options, false)
    }

    /// One whose waits can be ended from elsewhere, if asked.
    pub(crate) fn with_wakes(options: EngineOptions, wakes: bool) -> Result<Engine> {
        if !(1..=MAX_DEPTH).contains(&options.depth) {
            return Err(Error::new("make an engine", None, ErrorKind::InvalidInput));
        }
        let (backend, kind, unavailable_backends) = select::select(&options, wakes)?;
        Ok(Engine {
            backend,
            kind,
            unavailable_backends,
            slots: Slots::new(options.depth),
            done: VecDeque::new(),
            options,
            next_id: 0,
            next_order: 0,
        })
    }

    /// What carries its operations out.
    #[must_use]
    pub fn backend(&self) -> BackendKind {
        self.kind
    }

    /// The better ones that cannot be used here, each with the reason.
    #[must_use]
    pub fn unavailable_backends(&self) -> &[UnavailableBackend] {
        &self.unavailable_backends
    }

    /// How many operations are under way or waiting to be taken back.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() + self.done.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether another operation can be queued.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < self.options.depth
    }

    /// Takes an operation, to be handed to the system by the next [`submit`](Engine::submit) or
    /// [`next`](Engine::next) at the latest.
    ///
    /// Whatever is wrong with it is told when it is taken back. A read of what is in memory may be done at
    /// once ([`EngineOptions::cached_first`]).
    ///
    /// # Errors
    /// The operation, where as many as the depth are under way or waiting to be taken back: take one first.
    /// So an engine holds no more buffers than that, however much there is to do.
    pub fn queue(&mut self, operation: Operation) -> Result<OperationId, Operation> {
        if !self.has_room() {
            return Err(operation);
        }
        let id = OperationId(self.next_id);
        self.next_id += 1;
        self.start(id, operation);
        Ok(id)
    }

    /// Hands over everything that was queued, and waits for nothing but the system's own sake.
    ///
    /// # Errors
    /// The system refuses to take operations any more.
    pub fn submit(&mut self) -> Result<()> {
        let submitted_at = self.options.times.then(Instant::now);
        self.slots.mark_submitted(submitted_at);
        match self.backend.submit() {
            // Its queue is full: the rest is handed over when some have been taken.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Error::system("submit operations", None, error)),
            Ok(()) => Ok(()),
        }
    }

    /// Takes back one operation that is done, if one is. Does not wait, and hands nothing over.
    pub fn try_next(&mut self) -> Option<Done> {
        if self.done.is_empty() {
            self.collect_finished();
        }
        self.done.pop_front()
    }

    /// Takes back one operation that is done; hands over what was queued and waits for one.
    ///
    /// `None`: nothing is under way.
    ///
    /// # Errors
    /// The system refuses to take operations, or to tell of them. Those that are under way stay with the
    /// engine.
    #[expect(clippy::should_implement_trait, reason = "an iterator has no errors")]
    pub fn next(&mut self) -> Result<Option<Done>> {
        loop {
            if let Some(done) = self.try_next() {
                return Ok(Some(done));
            }
            if self.slots.len() == 0 {
                return Ok(None);
            }
            self.wait()?;
        }
    }

    /// Waits until something may be done.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let submitted_at = self.options.times.then(Instant::now);
        self.slots.mark_submitted(submitted_at);
        self.backend.wait().map_err(|error| Error::system("wait for operations", None, error))
    }

    /// Ends waits from elsewhere.
    pub(crate) fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        self.backend.waker()
    }

    /// Prevents an operation that has not begun: it is done, as [`ErrorKind::Cancelled`]. One that has begun
    /// goes on. Either is taken back like any other.
    pub fn cancel(&mut self, id: OperationId) {
        if let Some(token) = self.slots.find(id) {
            self.backend.cancel(token);
        }
    }

    /// Begins an operation, or finishes it at once.
    fn start(&mut self, id: OperationId, operation: Operation) {
        let (mut slot, mut request) = match self.prepare(id, operation) {
            Ok(prepared) => prepared,
            Err(done) => return self.finish(*done),
        };
        if slot.action == Action::Allocate(0) {
            // The system calls that invalid, and an empty file is copied like any other.
            return self.complete(slot, request.buffer, None);
        }
        if inline::is_cached_first(&self.options, slot.action, &slot.file) {
            if let Ok(Some(bytes)) =
                request.file.read_cached_at(&mut request.buffer, request.offset)
            {
                slot.progress.moved = bytes;
                if self.options.classes {
                    slot.observations.push(Observation::Inline {
                        slept: false,
                        took: Duration::ZERO,
                        device_bytes: None,
                    });
                }
                if bytes == request.buffer.len() {
                    return self.complete(slot, request.buffer, None);
                }
                advance(&mut request, &slot);
            }
        }
        // There is room: fewer than the depth are under way.
        let token = self.slots.put(slot);
        self.push(token, request);
    }

    /// An operation as it is kept, and as it is handed over; or the end of one that makes no sense.
    fn prepare(&self, id: OperationId, operation: Operation) -> Result<(Slot, Request), Box<Done>> {
        let queued_at = self.options.times.then(Instant::now);
        if let Some(rejection) = operation.rejection() {
            let Operation { file, buffer, .. } = operation;
            return Err(Box::new(Done { id, file, buffer, result: Err(rejection) }));
        }
        let progress = Progress::of(&operation);
        let Operation { file, action, buffer, offset, .. } = operation;
        let direct = file.is_direct();
        let os = file.os().clone();
        let request =
            Request { file: os, action, buffer, from: 0, offset, may_wait: false, direct };
        Ok((Slot::new(id, file, action, progress, queued_at), request))
    }

    fn push(&mut self, token: usize, request: Request) {
        if let Err(request) = self.backend.push(token, request) {
            let full = io::Error::from(io::ErrorKind::OutOfMemory);
            self.after_call(Finished { token, request, result: Err(full) }, Observation::Nothing);
        }
    }

    /// Takes what the backend has done.
    fn collect_finished(&mut self) {
        while let Some((finished, observation)) = self.backend.take() {
            self.after_call(finished, observation);
        }
    }

    /// One call of an operation is done: goes on with it, or finishes it.
    fn after_call(&mut self, finished: Finished, observation: Observation) {
        let Finished { token, mut request, result } = finished;
        let Some(slot) = self.slots.get(token) else { return };
        let next = slot.progress.after(result);
        if observation != Observation::Nothing && (self.options.classes || self.options.times) {
            slot.observations.push(observation);
        }
        if let Next::Continue { may_wait } = next {
            advance(&mut request, slot);
            request.may_wait = may_wait;
            return self.push(token, request);
        }
        let Some(slot) = self.slots.take(token) else { return };
        let error = failure(next, &slot.file, &slot.progress);
        self.complete(slot, request.buffer, error);
    }

    /// The end of an operation.
    fn complete(&mut self, slot: Slot, buffer: AlignedBuf, error: Option<Error>) {
        let result = match error {
            Some(error) => Err(error),
            None => Ok(self.completion(&slot)),
        };
        self.finish(Done { id: slot.id, file: slot.file, buffer, result });
    }

    fn completion(&self, slot: &Slot) -> Completion {
        let file = &slot.file;
        let class = self.options.classes.then(|| {
            let classes = slot.observations.iter().map(|observation| {
                class_of(*observation, slot.action, file.is_direct(), file.facts())
            });
            // Of several calls the worst is what the operation was, if it is known of all.
            classes.collect::<Option<Vec<_>>>()?.into_iter().max()
        });
        let times = slot.queued_at.map(|queued_at| Times {
            queued_at,
            submitted_at: slot.submitted_at.unwrap_or(queued_at),
            started_at: slot.started_at(),
            in_call: slot.in_calls(),
            completed_at: Instant::now(),
        });
        let (bytes, order) = (slot.progress.moved, self.next_order);
        Completion { bytes, order, class: class.flatten(), times }
    }

    fn finish(&mut self, done: Done) {
        self.next_order += 1;
        self.done.push_back(done);
    }
}

/// The next call is for what has not been moved yet.
fn advance(request: &mut Request, slot: &Slot) {
    (request.from, request.offset) = (slot.progress.moved, slot.progress.next_offset());
}
