//! Skips a byte order mark, which spreadsheets write at the start of a file.

use std::io::{self, Read};

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A reader without the byte order mark at its start.
pub(super) struct WithoutBom<R> {
    reader: R,
    /// The bytes that were read to look for the mark, and not yet returned.
    start: Vec<u8>,
    has_looked: bool,
}

impl<R: Read> WithoutBom<R> {
    pub(super) fn new(reader: R) -> WithoutBom<R> {
        WithoutBom { reader, start: Vec::new(), has_looked: false }
    }

    fn look(&mut self) -> io::Result<()> {
        // One byte at a time, and only while they are the mark's: a terminal or a pipe may have nothing else yet.
        while self.start != BYTE_ORDER_MARK {
            let read = (&mut self.reader).take(1).read_to_end(&mut self.start)?;
            if read == 0 || !BYTE_ORDER_MARK.starts_with(&self.start) {
                return Ok(());
            }
        }
        self.start.clear();
        Ok(())
    }
}

impl<R: Read> Read for WithoutBom<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_looked {
            self.look()?;
            self.has_looked = true;
        }
        if self.start.is_empty() {
            return self.reader.read(buffer);
        }
        let count = self.start.as_slice().read(buffer)?;
        self.start.drain(..count);
        Ok(count)
    }
}
