//! Sources of jobs: lines, words, JSON lines, CSV and cross products, all lazy.
//!
//! | file | contents |
//! |---|---|
//! | this file | a source, the iterator of its jobs, and its names; lists of a command line; jobs of a log |
//! | `records.rs` | records for a template: of lines, and of lists that are combined; columns; several in one job |
//! | `lines.rs` | commands, and lines for the shell; records that end with a byte |
//! | `json.rs` | JSON lines |
//! | `blocks.rs` | blocks of lines, for the standard input of jobs |
//! | `csv.rs` | comma-separated values |
//! | `error.rs` | the error type |

mod blocks;
mod csv;
mod error;
mod json;
mod lines;
mod records;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::iter::FusedIterator;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, vec};

use pipewright_os::base::error::Quoted;
use pipewright_os::base::stdio;

use crate::job::{Job, Template};
use crate::journal::LogError;
use crate::journal::read::{Log, Numbered};
use error::Position;
use lines::Delimited;

pub use error::{InputError, InputErrorKind};
pub use records::{List, Packing, Records, product};

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
    /// The byte that ends a record.
    end: u8,
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
            end: b'\n',
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
    pub fn nul_separated(self) -> Source {
        self.separated_by(0)
    }

    /// Ends lines with that byte instead of a line feed, which is a part of a value then. JSON lines and CSV ignore
    /// this.
    pub fn separated_by(mut self, end: u8) -> Source {
        self.end = end;
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
        self.records().fill(template)
    }

    /// Returns the lines, as the records of [`lines`](Self::lines).
    pub fn records(self) -> Records {
        Records::new(Delimited::from(self))
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
    /// | `mem` | memory: a number of bytes, `"512M"`, `"2G"` (by 1024) or `"2GB"` (by 1000); a range: `"2G..16G"` |
    /// | `resources` | resources by name: an object of integers from 1 |
    /// | `timeout` | a number of seconds, or a string such as `"1.5s"`, `"2m"` or `"1h"` |
    /// | `retries` | an integer |
    /// | `once` | a boolean |
    ///
    /// A text is a string. Bytes that are not Unicode are written as `{"hex": "ff00"}`. Every other field is an error,
    /// and so is a field that occurs twice.
    pub fn json_lines(mut self) -> Jobs {
        self.end = b'\n';
        Jobs::new(json::JsonLines::new(self.into()))
    }

    /// Makes a job of each block of lines, which is its standard input: `--pipe` of GNU parallel.
    ///
    /// A block has at most `bytes`, and ends with a line, or with the input. A line that is longer is a block of its
    /// own, up to [`max_record_bytes`](Self::max_record_bytes). Of the placeholders, `{#}` and `{%}` have values.
    ///
    /// Jobs that wait hold their blocks in memory, at most 32 MiB and three blocks of them;
    /// [`Batch::read_ahead`](crate::Batch::read_ahead) bounds their number.
    ///
    /// ```
    /// use pipewright_batch::{Batch, Source};
    /// let jobs = Source::new(&b"b\na\nd\nc\n"[..]).blocks(["sort"], 4);
    /// assert_eq!(Batch::new().read_ahead(2).run(jobs)?.succeeded, 2);
    /// # Ok::<(), pipewright_batch::BatchError>(())
    /// ```
    pub fn blocks<I>(self, words: I, bytes: usize) -> Jobs
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let words = words.into_iter().map(Into::into).collect();
        Jobs::new(blocks::Blocks::new(self, words, bytes))
    }

    /// Makes a job of each row of comma-separated values (RFC 4180) after the first row, which names the columns.
    ///
    /// The words are those of a [`Template`]: `{name}` and `{2}` stand for columns. Rows end with LF or CRLF. A field
    /// in double quotes may have commas, line ends, and doubled double quotes. Blank lines are skipped; write `""` for
    /// an empty value in a file with one column. A byte order mark is skipped.
    ///
    /// A quote inside a field without quotes, a quote that is not closed, a row with more or fewer fields than the
    /// first one: each is an error. Readers that accept them make jobs that nobody wanted.
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
        Delimited::new(source.name, source.reader, source.end, source.max_record_bytes)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .field("end", &self.end)
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

// The lists of a command line: `COMMAND ::: a b :::: FILE`.

