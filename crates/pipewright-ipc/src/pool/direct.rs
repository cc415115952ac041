//! A call whose caller talks to the worker itself. Whatever is not its plain answer is left to the driver.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pipewright::CancelToken;
use pipewright_os::base::wait::{self, Slot};

use super::driver::is_heeded;
use super::job::Job;
use super::mailbox::{Letter, Mailbox};
use super::request::Reply;
use super::shelf::{Lent, Returned};
use crate::channel::{Piece, Sending};
use crate::error::Error;
use crate::wire::kind;

/// A call that its caller could not have answered, as far as it has come.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) returned: Returned,
    pub(super) job: Job,
    /// Where not all of it has gone.
    pub(super) outgoing: VecDeque<Sending>,
    /// What came that is not its answer.
    pub(super) heard: Result<Option<Piece>, Error>,
}

/// Has the worker answer that. `None`: the driver has the call now.
pub(super) fn call(mailbox: &Mailbox, mut lent: Lent, job: Job) -> Option<Result<Reply, Error>> {
    if let Err(error) = lent.connection.line.has_agreed_to(job.body().len() as u64) {
        mailbox.give_back(lent, None);
        return Some(Err(error));
    }
    let mut outgoing = VecDeque::from([Sending::new(kind::CALL, job.id, job.body())]);
    let answer = match talk(&mut lent, &job, &mut outgoing) {
        Ok(Some(piece)) if is_answer(&piece, &job, &lent, outgoing.is_empty()) => piece,
        heard => {
            let returned = mailbox.shelf.hand_over(lent);
            mailbox.leave(Letter::Rest(Box::new(Rest { returned, job, outgoing, heard })));
            return None;
        }
    };
    let Piece { kind, bytes, .. } = answer;
    let (worker, has_failed) = (lent.worker, kind == kind::FAILED);
    mailbox.give_back(lent, Some(has_failed));
    Some(match has_failed {
        true => Err(Error::failed(&bytes)),
        false => Ok(Reply { body: bytes, worker, attempts: 1 }),
    })
}

/// Whether that is the end of the call, and nothing else is going on.
fn is_answer(piece: &Piece, job: &Job, lent: &Lent, is_sent: bool) -> bool {
    let is_end = matches!(piece.kind, kind::REPLY | kind::FAILED);
    is_end && piece.id == job.id && is_sent && lent.connection.is_quiet()
}

/// Sends the call, and waits for what the worker says. `None`: nothing that a caller could wait for.
fn talk(
    lent: &mut Lent,
    job: &Job,
    outgoing: &mut VecDeque<Sending>,
) -> Result<Option<Piece>, Error> {
    // Nothing is given to a worker that has ended since, or has said something that nobody asked for.
    lent.connection.line.look_anew();
    let mut piece = lent.connection.next()?;
    while piece.is_none() {
        let connection = &mut lent.connection;
        let is_sent = connection.send(outgoing)?;
        // There is no answer yet to what has not gone.
        let has_news = is_sent && connection.look();
        if !has_news && !wait(lent, job, !is_sent) {
            return Ok(None);
        }
        piece = lent.connection.next()?;
    }
    Ok(piece)
}

/// Waits until something has come, or there is room. `false`: the driver has to see to it.
fn wait(lent: &mut Lent, job: &Job, wants_room: bool) -> bool {
    let Lent { connection, wake, .. } = lent;
    let token = match job.token.as_ref().map(CancelToken::wake) {
        Some(Ok(wake)) => Slot::Event(wake),
        // That is none of the worker's doing.
        Some(Err(_)) => return false,
        None => Slot::Off,
    };
    if !connection.line.fall_asleep() {
        connection.wake_up(false, Duration::ZERO, false);
        return true;
    }
    let began = Instant::now();
    let end = &connection.line.end;
    let room = if wants_room { Slot::Room(end) } else { Slot::Off };
    let mut slots = [Slot::Event(end), room, Slot::Event(&**wake), token];
    let waited = wait::any(&mut slots, job.until);
    let slots = slots.map(Slot::detach);
    let (arrived, slept) = (matches!(slots[0], Slot::EventDone), began.elapsed());
    connection.wake_up(arrived, slept, true);
    let [_, _, wake, token] = slots.map(|slot| matches!(slot, Slot::EventDone));
    let is_cancelled = token && job.token.as_ref().is_some_and(|token| !is_heeded(token));
    matches!(waited, Ok(1..)) && !wake && !is_cancelled
}
