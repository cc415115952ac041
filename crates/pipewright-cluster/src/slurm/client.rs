//! One call of a command of Slurm, under a timeout, and its error; the network of Slurm's controller.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;
use std::{fmt, io};

use pipewright::{CancelToken, Command, ExitStatus, Limit, Outcome, Output, Stdio};
use pipewright_os::base::error::OneLine;

use super::job::{JobNumber, SlurmState};

/// The time that a command of Slurm has to answer.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The most that a command may print. The names of 100,000 nodes fit.
const OUTPUT_LIMIT: Limit = Limit::fail(4 << 20);

/// A call of a command.
pub(super) struct Call {
    program: &'static str,
    pub(super) command: Command,
    /// The time that the command has to answer.
    pub(super) limit: Duration,
}

impl Call {
    pub(super) fn new<A: AsRef<OsStr>>(
        program: &'static str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call {
        let mut command = Command::new(program);
        command.args(
            arguments.into_iter().map(|it| it.as_ref().to_owned()).collect::<Vec<OsString>>(),
        );
        command.stdin(Stdio::null()).limit(OUTPUT_LIMIT).kill_grace(Duration::from_secs(1));
        Call { program, command, limit: LIMIT }
    }

    /// Passes the call these bytes.
    pub(super) fn input(mut self, bytes: Vec<u8>) -> Call {
        self.command.stdin(Stdio::bytes(bytes));
        self
    }

    /// Lets times be printed in UTC, and in the usual way.
    pub(super) fn in_utc(mut self) -> Call {
        self.command.env("TZ", "UTC0").env("SLURM_TIME_FORMAT", "standard");
        self
    }

    /// Ends the call early once the token is cancelled.
    pub(super) fn until(mut self, cancel: &CancelToken) -> Call {
        self.command.cancel(cancel);
        self
    }

    /// Runs the command, and returns what it printed.
    pub(super) fn run(mut self) -> Result<String, SlurmError> {
        let program = self.program;
        let output = self.command.timeout(self.limit).output();
        let output = output.map_err(|source| match source.is_execution() {
            true => SlurmError::Missing { source },
            false => SlurmError::Start(source),
        })?;
        match output.outcome {
            Outcome::TimedOut => Err(SlurmError::NotAnswering { program, limit: self.limit }),
            Outcome::Cancelled => Err(SlurmError::Cancelled),
            Outcome::Exited if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            _ => Err(failure(program, &output)),
        }
    }
}

/// Returns the error of a command that failed by itself.
fn failure(program: &'static str, output: &Output) -> SlurmError {
    let message = message(program, &output.stderr);
    let is_unreachable = UNREACHABLE.iter().any(|text| message.contains(text));
    match is_unreachable {
        true => SlurmError::Unreachable { program, message },
        false => SlurmError::Failed { program, status: output.status, message },
    }
}

/// Texts of errors that pass when the controller is back.
const UNREACHABLE: [&str; 4] = [
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted or received",
    "Socket timed out on send/recv operation",
    "Slurm backup controller in standby mode",
];

/// Returns the last line of stderr that is not blank, without the name that the command puts before it.
pub(super) fn message(program: &str, stderr: &[u8]) -> String {
    const MAX_CHARS: usize = 300;
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix(program).and_then(|it| it.strip_prefix(": ")).unwrap_or(line);
    let line = line.strip_prefix("error: ").unwrap_or(line);
    line.chars().take(MAX_CHARS).collect()
}

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

/// The port for the question which way leads to an address. Nothing is sent there.
const ANY_PORT: u16 = 6817;

/// Returns the address that this machine has on the network of Slurm's controller.
///
/// # Platform
/// `scontrol show config` for the name of the controller, and a UDP socket that is connected to it, which sends
/// nothing.
///
/// `None`: Slurm does not say where its controller is, or no way leads there.
///
/// # Errors
/// The controller does not answer.
pub(crate) fn controller_address(cancel: &CancelToken) -> Result<Option<IpAddr>, SlurmError> {
    let printed = Call::new("scontrol", ["show", "config"]).until(cancel).run()?;
    Ok(controller(&printed).and_then(own_address))
}

/// Returns the address that this machine has on the way to that host.
fn own_address(host: &str) -> Option<IpAddr> {
    let address = (host, ANY_PORT).to_socket_addrs().ok()?.next()?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(address).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

/// Returns the address, or the name, of the first controller.
fn controller(config: &str) -> Option<&str> {
    let line = config.lines().find(|line| line.trim_start().starts_with("SlurmctldHost"))?;
    let value = line.split_once('=')?.1.trim();
    // As in `head1(10.0.0.1)`.
    let inside = value.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.or(Some(value)).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_in_what_scontrol_prints() {
        let config = |line: &str| {
            format!("Configuration data as of 2026-11-26T03:00:00\nSlurmUser = root(0)\n{line}\n")
        };
        assert_eq!(
            controller(&config("SlurmctldHost[0]        = head(10.0.0.1)")),
            Some("10.0.0.1")
        );
        assert_eq!(controller(&config("SlurmctldHost[0]        = head")), Some("head"));
        assert_eq!(controller(&config("SlurmctldPort           = 6817")), None);
    }
}
