//! Options that `run` and `pipe` share: about the whole of what is run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use pipewright::Signal;

use super::duration::Span;
use super::run::{Contain, LingerKind};
use super::size;

/// Options of `run` and `pipe`.
#[derive(Debug, Args)]
pub(crate) struct CommonOptions {
    /// Stop it when it has run for that long
    #[arg(long, value_name = "DUR")]
    pub(crate) timeout: Option<Span>,

    /// Stop it when it has said nothing for that long (its output then passes through us)
    #[arg(long, value_name = "DUR")]
    pub(crate) idle_timeout: Option<Span>,

    /// How long it has between the stop signal and the kill
    #[arg(long, value_name = "DUR", default_value = "5s")]
    pub(crate) kill_grace: Span,

    /// The stop signal
    #[arg(long, value_name = "NAME", default_value = "TERM")]
    pub(crate) signal: Signal,

    /// What to do when it has ended and something still holds its output
    #[arg(long, value_name = "WHEN", default_value = "settle")]
    pub(crate) linger: LingerKind,

    /// Stop it when stdout or stderr has carried more than that (they then pass through us)
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub(crate) limit: Option<usize>,

    /// Let its output pass through us, so that it is counted
    #[arg(long)]
    pub(crate) tee: bool,

    /// Whom a stop and the end of pipewright reach
    #[arg(long, value_name = "HOW", default_value = "tree")]
    pub(crate) contain: Contain,

    /// Set a variable of the environment
    #[arg(long, value_name = "K=V")]
    pub(crate) env: Vec<OsString>,

    /// Let no variable be inherited
    #[arg(long)]
    pub(crate) clear_env: bool,

    /// The working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// Write a report as JSON to this file; - is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Print the report on stdout, as --report - does
    #[arg(long, conflicts_with = "report")]
    pub(crate) json: bool,

    /// Say nothing of our own but errors
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl CommonOptions {
    /// Where a report goes, if one is wanted.
    pub(crate) fn report(&self) -> Option<&Path> {
        self.report.as_deref().or(self.json.then_some(Path::new("-")))
    }

    /// Whether the output has to pass through us.
    pub(crate) fn passes_through(&self) -> bool {
        self.tee || self.idle_timeout.is_some() || self.limit.is_some()
    }
}
