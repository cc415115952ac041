//! One call of a command of Slurm, under a timeout.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use pipewright::{CancelToken, Command, Limit, Outcome, Output, Stdio};

use super::error::SlurmError;

/// The time that a command of Slurm has to answer.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// The most that a command may print. The names of 100,000 nodes fit.
const OUTPUT_LIMIT: Limit = Limit::fail(4 << 20);

/// A call of a command.
pub(super) struct Call {
    program: &'static str,
    command: Command,
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

    /// Sets a variable of the call.
    #[cfg(test)]
    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Call {
        self.command.env(name, value);
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
