//! The packets in the pipe, which list the handles that come with some of the bytes.
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

use super::super::MOST_HANDLES;

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
pub(super) fn encode_process(to: &mut Vec<u8>, id: u32) {
    encode_head(to, id, 0, OF_A_PROCESS);
}

fn encode_head(to: &mut Vec<u8>, count: u32, handles: u16, kind: u16) {
    to.extend(count.to_le_bytes());
    to.extend(handles.to_le_bytes());
    to.extend(kind.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
                <= super::super::PIPE_BYTES as usize
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
}
