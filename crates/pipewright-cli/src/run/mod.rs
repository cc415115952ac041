//! `pipewright run`: one command, with timeouts, limits, retries and a report.

pub(crate) mod command;
pub(crate) mod ending;
pub(crate) mod interrupt;
mod pty;
pub(crate) mod report;
pub(crate) mod tee;
mod time;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use pipewright::{
    CancelToken, Captured, Command, Error, ErrorKind, Outcome, Output, Scope, Signal, TeeFailed,
};
use pipewright_os::base::error::Quoted;
use pipewright_os::process::terminal::{Foreground, is_controlling};

use crate::args::{CommonOptions, ContainKind, RunOptions, Span};
use crate::print::print;
use crate::stuck::StartWatch;
use crate::{Failure, exit_code, print, print_error};
use ending::{Kept, Retries, Times};
use interrupt::{Followed, Interrupt, TerminalStops};
use pty::TerminalRun;
use report::{ReportTarget, RunReport};
use tee::TeeFile;
use time::Timed;

/// Runs the command, with retries, and writes its report.
pub(crate) fn run(options: RunOptions) -> Result<i32, Failure> {
    if options.detach {
        return detach(&options);
    }
    let cancel = CancelToken::new();
    let watch = watch_start(&options, &cancel);
    let target = ReportTarget::open(&options.common)?;
    command::check_files(&options)?;
    // On a terminal of its own, the command neither gets the signals of this one nor is suspended with it.
    let stops = match options.pty && is_controlling() {
        true => TerminalStops::new().ok().map(Arc::new),
        false => None,
    };
    let followed = match &stops {
        Some(stops) => Followed::Terminal(Arc::clone(stops)),
        None if !options.pty && Foreground::own().is_some() => Followed::Command,
        None => Followed::Nothing,
    };
    let shares_terminal = !options.pty && options.common.contain != ContainKind::Group;
    let grace = options.common.kill_after.duration;
    let interrupt = Interrupt::catch(&cancel, shares_terminal, followed, grace)
        .map_err(Failure::cannot("catch signals"))?;
    let kept = Kept::new(&options)?;
    let tee = TeeFile::new(options.common.tee.as_deref(), options.append)?;
    let mut command = command::build(&options, &cancel, &kept, tee.as_ref())?;
    let terminal = match options.pty {
        true => {
            let tee = tee.as_ref();
            Some(TerminalRun::set_up(&mut command, &options, &cancel, stops, &kept, tee)?)
        }
        false => None,
    };
    let mut retries = Retries::new(&options);
    let mut timed = Timed::default();
    let (mut lost, mut not_spilled) = (None, None);
    if let Some(end) = retries.end() {
        command.deadline(end);
    }
    let (result, gave_up) = loop {
        interrupt.command_starts();
        watch.iter().for_each(StartWatch::begins);
        kept.clear();
        if options.common.verbose {
            ending::print_start(&[&options.command]);
        }
        let result = attempt(&mut command, &options, terminal.as_ref(), &interrupt);
        // Before anything is printed, whose reader may stand still.
        interrupt.command_ended();
        watch.iter().for_each(StartWatch::rests);
        let printed = if options.is_captured() { Ok(()) } else { kept.print_ends() };
        lost = lost.or(printed.err().filter(|error| !print::is_reader_gone(error)));
        not_spilled = not_spilled.or(kept.take_spill_failed());
        if let Some(capture) = result.as_ref().ok().filter(|_| options.common.verbose) {
            ending::print_end(&name(&options), capture);
        }
        if let Some(capture) = result.as_ref().ok().filter(|_| options.time) {
            timed.add(capture);
            if capture.success() && timed.count() < usize::from(options.runs) {
                continue;
            }
        }
        let delay = retries.delay_after(&result);
        let Some(delay) = delay.filter(|_| !interrupt.was_interrupted_at_terminal()) else {
            break (result, delay.is_some());
        };
        print_unless_quiet(&options, || retries.message(&failure(&options, &result), delay));
        if cancel.wait_for(delay) {
            break (result, true);
        }
    };
    let code = match &result {
        // The stop came between two attempts, and is the end.
        _ if gave_up && interrupt.signal().is_some() => interrupt.stop_code(),
        Ok(capture) if is_hung_up(capture, terminal.as_ref()) => {
            exit_code::of_signal(Signal::PIPE.number())
        }
        Ok(capture) => code_of(capture, &interrupt, &options.common),
        // The wait for the other side of a named pipe was cancelled.
        Err(error) if exit_code::has_cause(error, io::ErrorKind::Interrupted) => interrupt
            .signal()
            .map_or(exit_code::OWN_FAILURE, |signal| exit_code::of_signal(signal.number())),
        Err(error) => exit_code::of_error(error),
    };
    let code = show(&options, &result, &kept, code);
    let code = lost.map_or(code, |error| report::fail("print the output", &error, code));
    let code = not_spilled.or(kept.take_spill_failed()).map_or(code, |failed| {
        let path = Quoted(failed.path.as_os_str());
        let doing = format!("write all of {} to {path}", failed.source);
        report::fail(&doing, &failed.error, code)
    });
    timed.print();
    let code = match terminal.and_then(|terminal| terminal.end(code)) {
        Some((doing, error)) => report::fail(doing, &error, code),
        None => code,
    };
    let code = match target {
        Some(target) => {
            target.write_or_fail(&RunReport::new(&options, &result, &retries, &kept), code)
        }
        None => code,
    };
    Ok(interrupt.end(result.as_ref().ok(), gave_up, code))
}

