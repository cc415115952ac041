//! A call on a borrowed connection: the caller talks to the worker itself. The driver handles everything but the plain
//! reply.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pipewright::CancelToken;
use pipewright_os::base::wait::{self, Slot};

use super::call::{QueuedCall, Reply, is_cancelled};
use super::connection::OutgoingMessage;
use super::mailbox::{BorrowedConnection, DriverCommand, Mailbox, UnfinishedCall};
use crate::connection::RawMessage;
use crate::error::Error;
use crate::wire::kind;

/// Sends the call, and waits for the reply. `None`: the driver has the call now.
pub(super) fn call(
    mailbox: &Mailbox,
    mut borrowed: BorrowedConnection,
    call: QueuedCall,
) -> Option<Result<Reply, Error>> {
    let bytes = call.body().len() as u64;
    if let Err(error) = borrowed.connection.inner.check_length(bytes) {
        mailbox.give_back(borrowed, None);
        return Some(Err(error));
    }
    let mut outgoing = VecDeque::from([OutgoingMessage::new(kind::CALL, call.id, call.body())]);
    let answer = match exchange(&mut borrowed, &call, &mut outgoing) {
        Ok(Some(message)) if is_reply(&message, &call, &borrowed, outgoing.is_empty()) => message,
        received => {
            let connection = mailbox.idle.remove(borrowed);
            let unfinished = UnfinishedCall { connection, call, outgoing, received };
            mailbox.send(DriverCommand::Finish(Box::new(unfinished)));
            return None;
        }
    };
    let RawMessage { kind, bytes, .. } = answer;
    let (worker, has_failed) = (borrowed.worker, kind == kind::FAILED);
    mailbox.give_back(borrowed, Some(has_failed));
    Some(match has_failed {
        true => Err(Error::failed(&bytes)),
        false => Ok(Reply { body: bytes, worker, attempts: 1 }),
    })
}

/// Returns true if the message ends the call, and nothing else is on its way.
fn is_reply(
    message: &RawMessage,
    call: &QueuedCall,
    borrowed: &BorrowedConnection,
    is_sent: bool,
) -> bool {
    let is_end = matches!(message.kind, kind::REPLY | kind::FAILED);
    is_end && message.id == call.id && is_sent && borrowed.connection.is_quiet()
}

/// Sends the call, and waits for the worker's next message. `None`: the driver has to take over.
fn exchange(
    borrowed: &mut BorrowedConnection,
    call: &QueuedCall,
    outgoing: &mut VecDeque<OutgoingMessage>,
) -> Result<Option<RawMessage>, Error> {
    // A worker that has ended since, or has sent something unexpected, gets no call.
    let _ = borrowed.connection.inner.read_socket_next();
    borrowed.connection.inner.begin_turn();
    let mut message = borrowed.connection.next(|_| Err(unexpected()))?;
    while message.is_none() {
        let connection = &mut borrowed.connection;
        let is_sent = connection.send(outgoing, |_| {})?;
        // There is no reply before the call is sent.
        let has_arrived = is_sent && connection.spin();
        if connection.inner.turn_is_over() {
            if !wait(borrowed, call, None) {
                return Ok(None);
            }
            borrowed.connection.inner.begin_turn();
        } else if !has_arrived && !wait(borrowed, call, Some(!is_sent)) {
            return Ok(None);
        }
        message = borrowed.connection.next(|body| match body.kind {
            kind::REPLY | kind::FAILED | kind::ASK if body.id == call.id && is_sent => Ok(()),
            _ => Err(unexpected()),
        })?;
    }
    Ok(message)
}

fn unexpected() -> Error {
    Error::protocol("a reply to a call that the worker does not have")
}

/// Waits for a message, or for room. Returns false if the driver has to take over. `None`: only looks if it has to.
fn wait(borrowed: &mut BorrowedConnection, call: &QueuedCall, room: Option<bool>) -> bool {
    let BorrowedConnection { connection, wake, .. } = borrowed;
    let token = match call.token.as_ref().map(CancelToken::wake) {
        Some(Ok(wake)) => Slot::Event(wake),
        // An error of the token is not an error of the worker.
        Some(Err(_)) => return false,
        None => Slot::Off,
    };
    let Some(wants_room) = room else {
        let now = Instant::now();
        let mut slots = [Slot::Event(&**wake), token];
        let looked = wait::any(&mut slots, Some(now));
        let [wake, token] = slots.map(Slot::detach).map(|slot| matches!(slot, Slot::EventDone));
        let is_cancelled = token && call.token.as_ref().is_some_and(is_cancelled);
        let is_late = call.until.is_some_and(|until| until <= now);
        return looked.is_ok() && !wake && !is_cancelled && !is_late;
    };
    if !connection.inner.fall_asleep() {
        connection.wake_up(false, Duration::ZERO, false);
        return true;
    }
    let began = Instant::now();
    let end = &connection.inner.end;
    let room = if wants_room { Slot::Room(end) } else { Slot::Off };
    let mut slots = [Slot::Event(end), room, Slot::Event(&**wake), token];
    let waited = wait::any(&mut slots, call.until);
    let [arrived, _, wake, token] =
        slots.map(Slot::detach).map(|slot| matches!(slot, Slot::EventDone));
    connection.wake_up(arrived, began.elapsed(), true);
    let is_cancelled = token && call.token.as_ref().is_some_and(is_cancelled);
    matches!(waited, Ok(1..)) && !wake && !is_cancelled
}
