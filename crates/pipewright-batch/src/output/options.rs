//! The options of output and how they combine, and its errors.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use pipewright::Source;
use pipewright_os::base::error::{OneLine, Quoted};

use super::content::{OpenSpool, open_temporary_file};
use super::kept::KeepBeside;
use super::tags::TagStyles;
use crate::job::Template;

/// The way in which output of jobs is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputMode {
    /// Whole: when a job is settled, its stdout, then its stderr, byte by byte as it wrote them. Only the last attempt
    /// is printed, as GNU parallel does: an attempt that is retried prints nothing.
    #[default]
    Group,
    /// Line by line, as the lines arrive. A line of one job never contains bytes of another, and a last line without an
    /// end gets one. What was printed stays, also if the attempt is retried.
    LineBuffer,
    /// As `Group`, but only that of jobs that did not succeed.
    OnFailure,
    /// Not at all.
    Discard,
}

/// Options of the output of jobs.
///
/// All of them combine:
///
/// | option | with `Group` or `OnFailure` | with `LineBuffer` | with `Discard` |
/// |---|---|---|---|
/// | `keep_order` | the order of the input | the first unfinished job prints as it runs; other lines wait | no effect |
/// | `tag` | each line has a tag, and a last line without an end gets one | each line has a tag | no effect |
/// | `dir` | files and printing | files and printing | only files |
/// | `max_bytes` | the rest of a stream is neither printed nor in its file | as for `Group` | limits the file |
/// | `head_and_tail` | a line says what is left out between both | lines of the tail come at the end | limits the file |
///
/// The files of `dir` have the exact bytes of a stream, without tags. With `on_nodes` an executor of other machines
/// does not send output to this one: nothing is printed, and `dir` has to be on a file system that all of them share.
#[derive(Clone)]
#[non_exhaustive]
pub struct OutputOptions {
    /// The way to print.
    pub mode: OutputMode,
    /// True to print in the order of the input.
    pub keep_order: bool,
    /// True to print the tag of a job and a tab before each of its lines. On a terminal the tags are a column, in
    /// colours, unless `NO_COLOR` is set or `TERM` is `dumb`.
    pub tag: bool,
    /// The tag, in which placeholders stand for the values of the job: [`Template::parse_text`]. `None`: the name of
    /// the job, its values, or its command.
    pub tag_text: Option<Arc<Template>>,
    /// The directory for a folder a job.
    pub dir: Option<PathBuf>,
    /// True to let other machines write the files of `dir` themselves. Without `dir`, and for jobs of this machine, it
    /// has no effect.
    pub on_nodes: bool,
    /// The most bytes of each stream of an attempt. The first ones are kept, and the rest only counts.
    pub max_bytes: Option<u64>,
    /// The most bytes of the start and of the end of each stream of an attempt. Both are cut at whole lines, and a line
    /// between them says how much is left out.
    pub head_and_tail: Option<(usize, usize)>,
    /// A folder for streams of which `head_and_tail` leaves out a part: each is a file with all of its bytes, for its
    /// owner only.
    pub spill_to: Option<PathBuf>,
    /// True to let no other user read the folders and the files of `dir` (modes 0700 and 0600).
    pub private: bool,
    /// The ways in which streams show tags.
    pub(crate) tag_styles: TagStyles,
    /// Files are to survive a power cut, because a log says that they are there.
    pub(crate) is_durable: bool,
    /// Output is kept beside this log until it is printed.
    pub(crate) keep_beside: Option<KeepBeside>,
    /// The limit of the memory that holds output.
    pub(super) memory_bytes: usize,
    /// Opens the temporary file.
    pub(super) open_spool: OpenSpool,
}

/// The default limit of the memory that holds output. Beyond it are the tails of running attempts, at most 3 KiB each,
/// and the block that the printing thread copies.
pub(super) const MEMORY_BYTES: usize = 24 << 20;

impl Default for OutputOptions {
    fn default() -> OutputOptions {
        OutputOptions {
            mode: OutputMode::default(),
            keep_order: false,
            tag: false,
            tag_text: None,
            dir: None,
            on_nodes: false,
            max_bytes: None,
            head_and_tail: None,
            spill_to: None,
            private: false,
            tag_styles: TagStyles::default(),
            is_durable: false,
            keep_beside: None,
            memory_bytes: MEMORY_BYTES,
            open_spool: Arc::new(open_temporary_file),
        }
    }
}

impl fmt::Debug for OutputOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputOptions")
            .field("mode", &self.mode)
            .field("keep_order", &self.keep_order)
            .field("tag", &self.tag)
            .field("tag_text", &self.tag_text)
            .field("dir", &self.dir)
            .field("on_nodes", &self.on_nodes)
            .field("max_bytes", &self.max_bytes)
            .field("head_and_tail", &self.head_and_tail)
            .field("spill_to", &self.spill_to)
            .field("private", &self.private)
            .finish_non_exhaustive()
    }
}

// The error of stored or printed output.

/// An error of stored or printed output. Prints as one line.
#[derive(Clone)]
pub struct OutputError(Box<ErrorFacts>);

#[derive(Clone)]
struct ErrorFacts {
    kind: OutputErrorKind,
    io_kind: io::ErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of an [`OutputError`], with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputErrorKind {
    /// The temporary file cannot be opened or written. The rest of the stream is lost.
    Spool(Source),
    /// The temporary file cannot be read back. Part of what was to be printed to the stream is lost.
    ReadBack(Source),
    /// A stream of this process cannot be written to. Everything later for it is discarded.
    Print(Source),
    /// A file or folder of the output directory, or of `spill_to`, cannot be made or written.
    Folder(PathBuf),
    /// The output of a job cannot be put on disk, so that a power cut would take it.
    NotOnDisk,
    /// The thread that prints cannot be started, or the writer that it was given panicked.
    Thread,
}

impl OutputError {
    pub(super) fn new(kind: OutputErrorKind, source: io::Error) -> OutputError {
        let io_kind = source.kind();
        OutputError(Box::new(ErrorFacts { kind, io_kind, source: Some(Arc::new(source)) }))
    }

    /// Returns the error of an output that is not on disk, for a reason on one line.
    pub(crate) fn lost(reason: String) -> OutputError {
        OutputError::new(OutputErrorKind::NotOnDisk, io::Error::other(reason))
    }

    /// Returns the kind of the error, with its facts.
    #[must_use]
    pub fn kind(&self) -> &OutputErrorKind {
        &self.0.kind
    }

    fn io_kind(&self) -> io::ErrorKind {
        self.0.io_kind
    }
}

pipewright_os::impl_error!(OutputError);

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |stream: &Source| match stream {
            Source::Stdout => "stdout",
            Source::Stderr => "stderr",
        };
        match &self.0.kind {
            OutputErrorKind::Spool(stream) => write!(
                f,
                "cannot store {} in a temporary file, so its rest is lost; make room or set TMPDIR",
                name(stream)
            )?,
            OutputErrorKind::ReadBack(stream) => {
                write!(f, "cannot read {} back from its temporary file", name(stream))?;
            }
            OutputErrorKind::Print(stream) => write!(f, "cannot write to {}", name(stream))?,
            OutputErrorKind::Folder(path) => {
                write!(f, "cannot write the output to {}", Quoted(path.as_os_str()))?;
            }
            OutputErrorKind::NotOnDisk => f.write_str("cannot put an output on disk")?,
            OutputErrorKind::Thread => f.write_str("cannot print output")?,
        }
        match &self.0.source {
            Some(source) => write!(f, ": {}", OneLine(&source.to_string())),
            None => Ok(()),
        }
    }
}
