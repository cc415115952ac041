//! Errors of jobservers.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pipewright_os::base::error::{OneLine, Quoted};

pub(crate) struct JobserverError(Box<ErrorFacts>);

struct ErrorFacts {
    kind: JobserverErrorKind,
    source: Option<io::Error>,
}

/// The kind of a [`JobserverError`], with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum JobserverErrorKind {
    /// `MAKEFLAGS` names a jobserver, in no known form.
    Malformed {
        /// The option.
        option: String,
    },
    /// `MAKEFLAGS` names handles, and make has not passed these on.
    NotPassedOn {
        /// The option.
        option: String,
    },
    /// The FIFO that `MAKEFLAGS` names cannot be opened.
    OpenFifo {
        /// The path.
        path: PathBuf,
    },
    /// The server cannot be created.
    Create,
    /// A pipe is too small for the tokens.
    TooManySlots {
        /// The number of slots.
        slots: u32,
        /// The largest number for which there is room.
        most: u32,
    },
    /// This system has no such jobserver.
    Unsupported,
}

impl JobserverError {
    pub(super) fn new(kind: JobserverErrorKind, source: Option<io::Error>) -> JobserverError {
        JobserverError(Box::new(ErrorFacts { kind, source }))
    }

    /// Returns the kind of the error, with its facts.
    pub(crate) fn kind(&self) -> &JobserverErrorKind {
        &self.0.kind
    }

    /// Returns true if a jobserver was named and cannot be used, as after a recipe without `+`. A program can warn and
    /// go on without it; make and cargo do.
    pub(crate) fn is_warning(&self) -> bool {
        use JobserverErrorKind::{Malformed, NotPassedOn, OpenFifo, Unsupported};
        matches!(self.kind(), Malformed { .. } | NotPassedOn { .. } | OpenFifo { .. } | Unsupported)
    }

    fn io_kind(&self) -> io::ErrorKind {
        match (&self.0.kind, &self.0.source) {
            (JobserverErrorKind::Unsupported, _) => io::ErrorKind::Unsupported,
            (_, Some(source)) => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

pipewright_os::impl_error!(JobserverError);

impl fmt::Display for JobserverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            JobserverErrorKind::Malformed { option } => {
                write!(f, "unknown form of jobserver in MAKEFLAGS: {}", OneLine(option))?;
            }
            JobserverErrorKind::NotPassedOn { option } => write!(
                f,
                "jobserver unavailable ({}): put + before the command in the makefile",
                OneLine(option)
            )?,
            JobserverErrorKind::OpenFifo { path } => {
                write!(f, "cannot open the FIFO of the jobserver, {}", Quoted(path.as_ref()))?;
            }
            JobserverErrorKind::Create => f.write_str("cannot create a jobserver")?,
            JobserverErrorKind::TooManySlots { slots, most } => {
                write!(f, "a jobserver cannot have {slots} slots: the pipe has room for {most}")?;
            }
            JobserverErrorKind::Unsupported => {
                f.write_str("jobservers are not supported on this system")?;
            }
        }
        match &self.0.source {
            Some(source) => write!(f, ": {}", OneLine(&source.to_string())),
            None => Ok(()),
        }
    }
}
