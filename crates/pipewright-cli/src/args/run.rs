//! Options of `run` and `pipe`, and those that they share; options of `timeout`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use pipewright::{Handle, Linger, Signal};
use pipewright_batch::{UnitError, parse_duration};

use super::headings;
use super::shared::{EnvironmentOptions, KeepOptions, ResourceOptions, RetryOptions};
use super::values::{SignalParser, Span, parse_bytes, parse_count, wrong};

/// Options of `run`.
#[derive(Debug, Args)]
#[command(override_usage = "pipewright run [OPTIONS] [--] <CMD> [ARGS]...", after_long_help = concat!(
    "No shell is used: write sh -c '...' for globs, variables and pipes.\n",
    "\n",
    "Durations: 200ms, 1.5s, 2m, 1h30m; a bare number is seconds. Sizes: 4096, 64k, 1MiB.\n",
    "\n",
    "Exit codes:\n",
    "  N      exit code of the command\n",
    "  124    stopped by --timeout, --idle-timeout or --max-output\n",
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
    "  pipewright run --show-output on-failure --retries 2 --retry-delay 1s -- cargo test\n",
    "  pipewright run --pty --record demo.cast -- ls --color=auto",
))]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,

    #[command(flatten)]
    pub(crate) resources: ResourceOptions,

    #[command(flatten)]
    pub(crate) retry: RetryOptions,

    #[command(flatten)]
    pub(crate) keep: KeepOptions,

    /// Stop after DUR in all, with all attempts and delays
    ///
    /// --timeout applies to each attempt.
    #[arg(long, hide_short_help = true, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::RETRIES)]
    pub(crate) total_timeout: Option<Span>,

    /// Start in a new session, print the pid and exit
    #[arg(long, help_heading = headings::STOPPING, conflicts_with_all = [
        "timeout", "idle_timeout", "total_timeout", "show_output", "tail", "tee", "max_output", "keep_output",
        "retries", "contain", "report",
        "json", "pty", "time", "memory", "swap", "cpus", "pids",
    ])]
    pub(crate) detach: bool,

    /// Write stdout to FILE, "inherit" (or -) or "null"
    #[arg(long, conflicts_with = "tee", value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = headings::OUTPUT)]
    pub(crate) stdout: Option<PathBuf>,

    /// Write stderr to FILE, "inherit" (or -) or "null"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::OUTPUT)]
    pub(crate) stderr: Option<PathBuf>,

    /// Append to the files of --stdout, --stderr and --tee
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) append: bool,

    /// Redirect stderr to stdout, in order (2>&1)
    #[arg(long, conflicts_with = "stderr", help_heading = headings::OUTPUT)]
    pub(crate) merge: bool,

    /// When to print the output
    #[arg(long, value_name = "WHEN", default_value = "always", conflicts_with = "tee", help_heading = headings::OUTPUT)]
    pub(crate) show_output: ShowOutput,

    /// Run on a terminal of its own, as for a person
    ///
    /// Programs use colours and prompts there, and buffer nothing.
    ///
    /// stdout is the terminal, with stderr in it unless --stderr is given. If stdin is a terminal, the command reads
    /// its keys; otherwise it reads stdin itself.
    #[arg(long, help_heading = headings::OUTPUT)]
    pub(crate) pty: bool,

    /// Record the terminal of --pty in FILE, for asciinema
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "pty",
          conflicts_with_all = ["stdout", "tee", "keep_output"], hide_short_help = true,
          help_heading = headings::OUTPUT)]
    pub(crate) record: Option<PathBuf>,

    /// Format of --record
    #[arg(long, value_name = "FORMAT", default_value = "asciicast-v2", requires = "record", hide_short_help = true,
          help_heading = headings::OUTPUT)]
    pub(crate) record_format: RecordFormat,

    /// Print the last N lines of each stream if the command fails, and nothing else
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, allow_hyphen_values = true, value_parser = parse_count,
          conflicts_with_all = ["tee", "keep_output"], hide_short_help = true, help_heading = headings::OUTPUT)]
    pub(crate) tail: Option<u32>,

    /// Print TEXT before each line of output
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other, hide_short_help = true,
          conflicts_with_all = ["show_output", "tail", "detach", "keep_output"], help_heading = headings::OUTPUT)]
    pub(crate) prefix: Option<String>,

    /// Print the time before each line of output
    #[arg(long, hide_short_help = true, conflicts_with_all = ["show_output", "tail", "detach", "keep_output"],
          help_heading = headings::OUTPUT)]
    pub(crate) timestamps: bool,

    /// Print time, memory, processes and context switches of the command on stderr
    #[arg(long, conflicts_with = "quiet", hide_short_help = true, help_heading = headings::REPORTING)]
    pub(crate) time: bool,

    /// Run N times, and print the least, the median and the most of --time
    ///
    /// A run that fails is the last one.
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, default_value_t = 1, requires = "time",
          value_parser = clap::value_parser!(u16).range(1..), conflicts_with_all = ["retries", "report", "json"],
          hide_short_help = true, help_heading = headings::REPORTING)]
    pub(crate) runs: u16,

    /// Read stdin from FILE, "inherit" (or -) or "null"
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::ENVIRONMENT)]
    pub(crate) stdin: Option<OsString>,

    /// Pass the file descriptor FD to the command (repeatable)
    #[arg(long, value_name = "FD", value_hint = ValueHint::Other, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) inherit: Vec<i32>,

    /// The lock that the command holds: `lock`.
    #[arg(skip)]
    pub(crate) lock: Option<Handle>,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    /// Returns true if each line of output has a mark.
    pub(crate) fn is_marked(&self) -> bool {
        self.prefix.is_some() || self.timestamps
    }

    /// Returns true if the output is kept until the end.
    pub(crate) fn is_captured(&self) -> bool {
        self.show_output == ShowOutput::OnFailure || self.tail.is_some()
    }
}

