//! Options of a command that `run` and `pipe` have for theirs and `batch` for its jobs: what it starts with, its limits
//! and its retries.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command, Error, ValueHint};
use pipewright::Limits;
use pipewright_batch::RetryOn;

use super::headings;
use super::values::{Span, parse_bytes, parse_count, parse_mode, parse_some_bytes};
use crate::Failure;

/// Options about what a command starts with.
#[derive(Debug, Args)]
pub(crate) struct EnvironmentOptions {
    /// Set an environment variable (repeatable)
    ///
    /// A name without = passes the variable on, for --clear-env.
    #[arg(long, value_name = "K=V", value_hint = ValueHint::Other, help_heading = headings::ENVIRONMENT)]
    pub(crate) env: Vec<OsString>,

    /// Set the variables in FILE: a line K=V for each (repeatable)
    ///
    /// As docker run --env-file: no quotes, no expansion, comments only on lines of their own.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) env_file: Vec<PathBuf>,

    /// Start with an empty environment
    #[arg(long, help_heading = headings::ENVIRONMENT)]
    pub(crate) clear_env: bool,

    /// Run in DIR
    ///
    /// Also sets PWD.
    #[arg(short = 'C', long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = headings::ENVIRONMENT)]
    pub(crate) cwd: Option<PathBuf>,

    /// Run as USER, a name or a number
    #[arg(long, value_name = "USER[:GROUP]", value_hint = ValueHint::Username, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) user: Option<String>,

    /// Add N to the niceness
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, allow_hyphen_values = true, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) nice: Option<i32>,

    /// Set the umask to MODE, an octal number
    #[arg(long, value_name = "MODE", value_hint = ValueHint::Other, value_parser = parse_mode, hide_short_help = true,
          help_heading = headings::ENVIRONMENT)]
    pub(crate) umask: Option<u32>,
}

/// Options that limit the resources of a whole process tree.
#[derive(Debug, Args)]
pub(crate) struct ResourceOptions {
    /// Limit the memory of all processes together
    ///
    /// If they need more, the kernel kills one of them; the exit code of a command that dies of it is 137. `pipewright
    /// doctor` says whether limits can be had here, and what would help.
    #[arg(long, value_name = "BYTES", value_hint = ValueHint::Other, value_parser = parse_some_bytes,
          help_heading = headings::LIMITS)]
    pub(crate) memory: Option<usize>,

    /// Limit the swap of all processes together (0 for none)
    #[arg(long, value_name = "BYTES", value_hint = ValueHint::Other, value_parser = parse_bytes,
          hide_short_help = true, help_heading = headings::LIMITS)]
    pub(crate) swap: Option<usize>,

    /// Limit the CPU time to that of N processors, such as 1.5
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, value_parser = parse_processors,
          help_heading = headings::LIMITS)]
    cpus: Option<f64>,

    /// Limit the number of processes and threads at one time
    #[arg(long, value_name = "N", value_hint = ValueHint::Other,
          value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true,
          help_heading = headings::LIMITS)]
    pids: Option<u64>,

    /// Kill everything if one process is killed for lack of memory
    #[arg(long, requires = "memory", hide_short_help = true, help_heading = headings::LIMITS)]
    pub(crate) oom_group: bool,

    /// Run without the limits that cannot be held here
    #[arg(long, hide_short_help = true, help_heading = headings::LIMITS)]
    best_effort: bool,
}

impl ResourceOptions {
    /// Returns the name of the first limit.
    pub(crate) fn first(&self) -> Option<&'static str> {
        let names = [
            ("--memory", self.memory.is_some()),
            ("--swap", self.swap.is_some()),
            ("--cpus", self.cpus.is_some()),
            ("--pids", self.pids.is_some()),
        ];
        names.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Returns the limits, if there are any or if the tree has to be measured.
    pub(crate) fn limits(&self, measures: bool) -> Option<Limits> {
        let ResourceOptions { memory, swap, cpus, pids, oom_group, best_effort } = self;
        let mut limits = Limits::new();
        limits.memory_max_bytes = memory.map(|bytes| bytes as u64);
        limits.memory_swap_max_bytes = swap.map(|bytes| bytes as u64);
        limits.pids_max = *pids;
        limits.oom_group = *oom_group;
        limits.best_effort = *best_effort;
        if let Some(processors) = cpus {
            limits = limits.cpu_max(*processors);
        }
        let is_limited = limits.kinds().next().is_some();
        (is_limited || measures).then_some(limits)
    }
}

/// Options about output of which a part is kept.
#[derive(Debug, Args)]
pub(crate) struct KeepOptions {
    /// Keep only the first HEAD bytes of each stream and, with +TAIL, the last ones
    ///
    /// With +TAIL both are cut at whole lines, and a line between them says how much is left out. The command runs on.
    #[arg(long, value_name = "HEAD[+TAIL]", allow_hyphen_values = true, value_hint = ValueHint::Other,
          hide_short_help = true, help_heading = headings::OUTPUT)]
    pub(crate) keep_output: Option<KeptBytes>,

    /// Write all of a stream that --keep-output HEAD+TAIL cuts to a file in DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "keep_output", hide_short_help = true,
          help_heading = headings::OUTPUT)]
    pub(crate) spill: Option<PathBuf>,
}

