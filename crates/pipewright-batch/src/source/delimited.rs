//! Records that end with a byte: lines, and texts that end with NUL.

use std::io::{BufRead, BufReader, Read};

use pipewright_os::base::os_text::LINES_END_WITH_CRLF;

use super::error::{InputError, InputErrorKind, Position};
use super::input::InputName;

/// The bytes that are read at once.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// A reader of records that end with a byte. The last one needs no end.
pub(super) struct Delimited {
    name: InputName,
    reader: BufReader<Box<dyn Read + Send>>,
    end: u8,
    /// A CR before the end belongs to the end.
    has_crlf: bool,
    max_bytes: usize,
    /// The current record. Kept, so that a record costs no allocation.
    record: Vec<u8>,
    count: u64,
}

impl Delimited {
    pub(super) fn new(
        name: InputName,
        reader: Box<dyn Read + Send>,
        end: u8,
        max_bytes: usize,
    ) -> Delimited {
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        let has_crlf = end == b'\n' && LINES_END_WITH_CRLF;
        Delimited { name, reader, end, has_crlf, max_bytes, record: Vec::new(), count: 0 }
    }

    /// Reads the next record, without its end.
    pub(super) fn next_record(&mut self) -> Result<Option<&[u8]>, InputError> {
        self.record.clear();
        self.count += 1;
        let limit = (self.max_bytes as u64).saturating_add(1);
        let result = (&mut self.reader).take(limit).read_until(self.end, &mut self.record);
        if let Err(error) = result {
            return Err(InputError::io(&self.name, InputErrorKind::Read, self.position(), error));
        }
        if self.record.is_empty() {
            return Ok(None);
        }
        if self.record.last() == Some(&self.end) {
            self.record.pop();
            if self.has_crlf && self.record.last() == Some(&b'\r') {
                self.record.pop();
            }
        } else if self.record.len() > self.max_bytes {
            return Err(self.error(InputErrorKind::TooLong { max_bytes: self.max_bytes }));
        }
        Ok(Some(&self.record))
    }

    /// Returns the number of the current record, from 1.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of the current line, or 0 if the records are no lines.
    pub(super) fn line(&self) -> u64 {
        if self.end == b'\n' { self.count } else { 0 }
    }

    /// Returns an error of the current record.
    pub(super) fn error(&self, kind: impl Into<InputErrorKind>) -> InputError {
        InputError::new(&self.name, self.position(), kind.into())
    }

    fn position(&self) -> Position {
        if self.end == b'\n' { Position::Line(self.count) } else { Position::Record(self.count) }
    }
}
