//! What can be typed.

mod bench;
mod choice;
mod common;
mod deferred;
mod disk;
mod duration;
mod pipe;
mod run;
mod size;

use clap::{Args as ClapArgs, Parser, Subcommand};

pub(crate) use bench::BenchOptions;
pub(crate) use common::CommonOptions;
use deferred::Deferred;
pub(crate) use disk::DiskOptions;
pub(crate) use duration::Span;
pub(crate) use pipe::PipeOptions;
pub(crate) use run::{Contain, RunOptions};

/// Run processes, and know what your I/O really does.
//
// Without a command it is told in a line what is missing, as of every other misuse.
#[derive(Debug, Parser)]
#[command(name = "pipewright", version, arg_required_else_help = false)]
#[command(after_help = "\
Examples:
  pipewright run --timeout 2m --report report.json -- make -j8 test
  pipewright doctor")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one command with a timeout, limits, redirects, retries and a report
    Run(Deferred<RunOptions>),
    /// Run a pipeline without a shell, with a timeout, limits and a report of every stage
    Pipe(Deferred<PipeOptions>),
    /// Measure the speed of pipes, processes, messages and files on this machine
    Bench(Deferred<BenchOptions>),
    /// Measure whether disk I/O is asynchronous here, and say why not
    Disk(Deferred<DiskOptions>),
    /// List the handles that this process inherited
    Handles(HandlesOptions),
    /// Tell what this machine offers, and what is lost where it does not
    Doctor(DoctorOptions),
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  pipewright completions bash > /etc/bash_completion.d/pipewright
  pipewright completions fish | source")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    #[command(after_help = "\
Examples:
  pipewright man | man -l -
  pipewright man bench pipes > pipewright-bench-pipes.1")]
    Man {
        /// The command whose page it is; all in all where it is left out
        command: Vec<String>,
    },
}

/// Options of `handles`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  pipewright handles
  my-server --run-child 'pipewright handles --json' | jq '.handles[].target'")]
pub(crate) struct HandlesOptions {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `doctor`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  pipewright doctor
  pipewright doctor --json | jq '.facilities[] | select(.state == \"missing\")'")]
pub(crate) struct DoctorOptions {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