/// The bytes that are kept of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptBytes {
    pub(crate) head: usize,
    /// `None`: the head alone, cut anywhere, with no line about the rest.
    pub(crate) tail: Option<usize>,
}

impl FromStr for KeptBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<KeptBytes, String> {
        let head = parse_bytes(text);
        // A size may have a sign in its exponent.
        match (head, text.rsplit_once('+')) {
            (Ok(head), _) => Ok(KeptBytes { head, tail: None }),
            (Err(error), None) => Err(error),
            (Err(_), Some((head, tail))) => {
                Ok(KeptBytes { head: parse_bytes(head)?, tail: Some(parse_bytes(tail)?) })
            }
        }
    }
}

impl KeepOptions {
    /// Returns the start and the end that are kept, if there is an end.
    ///
    /// # Errors
    /// There is a folder for the rest, and no end.
    pub(crate) fn head_and_tail(&self) -> Result<Option<(usize, usize)>, Failure> {
        let both = self.keep_output.and_then(|kept| Some((kept.head, kept.tail?)));
        if both.is_none() && self.spill.is_some() {
            return Err(Failure("--spill needs a tail: --keep-output HEAD+TAIL".to_owned()));
        }
        Ok(both)
    }

    /// Returns the number of bytes of the start that are kept, if there is no end.
    pub(crate) fn head(&self) -> Option<usize> {
        self.keep_output.filter(|kept| kept.tail.is_none()).map(|kept| kept.head)
    }
}

/// Parses a number of processors.
fn parse_processors(text: &str) -> Result<f64, String> {
    const LEAST: f64 = 0.01;
    const MOST: f64 = 1e6;
    match text.parse::<f64>() {
        Ok(processors) if (LEAST..=MOST).contains(&processors) => Ok(processors),
        Ok(_) => Err(format!("\"{text}\" is not a number of processors from 0.01 to 1000000")),
        Err(_) => Err(format!("\"{text}\" is not a number of processors: write 1.5")),
    }
}

/// Options about retries.
#[derive(Debug, Args)]
pub(crate) struct RetryOptions {
    /// Retry up to N times after a failure
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value_t = 0,
          value_parser = parse_count, help_heading = headings::RETRIES)]
    pub(crate) retries: u32,

    /// Retry only after these failures
    ///
    /// A list of code, timeout, limit, signal, oom, start, lost and exit codes, as in timeout,75. By default all but
    /// start: the command cannot be started. lost: the node or its connection is lost.
    #[arg(long, value_name = "FAILURE,...", value_parser = RetryOnParser, value_delimiter = ',',
          hide_possible_values = true, hide_short_help = true, help_heading = headings::RETRIES)]
    pub(crate) retry_on: Vec<RetryOn>,

    /// Delay before the first retry; it doubles with each one
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "1s",
          help_heading = headings::RETRIES)]
    pub(crate) retry_delay: Span,

    /// Longest delay; --retry-delay is never shortened
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "5m",
          hide_short_help = true, help_heading = headings::RETRIES)]
    retry_max_delay: Span,
}

impl RetryOptions {
    /// Returns the failures that are retried.
    pub(crate) fn on(&self) -> &[RetryOn] {
        if self.retry_on.is_empty() { &RetryOn::USUAL } else { &self.retry_on }
    }

    /// Returns the longest delay.
    pub(crate) fn max_delay(&self) -> Duration {
        self.retry_max_delay.duration.max(self.retry_delay.duration)
    }

    /// Returns the time to wait before the retry that follows this many attempts.
    pub(crate) fn delay_after(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.retry_delay.duration.saturating_mul(1 << doublings).min(self.max_delay())
    }
}

/// A parser of failures. It lists the words for completion.
#[derive(Debug, Clone)]
struct RetryOnParser;

impl TypedValueParser for RetryOnParser {
    type Value = RetryOn;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<RetryOn, Error> {
        TypedValueParser::parse_ref(&str::parse::<RetryOn>, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue>>> {
        Some(Box::new(RetryOn::WORDS.into_iter().map(|(word, _)| PossibleValue::new(word))))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        retry: RetryOptions,
    }

    fn delays(words: &[&str]) -> Vec<u128> {
        let line = Line::parse_from([&["run"], words].concat());
        (1..=5).map(|attempts| line.retry.delay_after(attempts).as_millis()).collect()
    }

    #[test]
    fn a_number_of_processors_may_be_a_fraction() {
        assert_eq!(parse_processors("1.5"), Ok(1.5));
        assert_eq!(parse_processors("0.01"), Ok(0.01));
        for text in ["", "0", "-1", "nan", "inf", "1,5", "two"] {
            assert!(parse_processors(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        assert_eq!(delays(&[]), [1000, 2000, 4000, 8000, 16_000]);
        let short = ["--retry-delay", "100ms"];
        assert_eq!(delays(&short), [100, 200, 400, 800, 1600]);
        let capped = [&short[..], &["--retry-max-delay", "300ms"]].concat();
        assert_eq!(delays(&capped), [100, 200, 300, 300, 300]);
        let below = [&short[..], &["--retry-max-delay", "0"]].concat();
        assert_eq!(delays(&below), [100; 5], "the first delay is never shortened");
        let line = Line::parse_from(["run"]);
        assert_eq!(line.retry.delay_after(u32::MAX), Duration::from_secs(300));
    }
}
