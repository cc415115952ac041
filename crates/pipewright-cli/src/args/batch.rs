//! Options of `batch`, and of `jobs` and `worker`, which belong to it.

mod input;
mod starts;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use pipewright::Signal;
use pipewright_batch::{Containing, HaltRule, JobserverMode, LoggedState, ProgressKind};

pub(crate) use input::InputOptions;
pub(crate) use starts::StartOptions;

use super::headings;
use super::run::ShowOutput;
use super::shared::{EnvironmentOptions, KeepOptions, ResourceOptions, RetryOptions};
use super::values::{SignalParser, Span, parse_bytes};

/// Options of `batch`.
#[derive(Debug, Args)]
#[command(override_usage = "pipewright batch [OPTIONS] [--] [CMD [ARGS]...] [::: VALUE...]... \
[:::: FILE...]...\n       \
pipewright batch --resume [OPTIONS] LOG [OPTIONS]",
after_long_help = concat!(
    "Each line of the input is a job. With a command, the line replaces {} in its words, or is added as\n",
    "its last argument. Without one, the line is itself a command: words and quotes, but no shell. Lists\n",
    "after ::: or files after :::: replace the input; of several lists, all combinations are run.\n",
    "\n",
    "Placeholders:\n",
    "  {}  line   {.}  without extension   {/}  base name   {//}  directory   {/.}  base name without\n",
    "  extension   {#}  job number   {%}  slot   {1} {2}  value of that list or column   {name}  CSV column\n",
    "\n",
    "Durations: 200ms, 1.5s, 2m, 1h30m; a bare number is seconds. Sizes: 4096, 64k, 1MiB.\n",
    "\n",
    "Exit codes:\n",
    "  0      every job succeeded\n",
    "  123    a job failed, or did not run\n",
    "  124    stopped by --batch-timeout\n",
    "  125    pipewright itself failed: wrong usage, bad input, log or output not written\n",
    "  128+N  stopped by signal N; 130 is Ctrl-C\n",
    "\n",
    "Environment variables of a job:\n",
    "  PIPEWRIGHT_JOB, PIPEWRIGHT_JOB_ID, PIPEWRIGHT_SLOT, PIPEWRIGHT_ATTEMPT\n",
    "\n",
    "Examples:\n",
    "  pipewright batch --resume --retry-failed run.db\n",
    "  find . -name '*.png' | pipewright batch -j4 --log run.db -- convert {} -resize 200 {.}.jpg\n",
    "  pipewright batch --retries 2 -- ping -c1 {1}.{2} ::: db web ::: example.org example.net",
))]
pub(crate) struct BatchOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    /// Print the commands, and run nothing
    #[arg(long, help_heading = headings::INPUT)]
    pub(crate) dry_run: bool,

    /// Print each command on stderr when it starts
    #[arg(short = 't', long, help_heading = headings::REPORTING)]
    pub(crate) print_commands: bool,

    /// Run N jobs at once: a number, 150% of the processors, or +2 more than they are
    ///
    /// The default is the number of processors that this process may use.
    #[arg(short, visible_short_alias = 'P', long, value_name = "N", allow_hyphen_values = true,
          value_hint = ValueHint::Other, help_heading = headings::RUNNING)]
    pub(crate) jobs: Option<JobCount>,

    #[command(flatten)]
    pub(crate) starts: StartOptions,

    /// Share job slots with make, ninja and cargo [default: join, or off with -j]
    ///
    /// Below `make -jN`, put + before the command in the makefile.
    #[arg(long, value_name = "MODE", help_heading = headings::RUNNING)]
    pub(crate) jobserver: Option<JobserverKind>,

    /// Allow N of the resource NAME in use at once (repeatable)
    #[arg(long, value_name = "NAME=N", value_hint = ValueHint::Other, help_heading = headings::RUNNING)]
    pub(crate) resource: Vec<ResourceCount>,

    #[command(flatten)]
    pub(crate) retry: RetryOptions,

    /// Reserve for a job without mem the memory that it has used in LOG
    #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath, help_heading = headings::RUNNING)]
    pub(crate) learn: Option<PathBuf>,

    /// Do not run an interrupted job again when the batch is resumed
    #[arg(long, help_heading = headings::RUNNING)]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) environment: EnvironmentOptions,

    #[command(flatten)]
    pub(crate) resources: ResourceOptions,

    /// Run the jobs on a node that CMD connects to (repeatable)
    ///
    /// CMD connects its stdin and stdout to a shell on the node: 'ssh host', 'docker exec -i c', 'kubectl exec -i pod
    /// --'. A copy of pipewright is kept in the cache folder of the node. With --jobs, each node runs N jobs at once.
    #[arg(long, value_name = "CMD", value_hint = ValueHint::CommandString, help_heading = headings::NODES)]
    pub(crate) via: Vec<OsString>,

    /// Read the commands of --via from FILE, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::NODES)]
    pub(crate) via_file: Option<PathBuf>,

    /// Run the jobs on nodes of an engine
    ///
    /// Inside of an allocation, its nodes are used.
    #[arg(long, value_name = "ENGINE", help_heading = headings::NODES)]
    pub(crate) on: Option<EngineKind>,

    /// Number of nodes to ask for
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, default_value_t = 1, requires = "on",
          help_heading = headings::NODES)]
    pub(crate) nodes: u32,

    /// Option for sbatch, such as --time=10 (repeatable)
    #[arg(long, value_name = "ARG", value_hint = ValueHint::Other, allow_hyphen_values = true, requires = "on",
          help_heading = headings::NODES)]
    pub(crate) slurm_arg: Vec<OsString>,

    /// Speak to the nodes over srun, if they cannot connect to this machine
    #[arg(long, requires = "on", help_heading = headings::NODES)]
    pub(crate) slurm_stdio: bool,

    /// Interface or address at which nodes connect [default: that of the network of the engine]
    #[arg(long, value_name = "NAME|ADDR", value_hint = ValueHint::Other, requires = "on",
          conflicts_with = "slurm_stdio", help_heading = headings::NODES)]
    pub(crate) listen: Option<String>,

    /// Path of pipewright on the nodes; nothing is copied there
    #[arg(long, value_name = "PATH", value_hint = ValueHint::Other, help_heading = headings::NODES)]
    pub(crate) worker_path: Option<PathBuf>,

    /// Send FILE, such as {}, to the node of each job before it starts (repeatable)
    ///
    /// A relative FILE is one of this directory, and gets the same path in the directory of the job. Without
    /// placeholders it is sent to each node once.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::NODES)]
    pub(crate) send: Vec<OsString>,

    /// Fetch FILE, such as {.}.out, from the node of each job after it (repeatable)
    ///
    /// A job that succeeds and leaves no FILE has failed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::NODES)]
    pub(crate) fetch: Vec<OsString>,

    /// Fail a job that has lost N nodes
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, default_value_t = 2, help_heading = headings::NODES)]
    pub(crate) max_lost: u32,

    /// Stop a job after DUR
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::LIMITS)]
    pub(crate) timeout: Option<Span>,

    /// Stop a job after DUR without output
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::LIMITS)]
    pub(crate) idle_timeout: Option<Span>,

    /// Stop the whole batch after DUR
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::LIMITS)]
    pub(crate) batch_timeout: Option<Span>,

    /// Stop a job once its stdout or stderr exceeds BYTES
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_hint = ValueHint::Other,
          value_parser = parse_bytes, help_heading = headings::LIMITS)]
    pub(crate) max_output: Option<usize>,

    /// Start no more jobs at RULE, such as soon,fail=1, now,fail=10%, now,success=1
    ///
    /// With now, jobs that run are stopped too.
    #[arg(long, value_name = "RULE", value_hint = ValueHint::Other, value_parser = parse_halt,
          help_heading = headings::LIMITS)]
    pub(crate) halt: Option<HaltRule>,

    /// Signal that requests a stop
    #[arg(long, alias = "signal", value_name = "SIGNAL", value_parser = SignalParser, default_value = "TERM",
          hide_possible_values = true, help_heading = headings::STOPPING)]
    pub(crate) stop_signal: Signal,

    /// Time between the stop signal and SIGKILL
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "5s",
          help_heading = headings::STOPPING)]
    pub(crate) kill_after: Span,

    /// Processes that end with a job, and with pipewright
    #[arg(long, value_name = "HOW", default_value = "tree", help_heading = headings::STOPPING)]
    pub(crate) contain: BatchContainKind,

    /// Record every attempt in FILE, a SQLite database
    ///
    /// --resume continues the batch of a log, after any kind of end.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::LOG)]
    pub(crate) log: Option<PathBuf>,

    /// Continue the batch of the log: run only what has not ended
    ///
    /// With --log, write the command and the input as before; a log that does not exist is begun. Without --log, LOG is
    /// the only argument, and has the jobs.
    #[arg(long, help_heading = headings::LOG)]
    pub(crate) resume: bool,

    /// Run failed jobs again
    #[arg(long, requires = "resume", help_heading = headings::LOG)]
    pub(crate) retry_failed: bool,

    /// Run interrupted jobs again that --once applies to
    #[arg(long, requires = "resume", help_heading = headings::LOG)]
    pub(crate) rerun_unknown: bool,

    /// Resume a log that another user owns or may write; its commands run as you
    #[arg(long, requires = "resume", help_heading = headings::LOG)]
    pub(crate) trust_log: bool,

    /// Print the output of jobs in the order of the input
    #[arg(short, long, help_heading = headings::OUTPUT)]
    pub(crate) keep_order: bool,

    /// Print lines as they arrive, instead of each job's output when it ends
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) line_buffer: bool,

    /// Print the line of the job and a tab before each line of its output
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) tag: bool,

    /// Print TEXT, with values such as {1} or {/.}, and a tab before each line
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other, conflicts_with = "tag",
          help_heading = headings::OUTPUT)]
    pub(crate) tagstring: Option<String>,

    /// Write the output of each job to files in its own folder in DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = headings::OUTPUT)]
    pub(crate) output_dir: Option<PathBuf>,

    /// Write the files of --output-dir on the nodes
    ///
    /// The directory has to be on a file system that this machine and the nodes share. No output is printed.
    #[arg(long, requires = "output_dir", conflicts_with_all = ["keep_order", "line_buffer", "tag", "tagstring"],
          help_heading = headings::NODES)]
    pub(crate) output_on_nodes: bool,

    #[command(flatten)]
    pub(crate) keep: KeepOptions,

    /// When to print the output of a job
    #[arg(long, value_name = "WHEN", default_value = "always", help_heading = headings::OUTPUT)]
    pub(crate) show_output: ShowOutput,

    /// Progress on stderr; by default a bar on a terminal, and lines elsewhere
    #[arg(long, value_name = "HOW", help_heading = headings::REPORTING)]
    pub(crate) progress: Option<BatchProgressKind>,

    /// Write each event to FILE as a line of JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING)]
    pub(crate) events: Option<PathBuf>,

    /// Write a page about the batch to FILE, again and again while it runs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING)]
    pub(crate) html: Option<PathBuf>,

    /// Write a line for each job that ran to FILE, as GNU parallel does
    ///
    /// +FILE: add the lines to those that FILE has.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING)]
    pub(crate) joblog: Option<PathBuf>,

    /// Write a test case for each job to FILE, as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING)]
    pub(crate) junit: Option<PathBuf>,

    /// Write trace events to FILE, for Perfetto and about:tracing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::REPORTING)]
    pub(crate) trace: Option<PathBuf>,

    /// Hide the files of --output-dir and of reports from other users
    #[arg(long, help_heading = headings::REPORTING)]
    pub(crate) private: bool,

    /// Name the addresses at which nodes connect, and connections that are refused
    #[arg(short, long, conflicts_with = "quiet", help_heading = headings::REPORTING)]
    pub(crate) verbose: bool,

    /// Suppress everything except errors and the output of jobs
    #[arg(short, long, help_heading = headings::REPORTING)]
    pub(crate) quiet: bool,

    /// Command with placeholders; lists of values after :::
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,
}

