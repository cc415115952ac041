//! Sources of jobs: lines, words, JSON lines, CSV and cross products, all lazy.
//!
//! | file | contents |
//! |---|---|
//! | this file | a source, the iterator of its jobs, and the names of inputs; the combinations of several lists |
//! | `lines.rs` | lines for a template, commands, and lines for the shell; records that end with a byte |
//! | `json/` | JSON lines |
//! | `csv.rs` | comma-separated values |
//! | `logged.rs` | the jobs of a log |
//! | `error.rs` | the error type |

mod csv;
mod error;
mod json;
mod lines;
mod logged;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::iter::FusedIterator;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright_os::base::error::Quoted;
use pipewright_os::base::stdio;

use crate::job::{Job, Record, Template};

use error::Position;
pub use error::{InputError, InputErrorKind};
use lines::Delimited;
use logged::LoggedJobs;

/// An input that jobs are read from.
///
/// Nothing is read before the first job is asked for, and then no more than that job and a buffer needs. Memory is
/// bounded by the longest record, whose length is limited: see [`max_record_bytes`](Self::max_record_bytes).
///
/// ```
/// use pipewright_batch::{Source, Template};
///
/// let template = Template::parse(["gzip", "-9", "{}"])?;
/// let jobs = Source::new(&b"a.log\nb.log\n"[..]).lines(template);
/// for job in jobs {
///     println!("{:?}", job?.argv(1)?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a source does nothing until a method such as `lines` makes jobs of it"]
pub struct Source {
    name: InputName,
    reader: Box<dyn Read + Send>,
    is_nul_separated: bool,
    max_record_bytes: usize,
}

/// A file that the first read opens.
struct OpenedLate {
    path: PathBuf,
    file: Option<File>,
}

impl Read for OpenedLate {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.read(buffer),
            None => self.file.insert(File::open(&self.path)?).read(buffer),
        }
    }
}

impl Source {
    /// The longest record by default: 1 MiB. An argument may have 128 KiB on Linux.
    pub const DEFAULT_MAX_RECORD_BYTES: usize = 1 << 20;

    /// Makes a source of this reader. Errors call it "the input".
    pub fn new(reader: impl Read + Send + 'static) -> Source {
        Source {
            name: InputName::Reader,
            reader: Box::new(reader),
            is_nul_separated: false,
            max_record_bytes: Source::DEFAULT_MAX_RECORD_BYTES,
        }
    }

    /// Makes a source of the standard input.
    pub fn stdin() -> Source {
        Source { name: InputName::Stdin, ..Source::new(stdio::stdin()) }
    }

