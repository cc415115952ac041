//! The thread that drives a shared engine.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use pipewright_os::base::aligned::AlignedBuf;

use super::inbox::{Inbox, QueuedOperation};
use super::oneshot::Oneshot;
use crate::engine::Engine;
use crate::{DiskFile, Done, Error, OperationId};

/// Runs until the inbox is closed and everything in it is done.
pub(super) fn drive(engine: Engine, inbox: &Inbox) {
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
