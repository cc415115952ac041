//! One operation at a time, and the wait for it.

use std::time::Instant;

use pipewright_os::aligned::AlignedBuf;
use pipewright_os::file::Action;

use super::{Engine, EngineOptions, failure, go_on};
use crate::progress::Next;
use crate::{Class, Completion, DiskFile, Done, Error, Operation, OperationId, Times};

impl Engine {
    /// Carries an operation out and waits for it. Others that are under way go on.
    ///
    /// Where nothing else is under way it is a plain call on this thread, which waits in any case
    /// ([`EngineOptions::cached_first`]).
    ///
    /// Where the system refuses to tell of operations any more ([`Engine::next`]), and only then, the buffer
    /// stays with the engine and an empty one comes back.
    pub fn run(&mut self, operation: Operation) -> Done {
        let id = OperationId(self.next_id);
        self.next_id += 1;
        let done = match self.run_here(id, operation) {
            Ok(done) => done,
            Err(operation) => return self.run_there(id, operation),
        };
        self.next_order += 1;
        done
    }

    /// Without a queue and a token. Gives back what has to go the long way.
    fn run_here(&self, id: OperationId, operation: Operation) -> Result<Done, Operation> {
        let EngineOptions { cached_first, classes, times, .. } = self.options;
        // A plain call does not say whether it waited.
        if cached_first && !classes && !times && self.slots.len() == 0 {
            return Ok(self.perform(id, operation));
        }
        // What the kernel has of ours goes on only while this thread asks for it: no wait for anything else.
        let mut done = cached_read(&self.options, operation, id)?;
        if let Ok(completion) = &mut done.result {
            completion.order = self.next_order;
        }
        Ok(done)
    }

    /// By plain calls on this thread. What has failed is not tried again in another way: a write that waits for
    /// the disk would then succeed without its data.
    fn perform(&self, id: OperationId, operation: Operation) -> Done {
        let (mut slot, mut request) = match self.prepare(id, operation) {
            Ok(prepared) => prepared,
            Err(done) => return *done,
        };
        let next = loop {
            match slot.progress.after(request.perform()) {
                Next::Again { .. } => go_on(&mut request, &slot),
                next => break next,
            }
        };
        let error = failure(next, &slot);
        self.done_with(slot, request.buffer, error)
    }

    /// By the backend.
    fn run_there(&mut self, id: OperationId, operation: Operation) -> Done {
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
            self.gather();
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
            self.gather();
            if self.done.len() == before {
                self.wait()?;
            }
        }
    }
}

/// Whether an operation is first tried on the caller.
pub(super) fn is_cached_first(options: &EngineOptions, action: Action, file: &DiskFile) -> bool {
    options.cached_first && action == Action::Read && file.may_be_cached()
}

/// Carries out a read of what is in memory, without an engine. Gives other operations back.
pub(crate) fn cached_read(
    options: &EngineOptions,
    mut operation: Operation,
    id: OperationId,
) -> Result<Done, Operation> {
    if !is_cached_first(options, operation.action, &operation.file) {
        return Err(operation);
    }
    let queued_at = options.times.then(Instant::now);
    let Operation { file, buffer, offset, .. } = &mut operation;
    // An offset that makes no sense is told by the other way, as is every error.
    let found = match i64::try_from(*offset) {
        Ok(_) => file.os().read_cached_at(buffer, *offset).ok().flatten(),
        Err(_) => None,
    };
    let Some(bytes) = found.filter(|bytes| *bytes == buffer.len()) else { return Err(operation) };
    let times = queued_at.map(|queued_at| Times {
        queued_at,
        submitted_at: queued_at,
        started_at: None,
        in_call: None,
        completed_at: Instant::now(),
    });
    let class = options.classes.then_some(Class::InlineCached);
    let result = Ok(Completion { bytes, order: 0, class, times });
    Ok(Done { id, file: operation.file, buffer: operation.buffer, result })
}
