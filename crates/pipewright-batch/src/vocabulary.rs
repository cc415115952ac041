//! The words of a batch, each fact once: the log, the wire, events, reports, the page and Python read these.
//!
//! The names are those of the log (docs/batch-log.md) and of the events (docs/batch.md). They are frozen: a log of an
//! older version is read with them. A new word is a new variant, and a new version of the log.
//!
//! - [`AttemptEnd`] and [`AttemptOutcome`]: how an attempt has ended; [`Failure`], the class of an end that is no
//!   success.
//! - [`RetryOn`]: the failures after which an attempt follows.
//! - [`JobOutcome`]: how a job has ended. What else is known of the end stands beside the word, never in it.
//! - [`HaltRule`]: the ends of jobs after which a batch ends early; [`Halt`], the reason for which it has.
//! - [`Event`]: what a running batch tells.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use pipewright::Signal;
use pipewright_os::base::error::OneLine;
use serde::{Deserialize, Serialize};

use crate::job::JobId;

/// The key of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The number of the job in this run, from 1, in the order of the input.
    pub job: u64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}, attempt {}", self.job, self.attempt)
    }
}

/// The end of an attempt, with everything that is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptEnd {
    /// The attempt.
    pub key: AttemptKey,
    /// The result.
    pub outcome: AttemptOutcome,
    /// The time of the start, by the clock of the system. It does not travel: another machine has another clock.
    #[serde(skip, default = "SystemTime::now")]
    pub started: SystemTime,
    /// The time from the start until its processes and its output had ended.
    pub elapsed: Duration,
    /// CPU time in user mode.
    pub user: Option<Duration>,
    /// CPU time in the kernel.
    pub system: Option<Duration>,
    /// The largest amount of memory in use at one time, in bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The number of bytes written to stdout.
    pub stdout_bytes: u64,
    /// The number of bytes written to stderr.
    pub stderr_bytes: u64,
    /// True if part of the output was dropped, because of a limit or of an error.
    pub output_truncated: bool,
    /// The number of processes that it left running, and that were killed.
    pub leftovers_killed: u32,
    /// The node that it ran on. `None`: this machine, or none.
    pub node: Option<String>,
    /// True if it was lost with its node: it runs no more there, so another attempt may follow. It does not travel.
    #[serde(skip)]
    pub is_lost_with_node: bool,
    /// The reason why a file that the job was to leave did not arrive here. A job that succeeded has failed by that. It
    /// does not travel.
    #[serde(skip)]
    pub not_fetched: Option<String>,
}

impl AttemptEnd {
    /// Returns the end of an attempt that has never run.
    #[must_use]
    pub fn without_run(key: AttemptKey, outcome: AttemptOutcome) -> AttemptEnd {
        AttemptEnd::new(key, outcome, SystemTime::now(), Duration::ZERO)
    }

    /// Returns an end without usage and output.
    #[must_use]
    pub fn new(
        key: AttemptKey,
        outcome: AttemptOutcome,
        started: SystemTime,
        elapsed: Duration,
    ) -> AttemptEnd {
        AttemptEnd {
            key,
            outcome,
            started,
            elapsed,
            user: None,
            system: None,
            peak_rss_bytes: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            output_truncated: false,
            leftovers_killed: 0,
            node: None,
            is_lost_with_node: false,
            not_fetched: None,
        }
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It exited by itself with this code.
    Exited(i32),
    /// A signal killed it, and the batch had not sent that signal.
    Signaled(i32),
    /// It was stopped after its timeout.
    TimedOut,
    /// It was stopped after a time without output.
    IdleTimedOut,
    /// It was stopped because it wrote too much.
    LimitExceeded,
    /// It was stopped for another reason: a drain, a stop, a lack of memory.
    Cancelled,
    /// It was killed because memory ran out.
    OutOfMemory,
    /// It could not be started. The text is one line, and states the reason.
    NotStarted(String),
    /// Its executor lost it: it may have run to its end, or not.
    Lost(String),
    /// Its runner was killed while it ran. The next run writes this to the log.
    Interrupted,
}

impl AttemptOutcome {
    /// Returns true if the command may have ended so because somebody else than the batch has told it to: a signal
    /// killed it, or it exited with another code than 0. An engine that takes a node away sends SIGTERM to the jobs
    /// there, too.
    #[must_use]
    pub fn may_be_told_to_end(&self) -> bool {
        matches!(self, AttemptOutcome::Signaled(_))
            || matches!(self, AttemptOutcome::Exited(code) if *code != 0)
    }

