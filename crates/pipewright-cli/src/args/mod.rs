//! Commands and options: the definition that clap parses.

mod batch;
mod bench;
mod lock;
mod run;
mod shared;
mod values;

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{
    ArgMatches, Args as ClapArgs, Command, Error, FromArgMatches, Parser, Subcommand, ValueEnum,
};

pub(crate) use batch::{
    BatchOptions, BatchProgressKind, EngineKind, InputOptions, JobsOptions, JobserverKind,
    WorkerOptions,
};
pub(crate) use bench::{BenchOptions, DiskOptions};
pub(crate) use lock::LockOptions;
pub(crate) use run::{
    CommonOptions, ContainKind, PipelineOptions, RecordFormat, RunOptions, ShowOutput,
    TimeoutOptions,
};
pub(crate) use shared::{EnvironmentOptions, RetryOptions};
pub(crate) use values::Span;

/// Run processes with timeouts, limits and reports; test disk I/O; measure this machine
#[derive(Debug, Parser)]
#[command(name = "pipewright", version, arg_required_else_help = true)]
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
    /// Run a command while it has a lock, which ends with the command
    Lock(Deferred<LockOptions>),
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
        shell: CompletionShell,
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

/// A shell that has a completion script.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum CompletionShell {
    Bash,
    Elvish,
    Fish,
    Nushell,
    PowerShell,
    Zsh,
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

/// Groups of options in the help of `run`, `pipe` and `batch`.
mod headings {
    /// Conditions that stop a command.
    pub(super) const LIMITS: &str = "Limits";
    /// Conditions that start a command again.
    pub(super) const RETRIES: &str = "Retries";
    /// The way a command is stopped, and the processes that this reaches.
    pub(super) const STOPPING: &str = "Stopping";
    /// Destinations of stdout and stderr.
    pub(super) const OUTPUT: &str = "Output";
    /// Everything that the command starts with.
    pub(super) const ENVIRONMENT: &str = "Environment";
    /// Results for people, scripts and shells.
    pub(super) const REPORTING: &str = "Reporting";
    /// The jobs of a batch.
    pub(super) const INPUT: &str = "Input";
    /// The number of jobs at once, and their attempts.
    pub(super) const RUNNING: &str = "Running";
    /// The machines that run a batch.
    pub(super) const NODES: &str = "Nodes";
    /// The log of a batch.
    pub(super) const LOG: &str = "Log";
    /// The jobs that `jobs` lists.
    pub(super) const LISTING: &str = "Listing";
}

/// The other name that this tool may have: it is `timeout` of coreutils then.
const TIMEOUT: &str = "timeout";

/// Returns the name for messages.
pub(crate) fn own_name() -> &'static str {
    if is_timeout(std::env::args_os().next()) { TIMEOUT } else { "pipewright" }
}

/// Returns the arguments of this process, with the command that its name stands for.
fn own_args() -> Vec<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if is_timeout(args.first().cloned()) {
        args.insert(1, TIMEOUT.into());
    }
    args
}

/// Returns true if an option stands where the command should be.
pub(crate) fn begin_with_option() -> bool {
    own_args().get(1).is_some_and(|first| first.as_encoded_bytes().starts_with(b"-"))
}

fn is_timeout(name: Option<OsString>) -> bool {
    name.is_some_and(|name| Path::new(&name).file_stem().is_some_and(|stem| stem == TIMEOUT))
}

/// Options that clap defines only if their command is used. They are boxed, since one command has many and another has
/// none.
//
// `pipewright run` starts other programs: its own start should not pay for the options of `bench`.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) Box<T>);

impl<T: ClapArgs> ClapArgs for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(define::<T>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Defines the options, and keeps the description of the command: that of the struct is for readers of the code.
fn define<T: ClapArgs>(command: Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    T::augment_args(command).about(about)
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Box::new).map(Deferred)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Options of earlier versions, or of other tools, and what to write instead of them.
const OTHER_WORDS: [(&str, &str); 24] = [
    ("--kill-grace", "--kill-after"),
    ("-k", "--kill-after"),
    ("--tokens", "--resource"),
    ("-N", "--nodes for nodes, -n for several values a job"),
    ("--fail-fast", "--halt soon,fail=1"),
    ("--max-failures", "--halt soon,fail=N"),
    ("--capture", "--show-output on-failure"),
    ("--no-output", "--show-output never"),
    ("--limit", "--max-output"),
    ("--retry-backoff", "--retry-max-delay DUR, as the delay doubles by itself"),
    ("--unbuffered", "--direct"),
    ("--block", "--bs"),
    ("--blocks", "--bs"),
    ("--series", "--runs"),
    ("--sshlogin", "--via 'ssh HOST'"),
    ("-S", "--via 'ssh HOST'"),
    ("--max-procs", "--jobs"),
    ("--arg-file", "--from"),
    ("-L", "-n"),
    ("--results", "--output-dir"),
    ("--bar", "--progress bar"),
    ("--eta", "--progress bar"),
    ("--header", "--csv"),
    ("--wd", "--cwd"),
];

/// Returns what to write instead of an option that is unknown; `None`: nothing is known about it.
pub(crate) fn other_word(error: &Error) -> Option<String> {
    let ContextValue::String(unknown) = error.get(ContextKind::InvalidArg)? else { return None };
    if unknown == "--tee <FILE>" && error.kind() == ErrorKind::InvalidValue {
        return Some("--tee needs a file: write --tee FILE, or --tee null".to_owned());
    }
    let (_, word) = OTHER_WORDS.into_iter().find(|(other, _)| other == unknown)?;
    Some(format!("there is no option {unknown}: write {word}"))
}

/// Parses the arguments of this process.
///
/// # Errors
/// Wrong usage, as clap describes it.
pub(crate) fn parse() -> Result<Args, Error> {
    let args = Args::try_parse_from(own_args())?;
    let ToolCommand::Batch(options) = &args.command else { return Ok(args) };
    let Some((log, moved)) = log_last(std::env::args_os().collect(), &options.0) else {
        return Ok(args);
    };
    // An option that is wrong is the error to report.
    let again = Args::try_parse_from(moved)?;
    match &again.command {
        ToolCommand::Batch(options) if is_resume_of(&options.0, &log) => Ok(again),
        // It could be a command: its meaning must not change.
        _ => Ok(args),
    }
}

/// Returns the log, and the arguments with the log behind all options, for `batch --resume LOG` with options after the
/// log. `None`: no option follows a log.
//
// The parser takes everything after the first word for the words of a command, as it has to in the other form of
// `batch`.
fn log_last(mut all: Vec<OsString>, options: &BatchOptions) -> Option<(OsString, Vec<OsString>)> {
    let [log, after, ..] = &options.words[..] else { return None };
    let is_option = after.as_encoded_bytes().starts_with(b"-");
    let at = all.len().checked_sub(options.words.len())?;
    let is_command = at > 0 && all.get(at - 1).is_some_and(|word| word == "--");
    if !options.resume || options.log.is_some() || !is_option || is_command {
        return None;
    }
    let log = log.clone();
    all.remove(at);
    all.extend(["--".into(), log.clone()]);
    Some((log, all))
}

fn is_resume_of(options: &BatchOptions, log: &OsString) -> bool {
    options.resume && options.log.is_none() && options.words == [log.clone()]
}
