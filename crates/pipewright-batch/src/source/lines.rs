//! Lines: commands, and lines for the shell; a line split into words; and records that end with a byte.

use std::io::{BufRead, BufReader, Read};

use pipewright_os::base::os_text::LINES_END_WITH_CRLF;

use super::error::{InputError, InputErrorKind, Position};
use super::{InputName, ReadJobs};
use crate::job::{Job, os_string};

/// Lines that are commands.
pub(super) struct Commands(Delimited);

pub(super) struct ShellLines(Delimited);

impl Commands {
    pub(super) fn new(records: Delimited) -> Commands {
        Commands(records)
    }
}

impl ShellLines {
    pub(super) fn new(records: Delimited) -> ShellLines {
        ShellLines(records)
    }
}

impl ReadJobs for Commands {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        while let Some(line) = self.0.next_record()? {
            match command(line) {
                Ok(Some(job)) => return Ok(Some(job.on_line(self.0.line()))),
                Ok(None) => {}
                Err(kind) => return Err(self.0.error(kind)),
            }
        }
        Ok(None)
    }
}

/// Makes a job of the words of a line. `None`: it has none.
fn command(line: &[u8]) -> Result<Option<Job>, InputErrorKind> {
    refuse_nul(line)?;
    let mut words = split_words(line)?.into_iter().map(os_string);
    let Some(program) = words.next() else { return Ok(None) };
    let program = program?;
    if program.is_empty() {
        return Err(InputErrorKind::EmptyProgram);
    }
    let args = words.collect::<Result<Vec<_>, _>>()?;
    Ok(Some(Job::new(program).args(args)))
}

impl ReadJobs for ShellLines {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        while let Some(line) = self.0.next_record()? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let job = refuse_nul(line).and_then(|()| Ok(Job::shell(os_string(line.to_vec())?)));
            return match job {
                Ok(job) => Ok(Some(job.on_line(self.0.line()))),
                Err(kind) => Err(self.0.error(kind)),
            };
        }
        Ok(None)
    }
}

fn refuse_nul(line: &[u8]) -> Result<(), InputErrorKind> {
    if line.contains(&0) { Err(InputErrorKind::NulByte) } else { Ok(()) }
}

// A line split into words by the quotes of a POSIX shell, without expansions.

/// Splits a line into words.
///
/// Single quotes keep everything. In double quotes a backslash escapes `$`, `` ` ``, `"`, `\` and a line end, and stays
/// before anything else. Outside of quotes it escapes any character. An escaped line end, which only a text that ends
/// with NUL can have, is removed.
fn split_words(line: &[u8]) -> Result<Vec<Vec<u8>>, InputErrorKind> {
    let mut words = Vec::new();
    // `None` between words: `''` is a word too.
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' => words.extend(word.take()),
            b'\'' => single_quoted(&mut bytes, word.get_or_insert_default())?,
            b'"' => double_quoted(&mut bytes, word.get_or_insert_default())?,
            b'\\' => match bytes.next() {
                Some(b'\n') => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err(InputErrorKind::TrailingBackslash),
            },
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    Ok(words)
}

fn single_quoted(
    bytes: &mut impl Iterator<Item = u8>,
    word: &mut Vec<u8>,
) -> Result<(), InputErrorKind> {
    for byte in bytes {
        match byte {
            b'\'' => return Ok(()),
            byte => word.push(byte),
        }
    }
    Err(InputErrorKind::UnclosedQuote { quote: '\'' })
}

fn double_quoted(
    bytes: &mut impl Iterator<Item = u8>,
    word: &mut Vec<u8>,
) -> Result<(), InputErrorKind> {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return Ok(()),
            b'\\' => match bytes.next() {
                Some(b'\n') => {}
                Some(escaped @ (b'$' | b'`' | b'"' | b'\\')) => word.push(escaped),
                Some(other) => word.extend([b'\\', other]),
                None => break,
            },
            byte => word.push(byte),
        }
    }
    Err(InputErrorKind::UnclosedQuote { quote: '"' })
}

// Records that end with a byte: lines, and texts that end with NUL.

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
