//! The engine: takes operations and returns completions, on the thread that created it.

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
use pipewright_os::disk::file::{Action, FileRequest, FinishedRequest};
use pipewright_os::disk::thread_usage;

use crate::backend::Backend;
use crate::class::{Observation, class_of};
use crate::progress::{Decision, Progress};
use crate::{Completion, Done, Error, ErrorKind, Operation, OperationId, Result, Times};

use failure::failure;
pub(crate) use inline::read_cached;
pub use options::{BackendKind, EngineOptions};
pub use select::UnavailableBackend;
use slots::{OperationSlot, OperationSlots};

/// Performs operations on files, many at a time, and returns each when it is done.
///
/// An engine belongs to the thread that created it. Operations are submitted and returned without a lock and
/// without another thread. Use [`SharedEngine`](crate::SharedEngine) for any number of threads and tasks.
///
/// [`queue`](Engine::queue) several operations, [`submit`](Engine::submit) them, and fetch each with
/// [`next`](Engine::next). Or perform one operation and wait for it, with [`read_at`](Engine::read_at) and the
/// other blocking methods. No runtime is needed.
///
/// # Platform
/// See [`BackendKind`].
///
/// # Drop
/// Cancels operations that have not started and waits for the rest, so that nothing is written to a file or to
/// memory afterwards. If a disk or a file server never answers, the drop blocks forever.
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
    // Dropped first: it waits for operations that use the files in the slots.
    backend: Box<dyn Backend>,
    kind: BackendKind,
    unavailable_backends: Vec<UnavailableBackend>,
    slots: OperationSlots,
    done: VecDeque<Done>,
    options: EngineOptions,
    next_id: u64,
    next_order: u64,
}

/// A higher limit would use 100 MiB and more for empty slots, and no disk queues that many requests.
const MAX_DEPTH: usize = 1 << 20;

impl Engine {
    /// Creates an engine.
    ///
    /// # Errors
    /// [`ErrorKind::NoBackend`]: the requested backend is unavailable; contains the reason. [`BackendKind::Auto`]
    /// always finds one. [`ErrorKind::InvalidInput`]: the depth is 0 or more than 2^20.
    pub fn new(options: EngineOptions) -> Result<Engine> {
        Engine::with_wakes(options, false)
    }

    /// Creates an engine whose waits can be interrupted by another thread, if `wakes` is set.
    pub(crate) fn with_wakes(options: EngineOptions, wakes: bool) -> Result<Engine> {
        if !(1..=MAX_DEPTH).contains(&options.depth) {
            return Err(Error::new("create an engine", None, ErrorKind::InvalidInput));
        }
        let (backend, kind, unavailable_backends) = select::select(&options, wakes)?;
        Ok(Engine {
            backend,
            kind,
            unavailable_backends,
            slots: OperationSlots::new(options.depth),
            done: VecDeque::new(),
            options,
            next_id: 0,
            next_order: 0,
        })
    }

    /// Returns the backend.
    #[must_use]
    pub fn backend(&self) -> BackendKind {
        self.kind
    }

    /// Returns the preferred backends that are unavailable here, each with the reason.
    #[must_use]
    pub fn unavailable_backends(&self) -> &[UnavailableBackend] {
        &self.unavailable_backends
    }

