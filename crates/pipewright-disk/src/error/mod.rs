//! The error type: one line, with its facts.

mod kind;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pipewright_os::base::error::Quoted;

pub use kind::{ErrorKind, Misaligned, Part};

/// An error of an operation on a file, or of creating an engine.
///
/// Prints as one line. The system's error, if there was one, is the [`source`](std::error::Error::source). It
/// survives the conversion to [`io::Error`], which keeps its kind.
///
/// ```
/// use pipewright_disk::{DiskFile, ErrorKind};
/// let error = DiskFile::options().read(true).open("no/such/file").unwrap_err();
/// assert_eq!(error.kind(), &ErrorKind::NotFound);
/// assert!(error.to_string().starts_with(r#"cannot open "no/such/file": "#));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// ```
pub struct Error(Box<ErrorFacts>);

struct ErrorFacts {
    operation: &'static str,
    path: Option<PathBuf>,
    kind: ErrorKind,
    bytes: usize,
    source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(operation: &'static str, path: Option<&Path>, kind: ErrorKind) -> Error {
        let path = path.map(Path::to_owned);
        Error(Box::new(ErrorFacts { operation, path, kind, bytes: 0, source: None }))
    }

    /// Wraps an error reported by the system.
    pub(crate) fn system(operation: &'static str, path: Option<&Path>, source: io::Error) -> Error {
        let mut error = Error::new(operation, path, ErrorKind::of(&source));
        error.0.source = Some(source);
        error
    }

    /// Adds the number of bytes transferred before the failure.
    pub(crate) fn after(mut self, bytes: usize) -> Error {
        self.0.bytes = bytes;
        self
    }

    /// Changes the kind.
    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// Copies the error for another file.
    pub(crate) fn again(&self, path: &Path) -> Error {
        let mut error = Error::new(self.0.operation, Some(path), self.0.kind.clone());
        error.0.source = self.raw_os_error().map(io::Error::from_raw_os_error);
        error
    }

    /// Returns the kind of failure, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the path of the file, if a file was involved.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the number of bytes that the operation transferred before it failed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns the system's error number, if the system reported one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// Returns the kind of the `io::Error` that this error is converted to.
    fn io_kind(&self) -> io::ErrorKind {
        self.0.source.as_ref().map_or(self.0.kind.io_kind(), io::Error::kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(f, "cannot {}", facts.operation)?;
        if let Some(path) = &facts.path {
            write!(f, " {}", Quoted(path.as_os_str()))?;
        }
        if facts.bytes > 0 {
            write!(f, " after {} bytes", facts.bytes)?;
        }
        f.write_str(": ")?;
        facts.kind.show(facts.source.as_ref(), f)
    }
}

pipewright_os::impl_error!(Error);