/// `--progress`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchProgressKind {
    /// A bar that is drawn again and again
    Bar,
    /// Nothing for 5 seconds, then a line at each tenth and every 30 seconds
    Plain,
    /// No progress, only messages
    None,
}

impl BatchProgressKind {
    pub(crate) fn to_kind(self) -> ProgressKind {
        match self {
            BatchProgressKind::Bar => ProgressKind::Bar,
            BatchProgressKind::Plain => ProgressKind::Plain,
            BatchProgressKind::None => ProgressKind::None,
        }
    }
}

/// `--jobserver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JobserverKind {
    /// Share the slots of the make above, if there is one
    Join,
    /// As join; without a make above, share the slots of this batch with those in its jobs
    Share,
    /// Share none
    Off,
}

impl JobserverKind {
    pub(crate) fn to_mode(self) -> JobserverMode {
        match self {
            JobserverKind::Join => JobserverMode::Join,
            JobserverKind::Share => JobserverMode::Share,
            JobserverKind::Off => JobserverMode::Off,
        }
    }
}

/// `--on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    /// Slurm: one allocation, and a worker on each of its nodes
    Slurm,
}

/// `--contain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchContainKind {
    /// The process group of the command; those that outlive it keep running
    Group,
    /// Every process that the command starts; those that outlive it are killed
    Tree,
}

