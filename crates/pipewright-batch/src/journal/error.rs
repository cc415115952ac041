//! The error of a log: its path, the problem, and what to do.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use pipewright_os::base::error::{OneLine, Quoted};
use rusqlite::ErrorCode;

/// An error of a log.
pub struct LogError(Box<ErrorFacts>);

struct ErrorFacts {
    path: PathBuf,
    kind: LogErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of a [`LogError`], with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// The log exists, and the batch was not to be resumed.
    Exists,
    /// There is no such log.
    Missing,
    /// The log cannot be created, because there is no directory for it.
    NoDirectory,
    /// The path names a folder or a device.
    NotAFile,
    /// The file is no log of a batch.
    NotALog,
    /// A newer version of the tool wrote the log.
    Newer {
        /// The version of its schema.
        version: i64,
    },
    /// The file is damaged.
    Corrupt,
    /// The log was to be resumed without its input, and an older version has written it, which kept less of the jobs.
    #[non_exhaustive]
    LacksSettings {
        /// The command and the input, if the log has them.
        description: String,
    },
    /// The log was to be resumed without its input, and the last run has not read that to its end.
    #[non_exhaustive]
    LacksInput {
        /// The command and the input, if the log has them.
        description: String,
    },
    /// The log was to be resumed without its input, and its jobs ran in another directory.
    #[non_exhaustive]
    OtherDirectory {
        /// The directory.
        dir: String,
    },
    /// Another user may have written the log, or a file beside it that is read as part of it.
    #[non_exhaustive]
    Untrusted {
        /// The log, or the file beside it.
        file: PathBuf,
        /// The fact that speaks against it.
        reason: String,
    },
    /// The log cannot be created, because a file of an earlier log of that name is there.
    #[non_exhaustive]
    Leftover {
        /// The file.
        file: PathBuf,
    },
    /// The file has other names, and its last run has not ended under this one: a part of the log is beside another
    /// name.
    OtherName,
    /// A runner that has not ended writes to the log.
    InUse {
        /// The process of that runner, if the log has it.
        pid: Option<u32>,
        /// Its machine, if the log has it.
        host: Option<String>,
    },
    /// A job of a runner that was killed still runs, and cannot be ended from here.
    #[non_exhaustive]
    StillRuns {
        /// Its number.
        job: u64,
        /// The number of its process, and of its process group.
        pid: u32,
    },
    /// The log was moved or removed while the batch ran: what it had is not there any more.
    Gone,
    /// The log cannot be opened or created.
    Open,
    /// The file, or its folder, cannot be written.
    ReadOnly,
    /// Another program keeps the log locked.
    Locked,
    /// The disk is full.
    Full,
    /// The disk, or the filesystem, has failed.
    Io,
    /// The log cannot be written now; the error was reported. Everything is kept, and written when it works again.
    Failing,
    /// The thread that writes the log has ended.
    WriterEnded,
    /// Another error of SQLite.
    Other,
}

impl LogError {
    pub(crate) fn new(path: &Path, kind: LogErrorKind) -> LogError {
        LogError(Box::new(ErrorFacts { path: path.to_owned(), kind, source: None }))
    }

    pub(super) fn caused_by(
        path: &Path,
        kind: LogErrorKind,
        source: impl Error + Send + Sync + 'static,
    ) -> LogError {
        let source = Some(Arc::new(source) as Arc<dyn Error + Send + Sync>);
        LogError(Box::new(ErrorFacts { path: path.to_owned(), kind, source }))
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> LogError {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => LogErrorKind::Missing,
            io::ErrorKind::AlreadyExists => LogErrorKind::Exists,
            io::ErrorKind::ReadOnlyFilesystem => LogErrorKind::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LogErrorKind::Full,
            _ => LogErrorKind::Open,
        };
        LogError::caused_by(path, kind, source)
    }

    /// Returns the error of the creation of a file beside the log, or of the log itself.
    pub(crate) fn creation(path: &Path, source: io::Error) -> LogError {
        match source.kind() {
            io::ErrorKind::NotFound => LogError::caused_by(path, LogErrorKind::NoDirectory, source),
            io::ErrorKind::PermissionDenied => {
                LogError::caused_by(path, LogErrorKind::ReadOnly, source)
            }
            _ => LogError::io(path, source),
        }
    }

    pub(crate) fn sqlite(path: &Path, source: rusqlite::Error) -> LogError {
        // The words of this module, without the column.
        if let rusqlite::Error::FromSqlConversionFailure(_, _, words) = source {
            return LogError::caused_by(path, LogErrorKind::Other, io::Error::other(words));
        }
        let kind = match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => LogErrorKind::Full,
            Some(ErrorCode::SystemIoFailure) => LogErrorKind::Io,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LogErrorKind::Locked,
            Some(ErrorCode::ReadOnly) => LogErrorKind::ReadOnly,
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => LogErrorKind::Open,
            Some(ErrorCode::NotADatabase) => LogErrorKind::NotALog,
            // No log has values of this length, and no query of one takes this number of steps.
            Some(
                ErrorCode::DatabaseCorrupt | ErrorCode::TooBig | ErrorCode::OperationInterrupted,
            ) => LogErrorKind::Corrupt,
            _ => LogErrorKind::Other,
        };
        LogError::caused_by(path, kind, source)
    }

    /// Returns the kind of the error, with its facts.
    #[must_use]
    pub fn kind(&self) -> &LogErrorKind {
        &self.0.kind
    }

    fn io_kind(&self) -> io::ErrorKind {
        match self.0.kind {
            LogErrorKind::Exists | LogErrorKind::Leftover { .. } => io::ErrorKind::AlreadyExists,
            LogErrorKind::Untrusted { .. } => io::ErrorKind::PermissionDenied,
            LogErrorKind::Missing | LogErrorKind::NoDirectory => io::ErrorKind::NotFound,
            LogErrorKind::NotAFile => io::ErrorKind::InvalidInput,
            LogErrorKind::NotALog
            | LogErrorKind::Corrupt
            | LogErrorKind::LacksInput { .. }
            | LogErrorKind::LacksSettings { .. } => io::ErrorKind::InvalidData,
            LogErrorKind::OtherDirectory { .. } | LogErrorKind::Gone => io::ErrorKind::NotFound,
            LogErrorKind::Newer { .. } => io::ErrorKind::Unsupported,
            LogErrorKind::InUse { .. }
            | LogErrorKind::StillRuns { .. }
            | LogErrorKind::Locked
            | LogErrorKind::OtherName => io::ErrorKind::ResourceBusy,
            LogErrorKind::ReadOnly => io::ErrorKind::PermissionDenied,
            LogErrorKind::Full => io::ErrorKind::StorageFull,
            LogErrorKind::Open
            | LogErrorKind::Io
            | LogErrorKind::Failing
            | LogErrorKind::WriterEnded
            | LogErrorKind::Other => io::ErrorKind::Other,
        }
    }
}

