//! The engine: takes operations and returns completions, on the thread that created it.

mod options;

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::memory::AlignedBuf;
use pipewright_os::disk::file::{Action, FileRequest, FinishedRequest};
use pipewright_os::disk::thread_usage;

use crate::backend::{Backend, WakeFn};
use crate::class::{Observation, class_of};
use crate::operation::verb;
use crate::progress::{Decision, Progress};
use crate::{
    Class, Completion, DiskFile, Done, Error, ErrorKind, Operation, OperationId, Result, Times,
};

pub use options::{BackendKind, EngineOptions, UnavailableBackend};

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
        let (backend, kind, unavailable_backends) = options::select(&options, wakes)?;
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
    pub(crate) fn waker(&self) -> Option<WakeFn> {
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
        if is_cached_first(&self.options, slot.action, &slot.file) {
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
            // Boxed, so that the usual result is not as large as this one.
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
                // Asked only where it matters: it lists the threads of this process.
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

// One operation at a time, with a blocking wait.

impl Engine {
    /// Performs an operation and waits for it. Other operations in flight continue.
    ///
    /// If nothing else is in flight, this is a plain call on the calling thread, which has to wait anyway
    /// ([`EngineOptions::cached_first`]).
    ///
    /// Returns an empty buffer only if the system stops reporting completions ([`Engine::next`]): the engine then keeps
    /// the buffer.
    pub fn run(&mut self, mut operation: Operation) -> Done {
        let id = OperationId(self.next_id);
        self.next_id += 1;
        let Some(mut result) = self.run_inline(&mut operation) else {
            return self.run_queued(id, operation);
        };
        if let Ok(completion) = &mut result {
            completion.order = self.next_order;
        }
        self.next_order += 1;
        let Operation { file, buffer, .. } = operation;
        Done { id, file, buffer, result }
    }

    /// Performs the operation without the queue. `None` if it has to be queued.
    fn run_inline(&self, operation: &mut Operation) -> Option<Result<Completion, Error>> {
        let EngineOptions { cached_first, classes, times, .. } = self.options;
        // A plain call cannot tell whether it waited.
        if cached_first && !classes && !times && self.slots.len() == 0 {
            return Some(perform(operation));
        }
        // The kernel continues requests in flight only while this thread polls for them, so don't block here.
        read_cached(&self.options, operation).map(Ok)
    }

    /// Performs the operation through the backend.
    fn run_queued(&mut self, id: OperationId, operation: Operation) -> Done {
        // Operations that finished earlier belong to the callers that queued them, and count towards the
        // depth.
        let others = std::mem::take(&mut self.done);
        let file = operation.file.clone();
        let done = match self.wait_for_room() {
            Err(error) => Done { id, file, buffer: operation.buffer, result: Err(error) },
            Ok(()) => {
                self.start(id, operation);
                self.wait_for(id).unwrap_or_else(|error| Done {
                    id,
                    file,
                    buffer: AlignedBuf::default(),
                    result: Err(error),
                })
            }
        };
        // Keep the order of completion.
        let later = std::mem::replace(&mut self.done, others);
        self.done.extend(later);
        done
    }

    /// Reads up to the length of the buffer. 0 bytes mean the end of the file.
    ///
    /// # Errors
    /// In [`Done::result`], as for every operation. [`Done`] also has the buffer.
    pub fn read_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::read_at(file, buffer, offset))
    }

    /// Reads until the buffer is full.
    ///
    /// # Errors
    /// As for [`Engine::read_at`]; [`EndOfFile`](crate::ErrorKind::EndOfFile).
    pub fn read_exact_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::read_exact_at(file, buffer, offset))
    }

    /// Writes as much of the buffer as one call accepts.
    ///
    /// # Errors
    /// As for [`Engine::read_at`].
    pub fn write_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::write_at(file, buffer, offset))
    }

    /// Writes the whole buffer.
    ///
    /// # Errors
    /// As for [`Engine::read_at`]. [`Error::bytes`] is the number of bytes written before the failure.
    pub fn write_all_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::write_all_at(file, buffer, offset))
    }

    /// Flushes data and metadata to the disk. See [`Operation::sync_all`].
    ///
    /// # Errors
    /// As for [`Engine::read_at`]. A failed sync is never retried: [`DiskFile::is_poisoned`].
    pub fn sync_all(&mut self, file: &DiskFile) -> Done {
        self.run(Operation::sync_all(file))
    }

    /// Flushes data to the disk. See [`Operation::sync_data`].
    ///
    /// # Errors
    /// As for [`Engine::sync_all`].
    pub fn sync_data(&mut self, file: &DiskFile) -> Done {
        self.run(Operation::sync_data(file))
    }

    /// Allocates disk space. See [`Operation::preallocate`].
    ///
    /// # Errors
    /// As for [`Engine::read_at`]; [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn preallocate(&mut self, file: &DiskFile, offset: u64, bytes: u64) -> Done {
        self.run(Operation::preallocate(file, offset, bytes))
    }

    /// Waits until fewer operations than the depth are in flight.
    fn wait_for_room(&mut self) -> Result<(), Error> {
        while self.slots.len() >= self.options.depth {
            self.wait()?;
            self.collect_finished();
        }
        Ok(())
    }

    fn wait_for(&mut self, id: OperationId) -> Result<Done, Error> {
        loop {
            let place = self.done.iter().position(|done| done.id == id);
            if let Some(done) = place.and_then(|place| self.done.remove(place)) {
                return Ok(done);
            }
            let before = self.done.len();
            self.collect_finished();
            if self.done.len() == before {
                self.wait()?;
            }
        }
    }
}

