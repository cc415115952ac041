//! Options of `run` about retries.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::headings;
use super::values::{Span, parse_count};

/// Options about retries.
#[derive(Debug, Args)]
pub(crate) struct RetryOptions {
    /// Retry up to N times if the command fails
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value_t = 0,
          value_parser = parse_count,
          help_heading = headings::RETRIES)]
    pub(crate) retries: u32,

    /// Retry only after these failures
    ///
    /// A list of code, timeout, signal, limit, start and exit codes, as in timeout,75. By default all but start.
    #[arg(long, value_name = "FAILURE,...", value_hint = ValueHint::Other, value_delimiter = ',', hide_short_help = true,
          help_heading = headings::RETRIES)]
    pub(crate) retry_on: Vec<RetryOn>,

    /// Wait DUR before each retry
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "0",
          help_heading = headings::RETRIES)]
    pub(crate) retry_delay: Span,

    /// Double the delay with each further retry
    #[arg(long, hide_short_help = true, help_heading = headings::RETRIES)]
    pub(crate) retry_backoff: bool,

    /// Longest delay with --retry-backoff
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "5m", requires = "retry_backoff",
          hide_short_help = true,
          help_heading = headings::RETRIES)]
    pub(crate) retry_max_delay: Span,

    /// Stop after DUR in all, with all attempts and delays
    ///
    /// --timeout applies to each attempt.
    #[arg(long, hide_short_help = true, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other, help_heading = headings::RETRIES)]
    pub(crate) total_timeout: Option<Span>,
}

impl RetryOptions {
    /// Returns the time to wait before the retry that follows this many attempts.
    pub(crate) fn delay_after(&self, attempts: u32) -> Duration {
        let first = self.retry_delay.duration;
        if !self.retry_backoff {
            return first;
        }
        let doublings = attempts.saturating_sub(1).min(31);
        first.saturating_mul(1 << doublings).min(self.retry_max_delay.duration.max(first))
    }
}

/// A kind of failure, or an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryOn {
    /// Any exit code but 0.
    AnyCode,
    Code(i32),
    Timeout,
    Signal,
    Limit,
    Start,
}

impl FromStr for RetryOn {
    type Err = String;

    fn from_str(text: &str) -> Result<RetryOn, String> {
        Ok(match text {
            "code" => RetryOn::AnyCode,
            "timeout" => RetryOn::Timeout,
            "signal" => RetryOn::Signal,
            "limit" => RetryOn::Limit,
            "start" => RetryOn::Start,
            code => RetryOn::Code(code.parse().ok().filter(|code| *code != 0).ok_or_else(|| {
                format!("\"{text}\" is not a failure: write code, timeout, signal, limit, start or an exit code")
            })?),
        })
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
        assert_eq!(delays(&["--retry-delay", "100ms"]), [100; 5]);
        let backoff = ["--retry-delay", "100ms", "--retry-backoff"];
        assert_eq!(delays(&backoff), [100, 200, 400, 800, 1600]);
        let capped = [&backoff[..], &["--retry-max-delay", "300ms"]].concat();
        assert_eq!(delays(&capped), [100, 200, 300, 300, 300]);
        let below = [&backoff[..], &["--retry-max-delay", "1ms"]].concat();
        assert_eq!(delays(&below), [100; 5], "the first delay is never shortened");
        let line = Line::parse_from(["run", "--retry-delay", "1s", "--retry-backoff"]);
        assert_eq!(line.retry.delay_after(u32::MAX), Duration::from_secs(300));
    }
}
