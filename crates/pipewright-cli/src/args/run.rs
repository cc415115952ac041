//! Options of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use pipewright::Linger;

use super::common::CommonOptions;
use super::headings;
use super::resources::ResourceOptions;
use super::retry::RetryOptions;
use super::values::parse_count;

/// Options of `run`.
#[derive(Debug, Args)]
#[command(override_usage = "pipewright run [OPTIONS] [--] <CMD> [ARGS]...", after_long_help = concat!(
    "No shell is used: write sh -c '...' for globs, variables and pipes.\n",
    "\n",
    "Durations: 200ms, 1.5s, 2m, 1h30m; a bare number is seconds. Sizes: 4096, 64k, 1MiB.\n",
    "\n",
    "Exit codes:\n",
    "  N      exit code of the command\n",
    "  124    stopped by --timeout, --idle-timeout or --limit, or out of memory\n",
    "  125    pipewright itself failed: wrong usage, output or report not written\n",
    "  126    the command is not executable\n",
    "  127    the command was not found\n",
    "  128+N  the command was killed by signal N\n",
    "\n",
    "Environment variables:\n",
    "  PATH   directories to search for the command; --env PATH=... replaces it\n",
    "\n",
    "Examples:\n",
    "  pipewright run --timeout 2s --report - -- sh -c 'sleep 60 & echo hi; sleep 60'\n",
    "  pipewright run --memory 2G --swap 0 --cpus 1.5 -- make -j4\n",
    "  pipewright run --capture --retries 2 --retry-delay 1s -- cargo test\n",
    "  pipewright run --pty --record demo.cast -- ls --color=auto",
))]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,

    #[command(flatten)]
    pub(crate) resources: ResourceOptions,

    #[command(flatten)]
    pub(crate) retry: RetryOptions,

    /// Start in a new session, print the pid and exit
    #[arg(long, help_heading = headings::STOPPING, conflicts_with_all = [
        "timeout", "idle_timeout", "total_timeout", "capture", "tail", "tee", "limit", "retries", "contain", "report", "json",
        "pty", "memory", "swap", "cpus", "pids",
    ])]
    pub(crate) detach: bool,

    /// Write stdout to FILE, "inherit" (or -) or "null"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::OUTPUT)]
    pub(crate) stdout: Option<PathBuf>,

    /// Write stderr to FILE, "inherit" (or -) or "null"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::OUTPUT)]
    pub(crate) stderr: Option<PathBuf>,

    /// Append to the files of --stdout and --stderr instead of truncating them
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) append: bool,

    /// Redirect stderr to stdout, in order (2>&1)
    #[arg(long, conflicts_with = "stderr", help_heading = headings::OUTPUT)]
    pub(crate) merge: bool,

    /// Print output only if the command fails
    #[arg(long, conflicts_with = "tee", help_heading = headings::OUTPUT)]
    pub(crate) capture: bool,

    /// Run on a terminal of its own, as for a person: colours, prompts, no buffering
    ///
    /// stdout is the terminal, with stderr in it unless --stderr is given. If stdin is a terminal, the command reads its
    /// keys; otherwise it reads stdin itself.
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) pty: bool,

    /// Record the terminal of --pty in FILE, for asciinema
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "pty",
          conflicts_with = "stdout", hide_short_help = true, help_heading = headings::OUTPUT)]
    pub(crate) record: Option<PathBuf>,

    /// Format of --record
    #[arg(long, value_name = "FORMAT", default_value = "asciicast-v2", requires = "record", hide_short_help = true,
          help_heading = headings::OUTPUT)]
    pub(crate) record_format: RecordFormat,

    /// Print the last N lines of each stream if the command fails, and nothing else
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, allow_hyphen_values = true, value_parser = parse_count,
          conflicts_with = "tee", hide_short_help = true, help_heading = headings::OUTPUT)]
    pub(crate) tail: Option<u32>,

    /// Print TEXT before each line of output (implies --tee)
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other, hide_short_help = true,
          conflicts_with_all = ["capture", "tail", "detach"], help_heading = headings::OUTPUT)]
    pub(crate) prefix: Option<String>,

    /// Print the time before each line of output (implies --tee)
    #[arg(long, hide_short_help = true, conflicts_with_all = ["capture", "tail", "detach"],
          help_heading = headings::OUTPUT)]
    pub(crate) timestamps: bool,

    /// Read stdin from FILE, "inherit" (or -) or "null"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::ENVIRONMENT)]
    pub(crate) stdin: Option<OsString>,

    /// Pass the file descriptor FD to the command (repeatable)
    #[arg(long, value_name = "FD", value_hint = ValueHint::Other, help_heading = headings::ENVIRONMENT)]
    pub(crate) inherit: Vec<i32>,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    /// Returns true if the output is kept until the end.
    pub(crate) fn is_captured(&self) -> bool {
        self.capture || self.tail.is_some()
    }
}

/// `--linger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LingerKind {
    /// Read to the end of the stream, however long that takes
    Eof,
    /// Stop after 250 ms without output, at most 5 s after the exit
    Settle,
    /// Stop at once
    Exit,
}

impl LingerKind {
    pub(crate) fn to_linger(self) -> Linger {
        match self {
            LingerKind::Eof => Linger::UntilEof,
            LingerKind::Settle => Linger::default(),
            LingerKind::Exit => Linger::StopAtExit,
        }
    }
}

/// `--contain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContainKind {
    /// Command and descendants linked to it by parentage; those that outlive it keep running
    None,
    /// Same as none, plus the command's process group, which is new and in the foreground (pipe: one group for all)
    Group,
    /// Every process that the command starts; those that outlive it are killed
    Tree,
}

/// `--record-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// The format of asciinema 2, which all versions play
    AsciicastV2,
    /// The format of asciinema 3, with the exit code
    AsciicastV3,
}
