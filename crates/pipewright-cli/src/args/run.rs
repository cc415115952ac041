//! Options of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pipewright::Linger;

use super::common::CommonOptions;
use super::duration::Span;

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Exit codes:\n",
    "  the command's own, or\n",
    "  124    stopped by us: --timeout, --idle-timeout or --limit\n",
    "  125    pipewright itself failed; also to pass the output on, or to write the report\n",
    "  126    the command was found and could not be executed\n",
    "  127    the command was not found\n",
    "  128+N  ended by signal N\n",
    "\n",
    "Durations are written 200ms, 1.5s, 2m; sizes 64k, 1MiB.\n",
    "\n",
    "Examples:\n",
    "  pipewright run --timeout 2s --report - -- sh -c 'sleep 60 & echo hi; sleep 60'\n",
    "  pipewright run --capture --retries 2 --retry-delay 1s -- cargo test",
))]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,

    /// What the command reads: "inherit", "null" or a file
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<OsString>,

    /// Write its stdout to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) stdout: Option<PathBuf>,

    /// Write its stderr to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) stderr: Option<PathBuf>,

    /// Append to the files instead of emptying them
    #[arg(long)]
    pub(crate) append: bool,

    /// Send its stderr where its stdout goes, in exact order
    #[arg(long, conflicts_with = "stderr")]
    pub(crate) merge: bool,

    /// Show nothing, unless the command fails
    #[arg(long, conflicts_with = "tee")]
    pub(crate) capture: bool,

    /// Run it again up to so many times when it fails
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,

    /// How long to wait before it is run again
    #[arg(long, value_name = "DUR", default_value = "0")]
    pub(crate) retry_delay: Span,

    /// Let it inherit this handle of ours
    #[arg(long, value_name = "FD")]
    pub(crate) inherit: Vec<i32>,

    /// Start the command in a session of its own, print its pid, and leave it alone
    #[arg(long, conflicts_with_all = [
        "timeout", "idle_timeout", "capture", "tee", "limit", "retries", "contain", "report", "json",
    ])]
    pub(crate) detach: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `--linger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LingerKind {
    /// Read to the end, however long that takes
    Eof,
    /// Read until it has been quiet for 250 ms, at most 5 s
    Settle,
    /// Read what is there when the command ends
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
pub(crate) enum Contain {
    /// The command, and descendants that can be found; what it leaves running goes on
    None,
    /// As well a process group of its own, which is given the terminal
    Group,
    /// Whatever the command ever starts; what it leaves running is killed
    Tree,
}
