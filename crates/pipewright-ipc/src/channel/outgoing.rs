//! Sends frames, through the ring or through the socket, and never waits.

use std::io::IoSlice;

use super::line::Line;
use crate::error::Error;
use crate::ring::Place;
use crate::wire::{Header, kind};

/// A longer message goes in several frames, so that its first is read while the last is being written.
pub(super) const FRAME_BYTES: usize = 64 << 10;

/// So much stands in the ring unpublished at most: the other side begins while the rest is being filled in.
const KEPT_IN_RING_BYTES: u64 = 8 << 10;

impl Line {
    /// Sends one frame. What the system does not take of it is kept: see [`unsent`](Self::unsent).
    #[inline]
    pub(super) fn put(&mut self, header: &Header, body: &[u8]) -> Result<(), Error> {
        if self.commit_to_ring(header, body)? {
            return self.publish();
        }
        self.put_in_socket(header, body)
    }

    /// How much of what was sent is still in our own memory.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        self.end.unsent()
    }

    /// `false`: the frame has to go through the socket.
    #[inline]
    fn commit_to_ring(&mut self, header: &Header, body: &[u8]) -> Result<bool, Error> {
        let threshold = self.limits.threshold_bytes;
        let Some(ring) = &mut self.ring else { return Ok(false) };
        if body.len() < threshold {
            if let Some(sleep) = ring.out.sleeps(&ring.theirs) {
                // It has to be woken through the socket: by the message itself.
                ring.out.note_woken(sleep);
                self.stats.sent.wakes += 1;
                return Ok(false);
            }
        }
        let Some(place) = self.reserve(body.len())? else {
            self.stats.sent.spilled_frames += 1;
            return Ok(false);
        };
        if let Some(ring) = &mut self.ring {
            crate::ring::Ours::fill(&mut ring.ours, place.body(), body);
        }
        self.commit(place, header);
        Ok(true)
    }

    /// A place in the ring, if there is one, or will be in a moment.
    #[inline]
    pub(super) fn reserve(&mut self, body: usize) -> Result<Option<Place>, Error> {
        let Some(ring) = &mut self.ring else { return Ok(None) };
        if body > ring.out.most_body_bytes() {
            return Ok(None);
        }
        if let Some(place) = ring.out.reserve(&ring.theirs, body)? {
            return Ok(Some(place));
        }
        // Nobody makes room who does not know what there is to be read.
        self.publish()?;
        let Some(ring) = &mut self.ring else { return Ok(None) };
        // The other side is reading, most likely: to wait for one record is cheaper than to send this
        // one through the kernel. Where it is not reading, the budget shrinks to nothing.
        let mut found = Ok(None);
        let spun = self.room_spin.until(|| {
            found = ring.out.reserve(&ring.theirs, body);
            !matches!(found, Ok(None))
        });
        self.stats.sent.spun += spun;
        self.stats.sent.blocked += spun;
        Ok(found?)
    }

    /// A record whose body is in its place.
    #[inline]
    pub(super) fn commit(&mut self, place: Place, header: &Header) {
        let Some(ring) = &mut self.ring else { return };
        ring.out.commit(&mut ring.ours, place, header, self.outgoing.through_socket);
        self.stats.sent.shared_frames += 1;
        self.stats.sent.shared_bytes += u64::from(header.length);
    }

    /// Lets the other side have all records, and wakes it if it sleeps.
    #[inline]
    pub(super) fn publish(&mut self) -> Result<(), Error> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        if ring.out.publish(&ring.ours, &ring.theirs) {
            self.stats.sent.wakes += 1;
            let (bytes, count) = Header::new(kind::WAKE, 0).encode();
            self.end.send(&[IoSlice::new(bytes.get(..count).unwrap_or_default())])?;
        }
        Ok(())
    }

    fn put_in_socket(&mut self, header: &Header, body: &[u8]) -> Result<(), Error> {
        // Who finds this frame has to find the records before it.
        self.publish()?;
        let (bytes, count) = header.encode();
        let head = bytes.get(..count).unwrap_or_default();
        self.note_inline(body.len());
        self.end.send(&[IoSlice::new(head), IoSlice::new(body)])?;
        Ok(())
    }

    /// As [`put`](Self::put), kept until the next call that sends something, unless much is kept.
    #[inline]
    pub(super) fn put_later(&mut self, header: &Header, body: &[u8]) -> Result<(), Error> {
        if self.ring.is_some() && self.commit_to_ring(header, body)? {
            let kept = self.ring.as_ref().map_or(0, |ring| ring.out.unpublished());
            return if kept < KEPT_IN_RING_BYTES { Ok(()) } else { self.publish() };
        }
        // Who finds this frame has to find the records before it.
        self.publish()?;
        let (bytes, count) = header.encode();
        let head = bytes.get(..count).unwrap_or_default();
        self.note_inline(body.len());
        self.end.send_later(&[IoSlice::new(head), IoSlice::new(body)])?;
        Ok(())
    }

    /// Sends a frame with handles. `false`: there is no room in the socket now.
    pub(super) fn put_with_handles(
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
        self.note_inline(body.len());
        Ok(true)
    }

    fn note_inline(&mut self, bytes: usize) {
        self.outgoing.through_socket += 1;
        self.stats.sent.inline_frames += 1;
        self.stats.sent.inline_bytes += bytes as u64;
    }

    /// Notes that a whole message was sent.
    #[inline]
    pub(super) fn note_sent(&mut self, bytes: u64, frames: usize) {
        self.stats.sent.messages += 1;
        self.stats.sent.bytes += bytes;
        self.stats.sent.progressive_messages += u64::from(frames > 1);
    }
}