    /// Returns the word that the log, events and reports use.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            AttemptOutcome::Exited(_) => "exited",
            AttemptOutcome::Signaled(_) => "signaled",
            AttemptOutcome::TimedOut => "timed_out",
            AttemptOutcome::IdleTimedOut => "idle_timed_out",
            AttemptOutcome::LimitExceeded => "limit_exceeded",
            AttemptOutcome::Cancelled => "cancelled",
            AttemptOutcome::OutOfMemory => "out_of_memory",
            AttemptOutcome::NotStarted(_) => "not_started",
            AttemptOutcome::Lost(_) => "lost",
            AttemptOutcome::Interrupted => "interrupted",
        }
    }

    /// Returns the outcome that the log means with a word and these facts. `None`: no version has such a word.
    pub(crate) fn of_words(
        word: &str,
        code: Option<i32>,
        signal: Option<i32>,
        reason: Option<String>,
    ) -> Option<AttemptOutcome> {
        Some(match word {
            "exited" => AttemptOutcome::Exited(code?),
            "signaled" => AttemptOutcome::Signaled(signal?),
            "timed_out" => AttemptOutcome::TimedOut,
            "idle_timed_out" => AttemptOutcome::IdleTimedOut,
            "limit_exceeded" => AttemptOutcome::LimitExceeded,
            "cancelled" => AttemptOutcome::Cancelled,
            "out_of_memory" => AttemptOutcome::OutOfMemory,
            "not_started" => AttemptOutcome::NotStarted(reason.unwrap_or_default()),
            "lost" => AttemptOutcome::Lost(reason.unwrap_or_default()),
            "interrupted" => AttemptOutcome::Interrupted,
            _ => return None,
        })
    }

    /// Returns the code of a command that exited by itself.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            AttemptOutcome::Exited(code) => Some(*code),
            _ => None,
        }
    }

    /// Returns the number of the signal that killed it.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        match self {
            AttemptOutcome::Signaled(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the name of the signal that killed it: `SIGKILL`, or `signal 35`.
    pub(crate) fn signal_name(&self) -> Option<String> {
        let name = |number| match Signal::from_number(number) {
            Some(signal) => signal.to_string(),
            None => format!("signal {number}"),
        };
        self.signal().map(name)
    }

    /// Returns the reason, if there is more to say than the word.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            AttemptOutcome::NotStarted(reason) | AttemptOutcome::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the class of the failure. `None`: it is a success.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        Some(match self {
            AttemptOutcome::Exited(0) => return None,
            AttemptOutcome::Exited(_) => Failure::ExitCode,
            AttemptOutcome::Signaled(_) | AttemptOutcome::Cancelled => Failure::Signalled,
            AttemptOutcome::TimedOut
            | AttemptOutcome::IdleTimedOut
            | AttemptOutcome::LimitExceeded => Failure::TimedOut,
            AttemptOutcome::OutOfMemory => Failure::OutOfMemory,
            AttemptOutcome::NotStarted(_) => Failure::StartFailed,
            AttemptOutcome::Lost(_) | AttemptOutcome::Interrupted => Failure::Lost,
        })
    }

    /// Returns true if it exited by itself with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == AttemptOutcome::Exited(0)
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptOutcome::Exited(code) => write!(f, "exit code {code}"),
            AttemptOutcome::Signaled(_) => {
                write!(f, "killed by {}", self.signal_name().unwrap_or_default())
            }
            AttemptOutcome::TimedOut => f.write_str("timed out"),
            AttemptOutcome::IdleTimedOut => f.write_str("timed out without output"),
            AttemptOutcome::LimitExceeded => f.write_str("exceeded its output limit"),
            AttemptOutcome::Cancelled => f.write_str("stopped"),
            AttemptOutcome::OutOfMemory => f.write_str("out of memory"),
            AttemptOutcome::NotStarted(reason) => write!(f, "{}", OneLine(reason)),
            AttemptOutcome::Lost(reason) => write!(f, "lost: {}", OneLine(reason)),
            AttemptOutcome::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// The class of an unsuccessful end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// It exited with a code that means failure.
    ExitCode,
    /// A timeout stopped it.
    TimedOut,
    /// A signal killed it.
    #[serde(rename = "signaled")]
    Signalled,
    /// It ran out of memory.
    OutOfMemory,
    /// It could not be started, so nothing of it ran.
    StartFailed,
    /// Its executor lost it: nobody knows if it ran to its end.
    Lost,
}

