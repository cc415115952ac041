//! The packets in the pipe, which list the handles that come with some of the bytes, and the read and the write in
//! progress.
//!
//! | offset | bytes | contents |
//! |---|---|---|
//! | 0 | 4 | the number of bytes that follow: at least one |
//! | 4 | 2 | the number of handles that come with them: at most 64 |
//! | 6 | 2 | 0; or 1: the first field is a process ID, and nothing follows |
//! | 8 | 8 each | the handles |
//!
//! All numbers are little-endian.

use std::io::{self, IoSlice};
use std::os::windows::io::{
    AsHandle, AsRawHandle as _, BorrowedHandle, IntoRawHandle as _, OwnedHandle,
};
use std::sync::Arc;

use super::OutgoingHandles;
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::{map_read_result, map_write_result, room};
use crate::base::wake::Wake;
use crate::channel::handle_channel::{Blocking, MOST_HANDLES, READ_AHEAD_BYTES};

const HEAD_BYTES: usize = 8;
const NUMBER_BYTES: usize = 8;

const OF_BYTES: u16 = 0;
const OF_A_PROCESS: u16 = 1;

/// The maximum size of a packet, which has to fit into the pipe as a whole.
const MAX_BYTES: usize = 256 << 10;

/// The next item in the bytes read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextItem {
    /// Bytes for the receiver: their number.
    Bytes(usize),
    /// Bytes of a header, to be [added](Decoder::add): their number.
    Header(usize),
    /// A complete header with more than a number of bytes, to be [taken](Decoder::take).
    Announced,
}

/// The contents of such a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Announced {
    /// A process ID: the sender's own, or that of the process that the sender expects at this end.
    Process(u32),
    /// The handles that come with the next bytes.
    Handles(Vec<u64>),
}

/// The position of the receiver in a packet.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The part of the header that has arrived.
    header: Vec<u8>,
    /// The number of bytes of the packet that have not arrived.
    left: usize,
    has_process: bool,
}

impl Decoder {
    /// Returns the item at the front of the bytes. `None` if there are too few.
    pub(super) fn next(&self, bytes: &[u8]) -> Option<NextItem> {
        let whole = self.header_bytes();
        match bytes.len() {
            _ if self.is_announced() => Some(NextItem::Announced),
            0 => None,
            count if self.left > 0 => Some(NextItem::Bytes(count.min(self.left))),
            count => Some(NextItem::Header(count.min(whole - self.header.len()))),
        }
    }

    /// Returns true if a header can be taken.
    pub(super) fn is_announced(&self) -> bool {
        self.header.len() == self.header_bytes()
    }

    /// Removes delivered bytes from the packet.
    pub(super) fn pass(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
    }

    /// Adds bytes to the header.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.header.extend_from_slice(bytes);
        if let Some((count, 0, OF_BYTES)) = self.head().filter(|(count, ..)| *count > 0) {
            self.left = count as usize;
            self.header.clear();
        }
    }

    /// Takes the header.
    pub(super) fn take(&mut self) -> io::Result<Announced> {
        let announced = match self.head() {
            Some((id, 0, OF_A_PROCESS)) if !self.has_process => {
                self.has_process = true;
                Announced::Process(id)
            }
            Some((count, handles, OF_BYTES))
                if count > 0 && usize::from(handles) <= MOST_HANDLES =>
            {
                self.left = count as usize;
                let numbers = self.header.chunks_exact(NUMBER_BYTES).skip(1);
                let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
                Announced::Handles(numbers.map(number).collect())
            }
            _ => {
                let message = "malformed packet, or more than 64 handles in one message";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        };
        self.header.clear();
        Ok(announced)
    }

    /// Returns the number of bytes, the number of handles, and the kind. `None` if they have not arrived.
    fn head(&self) -> Option<(u32, u16, u16)> {
        let [a, b, c, d, e, f, g, h] = *self.header.first_chunk::<HEAD_BYTES>()?;
        let count = u32::from_le_bytes([a, b, c, d]);
        Some((count, u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h])))
    }

    /// Returns the length of the header, if it is known.
    fn header_bytes(&self) -> usize {
        match self.head() {
            // More handles are invalid, and need not arrive.
            Some((_, handles, OF_BYTES)) if usize::from(handles) <= MOST_HANDLES => {
                HEAD_BYTES + usize::from(handles) * NUMBER_BYTES
            }
            _ => HEAD_BYTES,
        }
    }
}

