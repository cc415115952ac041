//! A message on its way out, split into frames.

use pipewright::Handle;

use super::{Connection, StepResult, Want};
use crate::error::Error;
use crate::wire::{Header, kind};

/// The longest frame. A longer message takes several frames, so its first is read while its last is written.
pub(crate) const FRAME_BYTES: usize = 64 << 10;

/// The contents of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) bytes: &'a [u8],
    /// The handles to pass with the first frame, which then goes through the socket.
    pub(crate) handles: Option<&'a [Handle]>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload { bytes, handles: None }
    }
}

/// A message that is being sent: the position of its next frame.
///
/// The caller passes the same payload to every step.
#[derive(Debug)]
pub(crate) struct Sending {
    kind: u8,
    id: u64,
    /// The number of bytes in the frames sent so far.
    at: usize,
    /// The number of frames sent so far.
    frames: usize,
}

impl Sending {
    pub(crate) fn new(kind: u8, id: u64) -> Sending {
        Sending { kind, id, at: 0, frames: 0 }
    }

    /// Returns the kind of the message.
    pub(crate) fn kind(&self) -> u8 {
        self.kind
    }

    /// Returns the call that the message belongs to.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if this is the CALL message of the call.
    pub(crate) fn is_call(&self, id: u64) -> bool {
        matches!(self.kind, kind::CALL | kind::OPEN_CALL) && self.id == id
    }

    /// Returns true if no frame of the message was sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.frames == 0
    }

    /// Sends as many frames as there is room for. The first is sent even if earlier bytes are still unsent, unless it
    /// carries handles: those need room.
    ///
    /// Returns `Done` when the system or the ring has all of the message. Until all its frames are sent, no other
    /// message may be sent ([`Connection::set_cut_off`]).
    #[inline]
    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        payload: Payload<'_>,
    ) -> Result<StepResult, Error> {
        if self.frames == 0 {
            connection.check_may_send(payload.bytes.len() as u64)?;
            if payload.handles.is_some_and(|handles| !handles.is_empty()) {
                connection.check_takes_handles()?;
            }
            if payload.handles.is_some() && connection.flush_and_settle()? != StepResult::Done {
                return Ok(StepResult::Blocked(Want::Room));
            }
        }
        let sent = self.send_frames(connection, payload);
        // If the system refuses the handles, nothing was sent.
        let has_failed = sent.is_err() && (self.frames > 0 || payload.handles.is_none());
        let is_partial = self.frames > 0 && self.at < payload.bytes.len();
        connection.set_cut_off(has_failed || is_partial);
        sent
    }

    #[inline]
    fn send_frames(
        &mut self,
        connection: &mut Connection,
        payload: Payload<'_>,
    ) -> Result<StepResult, Error> {
        loop {
            // Frames that were sent are already published.
            if self.frames > 0 {
                if connection.flush_socket()? != StepResult::Done {
                    return Ok(StepResult::Blocked(Want::Room));
                }
                if self.at == payload.bytes.len() {
                    connection.count_message_sent(payload.bytes.len() as u64, self.frames);
                    return Ok(StepResult::Done);
                }
            }
            if connection.outgoing.turn.is_over() || !self.send_frame(connection, payload)? {
                return Ok(StepResult::Blocked(Want::Room));
            }
        }
    }

    /// Sends the whole message without waiting for room. The connection keeps what the system does not take.
    pub(crate) fn send_all(connection: &mut Connection, bytes: &[u8]) -> Result<(), Error> {
        let mut sending = Sending::new(kind::MESSAGE, 0);
        while sending.frames == 0 || sending.at < bytes.len() {
            if let Err(error) = sending.send_frame(connection, bytes.into()) {
                connection.set_cut_off(true);
                return Err(error);
            }
        }
        connection.count_message_sent(bytes.len() as u64, sending.frames);
        Ok(())
    }

    /// Ends a message that failed between two steps.
    pub(crate) fn abandon(&self, connection: &mut Connection) {
        if self.frames > 0 {
            connection.set_cut_off(true);
        }
    }

    /// Sends the next frame. Returns false if it carries handles and there is no room for it.
    #[inline]
    fn send_frame(
        &mut self,
        connection: &mut Connection,
        payload: Payload<'_>,
    ) -> Result<bool, Error> {
        let rest = payload.bytes.get(self.at..).unwrap_or_default();
        let (frame, after) = rest.split_at(rest.len().min(FRAME_BYTES));
        let is_first = self.frames == 0;
        let total = (is_first && !after.is_empty()).then_some(payload.bytes.len() as u64);
        let kind = if is_first { self.kind } else { kind::PART };
        let header = Header { id: self.id, total, ..Header::new(kind, frame.len()) };
        match payload.handles.filter(|_| is_first) {
            Some(handles) => {
                if !connection.send_frame_with_handles(&header, frame, handles)? {
                    return Ok(false);
                }
            }
            None => {
                let before = connection.stats.sent.shared_frames;
                let sent = connection.send_frame(&header, frame);
                // Whatever became of its wake-up, the other side may take a record that is published.
                if sent.is_err() && connection.stats.sent.shared_frames > before {
                    self.frames += 1;
                }
                sent?;
            }
        }
        self.at += frame.len();
        self.frames += 1;
        connection.outgoing.turn.count_frame();
        connection.outgoing.turn.count_bytes(frame.len());
        Ok(true)
    }
}