impl Failure {
    /// All classes.
    pub const ALL: [Failure; 6] = [
        Failure::ExitCode,
        Failure::TimedOut,
        Failure::Signalled,
        Failure::OutOfMemory,
        Failure::StartFailed,
        Failure::Lost,
    ];

    /// Returns the word that the log uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Failure::ExitCode => "exit_code",
            Failure::TimedOut => "timed_out",
            Failure::Signalled => "signaled",
            Failure::OutOfMemory => "out_of_memory",
            Failure::StartFailed => "start_failed",
            Failure::Lost => "lost",
        }
    }
}

/// A failure after which another attempt may follow: a kind of failure, or an exit code.
///
/// ```
/// use pipewright_batch::{AttemptOutcome, RetryOn};
/// let busy: RetryOn = "75".parse()?;
/// assert!(busy.includes(&AttemptOutcome::Exited(75)) && !busy.includes(&AttemptOutcome::Exited(1)));
/// assert!("timeout".parse::<RetryOn>()?.includes(&AttemptOutcome::IdleTimedOut));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryOn {
    /// Any exit code but 0.
    AnyCode,
    /// This exit code.
    Code(i32),
    /// A timeout.
    Timeout,
    /// Too much output.
    Limit,
    /// A signal.
    Signal,
    /// Out of memory.
    OutOfMemory,
    /// The command cannot be started.
    Start,
    /// The node or its connection is lost.
    Lost,
}

impl RetryOn {
    /// The words, and what each stands for. Exit codes are numbers.
    pub const WORDS: [(&'static str, RetryOn); 7] = [
        ("code", RetryOn::AnyCode),
        ("timeout", RetryOn::Timeout),
        ("limit", RetryOn::Limit),
        ("signal", RetryOn::Signal),
        ("oom", RetryOn::OutOfMemory),
        ("start", RetryOn::Start),
        ("lost", RetryOn::Lost),
    ];

    /// The failures that are retried without a choice: all but a command that cannot be started, since it cannot be
    /// started a second later either.
    pub const USUAL: [RetryOn; 6] = [
        RetryOn::AnyCode,
        RetryOn::Timeout,
        RetryOn::Limit,
        RetryOn::Signal,
        RetryOn::OutOfMemory,
        RetryOn::Lost,
    ];

    /// Returns true if the outcome is such a failure.
    #[must_use]
    pub fn includes(self, outcome: &AttemptOutcome) -> bool {
        match (self, outcome) {
            (RetryOn::Code(code), AttemptOutcome::Exited(exited)) => code == *exited,
            (RetryOn::Limit, AttemptOutcome::LimitExceeded) => true,
            (RetryOn::Timeout, AttemptOutcome::LimitExceeded)
            | (RetryOn::Code(_) | RetryOn::Limit, _) => false,
            (any, outcome) => outcome.failure() == Some(any.class()),
        }
    }

    /// Returns the class that the failure belongs to.
    pub(crate) fn class(self) -> Failure {
        match self {
            RetryOn::AnyCode | RetryOn::Code(_) => Failure::ExitCode,
            RetryOn::Timeout | RetryOn::Limit => Failure::TimedOut,
            RetryOn::Signal => Failure::Signalled,
            RetryOn::OutOfMemory => Failure::OutOfMemory,
            RetryOn::Start => Failure::StartFailed,
            RetryOn::Lost => Failure::Lost,
        }
    }
}

impl FromStr for RetryOn {
    type Err = String;