/// A list of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListWords {
    /// The words after `:::`.
    Values(Vec<OsString>),
    /// A file after `::::`. Each of several files is a list.
    File(PathBuf),
    /// A list, and those that `:::+` and `::::+` put beside it.
    SideBySide(Vec<ListWords>),
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
            ListWords::SideBySide(lists) => {
                let lists = lists.into_iter().map(ListWords::open);
                List::SideBySide(lists.collect::<Result<_, _>>()?)
            }
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
/// There is no list before a `:::+` or `::::+`.
pub fn split_lists<I>(words: I) -> Result<(Vec<OsString>, Vec<ListWords>), InputError>
where
    I: IntoIterator<Item = OsString>,
{
    let mut command = Vec::new();
    let mut lists: Vec<ListWords> = Vec::new();
    // Files, or values; and beside the list before.
    let mut kind = None;
    for word in words {
        let (is_file, is_beside) = match (word.to_str(), kind) {
            (Some(separator @ (":::" | ":::+" | "::::" | "::::+")), _) => {
                let is_beside = separator.ends_with('+');
                if is_beside && lists.is_empty() {
                    let kind = InputErrorKind::FirstList { separator: separator.to_owned() };
                    return Err(InputError::new(&InputName::Arguments, Position::Unknown, kind));
                }
                let is_file = separator.starts_with("::::");
                kind = Some((is_file, is_beside));
                if !is_file {
                    push(&mut lists, ListWords::Values(Vec::new()), is_beside);
                }
                continue;
            }
            (_, None) => {
                command.push(word);
                continue;
            }
            (_, Some(kind)) => kind,
        };
        match last(&mut lists) {
            Some(ListWords::Values(values)) if !is_file => values.push(word),
            _ => push(&mut lists, ListWords::File(word.into()), is_beside),
        }
    }
    Ok((command, lists))
}

/// Adds a list, or puts it beside the last one.
fn push(lists: &mut Vec<ListWords>, list: ListWords, is_beside: bool) {
    match if is_beside { lists.pop() } else { None } {
        Some(ListWords::SideBySide(mut before)) => {
            before.push(list);
            lists.push(ListWords::SideBySide(before));
        }
        Some(before) => lists.push(ListWords::SideBySide(vec![before, list])),
        None => lists.push(list),
    }
}

/// Returns the list that was added last.
fn last(lists: &mut [ListWords]) -> Option<&mut ListWords> {
    match lists.last_mut()? {
        ListWords::SideBySide(beside) => beside.last_mut(),
        list => Some(list),
    }
}

// The jobs of a log.

/// Jobs that are read at a time. A reader holds up the writer of some logs, so these are few.
const AT_ONCE: usize = 128;

/// Bytes of their standard inputs after which no other job is read with them.
const AT_ONCE_BYTES: usize = 4 << 20;

/// The jobs of a log, in the order of its input.
struct LoggedJobs {
    path: PathBuf,
    /// `None` before the first job.
    log: Option<(Log, vec::IntoIter<Numbered>)>,
    read: vec::IntoIter<Job>,
}

impl LoggedJobs {
    fn new(path: &Path) -> LoggedJobs {
        LoggedJobs { path: path.to_owned(), log: None, read: Vec::new().into_iter() }
    }

    fn read(&mut self) -> Result<Option<Job>, LogError> {
        if let Some(job) = self.read.next() {
            return Ok(Some(job));
        }
        let (log, numbered) = match &mut self.log {
            Some(open) => open,
            none => {
                let log = Log::open_to_continue(&self.path)?;
                let numbered = log.numbered()?.into_iter();
                none.insert((log, numbered))
            }
        };
        let mut bytes = 0;
        let next = numbered.by_ref().take(AT_ONCE);
        let is_enough = |job: &Job| {
            bytes += job.get_stdin().len();
            bytes >= AT_ONCE_BYTES
        };
        self.read = log.stored(next, is_enough)?.into_iter();
        Ok(self.read.next())
    }
}

impl ReadJobs for LoggedJobs {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        self.read().map_err(|error| {
            let name = InputName::Log(self.path.clone());
            let source = io::Error::other(error);
            InputError::io(&name, InputErrorKind::Read, Position::Unknown, source)
        })
    }
}

#[cfg(test)]
mod tests;