impl BatchContainKind {
    pub(crate) fn to_containing(self) -> Containing {
        match self {
            BatchContainKind::Group => Containing::Group,
            BatchContainKind::Tree => Containing::Tree,
        }
    }
}

/// A number of jobs: `8`, `50%` of the processors, or `+2` more than them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobCount {
    Fixed(u32),
    Percent(u32),
    More(u32),
}

impl JobCount {
    /// Returns the number on this machine, at least 1. Affinity and the quota of a cgroup count.
    pub(crate) fn resolve(self) -> u32 {
        let processors = thread::available_parallelism().map_or(1, |count| count.get());
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        let count = match self {
            JobCount::Fixed(count) => count,
            JobCount::Percent(percent) => {
                let count = (u64::from(processors) * u64::from(percent)).div_ceil(100);
                u32::try_from(count).unwrap_or(u32::MAX)
            }
            JobCount::More(more) => processors.saturating_add(more),
        };
        count.max(1)
    }
}

impl FromStr for JobCount {
    type Err = String;

    fn from_str(text: &str) -> Result<JobCount, String> {
        let refuse = || format!("\"{text}\" is not a number of jobs: write 8, 150% or +2");
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| refuse()),
            false => Err(refuse()),
        };
        let count = if let Some(percent) = text.strip_suffix('%') {
            JobCount::Percent(number(percent)?)
        } else if let Some(more) = text.strip_prefix('+') {
            JobCount::More(number(more)?)
        } else {
            JobCount::Fixed(number(text)?)
        };
        match count {
            JobCount::Fixed(0) => {
                Err("0 is not as many as possible here: a number is needed, such as 200 or 400%"
                    .to_owned())
            }
            JobCount::Percent(0) => Err("must be at least 1".to_owned()),
            count => Ok(count),
        }
    }
}