// Operations that need no queue: plain calls on the calling thread. The caller assigns the completion order, which is
// 0 until then.

/// Performs the operation to its end. A failure is not retried with another mechanism: a synchronous write
/// would then succeed without its data.
fn perform(operation: &mut Operation) -> Result<Completion> {
    if let Some(rejection) = operation.rejection() {
        return Err(rejection);
    }
    let mut progress = Progress::of(operation);
    let Operation { file, action, buffer, .. } = operation;
    let next = loop {
        let rest = buffer.get_mut(progress.moved..).unwrap_or_default();
        match progress.after(file.os().perform(*action, rest, progress.next_offset())) {
            Decision::Continue { .. } => {}
            next => break next,
        }
    };
    match failure(next, file, &progress, true) {
        Some(error) => Err(error),
        None => Ok(Completion { bytes: progress.moved, order: 0, class: None, times: None }),
    }
}

/// Returns true if the operation is first tried on the calling thread.
fn is_cached_first(options: &EngineOptions, action: Action, file: &DiskFile) -> bool {
    options.cached_first && action == Action::Read && file.may_be_cached()
}

/// Reads data that are in memory. `None` if the operation is no read, if the data are not in memory, or if the
/// offset is invalid, which the other paths report.
pub(crate) fn read_cached(
    options: &EngineOptions,
    operation: &mut Operation,
) -> Option<Completion> {
    let Operation { file, action, buffer, offset, .. } = operation;
    if !is_cached_first(options, *action, file) || i64::try_from(*offset).is_err() {
        return None;
    }
    let queued_at = options.times.then(Instant::now);
    let bytes = file.os().read_cached_at(buffer, *offset).ok().flatten()?;
    if bytes != buffer.len() {
        return None;
    }
    let times = queued_at.map(|queued_at| Times {
        queued_at,
        submitted_at: queued_at,
        started_at: None,
        in_call: None,
        completed_at: Instant::now(),
    });
    let class = options.classes.then_some(Class::InlineCached);
    Some(Completion { bytes, order: 0, class, times })
}

/// Returns the error of an operation that cannot go on, if it failed. A failed sync that `ran` poisons the file: it may
/// have lost data.
fn failure(next: Decision, file: &DiskFile, progress: &Progress, ran: bool) -> Option<Error> {
    let (action, path) = (progress.action, Some(file.path()));
    let error = match next {
        Decision::Done | Decision::Continue { .. } => return None,
        Decision::Failed(error) => Error::system(verb(action), path, error),
        Decision::Incomplete(kind) => Error::new(verb(action), path, kind),
    };
    if action.is_sync() && ran && may_lose_data(error.kind(), file) {
        file.poison();
    }
    Some(error.after(progress.moved))
}

