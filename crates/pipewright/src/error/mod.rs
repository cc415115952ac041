//! What went wrong, in one line and with its facts.

mod kind;
mod start;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;

use pipewright_os::base::errno::{OsErrorKind, os_error_kind};
use pipewright_os::base::error::Quoted;

pub use kind::{ErrorKind, NotExecutable};
pub(crate) use start::{could_not_open, could_not_prepare, could_not_start};

/// Why a run could not be made, or (from [`run`](crate::Command::run) and
/// [`read`](crate::Command::read)) why it failed.
///
/// Prints as one line, without the arguments: they may be long, or secret. The system's error, if
/// there was one, is the [`source`](std::error::Error::source) and survives the conversion to
/// [`io::Error`], which keeps its kind.
///
/// ```
/// use pipewright::{Command, ErrorKind};
/// let error = Command::new("no-such-program").status().unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
/// assert!(error.to_string().starts_with(r#"cannot start "no-such-program": not found in PATH"#));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// ```
pub struct Error(Box<Facts>);

struct Facts {
    program: OsString,
    doing: Doing,
    kind: ErrorKind,
    source: Option<io::Error>,
}

/// The operation on a running child that failed, in the words "cannot ...", and the error of the system.
pub(crate) type Failed = (&'static str, io::Error);

/// What was being done.
#[derive(Debug, Clone)]
pub(crate) enum Doing {
    /// Starting the program.
    Start,
    /// The last step of that: the system refused to execute it.
    Execute,
    /// Running the closures of `pre_exec`, one of which failed.
    RunClosures,
    /// Something that the start needs, in the words "cannot ...".
    Prepare(String),
    /// Waiting for it, feeding it, reading from it, stopping it.
    Talk(&'static str),
    /// Judging how it ended.
    Judge,
}

impl Error {
    pub(crate) fn new(
        program: &OsStr,
        doing: Doing,
        kind: ErrorKind,
        source: Option<io::Error>,
    ) -> Error {
        Error(Box::new(Facts { program: program.to_owned(), doing, kind, source }))
    }

    /// A system call failed while the child was running.
    pub(crate) fn talk(program: &OsStr, doing: &'static str, source: io::Error) -> Error {
        let kind = match os_error_kind(&source) {
            Some(OsErrorKind::Limit(what)) => ErrorKind::Limit { what },
            Some(OsErrorKind::StatusLost) => ErrorKind::StatusLost,
            Some(OsErrorKind::NoSuchProcess) => ErrorKind::NoSuchProcess,
            Some(OsErrorKind::Denied) => ErrorKind::PermissionDenied,
            // In words of our own: the system does not say so of a call that it has.
            _ if source.kind() == io::ErrorKind::Unsupported && source.raw_os_error().is_none() => {
                ErrorKind::Unsupported
            }
            _ => ErrorKind::Io,
        };
        Error::new(program, Doing::Talk(doing), kind, Some(source))
    }

    /// What kind of failure it is, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The program that was to run, as it was given; the number, where a process was opened by it.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        &self.0.program
    }

    /// Whether the system refused to execute the program: there is none, or it is none for us. `false`: something
    /// else that a start needs failed, as a process, a right or the working directory, or the program ran.
    #[must_use]
    pub fn is_execution(&self) -> bool {
        matches!(self.0.doing, Doing::Execute)
    }

    /// The error number of the `pre_exec` closure that failed, if that is what failed.
    pub(crate) fn of_closure(&self) -> Option<i32> {
        match self.0.doing {
            Doing::RunClosures => self.raw_os_error(),
            _ => None,
        }
    }

    /// Returns the system's error number, if the system reported one.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// Returns the kind of the `io::Error` that this error is converted to.
    fn io_kind(&self) -> io::ErrorKind {
        match (&self.0.source, &self.0.kind) {
            (Some(source), _) => source.kind(),
            (None, ErrorKind::InvalidInput) => io::ErrorKind::InvalidInput,
            (None, ErrorKind::InvalidUtf8 { .. }) => io::ErrorKind::InvalidData,
            (None, ErrorKind::Unsupported) => io::ErrorKind::Unsupported,
            (None, _) => io::ErrorKind::Other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        let program = Quoted(&facts.program);
        match &facts.doing {
            Doing::Start | Doing::Execute => write!(f, "cannot start {program}: ")?,
            Doing::RunClosures => write!(f, "cannot start {program}: pre_exec closure failed: ")?,
            Doing::Prepare(words) => write!(f, "cannot start {program}: {words}: ")?,
            Doing::Talk(doing) => write!(f, "cannot {doing} {program}: ")?,
            Doing::Judge => write!(f, "{program} failed: ")?,
        }
        facts.kind.show(facts.source.as_ref(), f)
    }
}

pipewright_os::impl_error!(Error);