    /// Returns the number of operations that are in flight or not fetched yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() + self.done.len()
    }

    /// Returns true if no operation is in flight or waits to be fetched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if another operation can be queued.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < self.options.depth
    }

    /// Queues an operation. The engine submits it in the next call of [`submit`](Engine::submit) or
    /// [`next`](Engine::next), or earlier.
    ///
    /// The completion reports its errors. A read of cached data may complete at once
    /// ([`EngineOptions::cached_first`]).
    ///
    /// # Errors
    /// Returns the operation if [`depth`](EngineOptions::depth) operations are in flight or not fetched yet: fetch one
    /// first. This bounds the number of buffers that an engine holds.
    pub fn queue(&mut self, operation: Operation) -> Result<OperationId, Operation> {
        if !self.has_room() {
            return Err(operation);
        }
        let id = OperationId(self.next_id);
        self.next_id += 1;
        self.start(id, operation);
        Ok(id)
    }

    /// Submits all queued operations. Doesn't wait for their completion.
    ///
    /// # Errors
    /// The system does not accept operations.
    pub fn submit(&mut self) -> Result<()> {
        let submitted_at = self.options.times.then(Instant::now);
        self.slots.mark_submitted(submitted_at);
        match self.backend.submit() {
            // The queue is full. The rest is submitted when operations have been fetched.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(Error::system("submit operations", None, error)),
            Ok(()) => Ok(()),
        }
    }

    /// Fetches a finished operation, if there is one. Neither waits nor submits.
    pub fn try_next(&mut self) -> Option<Done> {
        if self.done.is_empty() {
            self.collect_finished();
        }
        self.done.pop_front()
    }

    /// Submits the queued operations, waits for one to finish and fetches it.
    ///
    /// Returns `None` if nothing is in flight.
    ///
    /// # Errors
    /// The system does not accept operations or does not report completions. The engine keeps the operations in
    /// flight.
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

    /// Waits until an operation may have finished. Can return early.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let submitted_at = self.options.times.then(Instant::now);
        self.slots.mark_submitted(submitted_at);
        self.backend.wait().map_err(|error| Error::system("wait for operations", None, error))
    }

    /// Returns a function that interrupts a wait from another thread.
    pub(crate) fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        self.backend.waker()
    }

    /// Cancels an operation that has not started; it finishes with [`ErrorKind::Cancelled`]. An operation that has
    /// started continues. In both cases, fetch it like any other.
    pub fn cancel(&mut self, id: OperationId) {
        if let Some(token) = self.slots.find(id) {
            self.backend.cancel(token);
        }
    }

    /// Starts an operation, or finishes it at once.
    fn start(&mut self, id: OperationId, operation: Operation) {
        let (mut slot, mut request) = match self.prepare(id, operation) {
            Ok(prepared) => prepared,
            Err(done) => return self.finish(*done),
        };
        if slot.action == Action::Allocate(0) {
            // The system returns an error for 0 bytes, but copying an empty file has to work like any other copy.
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
        // There is a free slot: fewer operations than the depth are in flight.
        let token = self.slots.put(slot);
        self.push(token, request);
    }

    /// Splits an operation into its slot and the request for the backend, or finishes it if it is invalid.
    fn prepare(
        &self,
        id: OperationId,
        operation: Operation,
    ) -> Result<(OperationSlot, FileRequest), Box<Done>> {
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
            FileRequest { file: os, action, buffer, from: 0, offset, may_wait: false, direct };
        Ok((OperationSlot::new(id, file, action, progress, queued_at), request))
    }

    fn push(&mut self, token: usize, request: FileRequest) {
        if let Err(request) = self.backend.push(token, request) {
            let full = io::Error::from(io::ErrorKind::OutOfMemory);
            self.after_call(
                FinishedRequest { token, request, result: Err(full), ran: false },
                Observation::Nothing,
            );
        }
    }

    /// Takes all finished requests from the backend.
    fn collect_finished(&mut self) {
        while let Some((finished, observation)) = self.backend.take() {
            self.after_call(finished, observation);
        }
    }

    /// Continues or finishes an operation after one of its calls.
    fn after_call(&mut self, finished: FinishedRequest, observation: Observation) {
        let FinishedRequest { token, mut request, result, ran } = finished;
        let Some(slot) = self.slots.get(token) else { return };
        let next = slot.progress.after(result);
        if observation != Observation::Nothing && (self.options.classes || self.options.times) {
            slot.observations.push(observation);
        }
        if let Decision::Continue { may_wait } = next {
            advance(&mut request, slot);
            request.may_wait = may_wait;
            return self.push(token, request);
        }
        let Some(slot) = self.slots.take(token) else { return };
        let error = failure(next, &slot.file, &slot.progress, ran);
        self.complete(slot, request.buffer, error);
    }

    /// Finishes an operation.
    fn complete(&mut self, slot: OperationSlot, buffer: AlignedBuf, error: Option<Error>) {
        let result = match error {
            Some(error) => Err(error),
            None => Ok(self.completion(&slot)),
        };
        self.finish(Done { id: slot.id, file: slot.file, buffer, result });
    }

    fn completion(&self, slot: &OperationSlot) -> Completion {
        let file = &slot.file;
        let class = self.options.classes.then(|| {
            let classes = slot.observations.iter().map(|observation| {
                let has_workers = || thread_usage::kernel_workers() != Some(0);
                let options = (file.is_direct(), file.sync_mode());
                class_of(*observation, slot.action, options, file.facts(), has_workers)
            });
            // An operation of several calls gets the worst class, if the class of each is known.
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

/// Points the request at the bytes that have not been transferred yet.
fn advance(request: &mut FileRequest, slot: &OperationSlot) {
    (request.from, request.offset) = (slot.progress.moved, slot.progress.next_offset());
}
