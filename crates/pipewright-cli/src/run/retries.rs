//! Attempts: the decision about another one, and the delay before it.

use std::time::{Duration, Instant};

use pipewright::{Error, ExitStatus, Outcome, Output, Signal};

use crate::args::{RetryOn, RetryOptions};

/// The attempts of a run.
#[derive(Debug)]
pub(super) struct Retries<'a> {
    options: &'a RetryOptions,
    started: Instant,
    /// The time of the end of the last attempt.
    ended: Instant,
    attempts: u32,
}

impl Retries<'_> {
    pub(super) fn new(options: &RetryOptions) -> Retries<'_> {
        let now = Instant::now();
        Retries { options, started: now, ended: now, attempts: 0 }
    }

    /// Returns the time at which all attempts end.
    pub(super) fn end(&self) -> Option<Instant> {
        self.started.checked_add(self.options.total_timeout.as_ref()?.as_limit()?)
    }

    /// Records the end of an attempt. Returns the delay before the next one, or `None` if there is none.
    pub(super) fn delay_after(&mut self, result: &Result<Output, Error>) -> Option<Duration> {
        self.attempts += 1;
        self.ended = Instant::now();
        let delay = self.options.delay_after(self.attempts);
        let is_left = self.attempts <= self.options.retries;
        // An attempt that could not begin in time is not waited for.
        let in_time = self.end().is_none_or(|end| self.ended + delay < end);
        (is_left && in_time && self.is_worth_a_retry(result)).then_some(delay)
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the time from the first start to the end of the last attempt.
    pub(super) fn elapsed(&self) -> Duration {
        self.ended - self.started
    }

    /// Returns the message about a failure that is followed by another attempt.
    pub(super) fn message(&self, failure: &str, delay: Duration) -> String {
        let most = u64::from(self.options.retries) + 1;
        let first = &self.options.retry_delay;
        let when = match () {
            () if delay.is_zero() => String::new(),
            () if delay == first.duration => format!(" in {first}"),
            () => format!(" in {delay:?}"),
        };
        format!("attempt {} of {most}: {failure}; retrying{when}", self.attempts)
    }

    fn is_worth_a_retry(&self, result: &Result<Output, Error>) -> bool {
        let is_chosen = |failure| {
            let chosen = &self.options.retry_on;
            // Without a choice: a command that cannot be started now cannot be started a second later either.
            chosen.contains(&failure) || (chosen.is_empty() && failure != RetryOn::Start)
        };
        match result {
            Ok(capture) => match capture.outcome {
                // An interrupt also ends the retries. A command in its own group gets it alone, and so its status has to be
                // checked.
                Outcome::Cancelled => false,
                _ if capture.status.terminating_signal() == Some(Signal::INT) => false,
                Outcome::TimedOut | Outcome::IdleTimedOut => is_chosen(RetryOn::Timeout),
                Outcome::LimitExceeded => is_chosen(RetryOn::Limit),
                _ if capture.success() => false,
                _ => is_chosen_status(capture.status, is_chosen),
            },
            Err(error) => error.is_start() && is_chosen(RetryOn::Start),
        }
    }
}

fn is_chosen_status(status: ExitStatus, is_chosen: impl Fn(RetryOn) -> bool) -> bool {
    match status.code() {
        Some(code) => is_chosen(RetryOn::AnyCode) || is_chosen(RetryOn::Code(code)),
        None => is_chosen(RetryOn::Signal),
    }
}
