//! The error type: one line, with its facts.

mod kind;
mod start;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;

use pipewright_os::base::error::{OsErrorKind, Quoted, os_error_kind};

pub use kind::{ErrorKind, NotExecutable, NotSeen};
pub(crate) use start::{
    could_not_create_slot, could_not_open, could_not_open_terminal, could_not_prepare,
    could_not_start,
};

/// An error of a command, a child or a process: it could not be started or waited for, or it failed (only from
/// [`run`](crate::Command::run), [`read`](crate::Command::read) and [`check`](crate::Captured::check)).
///
/// Prints as one line, without the arguments: they may be long, or secret. The system's error, if there was one, is
/// the [`source`](std::error::Error::source). It survives the conversion to [`io::Error`], which keeps its kind.
///
/// ```
/// use pipewright::{Command, ErrorKind};
/// let error = Command::new("no-such-program").status().unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::NotFound { .. }));
/// assert!(error.to_string().starts_with(r#"cannot start "no-such-program": not found in PATH"#));
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
/// ```
pub struct Error(Box<ErrorFacts>);

struct ErrorFacts {
    program: OsString,
    operation: FailedOperation,
    kind: ErrorKind,
    source: Option<io::Error>,
}

/// The failed operation on a running child, in the words "cannot ...", and the system's error.
pub(crate) type OperationError = (&'static str, io::Error);

#[derive(Debug, Clone)]
pub(crate) enum FailedOperation {
    /// The start of the program.
    Start,
    /// The start of a pipeline, which has no program of its own.
    StartPipeline,
    /// The creation of a tree slot, which belongs to no program.
    CreateSlot,
    /// The last step of a start: the system refused to execute the program.
    Execute,
    /// A `pre_exec` closure.
    PreExec,
    /// A step that the start needs, in the words "cannot ...".
    Prepare(String),
    /// An operation on a running child, such as a wait, a read or a stop, in the words after "cannot".
    Child(&'static str),
    /// The child itself, which ran and failed.
    Run,
}

impl Error {
    pub(crate) fn new(
        program: &OsStr,
        operation: FailedOperation,
        kind: ErrorKind,
        source: Option<io::Error>,
    ) -> Error {
        Error(Box::new(ErrorFacts { program: program.to_owned(), operation, kind, source }))
    }

    /// Returns the error of a system call that failed for a running child.
    pub(crate) fn cannot(program: &OsStr, operation: &'static str, source: io::Error) -> Error {
        let kind = match os_error_kind(&source) {
            Some(OsErrorKind::Limit(what)) => ErrorKind::Limit { what },
            Some(OsErrorKind::StatusLost) => ErrorKind::StatusLost,
            Some(OsErrorKind::NoSuchProcess) => ErrorKind::NoSuchProcess,
            Some(OsErrorKind::Denied) => ErrorKind::PermissionDenied,
            // Without a number this crate made the error: the system does not report an existing call as unsupported.
            _ if source.kind() == io::ErrorKind::Unsupported && source.raw_os_error().is_none() => {
                ErrorKind::Unsupported
            }
            _ => ErrorKind::Io,
        };
        Error::new(program, FailedOperation::Child(operation), kind, Some(source))
    }

    /// Returns the error of a start before which another command has been started. Its kind is not `Unsupported`, after which a
    /// caller may try again with less: the other command would run twice.
    pub(crate) fn after_a_start(mut self) -> Error {
        if self.0.kind == ErrorKind::Unsupported {
            self.0.kind = ErrorKind::Io;
        }
        self
    }

    /// Returns the kind of failure, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the program as it was given, or the pid if a process was opened by its pid.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        &self.0.program
    }

    /// Returns true if the program is missing or not executable. Returns false if another step of the start failed (the
    /// creation of a process, the change of user, the working directory), or if the program ran.
    #[must_use]
    pub fn is_execution(&self) -> bool {
        matches!(self.0.operation, FailedOperation::Execute)
    }

    /// Returns true if the start itself failed, at any step: no process of the command ran.
    #[must_use]
    pub fn is_start(&self) -> bool {
        !matches!(self.0.operation, FailedOperation::Child(_) | FailedOperation::Run)
    }

    /// Returns true if the start was ended because its file or its directory has not answered in time.
    pub(crate) fn is_unanswered_start(&self) -> bool {
        let is_late = |source: &io::Error| {
            source.kind() == io::ErrorKind::TimedOut && source.raw_os_error().is_none()
        };
        self.is_start() && self.0.source.as_ref().is_some_and(is_late)
    }

    /// Returns the error number of the `pre_exec` closure that failed, if one failed.
    pub(crate) fn of_closure(&self) -> Option<i32> {
        match self.0.operation {
            FailedOperation::PreExec => self.raw_os_error(),
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
        match &facts.operation {
            FailedOperation::Start | FailedOperation::Execute => {
                write!(f, "cannot start {program}: ")?
            }
            FailedOperation::StartPipeline => f.write_str("cannot start the pipeline: ")?,
            FailedOperation::CreateSlot => f.write_str("cannot create a tree slot: ")?,
            FailedOperation::PreExec => {
                write!(f, "cannot start {program}: pre_exec closure failed: ")?
            }
            FailedOperation::Prepare(words) => write!(f, "cannot start {program}: {words}: ")?,
            FailedOperation::Child(operation) => write!(f, "cannot {operation} {program}: ")?,
            FailedOperation::Run => write!(f, "{program} failed: ")?,
        }
        facts.kind.show(facts.source.as_ref(), f)
    }
}

pipewright_os::impl_error!(Error);