/// Watches the starts, each within the time of its attempt.
fn watch_start(options: &RunOptions, cancel: &CancelToken) -> Option<StartWatch> {
    let total = options.total_timeout.as_ref().and_then(Span::as_limit);
    let limit = options.common.timeout().into_iter().chain(total).min();
    let cancel = cancel.clone();
    let grace = options.common.kill_after.duration;
    StartWatch::new(limit, grace, name(options), move || cancel.is_waited_for())
}

/// Runs the command once, with the best containment available.
fn attempt(
    command: &mut Command,
    options: &RunOptions,
    terminal: Option<&TerminalRun>,
    interrupt: &Interrupt,
) -> Result<Output, Error> {
    let output = |command: &mut Command| match terminal {
        Some(terminal) => terminal.output(command, interrupt),
        None if gets_ctrl_c_alone(options) => interrupt::output_of_own_group(command, interrupt),
        None => command.output(),
    };
    command::set_containment(command, options.common.contain, Scope::Tree);
    match output(command) {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
            // No supervisor is available: falls back to weaker containment, which the report names.
            command::set_containment(command, options.common.contain, Scope::Child);
            output(command)
        }
        done => done,
    }
}

/// Returns true if an attempt may be repeated, and Ctrl-C reaches the command and not this process.
fn gets_ctrl_c_alone(options: &RunOptions) -> bool {
    options.retry.retries > 0
        && options.common.contain == ContainKind::Group
        && Foreground::own().is_some()
}

/// Returns true if the command has ended by its terminal, which has hung up because the reader of stdout is gone.
fn is_hung_up(capture: &Output, terminal: Option<&TerminalRun>) -> bool {
    terminal.is_some_and(|terminal| terminal.is_reader_gone(capture))
        && matches!(capture.outcome, Outcome::Signaled | Outcome::Cancelled)
}

/// Starts the command, and does not wait for it.
fn detach(options: &RunOptions) -> Result<i32, Failure> {
    let mut command = command::build(options, &CancelToken::new(), &Kept::default(), None)?;
    match command.detached().start_and_forget() {
        Ok(pid) => {
            if !options.common.quiet {
                print(format!("{pid}\n"))?;
            }
            Ok(exit_code::SUCCESS)
        }
        Err(error) => {
            print_error(&error.to_string());
            Ok(exit_code::of_error(&error))
        }
    }
}

/// Returns the exit code for a command or a pipeline that was started.
pub(crate) fn code_of<T>(
    capture: &Captured<T>,
    interrupt: &Interrupt,
    options: &CommonOptions,
) -> i32 {
    match capture.outcome {
        Outcome::TimedOut | Outcome::IdleTimedOut | Outcome::LimitExceeded
            if !options.preserve_status =>
        {
            exit_code::STOPPED
        }
        Outcome::Cancelled => interrupt.stop_code(),
        _ if lost_output(capture).is_some() => exit_code::OWN_FAILURE,
        // Also for a command that SIGPIPE killed because the reader of our stdout had gone: as without --tee.
        _ => exit_code::of_status(capture.status),
    }
}

/// Returns the error of passing the output on. A reader that has gone, such as `head`, is no error.
pub(crate) fn lost_output<T>(capture: &Captured<T>) -> Option<TeeFailed> {
    capture.tee_failed.filter(|failed| !failed.is_reader_gone())
}

/// Prints the captured output if the command failed, and a message about its end. Returns the exit code.
fn show(options: &RunOptions, result: &Result<Output, Error>, kept: &Kept, mut code: i32) -> i32 {
    match result {
        Err(error) => print_error(&print::message_of(error, &program(options))),
        Ok(capture) => {
            if options.is_captured() && !capture.success() {
                code = report::show_captured(kept, options, code);
            }
            if let Some(failed) = lost_output(capture) {
                print_error(&failed.to_string());
            }
            if let Some(reason) = capture.limits.iter().find_map(|it| it.sampled.as_ref()) {
                print_unless_quiet(options, || {
                    format!("{reason}; looked after every 50 ms instead")
                });
            }
            for missing in capture.limits.iter().flat_map(|limits| &limits.missing) {
                print_unless_quiet(options, || missing.to_string());
            }
            if let Some(message) = ending::about_end(&name(options), capture, &times(options)) {
                print_unless_quiet(options, || message);
            }
        }
    }
    code
}

fn print_unless_quiet(options: &RunOptions, message: impl FnOnce() -> String) {
    if !options.common.quiet {
        print_error(&message());
    }
}

fn times(options: &RunOptions) -> Times<'_> {
    Times { common: &options.common, total: options.total_timeout.as_ref() }
}

fn name(options: &RunOptions) -> String {
    ending::quoted(&program(options))
}

fn program(options: &RunOptions) -> Cow<'_, str> {
    options.command.first().map(|name| name.to_string_lossy()).unwrap_or_default()
}

/// Returns why an attempt failed.
fn failure(options: &RunOptions, result: &Result<Output, Error>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(capture) => {
            let is_stopped = !matches!(capture.outcome, Outcome::Exited | Outcome::Signaled);
            ending::about_end(&name(options), capture, &times(options))
                .filter(|_| is_stopped)
                .unwrap_or_else(|| format!("{} failed: {}", name(options), capture.status))
        }
    }
}
