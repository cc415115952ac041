//! An engine for any number of threads and tasks.

mod driver;
mod inbox;
mod oneshot;
mod pending;

use std::sync::Arc;
use std::sync::mpsc;

use pipewright_os::base::aligned::AlignedBuf;
use pipewright_os::base::service_thread;

use crate::engine::{BackendKind, Engine, EngineOptions, UnavailableBackend, read_cached};
use crate::operation::verb;
use crate::{DiskFile, Done, Error, Operation, Result};

use inbox::{Inbox, QueuedOperation};
use oneshot::Oneshot;
pub use pending::Pending;

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
                    driver::drive(engine, &inbox);
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
            let no_driver = std::io::Error::from(std::io::ErrorKind::Unsupported);
            let path = operation.file().path().to_owned();
            let error = Error::system(verb(operation.action), Some(&path), no_driver);
            let Operation { file, buffer, .. } = operation;
            return Pending::ready(Done { id, file, buffer, result: Err(error) });
        }
        let oneshot = Arc::new(Oneshot::default());
        let pending = Pending::waiting(id, Arc::clone(&oneshot), Arc::clone(inbox));
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
