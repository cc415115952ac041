//! One operation at a time, and the wait for it.

use pipewright_os::base::aligned::AlignedBuf;

use super::options::EngineOptions;
use super::{Engine, inline};
use crate::{Completion, DiskFile, Done, Error, Operation, OperationId};

impl Engine {
    /// Carries an operation out and waits for it. Others that are under way go on.
    ///
    /// Where nothing else is under way it is a plain call on this thread, which waits in any case
    /// ([`EngineOptions::cached_first`]).
    ///
    /// Where the system refuses to tell of operations any more ([`Engine::next`]), and only then, the buffer
    /// stays with the engine and an empty one comes back.
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

    /// Without a queue and a token. `None`: it has to go the long way.
    fn run_inline(&self, operation: &mut Operation) -> Option<Result<Completion, Error>> {
        let EngineOptions { cached_first, classes, times, .. } = self.options;
        // A plain call does not say whether it waited.
        if cached_first && !classes && !times && self.slots.len() == 0 {
            return Some(inline::perform(operation));
        }
        // What the kernel has of ours goes on only while this thread asks for it: no wait for anything else.
        inline::read_cached(&self.options, operation).map(Ok)
    }

    /// By the backend.
    fn run_queued(&mut self, id: OperationId, operation: Operation) -> Done {
        // Those that were done before are taken back by who queued them, and count against the depth.
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
        // In the order in which they were done.
        let later = std::mem::replace(&mut self.done, others);
        self.done.extend(later);
        done
    }

    /// Reads at most as many bytes as the buffer is long; 0 is the end of the file.
    ///
    /// # Errors
    /// In [`Done::result`], as for every operation: the buffer comes back with it.
    pub fn read_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::read_at(file, buffer, offset))
    }

    /// Reads until the buffer is full.
    ///
    /// # Errors
    /// As [`Engine::read_at`]; [`EndOfFile`](crate::ErrorKind::EndOfFile).
    pub fn read_exact_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::read_exact_at(file, buffer, offset))
    }

    /// Writes from the buffer what one call takes.
    ///
    /// # Errors
    /// As [`Engine::read_at`].
    pub fn write_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::write_at(file, buffer, offset))
    }

    /// Writes all of the buffer.
    ///
    /// # Errors
    /// As [`Engine::read_at`]; how much was written before is in [`Error::bytes`].
    pub fn write_all_at(&mut self, file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Done {
        self.run(Operation::write_all_at(file, buffer, offset))
    }

    /// See [`Operation::sync_all`].
    ///
    /// # Errors
    /// As [`Engine::read_at`]. A failure is never tried again: [`DiskFile::is_poisoned`].
    pub fn sync_all(&mut self, file: &DiskFile) -> Done {
        self.run(Operation::sync_all(file))
    }

    /// See [`Operation::sync_data`].
    ///
    /// # Errors
    /// As [`Engine::sync_all`].
    pub fn sync_data(&mut self, file: &DiskFile) -> Done {
        self.run(Operation::sync_data(file))
    }

    /// See [`Operation::preallocate`].
    ///
    /// # Errors
    /// As [`Engine::read_at`]; [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn preallocate(&mut self, file: &DiskFile, offset: u64, bytes: u64) -> Done {
        self.run(Operation::preallocate(file, offset, bytes))
    }

    /// Fewer operations than the depth are under way.
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