    /// Opens a file. A named pipe is opened when the first job is asked for, because that waits for its other side.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Source, InputError> {
        let path = path.into();
        // Without an answer the open finds the reason.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let reader = OpenedLate { path: path.clone(), file: None };
            return Ok(Source { name: InputName::File(path), ..Source::new(reader) });
        }
        match File::open(&path) {
            Ok(file) => Ok(Source { name: InputName::File(path), ..Source::new(file) }),
            Err(error) => Err(InputError::io(
                &InputName::File(path),
                InputErrorKind::Open,
                Position::Unknown,
                error,
            )),
        }
    }

    /// Ends lines with a NUL byte, as `find -print0` does, instead of a line feed. JSON lines and CSV ignore this.
    pub fn nul_separated(mut self) -> Source {
        self.is_nul_separated = true;
        self
    }

    /// Sets the length of the longest record that is accepted: a line, a row, or a text that ends with a NUL byte. A
    /// longer one is an error.
    pub fn max_record_bytes(mut self, bytes: usize) -> Source {
        self.max_record_bytes = bytes;
        self
    }

    /// Makes a job of each line, which is the only column of the template.
    ///
    /// The line ends before the line feed. Nothing else is removed: spaces and a carriage return are part of the value,
    /// as in `xargs -d '\n'` and GNU parallel, and an empty line is an empty value.
    pub fn lines(self, template: impl Into<Arc<Template>>) -> Jobs {
        Jobs::new(lines::Lines::new(self.into(), template.into()))
    }

    /// Makes a job of each line, which is a command. Lines without words are skipped.
    ///
    /// Spaces and tabs separate words. Single quotes, double quotes and backslashes work as in a POSIX shell. No other
    /// character has a meaning: there are no variables, no globs, no redirections and no comments.
    pub fn commands(self) -> Jobs {
        Jobs::new(lines::Commands::new(self.into()))
    }

    /// Makes a job of each line, which `sh -c` runs. Blank lines are skipped.
    pub fn shell_lines(self) -> Jobs {
        Jobs::new(lines::ShellLines::new(self.into()))
    }

    /// Makes a job of each line, which is a JSON object. Blank lines are skipped.
    ///
    /// | field | value |
    /// |---|---|
    /// | `argv` | the words of the command: an array of texts |
    /// | `shell` | a line for `sh -c`, in place of `argv` |
    /// | `id` | the [name](crate::Job::name): a string |
    /// | `cwd` | the working directory: a text |
    /// | `env` | the changes to the environment: an object of texts, and `null` to remove a variable |
    /// | `stdin` | the standard input: a text |
    /// | `stdin_file` | the file that is the standard input: a text |
    /// | `after` | the names of the jobs that have to succeed first: an array of strings |
    /// | `cpus` | processors: an integer from 1 |
    /// | `mem` | memory: a number of bytes, or a string such as `"512M"`, `"2G"` (by 1024) or `"2GB"` (by 1000); or a range `"2G..16G"` |
    /// | `resources` | resources by name: an object of integers from 1 |
    /// | `timeout` | a number of seconds, or a string such as `"1.5s"`, `"2m"` or `"1h"` |
    /// | `retries` | an integer |
    /// | `once` | a boolean |
    ///
    /// A text is a string. Bytes that are not Unicode are written as `{"hex": "ff00"}`. Every other field is an error,
    /// and so is a field that occurs twice.
    pub fn json_lines(mut self) -> Jobs {
        self.is_nul_separated = false;
        Jobs::new(json::JsonLines::new(self.into()))
    }

    /// Makes a job of each row of comma-separated values (RFC 4180) after the first row, which names the columns.
    ///
    /// The words are those of a [`Template`]: `{name}` and `{2}` stand for columns. Rows end with LF or CRLF. A field in
    /// double quotes may have commas, line ends, and doubled double quotes. Blank lines are skipped; write `""` for an
    /// empty value in a file with one column. A byte order mark is skipped.
    ///
    /// A quote inside a field without quotes, a quote that is not closed, a row with more or fewer fields than the first
    /// one: each is an error. Readers that accept them make jobs that nobody wanted.
    pub fn csv<I>(self, words: I) -> Jobs
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let words = words.into_iter().map(Into::into).collect();
        let rows = csv::Rows::new(self.name, self.reader, self.max_record_bytes);
        Jobs::new(csv::CsvJobs::new(rows, words))
    }
}

impl From<Source> for Delimited {
    fn from(source: Source) -> Delimited {
        let end = if source.is_nul_separated { 0 } else { b'\n' };
        Delimited::new(source.name, source.reader, end, source.max_record_bytes)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .field("is_nul_separated", &self.is_nul_separated)
            .field("max_record_bytes", &self.max_record_bytes)
            .finish_non_exhaustive()
    }
}

// The iterator of jobs that all sources give.

/// The jobs of a [`Source`](crate::Source), read when they are asked for.
///
/// Ends after the first error: what follows a bad record cannot be trusted.
#[must_use = "nothing is read before a job is asked for"]
pub struct Jobs(Option<Box<dyn ReadJobs + Send>>);

trait ReadJobs {
    /// Reads the next job.
    fn next_job(&mut self) -> Result<Option<Job>, InputError>;
}

impl Jobs {
    /// Returns the jobs of a log. It is opened when the first one is asked for.
    pub(crate) fn of_log(path: &Path) -> Jobs {
        Jobs::new(LoggedJobs::new(path))
    }

