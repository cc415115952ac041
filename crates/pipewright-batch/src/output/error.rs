//! The error of stored or printed output.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pipewright::Source;
use pipewright_os::base::error::{OneLine, Quoted};

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
    /// A file or folder of the output directory cannot be made or written.
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
