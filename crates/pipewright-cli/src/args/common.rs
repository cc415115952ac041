//! Options that `run` and `pipe` share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use pipewright::Signal;

use super::headings;
use super::run::{ContainKind, LingerKind};
use super::values::{SignalParser, Span, parse_bytes, parse_mode};

/// Options of `run` and `pipe`.
#[derive(Debug, Args)]
pub(crate) struct CommonOptions {
    /// Stop after DUR
    ///
    /// 0 means no timeout.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, help_heading = headings::LIMITS)]
    pub(crate) timeout: Option<Span>,

    /// Stop after DUR without output (implies --tee)
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, help_heading = headings::LIMITS)]
    pub(crate) idle_timeout: Option<Span>,

    /// Stop once stdout or stderr exceeds BYTES (implies --tee)
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_hint = ValueHint::Other, value_parser = parse_bytes,
          help_heading = headings::LIMITS)]
    pub(crate) limit: Option<usize>,

    /// Signal that requests a stop
    ///
    /// A name, with or without SIG, or a number. Processes still running after --kill-grace are killed.
    #[arg(short, long, alias = "signal", value_name = "SIGNAL", value_parser = SignalParser, default_value = "TERM",
          hide_possible_values = true, help_heading = headings::STOPPING)]
    pub(crate) stop_signal: Signal,

    /// Time between the stop signal and SIGKILL
    #[arg(short, long, alias = "kill-after", value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          default_value = "5s", help_heading = headings::STOPPING)]
    pub(crate) kill_grace: Span,

    /// Exit with the status of the command, even if it was stopped
    #[arg(long, hide_short_help = true, help_heading = headings::STOPPING)]
    pub(crate) preserve_status: bool,

    /// Processes that a stop reaches
    ///
    /// If pipewright is killed, tree kills all of them; none and group kill only the command.
    #[arg(long, value_name = "HOW", default_value = "tree", help_heading = headings::STOPPING)]
    pub(crate) contain: ContainKind,

    /// Pass output through pipewright, and count its bytes
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) tee: bool,

    /// When to stop reading output that a background process holds open
    ///
    /// Applies once the command itself has exited.
    #[arg(long, value_name = "WHEN", default_value = "settle", help_heading = headings::OUTPUT)]
    pub(crate) linger: LingerKind,

    /// Set an environment variable (repeatable)
    ///
    /// A name without = passes the variable on, for --clear-env.
    #[arg(long, value_name = "K=V", value_hint = ValueHint::Other, help_heading = headings::ENVIRONMENT)]
    pub(crate) env: Vec<OsString>,

    /// Set the variables in FILE: a line K=V for each (repeatable)
    ///
    /// As docker run --env-file: no quotes, no expansion, comments only on lines of their own.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) env_file: Vec<PathBuf>,

    /// Start with an empty environment
    #[arg(long, help_heading = headings::ENVIRONMENT)]
    pub(crate) clear_env: bool,

    /// Run in DIR
    ///
    /// Also sets PWD.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = headings::ENVIRONMENT)]
    pub(crate) cwd: Option<PathBuf>,

    /// Run as USER, a name or a number
    #[arg(long, value_name = "USER[:GROUP]", value_hint = ValueHint::Username, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) user: Option<String>,

    /// Add N to the niceness
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, allow_hyphen_values = true, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) nice: Option<i32>,

    /// Set the umask to MODE, an octal number
    #[arg(long, value_name = "MODE", value_hint = ValueHint::Other, value_parser = parse_mode, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) umask: Option<u32>,

    /// Write a JSON report to FILE (- for stdout)
    ///
    /// fd:N is the open file descriptor N.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING)]
    pub(crate) report: Option<PathBuf>,

    /// Print the JSON report on stdout (same as --report -)
    #[arg(long, conflicts_with = "report", help_heading = headings::REPORTING)]
    pub(crate) json: bool,

    /// Hide the files of reports and recordings from other users
    #[arg(long, help_heading = headings::REPORTING, hide_short_help = true)]
    pub(crate) private: bool,

    /// Suppress everything except errors
    #[arg(long, help_heading = headings::REPORTING)]
    pub(crate) quiet: bool,
}

impl CommonOptions {
    /// Returns the file of the report, if one is wanted.
    pub(crate) fn report(&self) -> Option<&Path> {
        self.report.as_deref().or(self.json.then_some(Path::new("-")))
    }

    /// Returns the time after which the command is stopped.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.as_ref().and_then(Span::as_limit)
    }

    /// Returns the time without output after which the command is stopped.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout.as_ref().and_then(Span::as_limit)
    }

    /// Returns true if the output has to pass through this process.
    pub(crate) fn passes_through(&self) -> bool {
        self.tee || self.idle_timeout().is_some() || self.limit.is_some()
    }
}
