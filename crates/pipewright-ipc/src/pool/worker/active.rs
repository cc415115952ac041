//! The calls that a worker has, and the messages that it may send about them now.

use std::collections::VecDeque;
use std::time::Instant;

use super::WorkerPhase;
use crate::connection::Body;
use crate::error::Error;
use crate::pool::call::QueuedCall;
use crate::pool::connection::OutgoingMessage;
use crate::wire::kind;

/// A call that was given to a worker.
#[derive(Debug)]
pub(in crate::pool) struct ActiveCall {
    pub(in crate::pool) call: QueuedCall,
    /// The call was cancelled: its caller has its result, and it never runs again.
    pub(in crate::pool) is_cancelled: bool,
    /// The time by which the worker has to end a cancelled call. `None`: whenever it likes.
    pub(in crate::pool) cancel_deadline: Option<Instant>,
    /// The number of items that the worker may still send: of the credit that was sent to it, not of what is queued.
    pub(in crate::pool) credit: u32,
    /// The worker waits for the answer to a question.
    pub(in crate::pool) has_question: bool,
}

impl ActiveCall {
    pub(in crate::pool) fn new(call: QueuedCall) -> ActiveCall {
        ActiveCall {
            call,
            is_cancelled: false,
            cancel_deadline: None,
            credit: 0,
            has_question: false,
        }
    }
}

/// Checks the header of a message: an error if the worker may not send it now. So a worker can make the host keep only what its
/// calls allow.
pub(super) fn expect(
    phase: WorkerPhase,
    calls: &[ActiveCall],
    outgoing: &VecDeque<OutgoingMessage>,
    body: &Body,
) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::protocol(what));
    if let (WorkerPhase::Resetting(_), 0) = (phase, body.id) {
        return match body.kind {
            kind::RESET_DONE => Ok(()),
            _ => refuse("the worker cannot be reset"),
        };
    }
    let Some(active) = calls.iter().find(|active| active.call.id == body.id) else {
        return refuse("a reply to a call that the worker does not have");
    };
    let is_queued = |is_it: fn(u8) -> bool| {
        outgoing.iter().any(|it| it.sending.id() == body.id && is_it(it.sending.kind()))
    };
    if is_queued(|kind| matches!(kind, kind::CALL | kind::OPEN_CALL)) {
        return refuse("a reply to a call that was not sent yet");
    }
    match body.kind {
        kind::REPLY | kind::FAILED => Ok(()),
        kind::ITEM if active.credit == 0 => refuse("an item without credit"),
        kind::CREDIT if active.call.items.is_none() => refuse("credit without items"),
        kind::CREDIT if body.total != 4 => refuse("credit that is not a number of 32 bits"),
        kind::ASK
            if active.has_question
                || is_queued(|kind| matches!(kind, kind::ANSWER | kind::DECLINED)) =>
        {
            refuse("a second question before the first was answered")
        }
        kind::ITEM | kind::CREDIT | kind::ASK => Ok(()),
        kind => refuse(&format!("a frame of kind {kind} from a worker")),
    }
}

/// Records that a message was sent completely.
pub(super) fn note_sent(calls: &mut [ActiveCall], message: &OutgoingMessage) {
    let (kind, id) = (message.sending.kind(), message.sending.id());
    if !matches!(kind, kind::CREDIT | kind::ITEM) {
        return;
    }
    let Some(active) = calls.iter_mut().rev().find(|active| active.call.id == id) else { return };
    match &active.call.items {
        Some(items) if kind == kind::ITEM => items.note_sent(),
        _ => active.credit = active.credit.saturating_add(message.number()),
    }
}