/// Returns true if a sync that fails like this may have lost data. Any failure may, except that of a sync which the
/// file doesn't have (`EINVAL`, `EOPNOTSUPP`, `ENOSYS`), if it has no data to lose either.
fn may_lose_data(kind: &ErrorKind, file: &DiskFile) -> bool {
    let is_missing = matches!(kind, ErrorKind::InvalidInput | ErrorKind::Unsupported);
    !is_missing || file.os().may_have_unwritten_data()
}

// The operations in flight, by token.

/// An operation in flight. The backend holds its buffer.
#[derive(Debug)]
struct OperationSlot {
    id: OperationId,
    file: DiskFile,
    action: Action,
    progress: Progress,
    /// The observations of its calls. Empty if they were not requested.
    observations: Vec<Observation>,
    queued_at: Option<Instant>,
    submitted_at: Option<Instant>,
}

impl OperationSlot {
    fn new(
        id: OperationId,
        file: DiskFile,
        action: Action,
        progress: Progress,
        queued_at: Option<Instant>,
    ) -> OperationSlot {
        OperationSlot {
            id,
            file,
            action,
            progress,
            observations: Vec::new(),
            queued_at,
            submitted_at: None,
        }
    }

    /// Returns the total duration of the submitting calls.
    fn in_calls(&self) -> Option<Duration> {
        if self.observations.is_empty() {
            return None;
        }
        self.observations.iter().map(|observation| observation.took()).sum()
    }

    /// Returns the time at which a thread of the engine started the operation.
    fn started_at(&self) -> Option<Instant> {
        self.observations.iter().find_map(|observation| match observation {
            Observation::Thread { started_at } => *started_at,
            _ => None,
        })
    }
}

/// A slot for each operation that can be in flight.
#[derive(Debug)]
struct OperationSlots {
    slots: Vec<Option<OperationSlot>>,
    free: Vec<usize>,
    /// The tokens of operations that have not been submitted yet.
    new: Vec<usize>,
    depth: usize,
}

impl OperationSlots {
    fn new(depth: usize) -> OperationSlots {
        OperationSlots { slots: Vec::new(), free: Vec::new(), new: Vec::new(), depth }
    }

    /// Returns the number of slots in use.
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Stores an operation and returns its token.
    fn put(&mut self, slot: OperationSlot) -> usize {
        debug_assert!(self.len() < self.depth, "the caller checks for room");
        let has_time = slot.queued_at.is_some();
        let token = match self.free.pop() {
            Some(token) => {
                if let Some(place) = self.slots.get_mut(token) {
                    *place = Some(slot);
                }
                token
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        };
        if has_time {
            self.new.push(token);
        }
        token
    }

    fn get(&mut self, token: usize) -> Option<&mut OperationSlot> {
        self.slots.get_mut(token)?.as_mut()
    }

    fn take(&mut self, token: usize) -> Option<OperationSlot> {
        let slot = self.slots.get_mut(token)?.take()?;
        self.free.push(token);
        Some(slot)
    }

    fn find(&self, id: OperationId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|slot| slot.id == id))
    }

    /// Sets the submission time of all new operations.
    fn mark_submitted(&mut self, now: Option<Instant>) {
        for token in self.new.drain(..) {
            if let Some(Some(slot)) = self.slots.get_mut(token) {
                slot.submitted_at = now;
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{Error, ErrorKind as IoKind};

    use super::*;

    #[test]
    fn a_failed_sync_loses_nothing_only_where_nothing_is_kept() {
        let regular = DiskFile::options().read(true).open(std::env::current_exe().unwrap());
        let device = DiskFile::options().read(true).open("/dev/null");
        for (file, is_regular) in [(regular.unwrap(), true), (device.unwrap(), false)] {
            for (kind, loses) in [
                (IoKind::StorageFull, true),
                (IoKind::Interrupted, true),
                (IoKind::WouldBlock, true),
                (IoKind::Other, true),
                (IoKind::InvalidInput, is_regular),
                (IoKind::Unsupported, is_regular),
            ] {
                let error = crate::Error::system("sync", None, Error::from(kind));
                assert_eq!(may_lose_data(error.kind(), &file), loses, "{kind:?}");
            }
        }
    }

    #[test]
    fn files_that_the_kernel_answers_itself_keep_nothing() {
        for path in ["/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"] {
            if let Ok(file) = DiskFile::options().read(true).open(path) {
                assert!(!file.os().may_have_unwritten_data(), "{path}");
            }
        }
    }
}
