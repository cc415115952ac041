//! The messages of callers during a call: items, credit for items, and answers to questions.

use std::sync::Arc;

use super::PoolDriver;
use super::calls::find;
use crate::wire::kind;

impl PoolDriver {
    /// Sends the answer to a worker's question.
    pub(super) fn answer(&mut self, id: u64, answer: Result<Vec<u8>, String>) {
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get_mut(index) else { return };
        if !std::mem::replace(&mut active.has_question, false) || active.is_cancelled {
            return;
        }
        let answer = answer.and_then(|bytes| match worker.check_length(&bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(error.to_string()),
        });
        let (kind, bytes) = match answer {
            Ok(bytes) => (kind::ANSWER, bytes),
            Err(reason) => (kind::DECLINED, reason.into_bytes()),
        };
        worker.send(kind, id, Arc::new(bytes));
    }

    /// Allows a worker to send this many more items.
    pub(super) fn give_credit(&mut self, id: u64, more: u32) {
        if let Some((worker, _)) = find(&mut self.workers, id) {
            worker.send_credit(id, more);
        }
    }

    /// Sends an item after the request of a call. Its sender has the credit.
    pub(super) fn send_item(&mut self, id: u64, bytes: Vec<u8>) {
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get(index) else { return };
        if active.is_cancelled {
            return;
        }
        match worker.check_length(&bytes) {
            Ok(()) => worker.send(kind::ITEM, id, Arc::new(bytes)),
            // Without that item the others mean something else.
            Err(error) => self.cancel_call(id, &mut || error.share()),
        }
    }

    /// Sends the end of the items of a call, or keeps it until the call is sent.
    pub(super) fn end_items(&mut self, id: u64) {
        if let Some(call) = self.waiting.iter().find(|call| call.id == id) {
            if let Some(items) = &call.items {
                items.note_end();
            }
            return;
        }
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get(index) else { return };
        if let Some(items) = &active.call.items {
            // If the call was not sent, and goes to another worker, that one needs it too.
            items.note_end();
        }
        if !active.is_cancelled {
            worker.send(kind::ITEMS_END, id, Arc::default());
        }
    }
}
