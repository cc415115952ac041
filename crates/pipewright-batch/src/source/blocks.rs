//! Blocks of an input, cut at line ends: each is the standard input of a job.

use std::ffi::OsString;
use std::io::Read;
use std::sync::Arc;

use super::error::{InputError, InputErrorKind, Position};
use super::{InputName, ReadJobs};
use crate::job::{Job, JobStdin, Record, Template, TemplateError};

/// The bytes that are read at once where a record is longer than a block.
const PIECE_BYTES: usize = 64 << 10;

/// Jobs that get one block each.
pub(super) struct Blocks {
    name: InputName,
    reader: Box<dyn Read + Send>,
    end: u8,
    block_bytes: usize,
    /// The longest record, if it is longer than a block.
    max_record_bytes: usize,
    template: Result<Arc<Template>, TemplateError>,
    /// The start of the next block, which the last read has brought.
    rest: Vec<u8>,
    has_ended: bool,
    number: u64,
}

impl Blocks {
    pub(super) fn new(source: super::Source, words: Vec<OsString>, block_bytes: usize) -> Blocks {
        Blocks {
            name: source.name,
            reader: source.reader,
            end: source.end,
            block_bytes: block_bytes.max(1),
            max_record_bytes: source.max_record_bytes,
            template: Template::parse_without_value(words).map(Arc::new),
            rest: Vec::new(),
            has_ended: false,
            number: 0,
        }
    }

    /// Reads a block: up to the last end of a record in it, or to the first one if a record is longer. `None`: the
    /// input has ended.
    fn next_block(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        let mut block = std::mem::take(&mut self.rest);
        let mut wanted = self.block_bytes;
        loop {
            self.fill(&mut block, wanted)?;
            let end = match self.has_ended {
                true if block.len() <= self.block_bytes => Some(block.len()),
                _ => {
                    let within = block.get(..self.block_bytes.min(block.len())).unwrap_or_default();
                    let last = within.iter().rposition(|byte| *byte == self.end);
                    let first = || block.iter().position(|byte| *byte == self.end);
                    last.or_else(first).map(|end| end + 1)
                }
            };
            let end = end.or(self.has_ended.then_some(block.len()));
            if let Some(end) = end {
                self.rest = block.split_off(end);
                return Ok((!block.is_empty()).then_some(block));
            }
            if block.len() >= self.block_bytes.max(self.max_record_bytes) {
                return Err(self.error(InputErrorKind::TooLong { max_bytes: block.len() }));
            }
            wanted = block.len() + PIECE_BYTES;
        }
    }

    /// Reads until the block has so many bytes, or the input has ended.
    fn fill(&mut self, block: &mut Vec<u8>, wanted: usize) -> Result<(), InputError> {
        let missing = wanted.saturating_sub(block.len());
        if missing == 0 || self.has_ended {
            return Ok(());
        }
        // Grows as bytes arrive: a large block of a small input takes no more than the input.
        let read = (&mut self.reader).take(missing as u64).read_to_end(block);
        match read {
            Ok(count) => self.has_ended = count < missing,
            Err(error) => {
                let position = Position::Record(self.number);
                return Err(InputError::io(&self.name, InputErrorKind::Read, position, error));
            }
        }
        Ok(())
    }

    fn error(&self, kind: InputErrorKind) -> InputError {
        InputError::new(&self.name, Position::Record(self.number), kind)
    }
}

impl ReadJobs for Blocks {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        self.number += 1;
        let Some(block) = self.next_block()? else { return Ok(None) };
        let job = match &self.template {
            Ok(template) => template.job(self.number, Record::default()),
            Err(error) => Err(error.clone()),
        };
        let job = job.map_err(|error| self.error(error.into()))?;
        Ok(Some(job.stdin(JobStdin::bytes(block))))
    }
}
