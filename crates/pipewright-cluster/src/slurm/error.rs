//! The error of a call of Slurm.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use pipewright::ExitStatus;
use pipewright_os::base::error::OneLine;

use super::job::JobNumber;
use super::state::SlurmState;

/// An error of a call of Slurm. Prints as one line.
#[derive(Debug)]
pub(crate) enum SlurmError {
    /// A command of Slurm is not installed on this machine, or this user may not run it.
    Missing {
        /// The error of its start, which names it.
        source: pipewright::Error,
    },
    /// A command of Slurm cannot be started or waited for.
    Start(pipewright::Error),
    /// A command of Slurm did not end in time, and was killed.
    NotAnswering {
        /// The command.
        program: &'static str,
        /// The time that it had.
        limit: Duration,
    },
    /// A command of Slurm cannot reach the controller.
    Unreachable {
        /// The command.
        program: &'static str,
        /// The last line of its stderr.
        message: String,
    },
    /// Slurm does not accept the allocation.
    Refused {
        /// The last line of the stderr of `sbatch`.
        message: String,
    },
    /// A command of Slurm failed.
    Failed {
        /// The command.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The last line of its stderr.
        message: String,
    },
    /// Slurm does not know the job: it never existed, or ended some minutes ago.
    UnknownJob(JobNumber),
    /// The job ended before it had nodes.
    Ended {
        /// The job.
        id: JobNumber,
        /// The state in which it ended.
        state: SlurmState,
        /// Slurm's reason, if it gave one.
        reason: Option<String>,
    },
    /// A command of Slurm printed something unexpected.
    Unreadable {
        /// The command.
        program: &'static str,
        /// The text.
        text: String,
    },
    /// The file of the secret cannot be written.
    Secret(io::Error),
    /// The caller cancelled the call.
    Cancelled,
}

impl SlurmError {
    /// Returns true if the same call may succeed later: the controller restarts, or is busy.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, SlurmError::NotAnswering { .. } | SlurmError::Unreachable { .. })
    }
}

impl fmt::Display for SlurmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlurmError::Missing { source } => {
                write!(f, "{source}: this needs a machine with Slurm's commands")
            }
            SlurmError::Start(source) => write!(f, "{source}"),
            SlurmError::NotAnswering { program, limit } => {
                write!(f, "{program} did not answer within {limit:?}")
            }
            SlurmError::Unreachable { program, message } => {
                write!(f, "{program} cannot reach the controller of Slurm: {}", OneLine(message))
            }
            SlurmError::Refused { message } => {
                write!(f, "sbatch refused the allocation: {}", OneLine(message))
            }
            SlurmError::Failed { program, status, message } => {
                write!(f, "{program} failed: {status}")?;
                match message.as_str() {
                    "" => Ok(()),
                    message => write!(f, ": {}", OneLine(message)),
                }
            }
            SlurmError::UnknownJob(id) => write!(f, "Slurm does not know job {id}"),
            SlurmError::Ended { id, state, reason } => {
                write!(f, "job {id} ended before it had nodes: {state}")?;
                match reason {
                    Some(reason) => write!(f, " ({})", OneLine(reason)),
                    None => Ok(()),
                }
            }
            SlurmError::Unreadable { program, text } => {
                write!(f, "{program} printed something unexpected: {}", OneLine(text))
            }
            SlurmError::Secret(source) => {
                write!(
                    f,
                    "cannot write the secret of the workers: {}",
                    OneLine(&source.to_string())
                )
            }
            SlurmError::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl Error for SlurmError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SlurmError::Missing { source } | SlurmError::Start(source) => Some(source),
            SlurmError::Secret(source) => Some(source),
            _ => None,
        }
    }
}
