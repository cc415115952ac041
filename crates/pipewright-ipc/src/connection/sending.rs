//! Sends messages: each split into frames, and each frame through the ring or through the socket.

use std::io::{self, IoSlice};

use pipewright::Handle;

use super::{Connection, StepResult, Turn, Want};
use crate::error::Error;
use crate::ring::RecordPlace;
use crate::wire::{Header, kind};

/// The longest frame. A longer message takes several frames, so its first is read while its last is written.
pub(crate) const FRAME_BYTES: usize = 64 << 10;

/// The contents of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) bytes: &'a [u8],
    /// More bytes, which follow those in a frame of their own.
    pub(crate) tail: &'a [u8],
    /// The handles to pass with the first frame, which then goes through the socket.
    pub(crate) handles: Option<&'a [Handle]>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload { bytes, tail: &[], handles: None }
    }
}

impl<'a> Payload<'a> {
    fn len(&self) -> usize {
        self.bytes.len() + self.tail.len()
    }

    /// Returns the bytes from there on that a frame can have.
    fn rest(&self, at: usize) -> &'a [u8] {
        match at.checked_sub(self.bytes.len()) {
            Some(at) => self.tail.get(at..).unwrap_or_default(),
            None => self.bytes.get(at..).unwrap_or_default(),
        }
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
            connection.check_may_send(payload.len() as u64)?;
            if payload.handles.is_some_and(|handles| !handles.is_empty()) {
                connection.check_takes_handles()?;
            }
            if payload.handles.is_some() && connection.flush_and_settle()? != StepResult::Done {
                return Ok(StepResult::Blocked(Want::Room));
            }
        }
        let total = payload.len();
        let sent = self.send_frames(connection, total, |sending, connection| {
            sending.send_frame(connection, payload)
        });
        // If the system refuses the handles, nothing was sent.
        let has_failed = sent.is_err() && (self.frames > 0 || payload.handles.is_none());
        connection.set_cut_off(has_failed || self.is_partial(total));
        sent
    }

    /// Sends frames, one by each call of `send`, which returns false if there is no room.
    #[inline]
    fn send_frames(
        &mut self,
        connection: &mut Connection,
        total: usize,
        mut send: impl FnMut(&mut Sending, &mut Connection) -> Result<bool, Error>,
    ) -> Result<StepResult, Error> {
        loop {
            // Frames that were sent are already published.
            if self.frames > 0 {
                if connection.flush_socket()? != StepResult::Done {
                    return Ok(StepResult::Blocked(Want::Room));
                }
                if self.at == total {
                    connection.count_message_sent(total as u64, self.frames);
                    return Ok(StepResult::Done);
                }
            }
            if connection.outgoing.turn.is_over() || !send(self, connection)? {
                return Ok(StepResult::Blocked(Want::Room));
            }
        }
    }

    /// Returns true if some of the frames were sent, and others not.
    #[inline]
    fn is_partial(&self, total: usize) -> bool {
        self.frames > 0 && self.at < total
    }

    /// Returns the header of the next frame of a message of this length, for as many of the bytes as it can have.
    #[inline]
    fn next_header(&self, total: usize, rest: usize) -> Header {
        let length = rest.min(FRAME_BYTES);
        let is_first = self.frames == 0;
        let kind = if is_first { self.kind } else { kind::PART };
        let long = (is_first && length < total).then_some(total as u64);
        Header { id: self.id, total: long, ..Header::new(kind, length) }
    }

    #[inline]
    fn note_frame(&mut self, connection: &mut Connection, length: usize) {
        self.at += length;
        self.frames += 1;
        connection.outgoing.turn.count_frame();
        connection.outgoing.turn.count_bytes(length);
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
        let rest = payload.rest(self.at);
        let header = self.next_header(payload.len(), rest.len());
        let frame = rest.get(..header.length as usize).unwrap_or_default();
        match payload.handles.filter(|_| self.frames == 0) {
            Some(handles) => {
                if !connection.send_frame_with_handles(&header, frame, handles)? {
                    return Ok(false);
                }
            }
            None => {
                let before = connection.stats.sent.shared_frames;
                let sent = connection.send_frame(&header, frame);
                // The record was published, and only its wake-up failed: the other side may take it.
                if sent.is_err() && connection.stats.sent.shared_frames > before {
                    self.frames += 1;
                }
                sent?;
            }
        }
        self.note_frame(connection, frame.len());
        Ok(true)
    }
}

