//! The thread that drives a shared engine.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use pipewright_os::aligned::AlignedBuf;

use super::mailbox::{Letter, Mailbox};
use super::pending::Cell;
use crate::engine::Engine;
use crate::{DiskFile, Done, Error, OperationId};

/// Works until the mailbox is closed and everything in it is done.
pub(super) fn drive(engine: Engine, mailbox: &Mailbox) {
    Driver { engine, mailbox, waiting: VecDeque::new(), under_way: HashMap::new() }.work();
}

struct Driver<'a> {
    engine: Engine,
    mailbox: &'a Mailbox,
    /// Beyond the depth.
    waiting: VecDeque<Letter>,
    /// By the number that the engine has given it: its own number, and who wants to know.
    under_way: HashMap<OperationId, (OperationId, Arc<Cell>, DiskFile)>,
}

impl Driver<'_> {
    fn work(mut self) {
        let mut broken = None;
        loop {
            let letters = self.mailbox.take();
            self.waiting.extend(letters.new);
            if !letters.cancelled.is_empty() {
                self.cancel(&letters.cancelled.into_iter().collect());
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
            if letters.closed && is_idle {
                return;
            }
            let result = result.and_then(|()| {
                if goes_on || !self.mailbox.fall_asleep(is_idle) {
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
            let Some(Letter { id, operation, cell }) = self.waiting.pop_front() else { return };
            let file = operation.file().clone();
            if let Ok(number) = self.engine.queue(operation) {
                self.under_way.insert(number, (id, cell, file));
            }
        }
    }

    /// Hands out what is done.
    fn deliver(&mut self) {
        while let Some(done) = self.engine.try_next() {
            let Some((id, cell, file)) = self.under_way.remove(&done.id) else { continue };
            // First: whoever is told may close the file, and on Windows not remove it while somebody has it.
            drop(file);
            cell.complete(self.mailbox.with_order(Done { id, ..done }));
        }
    }

    /// Nobody wants these any more. Their buffers are freed when the system has let go of them. All at once: a look at
    /// everything that waits for each of them would take minutes where tens of thousands are dropped together.
    fn cancel(&mut self, ids: &HashSet<OperationId>) {
        self.waiting.retain(|letter| !ids.contains(&letter.id));
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
        for (_, (id, cell, file)) in self.under_way.drain() {
            // The engine has the buffer, for ever.
            cell.complete(fail(id, file, AlignedBuf::default()));
        }
        for letter in self.waiting.drain(..) {
            let file = letter.operation.file().clone();
            letter.cell.complete(fail(letter.id, file, letter.operation.into_buffer()));
        }
    }
}
