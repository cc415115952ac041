//! Options that commands share: retries, for `run` and for the jobs of `batch`.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command, Error, ValueHint};
use pipewright_batch::RetryOn;

use super::headings;
use super::values::{Span, parse_count};

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
