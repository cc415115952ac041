//! Sources of jobs: lines, words, JSON lines, CSV and cross products, all lazy.
//!
//! | file | contents |
//! |---|---|
//! | `delimited.rs` | records that end with a byte |
//! | `lines.rs` | lines for a template, commands, and lines for the shell |
//! | `words.rs` | a line split into words |
//! | `json/` | JSON lines |
//! | `csv.rs`, `bom.rs` | comma-separated values |
//! | `product.rs`, `arguments.rs` | the combinations of several lists, and the lists of a command line |
//! | `logged.rs` | the jobs of a log |
//! | `jobs.rs` | the iterator of jobs |
//! | `error.rs`, `input.rs` | the error type, and the names of inputs |

mod arguments;
mod bom;
mod csv;
mod delimited;
mod error;
mod input;
mod jobs;
mod json;
mod lines;
mod logged;
mod product;
mod words;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use pipewright_os::base::stdio;

pub use arguments::{ListWords, split_lists};
use delimited::Delimited;
use error::Position;
pub use error::{InputError, InputErrorKind};
pub use input::InputName;
pub use jobs::Jobs;
pub use product::{List, product};

use crate::job::Template;

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
    /// | `tokens` | tokens by name: an object of integers from 1 |
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

#[cfg(test)]
mod tests;