// A message that is made while it is sent: each frame directly where the other side reads it.

/// A message of this length whose bytes are made frame by frame.
#[derive(Debug)]
pub(crate) struct Filling {
    total: usize,
    sending: Sending,
}

impl Filling {
    pub(crate) fn new(total: usize) -> Filling {
        Filling { total, sending: Sending::new(kind::MESSAGE, 0) }
    }

    /// Makes and sends as many frames as there is room for. Returns `Done` when the system or the ring has all of the
    /// message.
    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<StepResult, Error> {
        let Filling { total, sending } = self;
        if sending.is_unsent() {
            connection.check_may_send(*total as u64)?;
        }
        // Stays so if `fill` panics.
        connection.set_cut_off(true);
        let sent = sending.send_frames(connection, *total, |sending, connection| {
            let header = sending.next_header(*total, total.saturating_sub(sending.at));
            let length = header.length as usize;
            connection.send_filled_frame(&header, length, fill)?;
            sending.note_frame(connection, length);
            Ok(true)
        });
        connection.set_cut_off(sent.is_err() || sending.is_partial(*total));
        sent
    }

    /// Ends a message that failed between two steps.
    pub(crate) fn abandon(&self, connection: &mut Connection) {
        self.sending.abandon(connection);
    }
}

// A frame, through the ring or through the socket.

/// The most bytes that stay unpublished in the ring: the other side starts on them while the rest is written.
const MAX_UNPUBLISHED_BYTES: u64 = 8 << 10;

/// The state of the outgoing direction.
#[derive(Debug, Default)]
pub(super) struct FramesOut {
    /// The number of frames that went through the socket and count for the order.
    through_socket: u64,
    /// A message was cut off: some of its frames were not sent.
    pub(super) cut_off: bool,
    /// The other side receives nothing more.
    pub(super) broken: bool,
    /// GOODBYE was sent.
    pub(super) closed: bool,
    /// The outgoing direction of the socket was ended, after GOODBYE.
    pub(super) ended: bool,
    pub(super) turn: Turn,
}

impl Connection {
    /// Sends one frame. The connection keeps what the system does not take ([`unsent`](Self::unsent)).
    #[inline]
    pub(super) fn send_frame(&mut self, header: &Header, body: &[u8]) -> Result<(), Error> {
        if self.write_to_ring(header, body)? {
            return self.publish();
        }
        self.send_through_socket(header, body)
    }

    /// Sends one frame whose body the function makes, in the ring if there is room.
    fn send_filled_frame(
        &mut self,
        header: &Header,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if self.make_in_ring(header, length, &mut *fill)? {
            return self.publish();
        }
        let mut body = vec![0; length];
        fill(&mut body);
        self.send_through_socket(header, &body)
    }

