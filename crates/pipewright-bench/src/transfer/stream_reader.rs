//! The reading side of a stream.

use std::io::{self, Read};

use crate::pattern::BytePattern;
use crate::stats::histogram::ReadSizes;

/// Reads a stream, and checks what it reads.
#[derive(Debug)]
pub(super) struct StreamReader {
    buffer: Vec<u8>,
    expected: BytePattern,
}

impl StreamReader {
    pub(super) fn new(buffer_bytes: usize, verify: bool) -> StreamReader {
        StreamReader {
            buffer: vec![1; buffer_bytes],
            expected: BytePattern::new(buffer_bytes, verify),
        }
    }

    /// Reads that many bytes, and counts the reads.
    pub(super) fn take(&mut self, source: &mut impl Read, bytes: u64) -> io::Result<ReadSizes> {
        let (mut place, mut reads) = (0, ReadSizes::default());
        while place < bytes {
            let count = source.read(&mut self.buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.expected.check(place, &self.buffer[..count])?;
            place += count as u64;
            reads.add(1, count);
        }
        if place == bytes { Ok(reads) } else { Err(too_many()) }
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "more bytes were read than written")
}
