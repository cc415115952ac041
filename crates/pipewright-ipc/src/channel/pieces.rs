//! Messages that are sent and received piece by piece, by a loop that has many connections and may wait
//! for none of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::incoming::Progress;
use super::line::Line;
use super::outgoing::FRAME_BYTES;
use crate::error::Error;
use crate::wire::{Header, kind};

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct Sending {
    kind: u8,
    id: u64,
    body: Arc<Vec<u8>>,
    /// How much of it has been handed over.
    at: usize,
    frames: usize,
}

impl Sending {
    pub(crate) fn new(kind: u8, id: u64, body: Arc<Vec<u8>>) -> Sending {
        Sending { kind, id, body, at: 0, frames: 0 }
    }

    /// The call that it belongs to, and whether it is that call itself.
    pub(crate) fn is_call(&self, id: u64) -> bool {
        self.kind == kind::CALL && self.id == id
    }

    /// Whether nothing of it has gone.
    pub(crate) fn is_whole(&self) -> bool {
        self.frames == 0
    }

    /// Sends as much as there is room for. Whether all of it has gone.
    pub(crate) fn go_on(&mut self, line: &mut Line) -> Result<bool, Error> {
        let bytes = self.body.len() as u64;
        while line.unsent() == 0 {
            if self.frames == 0 {
                line.may_send(bytes)?;
            }
            let rest = self.body.get(self.at..).unwrap_or_default();
            let (frame, after) = rest.split_at(rest.len().min(FRAME_BYTES));
            let total = (self.frames == 0 && !after.is_empty()).then_some(bytes);
            let kind = if self.frames == 0 { self.kind } else { kind::PART };
            line.put(&Header { id: self.id, total, ..Header::new(kind, frame.len()) }, frame)?;
            self.at += frame.len();
            self.frames += 1;
            if after.is_empty() {
                line.note_sent(bytes, self.frames);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A message that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The message that is coming, as far as it is here.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Option<Vec<u8>>);

impl Pieces {
    /// Whether a message has begun to come.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// The next message, if all of it is here.
    pub(crate) fn next(&mut self, line: &mut Line) -> Result<Option<Piece>, Error> {
        if self.0.is_none() {
            if line.begin()? == Progress::Nothing {
                return Ok(None);
            }
            let total = line.incoming_body().map_or(0, |body| body.total);
            let mut buffer = Vec::new();
            let no_memory = |_| Error::from(io::Error::from(io::ErrorKind::OutOfMemory));
            buffer.try_reserve(usize::try_from(total).unwrap_or(usize::MAX)).map_err(no_memory)?;
            self.0 = Some(buffer);
        }
        let Some(mut buffer) = self.0.as_mut() else { return Ok(None) };
        if line.take(usize::MAX, &mut buffer)? == Progress::Nothing {
            return Ok(None);
        }
        let (kind, id) = line.incoming_body().map_or((0, 0), |body| (body.kind, body.id));
        line.end_of_body();
        Ok(self.0.take().map(|bytes| Piece { kind, id, bytes }))
    }
}

impl Line {
    /// Lets go what is kept, and says whether there is room for more.
    pub(crate) fn has_room(&mut self) -> Result<bool, Error> {
        self.publish()?;
        Ok(self.end.flush()? == 0)
    }

    /// To be called when nobody has looked for a while: what has come meanwhile may be in the socket.
    pub(crate) fn look_anew(&mut self) {
        let _ = self.be_eager();
    }

    /// Whether the ring has something that is next.
    pub(crate) fn has_next(&mut self) -> bool {
        !self.waits_for_socket() && self.has_news()
    }

    /// To be called before a wait that ends when something arrives. `false`: there is something already.
    pub(crate) fn fall_asleep(&mut self) -> bool {
        if self.waits_for_socket() {
            return true;
        }
        self.ring.as_mut().is_none_or(|ring| ring.into.fall_asleep(&ring.ours, &ring.theirs))
    }

    /// To be called after it.
    pub(crate) fn wake_up(&mut self, slept: Duration) {
        if let Some(ring) = &mut self.ring {
            ring.into.wake_up(&ring.ours);
        }
        self.note_sleep(slept);
    }

    /// Says that no more comes.
    pub(crate) fn say_goodbye(&mut self) -> Result<(), Error> {
        if !self.outgoing.closed && !self.outgoing.cut_off {
            self.outgoing.closed = true;
            self.put(&Header::new(kind::GOODBYE, 0), &[])?;
        }
        Ok(())
    }
}
