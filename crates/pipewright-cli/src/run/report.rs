//! The JSON report of a run, described in `docs/json.md`.

use std::ffi::OsString;
use std::io::{self, Write as _};

use pipewright::{Captured, Containment, Error, ExitStatus, Outcome, Output, Source, Usage};
use pipewright_os::base::stdio;
use serde::Serialize;

use super::kept::Kept;
use super::resources::{LimitsReport, OutOfMemoryReport, TreeReport};
use super::retries::Retries;
use crate::args::RunOptions;
use crate::print::is_reader_gone;
use crate::{exit_code, print_error};

/// The report. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    schema: &'static str,
    command: Vec<String>,
    #[serde(flatten)]
    ended: EndReport,
    attempts: u32,
    total_seconds: f64,
}

/// Result and resource usage of a command or a pipeline.
#[derive(Debug, Serialize)]
pub(crate) struct EndReport {
    pid: Option<u32>,
    outcome: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    elapsed_seconds: f64,
    #[serde(flatten)]
    used: Used,
    stdout_bytes: Option<u64>,
    stderr_bytes: Option<u64>,
    held_open: bool,
    truncated: bool,
    containment: String,
    leftovers_killed: u32,
    limits: Option<LimitsReport>,
    tree: Option<TreeReport>,
    out_of_memory: Option<OutOfMemoryReport>,
    error: Option<ErrorReport>,
}

impl EndReport {
    pub(crate) fn new<T>(result: Result<&Captured<T>, &Error>) -> EndReport {
        match result {
            Err(error) => EndReport::without_start(error),
            Ok(captured) => EndReport::of(captured),
        }
    }

    fn of<T>(captured: &Captured<T>) -> EndReport {
        EndReport {
            pid: Some(captured.pid),
            outcome: outcome_word(captured.outcome),
            exit_code: captured.status.code(),
            signal: signal_of(captured.status),
            elapsed_seconds: captured.elapsed.as_secs_f64(),
            used: Used::of(captured.usage),
            stdout_bytes: captured.stdout_bytes,
            stderr_bytes: captured.stderr_bytes,
            held_open: captured.held_open,
            // Output that only passes through is dropped by design, and does not count.
            truncated: captured.outcome == Outcome::LimitExceeded,
            containment: captured.containment.to_string(),
            leftovers_killed: captured.leftovers_killed,
            limits: captured.limits.as_deref().and_then(LimitsReport::of),
            tree: captured.tree_usage.as_deref().map(TreeReport::of),
            out_of_memory: captured.out_of_memory.map(OutOfMemoryReport::of),
            error: None,
        }
    }

    fn without_start(error: &Error) -> EndReport {
        EndReport {
            pid: None,
            outcome: "not_started",
            exit_code: None,
            signal: None,
            elapsed_seconds: 0.0,
            used: Used::default(),
            stdout_bytes: None,
            stderr_bytes: None,
            held_open: false,
            truncated: false,
            containment: Containment::None.to_string(),
            leftovers_killed: 0,
            limits: None,
            tree: None,
            out_of_memory: None,
            error: Some(ErrorReport { kind: error.kind().name(), message: error.to_string() }),
        }
    }
}

/// Returns the name of the signal that killed the command.
pub(crate) fn signal_of(status: ExitStatus) -> Option<String> {
    status.terminating_signal().map(|signal| signal.to_string())
}

/// The error of a command that was not started, or whose status was lost.
#[derive(Debug, Serialize)]
struct ErrorReport {
    kind: &'static str,
    message: String,
}

/// Resource usage of a process.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Used {
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
}

impl Used {
    pub(crate) fn of(usage: Option<Usage>) -> Used {
        Used {
            user_seconds: usage.map(|usage| usage.user.as_secs_f64()),
            system_seconds: usage.map(|usage| usage.system.as_secs_f64()),
            peak_rss_bytes: usage.and_then(|usage| usage.peak_rss_bytes),
        }
    }
}

/// Returns the name of an outcome.
fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Signaled => "signaled",
        Outcome::TimedOut => "timed_out",
        Outcome::IdleTimedOut => "idle_timed_out",
        Outcome::Cancelled => "cancelled",
        Outcome::LimitExceeded => "limit_exceeded",
        Outcome::OutOfMemory(_) => "out_of_memory",
        _ => "exited",
    }
}

/// Prints the captured output, and returns the exit code: 125 if it cannot be printed.
pub(super) fn show_captured(kept: &Kept, options: &RunOptions, code: i32) -> i32 {
    let mut stdout = stdio::stdout();
    let shown = kept.write(Source::Stdout, options.tail, &mut stdout);
    let shown = shown.and_then(|()| stdout.flush());
    let shown = [shown, kept.write(Source::Stderr, options.tail, &mut io::stderr())];
    match shown.into_iter().filter_map(Result::err).find(|error| !is_reader_gone(error)) {
        Some(error) => fail("print the captured output", &error, code),
        None => code,
    }
}

/// Prints the error, with the exit code that it replaces.
pub(super) fn fail(action: &str, error: &io::Error, code: i32) -> i32 {
    print_error(&format!("cannot {action}: {error}; the exit code would have been {code}"));
    exit_code::OWN_FAILURE
}

impl RunReport {
    pub(super) fn new(
        options: &RunOptions,
        result: &Result<Output, Error>,
        retries: &Retries<'_>,
    ) -> RunReport {
        RunReport {
            schema: "pipewright.run/1",
            command: lossy(&options.command),
            ended: EndReport::new(result.as_ref()),
            attempts: retries.attempts(),
            total_seconds: retries.elapsed().as_secs_f64(),
        }
    }
}

/// Converts words to Unicode for JSON; invalid bytes are replaced.
pub(crate) fn lossy(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