    fn from_str(text: &str) -> Result<RetryOn, String> {
        if let Some((_, known)) = RetryOn::WORDS.into_iter().find(|(word, _)| *word == text) {
            return Ok(known);
        }
        let code = text.parse().ok().filter(|code| *code != 0).map(RetryOn::Code);
        code.ok_or_else(|| {
            let words = RetryOn::WORDS.map(|(word, _)| word).join(", ");
            format!(
                "{:?} is not a failure: write {words} or an exit code",
                OneLine(text).to_string()
            )
        })
    }
}

/// A report of a running batch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// An attempt has been started.
    #[non_exhaustive]
    Started {
        /// The attempt.
        key: AttemptKey,
        /// The slot, from 1.
        slot: u32,
        /// The command, quoted for a shell. Invalid Unicode is replaced.
        command: String,
        /// The user's name of the job.
        name: Option<String>,
    },
    /// An attempt has ended.
    #[non_exhaustive]
    Ended {
        /// The end.
        end: Box<AttemptEnd>,
        /// The command, as in [`Event::Started`].
        command: String,
        /// The last lines of stderr, or of stdout if stderr is empty: at most 2 KiB.
        last_lines: String,
        /// The user's name of the job.
        name: Option<String>,
    },
    /// Jobs wait, and none starts for this reason: the load or the memory of the machine
    /// ([`Batch::max_load`](crate::Batch::max_load)). `None`: jobs start again.
    #[non_exhaustive]
    Held {
        /// The reason, as one line.
        reason: Option<String>,
    },
    /// The job will be tried again after this delay.
    #[non_exhaustive]
    Retrying {
        /// The number of the job.
        job: u64,
        /// The delay.
        delay: Duration,
    },
    /// The job is over.
    #[non_exhaustive]
    Settled {
        /// The number of the job.
        job: u64,
        /// The identity of the job.
        id: JobId,
        /// The user's name of the job.
        name: Option<String>,
        /// Its command as one line, if it was skipped or refused: no attempt has told it.
        command: Option<String>,
        /// The end.
        outcome: JobOutcome,
        /// One line that says more than the word, if there is more to say.
        reason: Option<String>,
        /// It ended so in an earlier run, according to the log, and counts as done. A job that is `Unknown` still needs
        /// attention.
        before: bool,
    },
    /// All jobs have been read.
    #[non_exhaustive]
    InputEnded {
        /// The number of jobs.
        jobs: u64,
    },
    /// The number of jobs that can run at once has changed: a node has come or gone.
    #[non_exhaustive]
    Capacity {
        /// The number of slots.
        slots: u32,
    },
    /// The batch ends early: nothing more is started.
    Halted(Halt),
    /// A message for the user: one line.
    Note(String),
}

/// The end of a job, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobOutcome {
    /// Its last attempt succeeded, and its output is stored.
    Succeeded,
    /// Its last attempt failed, or its output is lost.
    Failed,
    /// It was started, and stopped because the batch ended early.
    Stopped,
    /// It was not started, because a job in its `after` did not succeed.
    Skipped,
    /// It was not started, because the batch ended early.
    NotRun,
    /// It runs at most once, or its answer is lost, and it may have run: it is not run again.
    Unknown,
    /// It can never start.
    Refused,
}

/// The reason why a batch ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Halt {
    /// A request to let the running jobs end.
    Drain,
    /// A request to stop the running jobs.
    Stop,
    /// Too many jobs have failed.
    Failures,
    /// As many jobs have succeeded as were wanted.
    Successes,
    /// The time of the whole batch is over.
    Timeout,
    /// The input cannot be read any further.
    Input,
    /// The log cannot be written.
    Log,
    /// The reader of stdout is gone, as `head` is after its last line.
    ReaderGone,
    /// The output of jobs cannot be printed.
    Output,
}

/// A rule by which a batch ends early: `soon,fail=3`, `now,fail=10%`, `now,success=1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltRule {
    /// The ends of jobs that end the batch.
    pub at: HaltAt,
    /// Also stop the jobs that run (`now`), instead of letting them end (`soon`).
    pub stops_running: bool,
}

/// A number of ends of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HaltAt {
    /// Jobs of this run that have failed, can never start, or may have run (unknown). A skipped job is none of them:
    /// its cause was counted.
    Failures(NonZeroU64),
    /// Jobs that have failed, in percent of all jobs. While their number is unknown, it is a part of the jobs that were
    /// read, and counts from three failures on.
    FailedPercent(u8),
    /// Jobs that have succeeded.
    Successes(NonZeroU64),
}