    /// Returns the number of bytes that were sent and that the system has not taken.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        if self.outgoing.broken { 0 } else { self.end.unsent() }
    }

    /// Writes a frame to the ring. Returns false if it has to go through the socket.
    #[inline]
    fn write_to_ring(&mut self, header: &Header, body: &[u8]) -> Result<bool, Error> {
        self.make_in_ring(header, body.len(), |place| place.copy_from_slice(body))
    }

    /// Makes a frame in the ring. Returns false, and makes nothing, if it has to go through the socket.
    #[inline]
    fn make_in_ring(
        &mut self,
        header: &Header,
        length: usize,
        make: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Error> {
        let sleep = self.sleep_to_end(length);
        let Some(ring) = &mut self.ring else { return Ok(false) };
        if let Some(sleep) = sleep {
            ring.producer.note_woken(sleep);
            self.stats.sent.wakes += 1;
            return Ok(false);
        }
        let Some(place) = self.reserve(length)? else {
            self.stats.sent.spilled_frames += 1;
            return Ok(false);
        };
        let ring = self.ring.as_mut();
        if let Some(body) = ring.and_then(|ring| ring.ours.get_mut(place.body(), length)) {
            make(body);
        }
        self.commit(place, header);
        Ok(true)
    }

    /// Returns the number of the reader's sleep, if a short frame has to end it. Only something in the socket can end
    /// it, so the frame itself goes through the socket.
    #[inline]
    pub(crate) fn sleep_to_end(&self, body: usize) -> Option<u64> {
        let ring = self.ring.as_ref()?;
        if body < self.limits.threshold_bytes { ring.producer.sleeps(&ring.theirs) } else { None }
    }

    /// Returns a place in the ring, if there is one now or during a short spin.
    #[inline]
    pub(crate) fn reserve(&mut self, body: usize) -> Result<Option<RecordPlace>, Error> {
        let Some(ring) = &mut self.ring else { return Ok(None) };
        if body > ring.producer.max_body_bytes() {
            return Ok(None);
        }
        if let Some(place) = ring.producer.reserve(&ring.theirs, body)? {
            return Ok(Some(place));
        }
        // The reader frees the places only of published records.
        self.publish()?;
        let Some(ring) = &mut self.ring else { return Ok(None) };
        // The reader is most likely reading: waiting for one record is cheaper than sending this one through the
        // kernel. If it is not reading, the budget shrinks to nothing.
        let mut found = Ok(None);
        let spun = self.room_spin.until(|| {
            found = ring.producer.reserve(&ring.theirs, body);
            !matches!(found, Ok(None))
        });
        self.stats.sent.spun += spun;
        self.stats.sent.blocked += spun;
        Ok(found?)
    }

    /// Completes a record whose body is in its place.
    #[inline]
    pub(crate) fn commit(&mut self, place: RecordPlace, header: &Header) {
        let Some(ring) = &mut self.ring else { return };
        ring.producer.commit(&mut ring.ours, place, header, self.outgoing.through_socket);
        self.stats.sent.shared_frames += 1;
        self.stats.sent.shared_bytes += u64::from(header.length);
    }

    /// Publishes all records to the other side, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) -> Result<(), Error> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        if ring.producer.publish(&ring.ours, &ring.theirs) {
            self.stats.sent.wakes += 1;
            match self.end.send(&[IoSlice::new(&Header::new(kind::WAKE, 0).encode())]) {
                // The records are published: the other side may have taken them and ended. The end of its stream tells,
                // behind all that it has sent.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                woken => woken?,
            }
        }
        Ok(())
    }

    fn send_through_socket(&mut self, header: &Header, body: &[u8]) -> Result<(), Error> {
        // A reader that finds this frame has to find the records before it.
        self.publish()?;
        let head = header.encode();
        self.count_inline(body.len());
        self.end.send(&[IoSlice::new(&head), IoSlice::new(body)])?;
        Ok(())
    }

    /// Queues one frame until the next call that sends, unless many bytes are already queued in the ring.
    #[inline]
    pub(crate) fn queue_frame(&mut self, header: &Header, body: &[u8]) -> Result<(), Error> {
        if self.ring.is_some() && self.write_to_ring(header, body)? {
            let kept = self.ring.as_ref().map_or(0, |ring| ring.producer.unpublished());
            return if kept < MAX_UNPUBLISHED_BYTES { Ok(()) } else { self.publish() };
        }
        // A reader that finds this frame has to find the records before it.
        self.publish()?;
        let head = header.encode();
        self.count_inline(body.len());
        self.end.send_later(&[IoSlice::new(&head), IoSlice::new(body)])?;
        Ok(())
    }

    /// Sends one frame with handles. Returns false if the socket has no room now.
    fn send_frame_with_handles(
        &mut self,
        header: &Header,
        body: &[u8],
        handles: &[pipewright::Handle],
    ) -> Result<bool, Error> {
        let header =
            Header { handles: u16::try_from(handles.len()).unwrap_or(u16::MAX), ..*header };
        let head = header.encode();
        self.publish()?;
        if self.unsent() > 0 {
            return Ok(false);
        }
        if !self.end.send_handles(&[IoSlice::new(&head), IoSlice::new(body)], handles)? {
            return Ok(false);
        }
        self.count_inline(body.len());
        Ok(true)
    }

    fn count_inline(&mut self, bytes: usize) {
        self.outgoing.through_socket += 1;
        self.stats.sent.inline_frames += 1;
        self.stats.sent.inline_bytes += bytes as u64;
    }

    /// Counts a message that was sent as a whole.
    #[inline]
    pub(crate) fn count_message_sent(&mut self, bytes: u64, frames: usize) {
        self.stats.sent.messages += 1;
        self.stats.sent.bytes += bytes;
        self.stats.sent.progressive_messages += u64::from(frames > 1);
    }
}
