//! One operation at a time, and the wait for it.

use std::time::Instant;

use pipewright_os::aligned::AlignedBuf;
use pipewright_os::file::Action;

use super::{Engine, EngineOptions};
use crate::{Class, Completion, DiskFile, Done, Error, Operation, OperationId, Times};

impl Engine {
    /// Carries an operation out and waits for it. Others that are under way go on.
    ///
    /// Where the system refuses to tell of operations any more ([`Engine::next`]), and only then, the buffer
    /// stays with the engine and an empty one comes back.
    pub fn run(&mut self, operation: Operation) -> Done {
        // Those that were done before are taken back by who queued them, and count against the depth.
        let others = std::mem::take(&mut self.done);
        let (id, file) = (OperationId(self.next_id), operation.file.clone());
        self.next_id += 1;
        let result = self.wait_for_room();
        let done = match result {
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
    /// Where nothing else is under way this is one plain read on the calling thread, which waits in any case.
    ///
    /// # Errors
    /// In [`Done::result`], as for every operation: the buffer comes back with it.
    pub fn read_at(&mut self, file: &DiskFile, mut buffer: AlignedBuf, offset: u64) -> Done {
        match self.read_here(file, &mut buffer, offset) {
            Some(bytes) => self.done_here(file, buffer, bytes),
            None => self.run(Operation::read_at(file, buffer, offset)),
        }
    }

    /// Reads until the buffer is full.
    ///
    /// # Errors
    /// As [`Engine::read_at`]; [`EndOfFile`](crate::ErrorKind::EndOfFile).
    pub fn read_exact_at(&mut self, file: &DiskFile, mut buffer: AlignedBuf, offset: u64) -> Done {
        match self.read_here(file, &mut buffer, offset) {
            Some(bytes) if bytes == buffer.len() => self.done_here(file, buffer, bytes),
            _ => self.run(Operation::read_exact_at(file, buffer, offset)),
        }
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

    /// A read without a queue, a token and a look at the clock. `None`: it has to go the long way, which also
    /// tells what is wrong with it.
    fn read_here(&self, file: &DiskFile, buffer: &mut AlignedBuf, offset: u64) -> Option<usize> {
        let is_asked_about = self.options.classes || self.options.times;
        if is_asked_about || !self.options.cached_first {
            return None;
        }
        if self.slots.len() > 0 {
            // What the kernel has of ours goes on only while this thread asks for it: no wait for anything else.
            return file.may_be_cached().then(|| whole_from_cache(file, buffer, offset))?;
        }
        let is_possible = file.objection(Action::Read, buffer, offset).is_none();
        is_possible.then(|| file.os().read_at(buffer, offset).ok())?
    }

    fn done_here(&mut self, file: &DiskFile, buffer: AlignedBuf, bytes: usize) -> Done {
        let (id, order) = (OperationId(self.next_id), self.next_order);
        self.next_id += 1;
        self.next_order += 1;
        let result = Ok(Completion { bytes, order, class: None, times: None });
        Done { id, file: file.clone(), buffer, result }
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

/// All that the buffer takes, if it is in memory.
fn whole_from_cache(file: &DiskFile, buffer: &mut AlignedBuf, offset: u64) -> Option<usize> {
    // An offset that makes no sense is told by the other way.
    i64::try_from(offset).ok()?;
    let bytes = file.os().read_cached_at(buffer, offset).ok()??;
    (bytes == buffer.len()).then_some(bytes)
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
    let Some(bytes) = whole_from_cache(file, buffer, *offset) else { return Err(operation) };
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