/// An error of a [`HaltRule`] as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseHaltRuleError(());

impl FromStr for HaltRule {
    type Err = ParseHaltRuleError;

    fn from_str(text: &str) -> Result<HaltRule, ParseHaltRuleError> {
        let error = ParseHaltRuleError(());
        let (when, what) = text.split_once(',').ok_or(error)?;
        let stops_running = match when {
            "now" => true,
            "soon" => false,
            _ => return Err(error),
        };
        let (word, count) = what.split_once('=').ok_or(error)?;
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = |digits: &str| match digits.parse::<NonZeroU64>() {
            Ok(number) if is_number(digits) => Ok(number),
            _ => Err(error),
        };
        let at = match (word, count.strip_suffix('%')) {
            ("fail", Some(percent)) => match number(percent)?.get() {
                percent @ 1..=100 => HaltAt::FailedPercent(percent as u8),
                _ => return Err(error),
            },
            ("fail", None) => HaltAt::Failures(number(count)?),
            ("success", None) => HaltAt::Successes(number(count)?),
            _ => return Err(error),
        };
        Ok(HaltRule { at, stops_running })
    }
}

impl fmt::Display for ParseHaltRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a rule to halt: write soon,fail=1, now,fail=10% or now,success=1")
    }
}

impl std::error::Error for ParseHaltRuleError {}

impl JobOutcome {
    /// All words, those that need attention first.
    pub const ALL: [JobOutcome; 7] = [
        JobOutcome::Failed,
        JobOutcome::Unknown,
        JobOutcome::Refused,
        JobOutcome::Stopped,
        JobOutcome::Skipped,
        JobOutcome::NotRun,
        JobOutcome::Succeeded,
    ];

    /// Returns the word that the log, events and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            JobOutcome::Succeeded => "succeeded",
            JobOutcome::Failed => "failed",
            JobOutcome::Stopped => "stopped",
            JobOutcome::Skipped => "skipped",
            JobOutcome::NotRun => "not_run",
            JobOutcome::Unknown => "unknown",
            JobOutcome::Refused => "refused",
        }
    }

    /// Returns the word for people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            JobOutcome::Succeeded => "ok",
            JobOutcome::NotRun => "not run",
            other => other.name(),
        }
    }
}

impl Halt {
    /// Returns the word that the log and events use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Halt::Drain => "drained",
            Halt::Stop => "stopped",
            Halt::Failures => "failures",
            Halt::Successes => "successes",
            Halt::Timeout => "timed_out",
            Halt::Input => "input",
            Halt::Log => "log",
            Halt::ReaderGone => "reader_gone",
            Halt::Output => "output",
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Halt::Drain => "interrupted",
            Halt::Stop => "stopped",
            Halt::Failures => "the limit of failures is reached",
            Halt::Successes => "as many jobs have succeeded as were wanted",
            Halt::Timeout => "the time of the batch is over",
            Halt::Input => "the input cannot be read",
            Halt::Log => "the log cannot be written",
            Halt::ReaderGone => "the reader of the output is gone",
            Halt::Output => "the output cannot be written",
        })
    }
}

#[cfg(test)]
mod tests {
    use pipewright::Outcome;

    use super::*;

    /// Words that logs of all versions have. Change none: add some.
    const OUTCOMES: [(AttemptOutcome, &str); 8] = [
        (AttemptOutcome::Exited(3), "exited"),
        (AttemptOutcome::Signaled(9), "signaled"),
        (AttemptOutcome::TimedOut, "timed_out"),
        (AttemptOutcome::IdleTimedOut, "idle_timed_out"),
        (AttemptOutcome::LimitExceeded, "limit_exceeded"),
        (AttemptOutcome::Cancelled, "cancelled"),
        (AttemptOutcome::OutOfMemory, "out_of_memory"),
        (AttemptOutcome::Interrupted, "interrupted"),
    ];