/// `NAME=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceCount {
    pub(crate) name: String,
    pub(crate) count: u32,
}

impl FromStr for ResourceCount {
    type Err = String;

    fn from_str(text: &str) -> Result<ResourceCount, String> {
        let refuse = || format!("\"{text}\" is no resource: write NAME=N, as in link=2");
        let (name, count) = text.split_once('=').ok_or_else(refuse)?;
        let count = count.parse().map_err(|_| refuse())?;
        if name.is_empty() || count == 0 {
            return Err(refuse());
        }
        Ok(ResourceCount { name: name.to_owned(), count })
    }
}

fn parse_halt(text: &str) -> Result<HaltRule, String> {
    text.parse().map_err(|error| format!("\"{text}\" is {error}"))
}

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
    #[arg(long, value_name = "STATE", value_parser = states(), hide_possible_values = true,
          help_heading = headings::LISTING)]
    pub(crate) state: Option<LoggedState>,

    /// List the N slowest attempts, slowest first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::LISTING)]
    pub(crate) slowest: Option<u32>,

    /// List the attempts that end from now on, until the batch is over
    #[arg(long, conflicts_with_all = ["failed", "state", "slowest", "json"], help_heading = headings::LISTING)]
    pub(crate) follow: bool,

    /// Print counts and runs only
    #[arg(long, conflicts_with_all = ["failed", "state", "slowest", "json", "follow"],
          help_heading = headings::LISTING)]
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

/// Returns the parser of `--state`. It lists the words for completion.
fn states() -> impl TypedValueParser<Value = LoggedState> {
    // Tables call a started job so while it has a process.
    let names = LoggedState::names().chain(["running"]);
    PossibleValuesParser::new(names).try_map(|word| word.parse::<LoggedState>())
}

/// Options of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerOptions {
    /// Speak to the batch over stdin and stdout
    #[arg(long, conflicts_with = "connect")]
    pub(crate) stdio: bool,

    /// Connect to the batch at the first of these addresses that answers
    #[arg(
        long,
        value_name = "ADDR:PORT,...",
        value_delimiter = ',',
        required_unless_present = "stdio"
    )]
    pub(crate) connect: Vec<std::net::SocketAddr>,

    /// Read the secret of the batch from FILE, instead of the environment
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Run N jobs at once; by default as many as this process may use processors
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,

    /// Run only if this program has that hash
    #[arg(long, value_name = "HASH", hide = true)]
    pub(crate) sum: Option<String>,

    /// Work in DIR
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) directory: Option<PathBuf>,

    /// Name of this node; by default the name of the machine
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_jobs_are_parsed() {
        assert_eq!("8".parse(), Ok(JobCount::Fixed(8)));
        assert_eq!("150%".parse(), Ok(JobCount::Percent(150)));
        assert_eq!("+2".parse(), Ok(JobCount::More(2)));
        for text in ["", "0", "0%", "-1", "%", "+", "+-1", "1.5", "99999999999", "++1"] {
            assert!(text.parse::<JobCount>().is_err(), "{text}");
        }
        assert!(JobCount::Percent(1).resolve() >= 1);
        assert_eq!(JobCount::More(1).resolve(), JobCount::More(0).resolve() + 1);
    }

    #[test]
    fn resources_are_parsed() {
        assert_eq!("link=2".parse(), Ok(ResourceCount { name: "link".to_owned(), count: 2 }));
        for text in ["link", "=2", "link=0", "link=x", "link=-1"] {
            assert!(text.parse::<ResourceCount>().is_err(), "{text}");
        }
    }
}