    fn new(reader: impl ReadJobs + Send + 'static) -> Jobs {
        Jobs(Some(Box::new(reader)))
    }
}

impl Iterator for Jobs {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.0.as_mut()?.next_job();
        if !matches!(next, Ok(Some(_))) {
            // Closes the input too.
            self.0 = None;
        }
        next.transpose()
    }
}

impl FusedIterator for Jobs {}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("has_ended", &self.0.is_none()).finish_non_exhaustive()
    }
}

// Names of inputs, for errors.

/// The name of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputName {
    /// The standard input.
    Stdin,
    /// A file.
    File(PathBuf),
    /// The log of a batch.
    Log(PathBuf),
    /// The arguments of the command line: lists after `:::`.
    Arguments,
    /// A reader of the program.
    Reader,
}

impl fmt::Display for InputName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputName::Stdin => f.write_str("stdin"),
            InputName::File(path) => write!(f, "{}", Quoted(path.as_os_str())),
            InputName::Log(path) => write!(f, "log {}", Quoted(path.as_os_str())),
            InputName::Arguments => f.write_str("the arguments"),
            InputName::Reader => f.write_str("the input"),
        }
    }
}

// The combinations of several lists, as jobs.

/// A list of values.
#[derive(Debug)]
pub enum List {
    /// The words after `:::`.
    Values(Vec<OsString>),
    /// The lines of an input, such as the file after `::::`.
    Lines(Source),
}

/// Makes a job of each combination of values, with a column for each list. The last list varies fastest, as in GNU
/// parallel. If a list is empty, there are no combinations; GNU parallel takes an empty second list for one empty value.
///
/// The first list is read as needed. The others, which are read again and again, are read for the first job, and kept in memory; if
/// one cannot be read, that is the error in the place of the first job.
///
/// ```
/// use pipewright_batch::{List, Template, product};
/// let template = Template::parse(["convert", "{1}", "-quality", "{2}", "{1.}-{2}.jpg"])?;
/// let lists = [["a.png", "b.png"], ["50", "90"]].map(|list| List::Values(list.map(Into::into).into()));
/// let last = product(template, lists).last().unwrap()?;
/// assert_eq!(last.argv(1)?, ["convert", "b.png", "-quality", "90", "b-90.jpg"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn product(template: impl Into<Arc<Template>>, lists: impl IntoIterator<Item = List>) -> Jobs {
    let template = template.into();
    let mut lists = lists.into_iter();
    let first = match lists.next() {
        Some(List::Lines(source)) => First::Lines(source.into()),
        Some(List::Values(values)) => First::Values(bytes_of(values).into_iter()),
        None => First::Values(Vec::new().into_iter()),
    };
    let (unread, others, digits) = (lists.collect(), Vec::new(), Vec::new());
    Jobs::new(Product { template, first, value: None, unread, others, digits, number: 0 })
}

/// The combinations of several lists.
struct Product {
    template: Arc<Template>,
    first: First,
    /// The current value of the first list.
    value: Option<Vec<u8>>,
    /// The other lists, until the first job is asked for.
    unread: Vec<List>,
    others: Vec<Vec<Vec<u8>>>,
    /// The index of the next value in each of the other lists.
    digits: Vec<usize>,
    number: u64,
}

/// The first list, which is read once.
enum First {
    Values(std::vec::IntoIter<Vec<u8>>),
    Lines(Delimited),
}

impl List {
    fn read(self) -> Result<Vec<Vec<u8>>, InputError> {
        let mut lines: Delimited = match self {
            List::Values(values) => return Ok(bytes_of(values)),
            List::Lines(source) => source.into(),
        };
        let mut values = Vec::new();
        while let Some(line) = lines.next_record()? {
            values.push(line.to_vec());
        }
        Ok(values)
    }
}

fn bytes_of(values: Vec<OsString>) -> Vec<Vec<u8>> {
    values.into_iter().map(OsString::into_encoded_bytes).collect()
}

impl First {
    fn next(&mut self) -> Result<Option<Vec<u8>>, InputError> {
        match self {
            First::Values(values) => Ok(values.next()),
            First::Lines(lines) => Ok(lines.next_record()?.map(<[u8]>::to_vec)),
        }
    }

