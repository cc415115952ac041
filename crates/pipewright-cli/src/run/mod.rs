//! `pipewright run`: one command, seen through to its end.

pub(crate) mod command;
pub(crate) mod interrupt;
pub(crate) mod message;
pub(crate) mod report;

use pipewright::{
    CancelToken, Captured, Command, Error, ErrorKind, Outcome, Output, Scope, Signal, TeeFailed,
};
use pipewright_os::process::terminal::Foreground;

use crate::args::{Contain, RunOptions};
use crate::print::print;
use crate::{Failure, complain, exit_code};
use interrupt::Interrupt;
use report::Report;

/// Runs the command, again if it was asked for, and reports.
pub(crate) fn run(options: RunOptions) -> Result<i32, Failure> {
    if options.detach {
        return detach(&options);
    }
    let cancel = CancelToken::new();
    let is_in_front = Foreground::own().is_some();
    let shares_terminal = options.common.contain != Contain::Group;
    let interrupt = Interrupt::catch(&cancel, shares_terminal, is_in_front)
        .map_err(Failure::cannot("catch signals"))?;
    let mut command = command::build(&options, &cancel)?;
    let mut attempts = 0;
    let (result, gave_up) = loop {
        attempts += 1;
        interrupt.begin();
        let result = attempt(&mut command, &options);
        interrupt.rest();
        let again = attempts <= options.retries && is_worth_another_try(&result);
        if !again || interrupt.was_typed() {
            break (result, again);
        }
        let most = u64::from(options.retries) + 1;
        say(&options, || {
            let delay = &options.retry_delay;
            let when =
                if delay.duration.is_zero() { String::new() } else { format!(" in {delay}") };
            format!("attempt {attempts} of {most}: {}; retrying{when}", failure(&options, &result))
        });
        if cancel.wait_for(options.retry_delay.duration) {
            break (result, true);
        }
    };
    let code = match &result {
        Ok(capture) => code_of(capture, &interrupt),
        Err(error) => exit_code::of_error(error),
    };
    let code = show(&options, &result, code);
    let code = match options.common.report() {
        Some(path) => report::deliver(&Report::new(&options, &result, attempts), path, code),
        None => code,
    };
    Ok(interrupt.end(result.as_ref().ok(), gave_up, code))
}

/// Runs the command once, held as well as this machine can.
fn attempt(command: &mut Command, options: &RunOptions) -> Result<Output, Error> {
    command::hold(command, options.common.contain, Scope::Tree);
    match command.output() {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
            // Without a supervisor: then what can be had without one, and the report says so.
            command::hold(command, options.common.contain, Scope::Child);
            command.output()
        }
        done => done,
    }
}

/// Starts the command, and leaves it alone.
fn detach(options: &RunOptions) -> Result<i32, Failure> {
    let mut command = command::build(options, &CancelToken::new())?;
    match command.detached().start_and_forget() {
        Ok(pid) => {
            if !options.common.quiet {
                print(format!("{pid}\n"))?;
            }
            Ok(exit_code::SUCCESS)
        }
        Err(error) => {
            complain(&error.to_string());
            Ok(exit_code::of_error(&error))
        }
    }
}

fn is_worth_another_try(result: &Result<Output, Error>) -> bool {
    match result {
        // Who was interrupted from the terminal (in a group of its own, we have not heard of it) is not meant to
        // start anew.
        Ok(capture) => {
            !capture.success()
                && capture.outcome != Outcome::Cancelled
                && capture.status.terminating_signal() != Some(Signal::INT)
        }
        // What cannot be started now cannot be started in a second either.
        Err(_) => false,
    }
}

pub(crate) fn code_of<T>(capture: &Captured<T>, interrupt: &Interrupt) -> i32 {
    match capture.outcome {
        Outcome::TimedOut | Outcome::IdleTimedOut | Outcome::LimitExceeded => exit_code::STOPPED,
        Outcome::Cancelled => interrupt
            .signal()
            .map_or(exit_code::OWN_FAILURE, |signal| exit_code::of_signal(signal.number())),
        _ if lost_output(capture).is_some() => exit_code::OWN_FAILURE,
        // Our reader, and so the command's, had read all that it wanted.
        _ if capture.status.terminating_signal() == Some(Signal::PIPE)
            && capture.tee_failed.is_some() =>
        {
            exit_code::SUCCESS
        }
        _ => exit_code::of_status(capture.status),
    }
}

/// Why what the command wrote did not go where it was passed on to. A reader that has gone, as
/// `head` does, wants no more: that is no failure.
pub(crate) fn lost_output<T>(capture: &Captured<T>) -> Option<TeeFailed> {
    capture.tee_failed.filter(|failed| !failed.is_reader_gone())
}

/// Prints the captured output if the command failed, and a message about its end. Returns the exit code.
fn show(options: &RunOptions, result: &Result<Output, Error>, mut code: i32) -> i32 {
    match result {
        Err(error) => complain(&error.to_string()),
        Ok(capture) => {
            if options.capture && !capture.success() {
                code = report::show_captured(capture, options, code);
            }
            if let Some(failed) = lost_output(capture) {
                complain(&failed.to_string());
            }
            if let Some(message) = message::about_end(&name(options), capture, &options.common) {
                say(options, || message);
            }
        }
    }
    code
}

fn say(options: &RunOptions, words: impl FnOnce() -> String) {
    if !options.common.quiet {
        complain(&words());
    }
}

fn name(options: &RunOptions) -> String {
    let program = options.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    message::quoted(&program)
}

/// Returns why an attempt failed.
fn failure(options: &RunOptions, result: &Result<Output, Error>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(capture) => {
            let is_stopped = !matches!(capture.outcome, Outcome::Exited | Outcome::Signaled);
            message::about_end(&name(options), capture, &options.common)
                .filter(|_| is_stopped)
                .unwrap_or_else(|| format!("{} failed: {}", name(options), capture.status))
        }
    }
}
