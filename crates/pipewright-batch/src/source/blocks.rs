//! Blocks of an input, cut at line ends: each is the standard input of a job.

use std::ffi::OsString;
use std::io::{self, Read};
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
    /// The error after the block that was returned last.
    failed: Option<io::Error>,
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
            failed: None,
            number: 0,
        }
    }

    /// Reads a block: up to the last end of a record in it, or to the first one if a record is longer. `None`: the
    /// input has ended.
    fn next_block(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        if let Some(error) = self.failed.take() {
            return Err(self.cannot_read(error));
        }
        let mut block = std::mem::take(&mut self.rest);
        let filled = self.fill(&mut block, self.block_bytes);
        let within = block.get(..self.block_bytes.min(block.len())).unwrap_or_default();
        let last = within.iter().rposition(|byte| *byte == self.end);
        let end = match (last, filled) {
            (_, Ok(())) if self.has_ended && block.len() <= self.block_bytes => block.len(),
            (Some(last), filled) => {
                // The records before it are whole.
                self.failed = filled.err();
                last + 1
            }
            (None, Err(error)) => return Err(self.cannot_read(error)),
            (None, Ok(())) => self.read_record(&mut block)?,
        };
        self.rest = block.split_off(end);
        Ok((!block.is_empty()).then_some(block))
    }

    /// Reads on to the end of the first record, and returns the number of its bytes.
    fn read_record(&mut self, block: &mut Vec<u8>) -> Result<usize, InputError> {
        let longest = self.block_bytes.max(self.max_record_bytes);
        let mut looked_at = 0;
        loop {
            let new = block.get(looked_at..).unwrap_or_default();
            if let Some(end) = new.iter().position(|byte| *byte == self.end) {
                return Ok(looked_at + end + 1);
            }
            if block.len() > longest {
                return Err(self.error(InputErrorKind::TooLong { max_bytes: longest }));
            }
            if self.has_ended {
                return Ok(block.len());
            }
            looked_at = block.len();
            self.fill(block, longest.saturating_add(1).min(looked_at + PIECE_BYTES))
                .map_err(|error| self.cannot_read(error))?;
        }
    }

    /// Reads until the block has so many bytes, or the input has ended.
    fn fill(&mut self, block: &mut Vec<u8>, wanted: usize) -> io::Result<()> {
        let missing = wanted.saturating_sub(block.len());
        if missing == 0 || self.has_ended {
            return Ok(());
        }
        // Grows as bytes arrive: a large block of a small input takes no more than the input.
        let count = (&mut self.reader).take(missing as u64).read_to_end(block)?;
        self.has_ended = count < missing;
        Ok(())
    }

    fn cannot_read(&self, error: io::Error) -> InputError {
        InputError::io(&self.name, InputErrorKind::Read, Position::Record(self.number), error)
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
