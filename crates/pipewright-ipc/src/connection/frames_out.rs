//! Sends frames, through the ring or through the socket.

use std::io::{self, IoSlice};

use super::Connection;
use super::turn::Turn;
use crate::error::Error;
use crate::ring::RecordPlace;
use crate::wire::{Header, kind};

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
    pub(super) fn send_filled_frame(
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
            let (bytes, count) = Header::new(kind::WAKE, 0).encode();
            match self.end.send(&[IoSlice::new(bytes.get(..count).unwrap_or_default())]) {
                // The records are published: the other side may have taken them, and gone. Its end of the stream says so,
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
        let (bytes, count) = header.encode();
        let head = bytes.get(..count).unwrap_or_default();
        self.count_inline(body.len());
        self.end.send(&[IoSlice::new(head), IoSlice::new(body)])?;
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
        let (bytes, count) = header.encode();
        let head = bytes.get(..count).unwrap_or_default();
        self.count_inline(body.len());
        self.end.send_later(&[IoSlice::new(head), IoSlice::new(body)])?;
        Ok(())
    }

    /// Sends one frame with handles. Returns false if the socket has no room now.
    pub(super) fn send_frame_with_handles(
        &mut self,
        header: &Header,
        body: &[u8],
        handles: &[pipewright::Handle],
    ) -> Result<bool, Error> {
        let header =
            Header { handles: u16::try_from(handles.len()).unwrap_or(u16::MAX), ..*header };
        let (bytes, count) = header.encode();
        let head = bytes.get(..count).unwrap_or_default();
        self.publish()?;
        if self.unsent() > 0 {
            return Ok(false);
        }
        if !self.end.send_handles(&[IoSlice::new(head), IoSlice::new(body)], handles)? {
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
