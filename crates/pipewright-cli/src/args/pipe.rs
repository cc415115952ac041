//! Options of `pipe`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use pipewright::Signal;

use super::duration::Span;
use super::run::{Contain, LingerKind};
use super::size;

/// Options of `pipe`.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The words of the pipeline are separate arguments, so those with a meaning have to be quoted for\n",
    "the shell: '|' between two commands; '<' FILE before the first; '>' FILE or '>>' FILE (append)\n",
    "after the last. Where such a word is meant as it is, write '\\|', '\\<', '\\>' or '\\>>'.\n",
    "\n",
    "The pipeline fails where a command does, and has the code of the last one that did. A command\n",
    "that ended by SIGPIPE, as its reader had read all that it wanted, has not failed.\n",
    "\n",
    "Exit codes:\n",
    "  that of the pipeline, or\n",
    "  124    stopped by us: --timeout, --idle-timeout or --limit\n",
    "  125    pipewright itself failed\n",
    "  126    a command was found and could not be executed\n",
    "  127    a command was not found\n",
    "  128+N  ended by signal N\n",
    "\n",
    "Durations are written 200ms, 1.5s, 2m; sizes 64k, 1MiB.\n",
    "\n",
    "Examples:\n",
    "  pipewright pipe --timeout 10m -- pg_dump shop '|' zstd '>' shop.sql.zst\n",
    "  pipewright pipe --report - -- '<' access.log grep ' 500 ' '|' sort '|' uniq -c '>' errors.txt",
))]
pub(crate) struct PipeOptions {
    /// Stop the pipeline when it has run for that long
    #[arg(long, value_name = "DUR")]
    pub(crate) timeout: Option<Span>,

    /// Stop the pipeline when it has said nothing for that long (its output then passes through us)
    #[arg(long, value_name = "DUR")]
    pub(crate) idle_timeout: Option<Span>,

    /// How long the commands have between the stop signal and the kill
    #[arg(long, value_name = "DUR", default_value = "5s")]
    pub(crate) kill_grace: Span,

    /// The stop signal
    #[arg(long, value_name = "NAME", default_value = "TERM")]
    pub(crate) signal: Signal,

    /// What to do when the commands have ended and something still holds their output
    #[arg(long, value_name = "WHEN", default_value = "settle")]
    pub(crate) linger: LingerKind,

    /// Stop the pipeline when the last stdout, or all stderr together, has carried more than that
    /// (it then passes through us)
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) limit: Option<usize>,

    /// Let its output pass through us, so that it is counted
    #[arg(long)]
    pub(crate) tee: bool,

    /// Whom a stop and the end of pipewright reach
    #[arg(long, value_name = "HOW", default_value = "tree")]
    pub(crate) contain: Contain,

    /// Take the last command's code, whatever the others do
    #[arg(long)]
    pub(crate) no_pipefail: bool,

    /// Set a variable of every command's environment
    #[arg(long, value_name = "K=V")]
    pub(crate) env: Vec<OsString>,

    /// Let the commands inherit no variable
    #[arg(long)]
    pub(crate) clear_env: bool,

    /// The working directory of every command
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// Write a report as JSON to this file; - is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Say nothing of our own but errors
    #[arg(long)]
    pub(crate) quiet: bool,

    /// The commands and their arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) words: Vec<OsString>,
}
