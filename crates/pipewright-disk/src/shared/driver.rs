//! The thread that drives a shared engine.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use pipewright_os::base::aligned::AlignedBuf;

use super::inbox::{Inbox, QueuedOperation};
use super::oneshot::Oneshot;
use crate::engine::Engine;
use crate::{DiskFile, Done, Error, OperationId};

/// Works until the inbox is closed and everything in it is done.
pub(super) fn drive(engine: Engine, inbox: &Inbox) {
    Driver { engine, inbox, waiting: VecDeque::new(), under_way: HashMap::new() }.work();
}

struct Driver<'a> {
    engine: Engine,
    inbox: &'a Inbox,
    /// Beyond the depth.
    waiting: VecDeque<QueuedOperation>,
    /// By the number that the engine has given it: its own number, and who wants to know.
    under_way: HashMap<OperationId, (OperationId, Arc<Oneshot>, DiskFile)>,
}

impl Driver<'_> {
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
            // What waits for room that has become free goes first.
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

    /// Gives the engine what it has room for.
    fn queue(&mut self) {
        while self.engine.has_room() {
            let Some(QueuedOperation { id, operation, oneshot }) = self.waiting.pop_front() else {
                return;
            };
            let file = operation.file().clone();
            if let Ok(number) = self.engine.queue(operation) {
                self.under_way.insert(number, (id, oneshot, file));
            }
        }
    }

    /// Hands out what is done.
    fn deliver(&mut self) {
        while let Some(done) = self.engine.try_next() {
            if let Some((id, oneshot, _)) = self.under_way.remove(&done.id) {
                oneshot.complete(self.inbox.with_order(Done { id, ..done }));
            }
        }
    }

    /// Nobody wants these any more. Their buffers are freed when the system has let go of them. All at once: a look at
    /// everything that waits for each of them would take minutes where tens of thousands are dropped together.
    fn cancel(&mut self, ids: &HashSet<OperationId>) {
        self.waiting.retain(|queued| !ids.contains(&queued.id));
        for (number, (id, ..)) in &self.under_way {
            if ids.contains(id) {
                self.engine.cancel(*number);
            }
        }
    }

    /// The system does not tell of operations any more: who waits for one is told that.
    fn give_up(&mut self, error: &Error) {
        let fail = |id, file: DiskFile, buffer| {
            let result = Err(error.again(file.path()));
            Done { id, file, buffer, result }
        };
        for (_, (id, oneshot, file)) in self.under_way.drain() {
            // The engine has the buffer, for ever.
            oneshot.complete(fail(id, file, AlignedBuf::default()));
        }
        for queued in self.waiting.drain(..) {
            let file = queued.operation.file().clone();
            queued.oneshot.complete(fail(queued.id, file, queued.operation.into_buffer()));
        }
    }
}
