//! A worker's end of the wire, written by hand from docs/wire.md, so that it can also break every rule of it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{self, Arrived, ChannelEnd};
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};
use pipewright_tests::hostile;

pub(super) const HEAD: usize = 0;
pub(super) const TAIL: usize = 1;
const SLEEP: usize = 2;
const PART: u8 = 8;
const WAKE: u8 = 9;
pub(super) const GOODBYE: u8 = 10;
const PAD: u8 = 11;
const LONG: u8 = 1;

/// The longest wait for room: a host that reads nothing until then reads nothing more.
const ROOM: Duration = Duration::from_secs(5);

/// A message of the host.
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) id: u64,
    pub(super) body: Vec<u8>,
}

/// The connection, after the handshake.
pub(super) struct Link {
    pub(super) end: ChannelEnd,
    pub(super) ours: Option<Written>,
    pub(super) theirs: Option<Seen>,
    pub(super) head: u64,
    tail: u64,
    /// The number of frames sent and taken through the socket.
    put: u64,
    taken: u64,
    sleeps: u64,
    woken: u64,
    partial: Option<(Message, u64)>,
    pub(super) has_ended: bool,
    /// Takes records only: the socket is not read any more.
    pub(super) ignores_socket: bool,
}

impl Link {
    /// Takes the handle channel, and shakes hands: with a ring of that size, or without shared memory for 0. With
    /// `early`, runs that as soon as the host has sent READY, and pretends to sleep.
    pub(super) fn connect(ring: usize, most: u64, early: Option<fn()>) -> io::Result<Link> {
        let end = handle_channel::inherited("PIPEWRIGHT_IPC")?;
        let mut link = Link {
            end,
            ours: None,
            theirs: None,
            head: 0,
            tail: 0,
            put: 0,
            taken: 0,
            sleeps: 0,
            woken: 0,
            partial: None,
            has_ended: false,
            ignores_socket: false,
        };
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (_, hello) = hostile::receive_frame(&mut link.end).ok_or_else(gone)?;
        let mut lines: Vec<&str> = hello.lines().filter(|line| !line.starts_with("can=")).collect();
        let most = format!("max_message_bytes={most}");
        lines.retain(|line| !line.starts_with("max_message_bytes="));
        lines.push(&most);
        let shares = ring > 0 && hello.contains("shm.v1");
        lines.push(match shares {
            true => "can=calls.v1 streams.v1 handles.v1 shm.v1",
            false => "can=calls.v1 streams.v1 handles.v1",
        });
        hostile::send(&mut link.end, &hostile::text(1, &(lines.join("\n") + "\n")));
        if shares {
            link.share(ring, early.is_some())?;
        }
        if let Some(act) = early {
            while matches!(link.end.receive(usize::MAX)?, Arrived::Nothing) {}
            act();
            link.ignores_socket = true;
        }
        let (_, ready) = hostile::receive_frame(&mut link.end).ok_or_else(gone)?;
        if !ready.contains("shared=1") {
            if shares && early.is_none() {
                return Err(io::Error::other(ready));
            }
            (link.ours, link.theirs) = (None, None);
        }
        Ok(link)
    }