/// Appends a packet with as many bytes of the parts as it may have. Returns that number.
pub(super) fn encode(to: &mut Vec<u8>, numbers: &[u64], parts: &[IoSlice<'_>]) -> usize {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let count = total.min(MAX_BYTES);
    encode_head(to, count as u32, numbers.len() as u16, OF_BYTES);
    to.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    let mut left = count;
    for part in parts {
        let now = part.get(..left).unwrap_or(part);
        to.extend_from_slice(now);
        left -= now.len();
    }
    count
}

/// Appends a packet with a process ID.
fn encode_process(to: &mut Vec<u8>, id: u32) {
    encode_head(to, id, 0, OF_A_PROCESS);
}

fn encode_head(to: &mut Vec<u8>, count: u32, handles: u16, kind: u16) {
    to.extend(count.to_le_bytes());
    to.extend(handles.to_le_bytes());
    to.extend(kind.to_le_bytes());
}

// The read that is always in progress, and the bytes it has received.

/// The reading side of a channel end.
///
/// # Drop
/// Cancels the read, and waits until the kernel has released the buffer.
#[derive(Debug)]
pub(super) struct ChannelReader {
    /// Dropped before the buffer and the event, which the kernel uses. The buffer is not touched meanwhile.
    running: Option<OverlappedIo>,
    /// The bytes received. The next read fills the space behind them.
    buffer: Vec<u8>,
    /// The number of bytes already consumed.
    start: usize,
    /// Set when something can be received, or never will be.
    event: Wake,
    /// True if this side has set the event while a read was in progress.
    is_raised: bool,
    file: Arc<OwnedHandle>,
    has_ended: bool,
    calls: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadResult {
    Bytes,
    Nothing,
    End,
}

impl ChannelReader {
    pub(super) fn new(file: Arc<OwnedHandle>) -> io::Result<ChannelReader> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(READ_AHEAD_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let event = Wake::new()?;
        Ok(ChannelReader {
            running: None,
            buffer,
            start: 0,
            event,
            is_raised: false,
            file,
            has_ended: false,
            calls: 0,
        })
    }

    pub(super) fn event(&self) -> BorrowedHandle<'_> {
        self.event.as_handle()
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the bytes received and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Consumes bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
    }

    /// Starts a read, unless one is in progress or bytes are left to consume.
    pub(super) fn go_on(&mut self) {
        if self.running.is_some() || self.has_ended || !self.bytes().is_empty() {
            return;
        }
        self.buffer.clear();
        self.start = 0;
        let spare = self.buffer.spare_capacity_mut();
        let (to, room) = (spare.as_mut_ptr().cast(), spare.len());
        // SAFETY: the file and the event stay open, and the buffer is not touched, until the operation is
        // removed from here or dropped, which happens before they are.
        let read = unsafe { OverlappedIo::read(self.file.as_raw_handle(), &self.event, to, room) };
        if read.result().is_some() {
            // A read that could not be started does not set the event.
            self.event.raise();
        }
        self.running = Some(read);
        self.is_raised = false;
        self.calls += 1;
    }

    /// Sets the event if bytes are left or `more` is true. Otherwise the state of the read decides.
    pub(super) fn tell(&mut self, more: bool) {
        if more || !self.bytes().is_empty() {
            self.event.raise();
            self.is_raised = true;
        } else if std::mem::take(&mut self.is_raised) {
            self.event.lower();
            if self.has_ended || self.running.as_ref().is_none_or(|read| read.result().is_some()) {
                // The read completed before that.
                self.event.raise();
            }
        }
    }

    pub(super) fn finish(&mut self, wait: Blocking) -> io::Result<ReadResult> {
        loop {
            if self.has_ended {
                return Ok(ReadResult::End);
            }
            self.go_on();
            let Some(read) = &mut self.running else { return Ok(ReadResult::Bytes) };
            let result = match (read.result(), wait) {
                (Some(result), _) => result,
                (None, Blocking::Yes) => read.wait(),
                (None, Blocking::No) => {
                    // The kernel may set the event of the read before after that one's result was seen, and this one
                    // had begun: a waiter would find it set, and nothing, again and again.
                    self.event.lower();
                    match read.result() {
                        // It completed before that.
                        Some(result) => {
                            self.event.raise();
                            result
                        }
                        None => return Ok(ReadResult::Nothing),
                    }
                }
            };
            self.running = None;
            match map_read_result(self.file.as_handle(), result) {
                Some(Ok(0)) => {
                    self.has_ended = true;
                    self.event.raise();
                }
                Some(Ok(count)) => {
                    // SAFETY: the operation has filled that many bytes behind the length, which was 0.
                    unsafe { self.buffer.set_len(count) };
                    return Ok(ReadResult::Bytes);
                }
                Some(Err(error)) => {
                    self.event.raise();
                    return Err(error);
                }
                // The thread that started the read has ended, which cancelled it; or the other side wrote 0
                // bytes.
                None if wait == Blocking::No => {
                    self.go_on();
                    return Ok(ReadResult::Nothing);
                }
                None => {}
            }
        }
    }

    /// Returns true if the file cannot be read at all.
    pub(super) fn is_refused(&self) -> bool {
        let result = self.running.as_ref().and_then(OverlappedIo::result);
        let what = result.and_then(|result| map_read_result(self.file.as_handle(), result));
        matches!(what, Some(Err(_)))
    }
}

// The write that is in progress while the pipe has no room for it.

/// The writing side of a channel end.
///
/// # Drop
/// Cancels the write, and waits until the kernel has released the buffer.
#[derive(Debug)]
pub(super) struct ChannelWriter {
    /// Dropped before the buffer and the event, which the kernel uses. The buffer is not touched meanwhile.
    running: Option<OverlappedIo>,
    /// The bytes being written.
    buffer: Vec<u8>,
    /// The handles in the packet, which the other side takes from this process. Owned here until the packet is
    /// written.
    lent: Vec<OwnedHandle>,
    /// Set while no write is in progress.
    event: Wake,
    file: Arc<OwnedHandle>,
}

impl ChannelWriter {
    pub(super) fn new(file: Arc<OwnedHandle>) -> io::Result<ChannelWriter> {
        let event = Wake::new()?;
        event.raise();
        Ok(ChannelWriter { running: None, buffer: Vec::new(), lent: Vec::new(), event, file })
    }

    pub(super) fn event(&self) -> BorrowedHandle<'_> {
        self.event.as_handle()
    }

    /// Returns the number of bytes being written.
    pub(super) fn unsent(&self) -> usize {
        let Some(running) = &self.running else { return 0 };
        if running.result().is_some() { 0 } else { self.buffer.len() }
    }

    /// Returns true if no write is in progress any more.
    pub(super) fn settle(&mut self) -> io::Result<bool> {
        let Some(running) = &self.running else { return Ok(true) };
        let Some(result) = running.result() else { return Ok(false) };
        self.running = None;
        // A cancelled write has reset the event.
        self.event.raise();
        match map_write_result(result) {
            Ok(count) if count >= self.buffer.len() => {
                self.buffer.clear();
                for handle in self.lent.drain(..) {
                    // Owned by the other side now, which removes it from this process.
                    let _ = handle.into_raw_handle();
                }
                Ok(true)
            }
            done => {
                // A pipe accepts all bytes or none.
                let error = done.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                self.buffer.clear();
                self.lent.clear();
                Err(error)
            }
        }
    }

    /// Starts to write one packet of the parts. Requires that no write is in progress. Returns the number of
    /// bytes in the packet.
    pub(super) fn begin(
        &mut self,
        introduction: Option<u32>,
        given: OutgoingHandles,
        parts: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.buffer.clear();
        if let Some(id) = introduction {
            encode_process(&mut self.buffer, id);
        }
        let count = encode(&mut self.buffer, &given.numbers, parts);
        self.lent = given.lent;
        self.start();
        self.settle()?;
        Ok(count)
    }

    fn start(&mut self) {
        let (from, count) = (self.buffer.as_ptr(), self.buffer.len());
        let file = self.file.as_raw_handle();
        let room = room(self.file.as_handle());
        // SAFETY: the file and the event stay open, and the buffer is not touched, until the operation is
        // removed from here or dropped, which happens before they are.
        let write =
            unsafe { OverlappedIo::write_outliving_thread(file, &self.event, from, count, room) };
        if write.result().is_some() {
            // A write that could not be started does not set the event.
            self.event.raise();
        }
        self.running = Some(write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::pipe::{Mode, PipeOptions, pair};
    use crate::base::wake::is_signalled;

    /// The bytes received, and the announcements with their positions in the bytes.
    type Decoded = (Vec<u8>, Vec<(usize, Announced)>);

    /// Decodes the bytes in pieces of that size.
    fn decode(bytes: &[u8], piece: usize) -> io::Result<Decoded> {
        let (mut decoder, mut received, mut announced) =
            (Decoder::default(), Vec::new(), Vec::new());
        for mut rest in bytes.chunks(piece) {
            while let Some(next) = decoder.next(rest) {
                let count = match next {
                    NextItem::Announced => {
                        announced.push((received.len(), decoder.take()?));
                        0
                    }
                    NextItem::Header(count) => {
                        decoder.add(&rest[..count]);
                        count
                    }
                    NextItem::Bytes(count) => {
                        received.extend_from_slice(&rest[..count]);
                        decoder.pass(count);
                        count
                    }
                };
                rest = &rest[count..];
            }
        }
        Ok((received, announced))
    }

    #[test]
    fn packets_are_decoded_in_pieces_of_any_size() {
        let mut bytes = Vec::new();
        encode_process(&mut bytes, 4711);
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")];
        assert_eq!(encode(&mut bytes, &[], &parts), 3);
        assert_eq!(bytes[8..], [3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c']);
        assert_eq!(encode(&mut bytes, &[8, u64::MAX], &parts), 3);
        let expected =
            vec![(0, Announced::Process(4711)), (3, Announced::Handles(vec![8, u64::MAX]))];
        for piece in 1..=bytes.len() {
            let (received, announced) = decode(&bytes, piece).unwrap();
            assert_eq!((&received[..], &announced), (&b"abcabc"[..], &expected), "{piece}");
        }
    }

    #[test]
    fn packet_size_is_limited() {
        let long = vec![7; MAX_BYTES];
        let mut bytes = Vec::new();
        let parts = [IoSlice::new(b"before"), IoSlice::new(&long)];
        assert_eq!(encode(&mut bytes, &[], &parts), MAX_BYTES);
        assert_eq!(bytes.len(), HEAD_BYTES + MAX_BYTES);
        assert!(
            bytes.len() + HEAD_BYTES + MOST_HANDLES * NUMBER_BYTES
                <= crate::channel::handle_channel::windows::PIPE_BYTES as usize
        );
    }

    #[test]
    fn malformed_packets_are_refused() {
        let wrong: [&[u8]; 5] = [
            // No bytes; too many handles; an unknown kind; a process ID with handles.
            &[0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 65, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 2, 0],
            &[1, 0, 0, 0, 1, 0, 1, 0],
            // A second process ID.
            &[1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0],
        ];
        for bytes in wrong {
            let error = decode(bytes, 3).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
    }

    #[test]
    fn a_late_event_of_an_earlier_read_wakes_a_waiter_once() {
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = pair(options).unwrap();
        let mut reads = ChannelReader::new(Arc::new(OwnedHandle::from(reader))).unwrap();
        assert_eq!(reads.finish(Blocking::No).unwrap(), ReadResult::Nothing);
        // As the kernel does, for the read before.
        reads.event.raise();
        assert_eq!(reads.finish(Blocking::No).unwrap(), ReadResult::Nothing);
        assert!(!is_signalled(reads.event()));
        assert_eq!(writer.try_write(b"x").unwrap(), 1);
        assert_eq!(reads.finish(Blocking::Yes).unwrap(), ReadResult::Bytes);
        assert_eq!(reads.bytes(), b"x");
    }
}
