//! Damage of a write-ahead log that no crash can leave.
//!
//! SQLite reads a write-ahead log up to the first frame that is not valid, because a crash leaves such frames at its end. Damage
//! in the middle looks the same to it, and everything behind would be lost in silence. The difference: a transaction is written
//! after the one before it has been flushed to the disk. So a crash spoils frames of the last transaction only, and a frame that
//! continues one whose transaction is committed proves that everything before was there. Each frame has a checksum that goes on
//! from that of the frame before it, which shows what continues what.
//!
//! A frame that is missing at the end is no damage: a power cut removes it before the commit is reported. The header, of 32 bytes,
//! is taken to be written whole or not at all.

use std::fs::File;
use std::io::{self, BufReader, Read};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

/// Returns true if the file is damaged in a way that no crash explains.
pub(super) fn is_damaged(file: File) -> io::Result<bool> {
    // The header is flushed before the first frame is written.
    if file.metadata()?.len() <= HEADER_BYTES as u64 {
        return Ok(false);
    }
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header)?;
    let Some(wal) = Header::parse(&header) else { return Ok(true) };
    let mut bytes = vec![0; FRAME_HEADER_BYTES + wal.page_bytes];
    let mut before =
        Frame { written_sums: wal.sums, right_sums: wal.sums, is_valid: true, is_commit: false };
    while read_whole(&mut reader, &mut bytes)? {
        let (frame, continues) = wal.frame(&bytes, &before);
        if continues && before.is_commit && !before.is_valid {
            return Ok(true);
        }
        before = frame;
    }
    Ok(false)
}

/// The header of the file.
struct Header {
    is_big_endian: bool,
    page_bytes: usize,
    salt: [u8; 8],
    sums: (u32, u32),
}

/// The part of a frame on which the next one depends.
struct Frame {
    /// The checksum in it.
    written_sums: (u32, u32),
    /// The checksum of its contents, which goes on from that of the frame before it.
    right_sums: (u32, u32),
    /// It and all frames before it are as they were written.
    is_valid: bool,
    /// It ends a transaction.
    is_commit: bool,
}

impl Header {
    /// `None`: it is not as it was written.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let magic = number(bytes, 0);
        let page_bytes = number(bytes, 8) as usize;
        let is_big_endian = magic == MAGIC | 1;
        let sums = (number(bytes, 24), number(bytes, 28));
        let is_valid = magic & !1 == MAGIC
            && number(bytes, 4) == VERSION
            && page_bytes.is_power_of_two()
            && (512..=65536).contains(&page_bytes)
            && checksum(is_big_endian, (0, 0), bytes.get(..24)?) == sums;
        let salt = bytes.get(16..24)?.try_into().ok()?;
        is_valid.then_some(Header { is_big_endian, page_bytes, salt, sums })
    }

    /// Returns the frame, and true if it was written after the one before it.
    fn frame(&self, bytes: &[u8], before: &Frame) -> (Frame, bool) {
        let (head, page) = bytes.split_at(FRAME_HEADER_BYTES);
        let written_sums = (number(head, 16), number(head, 20));
        let after = |sums| {
            let sums = checksum(self.is_big_endian, sums, head.get(..8).unwrap_or_default());
            checksum(self.is_big_endian, sums, page)
        };
        let right_sums = after(before.written_sums);
        let is_of_file = head.get(8..16) == Some(&self.salt) && number(head, 0) != 0;
        let continues =
            is_of_file && (right_sums == written_sums || after(before.right_sums) == written_sums);
        let is_valid = before.is_valid && is_of_file && right_sums == written_sums;
        let is_commit = number(head, 4) != 0;
        (Frame { written_sums, right_sums, is_valid, is_commit }, continues)
    }
}

/// Reads the whole buffer. False: the file ends before.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}

/// Continues a checksum as SQLite defines it.
fn checksum(is_big_endian: bool, (mut one, mut two): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap_or_default();
        if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    for pair in bytes.chunks_exact(8) {
        let (first, second) = pair.split_at(4);
        one = one.wrapping_add(word(first)).wrapping_add(two);
        two = two.wrapping_add(word(second)).wrapping_add(one);
    }
    (one, two)
}