    fn share(&mut self, ring: usize, sleeps: bool) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (_, memory) = hostile::receive_frame(&mut self.end).ok_or_else(gone)?;
        let theirs = self.end.take_handle().ok_or_else(gone)?;
        let bytes = memory.lines().find_map(|line| line.strip_prefix("bytes=")).ok_or_else(gone)?;
        let bytes = bytes.parse().map_err(io::Error::other)?;
        let theirs = Seen::open(&theirs, ShmOptions { bytes, prefault: false })?;
        let [nonce, ..] = theirs.numbers(0)?;
        let mut ours = Written::create(ShmOptions { bytes: ring, prefault: false })?;
        ours.data()[..8].copy_from_slice(&1234_u64.to_le_bytes());
        if sleeps {
            self.sleeps = 1;
            ours.announce(SLEEP, 1);
        }
        let body = format!("memory\nbytes={ring}\nproof={}\n", u64::from_le(nonce));
        let frame = hostile::frame(3, 0, 1, body.len() as u32, body.as_bytes());
        self.end.send_handles(&[IoSlice::new(&frame)], &[ours.handle().try_clone()?])?;
        (self.ours, self.theirs) = (Some(ours), Some(theirs));
        Ok(())
    }

    /// Returns the next message, or waits for it at most that long.
    pub(super) fn receive(&mut self, most: Duration) -> io::Result<Option<Message>> {
        let until = Instant::now() + most;
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(Some(message));
            }
            if self.has_ended || Instant::now() >= until {
                return Ok(None);
            }
            self.sleep(until)?;
        }
    }

    fn sleep(&mut self, until: Instant) -> io::Result<()> {
        if self.ignores_socket {
            std::thread::park_timeout(Duration::from_millis(1));
            return Ok(());
        }
        self.announce();
        if !self.has_record() {
            wait::any(&mut [Slot::Event(&self.end)], Some(until))?;
        }
        self.announce();
        Ok(())
    }

    /// Changes the own SLEEP.
    pub(super) fn announce(&mut self) {
        self.sleeps += 1;
        if let Some(ours) = &self.ours {
            ours.announce(SLEEP, self.sleeps);
        }
    }

    fn has_record(&self) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| theirs.word_in_order(HEAD) != self.tail)
    }

    fn try_receive(&mut self) -> io::Result<Option<Message>> {
        while let Some((kind, id, total, body)) = self.next_frame()? {
            if kind == PART {
                let Some((message, left)) = &mut self.partial else { continue };
                *left = left.saturating_sub(body.len() as u64);
                message.body.extend(body);
            } else {
                let left = total.map_or(0, |total| total - body.len() as u64);
                self.partial = Some((Message { kind, id, body }, left));
            }
            if self.partial.as_ref().is_some_and(|(_, left)| *left == 0) {
                return Ok(self.partial.take().map(|(message, _)| message));
            }
        }
        Ok(None)
    }

    /// Returns kind, id, length of a long message, and body of the next frame.
    #[expect(clippy::type_complexity, reason = "used once")]
    fn next_frame(&mut self) -> io::Result<Option<(u8, u64, Option<u64>, Vec<u8>)>> {
        loop {
            if let Some(frame) = self.next_record()? {
                return Ok(Some(frame));
            }
            if self.ignores_socket {
                return Ok(None);
            }
            let arrived = self.end.arrived();
            if let Some(head) = arrived.first_chunk::<16>() {
                let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                let (kind, is_long) = (head[4], head[5] & LONG != 0);
                let id = head.last_chunk::<8>().map_or(0, |id| u64::from_le_bytes(*id));
                let start = if is_long { 24 } else { 16 };
                if let Some(body) = arrived.get(start..start + length) {
                    let total = arrived[16..].first_chunk().map(|it| u64::from_le_bytes(*it));
                    let (total, body) = (total.filter(|_| is_long), body.to_vec());
                    // A record that came before it is first.
                    if kind != WAKE && self.is_record_due() {
                        continue;
                    }
                    self.end.consume(start + length);
                    if kind == WAKE {
                        continue;
                    }
                    self.taken += 1;
                    return Ok(Some((kind, id, total, body)));
                }
            }
            match self.end.receive(usize::MAX) {
                Ok(Arrived::Bytes { .. }) => {}
                Ok(Arrived::Nothing) => return Ok(None),
                Ok(Arrived::End) | Err(_) => {
                    self.has_ended = true;
                    return Ok(None);
                }
            }
        }
    }

    fn is_record_due(&mut self) -> bool {
        let Some(theirs) = &self.theirs else { return false };
        let at = (self.tail % theirs.bytes() as u64) as usize;
        let numbers = theirs.numbers(at).unwrap_or_default();
        self.has_record()
            && (numbers[0].to_le_bytes()[4] == PAD || u64::from_le(numbers[2]) <= self.taken)
    }

    #[expect(clippy::type_complexity, reason = "used once")]
    fn next_record(&mut self) -> io::Result<Option<(u8, u64, Option<u64>, Vec<u8>)>> {
        let (Some(theirs), Some(ours)) = (&self.theirs, &self.ours) else { return Ok(None) };
        let size = theirs.bytes() as u64;
        while theirs.word(HEAD) != self.tail {
            let at = (self.tail % size) as usize;
            let [first, id, after, total] = theirs.numbers(at)?.map(u64::from_le);
            let (kind, is_long) = ((first >> 32) as u8, first >> 40 & 1 == 1);
            if kind == PAD {
                self.tail += size - at as u64;
                continue;
            }
            if after > self.taken && !self.ignores_socket {
                return Ok(None);
            }
            let mut body = Vec::new();
            theirs.append_to(at + 32, first as u32 as usize, &mut body)?;
            self.tail += record_bytes(body.len());
            ours.publish(TAIL, self.tail);
            return Ok(Some((kind, id, is_long.then_some(total), body)));
        }
        Ok(None)
    }

    /// Sends a message in parts of that many bytes: through the ring if there is one and it has room.
    pub(super) fn send(&mut self, kind: u8, id: u64, body: &[u8], part: usize) -> io::Result<()> {
        let mut parts: VecDeque<&[u8]> = body.chunks(part.max(1)).collect();
        let first = parts.pop_front().unwrap_or_default();
        let total = (!parts.is_empty()).then_some(body.len() as u64);
        self.send_frame(kind, id, first, total)?;
        parts.into_iter().try_for_each(|part| self.send_frame(PART, id, part, None))
    }

    fn send_frame(&mut self, kind: u8, id: u64, body: &[u8], total: Option<u64>) -> io::Result<()> {
        if self.ours.is_some() && self.record(kind, id, body.len() as u32, total, body)? {
            self.wake();
            return Ok(());
        }
        let flags = if total.is_some() { LONG } else { 0 };
        let total = total.map(u64::to_le_bytes);
        let body = [total.as_ref().map_or(&[][..], |it| &it[..]), body].concat();
        let length = body.len() - total.map_or(0, |it| it.len());
        let mut bytes = hostile::frame(kind, flags, 0, length as u32, &body);
        bytes[8..16].copy_from_slice(&id.to_le_bytes());
        self.put += 1;
        self.write(&bytes)
    }

    /// Writes a record, of whose body only the given bytes are written. Returns false if it has no room for long.
    pub(super) fn record(
        &mut self,
        kind: u8,
        id: u64,
        length: u32,
        total: Option<u64>,
        body: &[u8],
    ) -> io::Result<bool> {
        let Some(size) = self.ours.as_ref().map(|ours| ours.bytes() as u64) else {
            return Ok(false);
        };
        let bytes = record_bytes(length as usize);
        let left = size - self.head % size;
        let pad = if bytes > left { left } else { 0 };
        if bytes + pad > size {
            return Ok(false);
        }
        let until = Instant::now() + ROOM;
        while self.head + pad + bytes - self.their_tail() > size {
            self.wake();
            if Instant::now() > until || self.is_alone() {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        let Some(ours) = &mut self.ours else { return Ok(false) };
        if pad > 0 {
            let at = (self.head % size) as usize;
            ours.data()[at..at + 32].copy_from_slice(&header(PAD, 0, 0, 0, None));
            self.head += pad;
        }
        let at = (self.head % size) as usize;
        ours.data()[at..at + 32].copy_from_slice(&header(kind, id, length, self.put, total));
        ours.data()[at + 32..at + 32 + body.len()].copy_from_slice(body);
        self.head += bytes;
        ours.announce(HEAD, self.head);
        Ok(true)
    }

    fn their_tail(&self) -> u64 {
        self.theirs.as_ref().map_or(0, |theirs| theirs.word(TAIL))
    }

    /// Publishes that HEAD, whatever is in the ring.
    pub(super) fn publish_head(&mut self, head: u64) {
        self.head = head;
        if let Some(ours) = &self.ours {
            ours.announce(HEAD, head);
        }
    }

    pub(super) fn peer_tail(&self) -> u64 {
        self.their_tail()
    }

    /// Sends WAKE if the host sleeps and was not woken yet.
    pub(super) fn wake(&mut self) {
        let sleep = self.theirs.as_ref().map_or(0, |theirs| theirs.word_in_order(SLEEP));
        if sleep % 2 == 1 && sleep != self.woken {
            self.woken = sleep;
            // Ignored: the host is gone.
            let _ = self.write(&hostile::frame(WAKE, 0, 0, 0, b""));
        }
    }

    /// Counts a frame that was written by hand.
    pub(super) fn count_frame(&mut self) {
        self.put += 1;
    }

    /// Returns the number of frames that went through the socket.
    pub(super) fn put(&self) -> u64 {
        self.put
    }

    /// Writes bytes to the socket, and waits for room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let until = Instant::now() + ROOM;
        self.end.send(&[IoSlice::new(bytes)])?;
        while self.end.unsent() > 0 {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            wait::any(&mut [Slot::Room(&self.end)], Some(until))?;
            self.end.flush()?;
        }
        Ok(())
    }

    /// Returns true if the host is gone.
    fn is_alone(&mut self) -> bool {
        !self.ignores_socket
            && (self.has_ended || matches!(self.end.receive(1 << 20), Ok(Arrived::End) | Err(_)))
    }
}

pub(super) fn record_bytes(body: usize) -> u64 {
    (body as u64 + 32).next_multiple_of(64)
}

pub(super) fn header(kind: u8, id: u64, length: u32, after: u64, total: Option<u64>) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    (bytes[4], bytes[5]) = (kind, if total.is_some() { LONG } else { 0 });
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    bytes[16..24].copy_from_slice(&after.to_le_bytes());
    bytes[24..].copy_from_slice(&total.unwrap_or(0).to_le_bytes());
    bytes
}