pipewright_os::impl_error!(LogError);

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Quoted(self.0.path.as_os_str());
        match &self.0.kind {
            LogErrorKind::Exists => write!(f, "log {path} exists: use --resume, or another log"),
            LogErrorKind::Missing => write!(f, "log {path} does not exist"),
            LogErrorKind::NoDirectory => {
                write!(f, "cannot create log {path}: its directory does not exist")
            }
            LogErrorKind::NotAFile => write!(f, "log {path} is not a regular file"),
            LogErrorKind::NotALog => write!(f, "{path} is not the log of a batch"),
            LogErrorKind::Newer { version } => {
                write!(
                    f,
                    "log {path} has version {version}, newer than this pipewright: update pipewright"
                )
            }
            LogErrorKind::Corrupt => {
                write!(f, "log {path} is damaged: save what is left with sqlite3's .recover")
            }
            LogErrorKind::LacksSettings { description } => {
                write!(f, "log {path} is of an older version, which kept no settings of jobs: ")?;
                write_advice(f, &path, description)
            }
            LogErrorKind::LacksInput { description } => {
                write!(f, "log {path} lacks jobs, because their input was not read to its end: ")?;
                write_advice(f, &path, description)
            }
            LogErrorKind::OtherDirectory { dir } => {
                write!(f, "the jobs of log {path} run in {}: change to it", Quoted(dir.as_ref()))
            }
            LogErrorKind::Untrusted { file, reason } if *file == self.0.path => {
                write!(
                    f,
                    "log {path} {reason}, and its commands would run as this one: --trust-log allows it"
                )
            }
            LogErrorKind::Untrusted { file, reason } => {
                let file = Quoted(file.as_os_str());
                write!(
                    f,
                    "log {path} is not opened, because {file} {reason}: it is not the log's own"
                )
            }
            LogErrorKind::Leftover { file } => {
                let file = Quoted(file.as_os_str());
                write!(
                    f,
                    "log {path} cannot be created beside {file} of an earlier log: remove that"
                )
            }
            LogErrorKind::OtherName => {
                write!(
                    f,
                    "log {path} has another name, under which a run has not ended: resume it by that name, or remove \
                     that"
                )
            }
            LogErrorKind::InUse { pid: None, .. } => {
                write!(f, "another runner writes to log {path}")
            }
            LogErrorKind::InUse { pid: Some(pid), host } => {
                write!(f, "process {pid}")?;
                if let Some(host) = host {
                    write!(f, " on {}", OneLine(host))?;
                }
                write!(f, " writes to log {path}: wait for its end, or end it")
            }
            LogErrorKind::StillRuns { job, pid } => {
                write!(
                    f,
                    "job {job} of log {path} still runs as process {pid} or in its group: end it as its user, or wait \
                     for its end, and resume then"
                )
            }
            LogErrorKind::Gone => {
                write!(f, "log {path} was moved or removed while the batch ran")
            }
            LogErrorKind::Open => write!(f, "cannot open log {path}"),
            LogErrorKind::ReadOnly => {
                write!(f, "log {path} cannot be written: check the permissions")
            }
            LogErrorKind::Locked => write!(f, "another program keeps log {path} locked: end it"),
            LogErrorKind::Full => write!(f, "cannot write log {path}: the disk is full"),
            LogErrorKind::Io => {
                write!(f, "cannot write log {path}: the disk or the filesystem failed")
            }
            LogErrorKind::Failing => write!(f, "log {path} cannot be written now"),
            LogErrorKind::WriterEnded => write!(f, "the thread that writes log {path} has ended"),
            LogErrorKind::Other => write!(f, "cannot use log {path}"),
        }?;
        match &self.0.source {
            Some(source) if self.shows_source() => write!(f, ": {}", OneLine(&source.to_string())),
            _ => Ok(()),
        }
    }
}

/// Writes how the batch is resumed with its input.
fn write_advice(f: &mut fmt::Formatter<'_>, path: &Quoted<'_>, description: &str) -> fmt::Result {
    write!(f, "give --log {path} --resume with the command and the input")?;
    match description {
        "" => Ok(()),
        description => write!(f, ", which were: {}", OneLine(description)),
    }
}

impl LogError {
    /// Returns true if the kind alone does not say enough.
    fn shows_source(&self) -> bool {
        matches!(
            self.0.kind,
            LogErrorKind::Open
                | LogErrorKind::ReadOnly
                | LogErrorKind::StillRuns { .. }
                | LogErrorKind::Io
                | LogErrorKind::Other
        )
    }
}