/// `--show-output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowOutput {
    /// As usual
    Always,
    /// At the end, and only if the command fails
    OnFailure,
    /// Never; it is read and dropped
    Never,
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

/// Options of `run` and `pipe`.
#[derive(Debug, Args)]
pub(crate) struct CommonOptions {
    /// Stop after DUR
    ///
    /// 0 means no timeout.
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::LIMITS)]
    pub(crate) timeout: Option<Span>,

    /// Stop after DUR without output
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other,
          help_heading = headings::LIMITS)]
    pub(crate) idle_timeout: Option<Span>,

    /// Stop once stdout or stderr exceeds BYTES
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_hint = ValueHint::Other,
          value_parser = parse_bytes, help_heading = headings::LIMITS)]
    pub(crate) max_output: Option<usize>,

    /// Signal that requests a stop
    ///
    /// A name, with or without SIG, or a number. Processes still running after --kill-after are killed.
    #[arg(short, long, alias = "signal", value_name = "SIGNAL", value_parser = SignalParser, default_value = "TERM",
          hide_possible_values = true, help_heading = headings::STOPPING)]
    pub(crate) stop_signal: Signal,

    /// Time between the stop signal and SIGKILL
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "5s",
          help_heading = headings::STOPPING)]
    pub(crate) kill_after: Span,

    /// Exit with the status of the command, even if it was stopped
    #[arg(long, hide_short_help = true, help_heading = headings::STOPPING)]
    pub(crate) preserve_status: bool,

    /// Processes that a stop reaches
    ///
    /// If pipewright is killed, tree kills all of them; none and group kill only the command.
    #[arg(long, value_name = "HOW", default_value = "tree", help_heading = headings::STOPPING)]
    pub(crate) contain: ContainKind,

    /// Write the output to FILE too, which is opened once the command was found
    ///
    /// stdout and stderr are in FILE as they came. "null" is the null device: the output passes through pipewright, and
    /// the report has its length.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = headings::OUTPUT)]
    pub(crate) tee: Option<PathBuf>,

    /// When to stop reading output that a background process holds open
    ///
    /// Applies once the command itself has exited.
    #[arg(long, value_name = "WHEN", default_value = "settle", help_heading = headings::OUTPUT)]
    pub(crate) linger: LingerKind,

    #[command(flatten)]
    pub(crate) environment: EnvironmentOptions,

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

    /// Print each command that is run, and its end, on stderr
    #[arg(short, long, conflicts_with = "quiet", hide_short_help = true, help_heading = headings::REPORTING)]
    pub(crate) verbose: bool,

    /// Suppress everything except errors
    #[arg(short, long, help_heading = headings::REPORTING)]
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
        self.tee.is_some() || self.idle_timeout().is_some() || self.max_output.is_some()
    }
}

/// Options of `pipe`.
#[derive(Debug, Args)]
#[command(override_usage = "pipewright pipe [OPTIONS] [--] ['<' FILE] <CMD> [ARGS]... \
['|' <CMD> [ARGS]...]... ['>' FILE]",
after_long_help = concat!(
    "Quote the operators for the shell: '|' between commands, '<' FILE before the first command, and\n",
    "'>' FILE or '>>' FILE (append) after the last. To pass such a word as an argument, put a\n",
    "backslash before it: '\\|', '\\<', '\\>', '\\>>'. Only one backslash is removed: '\\\\|' passes '\\|'.\n",
    "Other operators of a shell, such as '&&' and '2>&1', are arguments. A hint says so, unless they have\n",
    "a backslash.\n",
    "\n",
    "The pipeline fails if a command fails, with the exit code of the last one that failed. A command\n",
    "killed by SIGPIPE because its reader had stopped reading does not count as failed.\n",
    "\n",
    "Durations: 200ms, 1.5s, 2m, 1h30m; a bare number is seconds. Sizes: 4096, 64k, 1MiB.\n",
    "\n",
    "Exit codes:\n",
    "  N      exit code of the pipeline\n",
    "  124    stopped by --timeout, --idle-timeout or --max-output\n",
    "  125    pipewright itself failed: wrong usage, output or report not written\n",
    "  126    a command is not executable\n",
    "  127    a command was not found\n",
    "  128+N  a command was killed by signal N\n",
    "\n",
    "Environment variables:\n",
    "  PATH   directories to search for the commands; --env PATH=... replaces it\n",
    "\n",
    "Examples:\n",
    "  pipewright pipe --timeout 10m -- pg_dump shop '|' zstd '>' shop.sql.zst\n",
    "  pipewright pipe --report - -- '<' access.log grep ' 500 ' '|' sort '|' uniq -c '>' errors.txt",
))]
pub(crate) struct PipelineOptions {
    #[command(flatten)]
    pub(crate) common: CommonOptions,