    #[test]
    fn the_words_of_outcomes_are_frozen_and_read_back() {
        let mut all = OUTCOMES.to_vec();
        all.push((AttemptOutcome::NotStarted("no such file".into()), "not_started"));
        all.push((AttemptOutcome::Lost("node gone".into()), "lost"));
        for (outcome, word) in all {
            assert_eq!(outcome.name(), word);
            let reason = outcome.reason().map(ToOwned::to_owned);
            let read = AttemptOutcome::of_words(word, outcome.code(), outcome.signal(), reason);
            assert_eq!(read.as_ref(), Some(&outcome));
            // The derived words are the same ones.
            let derived = serde_json::to_value(&outcome).unwrap();
            let derived =
                derived.as_str().or_else(|| derived.as_object()?.keys().next().map(|it| &**it));
            assert_eq!(derived, Some(word));
        }
        assert_eq!(AttemptOutcome::of_words("exited", None, None, None), None);
        assert_eq!(AttemptOutcome::of_words("", None, None, None), None);
    }

    #[test]
    fn a_run_and_an_attempt_have_the_same_words() {
        let of_runs = [
            Outcome::Exited,
            Outcome::Signaled,
            Outcome::TimedOut,
            Outcome::IdleTimedOut,
            Outcome::Cancelled,
            Outcome::LimitExceeded,
        ];
        for outcome in of_runs {
            let read = AttemptOutcome::of_words(outcome.name(), Some(0), Some(9), None);
            assert_eq!(read.map(|it| it.name()), Some(outcome.name()));
        }
    }

    #[test]
    fn the_words_of_failures_are_frozen_and_the_derived_ones() {
        let words = ["exit_code", "timed_out", "signaled", "out_of_memory", "start_failed", "lost"];
        for (failure, word) in Failure::ALL.into_iter().zip(words) {
            assert_eq!(
                (failure.name(), serde_json::to_value(failure).unwrap()),
                (word, word.into())
            );
        }
    }

    #[test]
    fn each_failure_is_included_by_its_word_alone() {
        let of = |word: &str| word.parse::<RetryOn>().unwrap();
        for (outcome, words) in [
            (AttemptOutcome::Exited(75), &["code", "75"][..]),
            (AttemptOutcome::Exited(0), &[]),
            (AttemptOutcome::Signaled(9), &["signal"]),
            (AttemptOutcome::TimedOut, &["timeout"]),
            (AttemptOutcome::IdleTimedOut, &["timeout"]),
            (AttemptOutcome::LimitExceeded, &["limit"]),
            (AttemptOutcome::OutOfMemory, &["oom"]),
            (AttemptOutcome::NotStarted(String::new()), &["start"]),
            (AttemptOutcome::Lost(String::new()), &["lost"]),
        ] {
            for word in RetryOn::WORDS.map(|(word, _)| word).into_iter().chain(["75", "-1"]) {
                assert_eq!(
                    of(word).includes(&outcome),
                    words.contains(&word),
                    "{outcome:?} {word}"
                );
            }
        }
        for wrong in ["", "0", "Code", "codes", "1.5", "lost,code"] {
            assert!(wrong.parse::<RetryOn>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_words_of_jobs_are_frozen_and_the_derived_ones() {
        let words = ["failed", "unknown", "refused", "stopped", "skipped", "not_run", "succeeded"];
        for (outcome, word) in JobOutcome::ALL.into_iter().zip(words) {
            let derived = serde_json::to_value(outcome).unwrap();
            assert_eq!((outcome.name(), derived), (word, word.into()));
        }
    }

    #[test]
    fn a_rule_has_the_words_of_gnu_parallel() {
        let rule = |at, stops_running| Ok(HaltRule { at, stops_running });
        let count = |count| NonZeroU64::new(count).unwrap();
        assert_eq!("soon,fail=1".parse(), rule(HaltAt::Failures(count(1)), false));
        assert_eq!("now,fail=30".parse(), rule(HaltAt::Failures(count(30)), true));
        assert_eq!("soon,fail=100%".parse(), rule(HaltAt::FailedPercent(100), false));
        assert_eq!("now,success=2".parse(), rule(HaltAt::Successes(count(2)), true));
        for text in [
            "",
            "1",
            "now",
            "now,",
            "now,fail",
            "now,fail=",
            "now,fail=0",
            "now,fail=-1",
            "now,fail=+1",
            "now,fail=0%",
            "now,fail=101%",
            "never,fail=1",
            "now,done=1",
            "now,success=10%",
            "now,fail=1.5",
        ] {
            assert!(text.parse::<HaltRule>().is_err(), "{text}");
        }
    }
}