    /// Returns an error of the current value.
    fn error(&self, kind: crate::job::TemplateError) -> InputError {
        match self {
            First::Values(_) => {
                InputError::new(&InputName::Arguments, Position::Unknown, kind.into())
            }
            First::Lines(lines) => lines.error(kind),
        }
    }
}

impl Product {
    /// Returns the next combination.
    fn next_record(&mut self) -> Result<Option<Record>, InputError> {
        for list in std::mem::take(&mut self.unread) {
            self.others.push(list.read()?);
            self.digits.push(0);
        }
        if self.others.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        if self.value.is_none() {
            self.value = self.first.next()?;
        }
        let Some(first) = &self.value else { return Ok(None) };
        let mut record = Record::new(first.as_slice());
        for (list, digit) in self.others.iter().zip(&self.digits) {
            record.begin_column();
            record.extend(list.get(*digit).map_or(&[], Vec::as_slice));
        }
        self.advance();
        Ok(Some(record))
    }

    /// Goes to the next combination, as a counter goes to the next number.
    fn advance(&mut self) {
        for (list, digit) in self.others.iter().zip(&mut self.digits).rev() {
            *digit += 1;
            if *digit < list.len() {
                return;
            }
            *digit = 0;
        }
        self.value = None;
    }
}

impl ReadJobs for Product {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let Some(record) = self.next_record()? else { return Ok(None) };
        self.number += 1;
        match self.template.job(self.number, record) {
            Ok(job) => Ok(Some(job)),
            Err(error) => Err(self.first.error(error)),
        }
    }
}

// The lists of a command line: `COMMAND ::: a b :::: FILE`.

/// A list of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListWords {
    /// The words after `:::`.
    Values(Vec<OsString>),
    /// A file after `::::`. Each of several files is a list.
    File(PathBuf),
}

impl ListWords {
    /// Opens the file, if the list is in one. `-` is the standard input.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(self) -> Result<List, InputError> {
        Ok(match self {
            ListWords::Values(values) => List::Values(values),
            ListWords::File(path) if path.as_os_str() == "-" => List::Lines(Source::stdin()),
            ListWords::File(path) => List::Lines(Source::open(path)?),
        })
    }
}

/// Splits the words of a command line into the command and its lists.
///
/// ```
/// use pipewright_batch::{ListWords, split_lists};
/// let words = ["gzip", "-9", ":::", "a", "b"].map(Into::into);
/// let (command, lists) = split_lists(words)?;
/// assert_eq!(command, ["gzip", "-9"]);
/// assert_eq!(lists, [ListWords::Values(vec!["a".into(), "b".into()])]);
/// # Ok::<(), pipewright_batch::InputError>(())
/// ```
///
/// # Errors
/// A list is linked to the one before (`:::+`, `::::+`), which is not supported.
pub fn split_lists<I>(words: I) -> Result<(Vec<OsString>, Vec<ListWords>), InputError>
where
    I: IntoIterator<Item = OsString>,
{
    let mut command = Vec::new();
    let mut lists = Vec::new();
    let mut are_files = None;
    for word in words {
        match word.to_str() {
            Some(":::") => {
                are_files = Some(false);
                lists.push(ListWords::Values(Vec::new()));
            }
            Some("::::") => are_files = Some(true),
            Some(":::+") => return Err(unsupported(":::+")),
            Some("::::+") => return Err(unsupported("::::+")),
            _ => match (are_files, lists.last_mut()) {
                (None, _) => command.push(word),
                (Some(false), Some(ListWords::Values(values))) => values.push(word),
                (Some(_), _) => lists.push(ListWords::File(word.into())),
            },
        }
    }
    Ok((command, lists))
}

fn unsupported(separator: &'static str) -> InputError {
    let kind = InputErrorKind::UnsupportedList { separator };
    InputError::new(&InputName::Arguments, Position::Unknown, kind)
}

#[cfg(test)]
mod tests;
