//! Commands and options: the definition that clap parses.

mod batch;
mod batch_values;
mod bench;
mod called;
mod common;
mod deferred;
mod disk;
mod headings;
mod jobs;
mod log_last;
mod pipe;
mod resources;
mod retry;
mod run;
mod timeout;
mod values;
mod worker;

use clap::{Args as ClapArgs, Parser, Subcommand};

pub(crate) use batch::{BatchOptions, BatchProgressKind, EngineKind, JobserverKind};
pub(crate) use batch_values::FailureCount;
pub(crate) use bench::BenchOptions;
pub(crate) use called::{begin_with_option, own_name};
pub(crate) use common::CommonOptions;
use deferred::Deferred;
pub(crate) use disk::DiskOptions;
pub(crate) use jobs::JobsOptions;
pub(crate) use log_last::parse;
pub(crate) use pipe::PipelineOptions;
pub(crate) use retry::{RetryOn, RetryOptions};
pub(crate) use run::{ContainKind, RecordFormat, RunOptions};
pub(crate) use timeout::TimeoutOptions;
pub(crate) use values::Span;
pub(crate) use worker::WorkerOptions;

/// Run processes with timeouts, limits and reports; test disk I/O; measure this machine
//
// No help without a command: that is an error of one line, as any other wrong usage.
#[derive(Debug, Parser)]
#[command(name = "pipewright", version, arg_required_else_help = false)]
#[command(after_long_help = "\
Exit codes:
  0    success; run and pipe exit with the exit code of the command
  125  failure: wrong usage, or an error in pipewright

Environment variables:
  PATH      directories to search for the commands of run and pipe
  NO_COLOR  disables colors in bench, if set and not empty

Examples:
  pipewright run --timeout 2m --report report.json -- make -j8 test
  pipewright doctor")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: ToolCommand,
}

/// Commands of the tool.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// Run a command with a timeout, limits, redirects, retries and a report
    Run(Deferred<RunOptions>),
    /// Run a pipeline without a shell, with a timeout, limits and a report
    Pipe(Deferred<PipelineOptions>),
    /// Run a command with a time limit: the timeout of coreutils
    Timeout(Deferred<TimeoutOptions>),
    /// Run many commands, some at the same time, with a log that can be resumed
    Batch(Deferred<BatchOptions>),
    /// List the jobs of a batch, from its log
    Jobs(Deferred<JobsOptions>),
    /// Run the jobs of a batch on this node, for the batch that has started it
    #[command(hide = true)]
    Worker(Deferred<WorkerOptions>),
    /// Measure the speed of pipes, processes, messages and files
    Bench(Deferred<BenchOptions>),
    /// Test whether file I/O is asynchronous, and explain why it is not
    Disk(Deferred<DiskOptions>),
    /// List the open handles (file descriptors) that this process inherited
    Handles(HandlesOptions),
    /// List the system features that pipewright uses, and the effect of missing ones
    Doctor(DoctorOptions),
    /// Print a shell completion script
    #[command(after_help = "\
Examples:
  pipewright completions bash > /etc/bash_completion.d/pipewright
  pipewright completions fish | source")]
    Completions {
        /// Shell to print the script for
        shell: clap_complete::Shell,
    },
    /// Print a manual page
    #[command(after_help = "\
Examples:
  pipewright man | man -l -
  pipewright man bench pipes > pipewright-bench-pipes.1")]
    Man {
        /// Command to document; if omitted, pipewright itself
        command: Vec<String>,
    },
}

/// Options of `handles`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  pipewright handles
  pipewright run --inherit 7 -- pipewright handles --json 7</dev/null | jq '.handles[].target'")]
pub(crate) struct HandlesOptions {
    /// Print a JSON object
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
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
