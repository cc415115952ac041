//! Options of `jobs`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use pipewright_batch::LoggedState;

use super::headings;

/// Options of `jobs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pipewright jobs run.db --failed
  pipewright jobs run.db --slowest 10
  pipewright jobs run.db --json | jq -r 'select(.state == \"failed\").command'
  sqlite3 run.db 'select command, code from failures'")]
pub(crate) struct JobsOptions {
    /// Log of a batch
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub(crate) log: PathBuf,

    /// List only failed jobs
    #[arg(long, conflicts_with = "state", help_heading = headings::LISTING)]
    pub(crate) failed: bool,

    /// List only jobs in STATE, such as succeeded, failed, interrupted or skipped
    #[arg(long, value_name = "STATE", help_heading = headings::LISTING)]
    pub(crate) state: Option<LoggedState>,

    /// List the N slowest attempts, slowest first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other, help_heading = headings::LISTING)]
    pub(crate) slowest: Option<u32>,

    /// List the attempts that end from now on, until the batch is over
    #[arg(long, conflicts_with_all = ["failed", "state", "slowest", "json"], help_heading = headings::LISTING)]
    pub(crate) follow: bool,

    /// Print counts and runs only
    #[arg(long, conflicts_with_all = ["failed", "state", "slowest", "json", "follow"], help_heading = headings::LISTING)]
    pub(crate) summary: bool,

    /// Print a JSON object for each job
    #[arg(long, help_heading = headings::REPORTING)]
    pub(crate) json: bool,

    /// Print the output of a job
    ///
    /// JOB is its number, its name, or the first digits of its identity.
    #[arg(long, value_name = "JOB", value_hint = ValueHint::Other, help_heading = headings::REPORTING,
          conflicts_with_all = ["failed", "state", "slowest", "json", "follow", "summary"])]
    pub(crate) output: Option<String>,

    /// Write a page about the batch to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING,
          conflicts_with_all = ["failed", "state", "slowest", "json", "follow", "summary", "output"])]
    pub(crate) html: Option<PathBuf>,

    /// Hide the file of --html from other users
    #[arg(long, requires = "html", help_heading = headings::REPORTING)]
    pub(crate) private: bool,
}