    /// Exit with the code of the last command, even if others fail
    #[arg(long, help_heading = headings::REPORTING)]
    pub(crate) no_pipefail: bool,

    /// Commands and their arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,
}

/// Options of `timeout`.
#[derive(Debug, Args)]
#[command(version, infer_long_args = true,
override_usage = "pipewright timeout [OPTIONS] <DURATION> <CMD> [ARGS]...\n       \
timeout [OPTIONS] <DURATION> <CMD> [ARGS]...", after_long_help = concat!(
    "The options, exit codes and signals are those of timeout in coreutils. A link to pipewright with the\n",
    "name timeout takes its place. For whole process trees, limits and reports, use pipewright run.\n",
    "\n",
    "DURATION is a number with s (the default), m, h or d, or as in pipewright run. 0 means no timeout.\n",
    "\n",
    "Exit codes:\n",
    "  N      exit code of the command\n",
    "  124    the command timed out\n",
    "  125    timeout itself failed\n",
    "  126    the command is not executable\n",
    "  127    the command was not found\n",
    "  128+N  the command was killed by signal N; 137 also if it timed out and was killed by KILL\n",
    "\n",
    "Examples:\n",
    "  pipewright timeout -k 5 1m make check\n",
    "  ln -s \"$(command -v pipewright)\" ~/bin/timeout",
))]
pub(crate) struct TimeoutOptions {
    /// Stay in the group of the caller, and stop only the command itself
    #[arg(short, long)]
    pub(crate) foreground: bool,

    /// Send KILL if the command still runs DUR after the first signal
    #[arg(short, long, value_name = "DUR", value_hint = ValueHint::Other, allow_hyphen_values = true,
          value_parser = parse_wait)]
    pub(crate) kill_after: Option<Wait>,

    /// Exit with the status of the command, even if it times out
    #[arg(short, long)]
    pub(crate) preserve_status: bool,

    /// Signal to send on a timeout: a name or a number; 0 sends none
    #[arg(short, long, value_name = "SIGNAL", value_hint = ValueHint::Other, default_value = "TERM",
          value_parser = parse_signal)]
    pub(crate) signal: SentSignal,

    /// Print each signal that is sent
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Time after which the command is stopped
    #[arg(value_hint = ValueHint::Other, allow_negative_numbers = true, value_parser = parse_wait)]
    pub(crate) duration: Wait,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// A time to wait; `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait(pub(crate) Option<Duration>);

/// A signal; `None`: 0, which is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SentSignal(pub(crate) Option<Signal>);

/// Parses a duration. Zero, and one that no clock can count, are waits for ever.
fn parse_wait(text: &str) -> Result<Wait, String> {
    if ["inf", "infinity"].iter().any(|forever| text.eq_ignore_ascii_case(forever)) {
        return Ok(Wait(None));
    }
    match parse_duration(text) {
        Ok(duration) => Ok(Wait(Some(duration).filter(|duration| !duration.is_zero()))),
        Err(UnitError::TooLong) => Ok(Wait(None)),
        Err(error) => Err(wrong(text, error)),
    }
}

fn parse_signal(text: &str) -> Result<SentSignal, String> {
    if text == "0" || text.eq_ignore_ascii_case("EXIT") {
        return Ok(SentSignal(None));
    }
    let signal = text.parse::<Signal>();
    signal
        .map(|signal| SentSignal(Some(signal)))
        .map_err(|error| format!("{error}: write TERM, INT, HUP or 15"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_that_of_coreutils() {
        let wait = |text: &str| parse_wait(text).unwrap().0;
        assert_eq!(wait("10.34"), Some(Duration::from_millis(10_340)));
        assert_eq!(wait("1d"), Some(Duration::from_secs(86_400)));
        assert_eq!(wait("9.999999999"), Some(Duration::from_nanos(9_999_999_999)));
        assert_eq!(wait("1e-5000"), Some(Duration::from_nanos(1)), "too small is not zero");
        for forever in ["0", "0.0", "0d", "1e4932", "9223372036854775808d", "infinity", "inf"] {
            assert_eq!(wait(forever), None, "{forever}");
        }
        assert_eq!(wait("2.34e+5d"), Some(Duration::from_secs(234_000 * 86_400)));
        for wrong in ["invalid", "42D", "-1", "-1e4932", "", "nan", "1 s"] {
            assert!(parse_wait(wrong).is_err(), "{wrong}");
        }
    }
}
