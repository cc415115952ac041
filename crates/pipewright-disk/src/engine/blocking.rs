//! One operation at a time, with a blocking wait.

use pipewright_os::base::aligned::AlignedBuf;

use super::options::EngineOptions;
use super::{Engine, inline};
use crate::{Completion, DiskFile, Done, Error, Operation, OperationId};

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
            return Some(inline::perform(operation));
        }
        // The kernel continues requests in flight only while this thread polls for them, so don't block here.
        inline::read_cached(&self.options, operation).map(Ok)
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
