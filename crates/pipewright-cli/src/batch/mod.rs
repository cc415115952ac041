//! `batch`: many commands, some at the same time.
//!
//! | file | contents |
//! |---|---|
//! | `input.rs` | the jobs that the options describe |
//! | `from_log.rs` | a batch that is resumed without its input |
//! | `nodes.rs` | the machines that run the jobs |
//! | `settings.rs` | the settings of the batch |
//! | `interrupt.rs` | signals: the first Ctrl-C lets running jobs end, the second one stops them |

mod from_log;
mod input;
mod interrupt;
mod nodes;
mod settings;

use std::io::{self, IsTerminal as _, Write as _};

use pipewright_batch::{BatchError, Event, Halt, LogErrorKind, Run, Summary, shell_quoted};
use pipewright_os::base::stdio;

use crate::args::{BatchOptions, Span};
use crate::print::{is_reader_gone, without_controls};
use crate::stuck::StartWatch;
use crate::{Failure, exit_code, print_error};
use interrupt::Interrupt;

/// Runs the batch, and returns the exit code.
pub(crate) fn run(options: BatchOptions) -> Result<i32, Failure> {
    // Before anything is opened: a log, an input or a folder may be on a mount that never answers.
    let limit = options.batch_timeout.as_ref().and_then(Span::as_limit);
    let watch = StartWatch::new(limit, "the batch".to_owned(), || false);
    let Some(log) = from_log::path(&options)? else {
        return run_input(&options, None, watch);
    };
    if options.dry_run {
        rest(watch);
        return from_log::dry_run(&log, &options);
    }
    let batch = settings::batch(&options)?;
    let interrupt = Interrupt::catch().map_err(Failure::cannot("catch signals"))?;
    match batch.resume_log(&log) {
        Ok(run) => {
            rest(watch);
            follow(run, &interrupt, &BatchOptions { log: Some(log), ..options })
        }
        Err(BatchError::Log(error)) if matches!(error.kind(), LogErrorKind::LacksInput { .. }) => {
            let Some(options) = from_log::with_input(options, &log) else {
                return Err(Failure::from_error(error));
            };
            if !options.quiet {
                print_error("the log lacks jobs that were not read: the input is read again");
            }
            run_input(&options, Some(interrupt), watch)
        }
        Err(error) => Err(Failure::from_error(error)),
    }
}

/// Runs the jobs of the input.
fn run_input(
    options: &BatchOptions,
    interrupt: Option<Interrupt>,
    watch: Option<StartWatch>,
) -> Result<i32, Failure> {
    let jobs = input::jobs(options)?;
    let batch = settings::batch(options)?;
    if options.dry_run {
        rest(watch);
        return dry_run(jobs);
    }
    input::check_file(options, &batch)?;
    let interrupt = match interrupt {
        Some(interrupt) => interrupt,
        None => Interrupt::catch().map_err(Failure::cannot("catch signals"))?,
    };
    let run = batch.start(jobs).map_err(Failure::from_error)?;
    rest(watch);
    follow(run, &interrupt, options)
}

/// Ends the watch: from now on the batch sees to its time itself.
fn rest(watch: Option<StartWatch>) {
    if let Some(watch) = watch {
        watch.rests();
    }
}

/// Follows a batch to its end, and returns the exit code.
fn follow(mut run: Run, interrupt: &Interrupt, options: &BatchOptions) -> Result<i32, Failure> {
    interrupt.control(run.control());
    while let Some(event) = run.next_until(None).map_err(Failure::from_error)? {
        interrupt.note(&event);
        if matches!(event, Event::Halted(Halt::Drain)) && interrupt.is_by_ctrl_c() {
            run.note("Ctrl-C again stops the running jobs");
        }
    }
    interrupt.closing();
    let counts = run.summary().to_string();
    let code = match run.finish() {
        Ok(summary) => conclude(&summary, options),
        Err(error) => {
            let code = Failure::from_error(error).report();
            if !options.quiet {
                print_error(&counts);
            }
            code
        }
    };
    Ok(interrupt.end(code))
}

/// Prints the summary, and returns the exit code.
fn conclude(summary: &Summary, options: &BatchOptions) -> i32 {
    if let Some(error) = &summary.input_error {
        print_error(&error.to_string());
    }
    if let Some(error) = &summary.output_error {
        let jobs = if summary.incomplete_outputs == 1 { "job" } else { "jobs" };
        print_error(&format!(
            "output of {} {jobs} is incomplete: {error}",
            summary.incomplete_outputs
        ));
    }
    if summary.kept_outputs > 0 {
        let outputs = if summary.kept_outputs == 1 { "output was" } else { "outputs were" };
        print_error(&format!(
            "{} {outputs} not printed, and will be by --resume",
            summary.kept_outputs
        ));
    } else if summary.discarded_output {
        print_error("output was discarded, because its reader did not take it in time");
    }
    match &summary.not_started {
        // A user who wants no messages wants to know why nothing has happened.
        Some((job, reason)) if options.quiet => print_error(&format!("job {job}: {reason}")),
        _ => {}
    }
    if summary.leftovers_killed > 0 && !options.quiet {
        let processes = match summary.leftovers_killed {
            1 => "1 process that a job left running was".to_owned(),
            count => format!("{count} processes that jobs left running were"),
        };
        print_error(&format!("{processes} killed; --contain group keeps them"));
    }
    if !options.quiet {
        let log = options.log.as_ref().filter(|_| summary.failed > 0);
        let hint = log.map(|log| format!("; pipewright jobs {}", log.display()));
        print_error(&format!("{summary}{}", hint.unwrap_or_default()));
    }
    summary.exit_code()
}

/// Prints the commands, one a line.
fn dry_run(jobs: input::AllJobs) -> Result<i32, Failure> {
    let mut stdout = stdio::stdout();
    let is_terminal = io::stdout().is_terminal();
    for job in jobs {
        let job = job.map_err(Failure::from_error)?;
        let mut line = shell_quoted(&job.argv(1).map_err(Failure::from_error)?);
        line.push(b'\n');
        if is_terminal {
            line = without_controls(&String::from_utf8_lossy(&line)).into_owned().into_bytes();
        }
        match stdout.write_all(&line) {
            Err(error) if is_reader_gone(&error) => return Ok(exit_code::SUCCESS),
            written => written.map_err(Failure::cannot("write to stdout"))?,
        }
    }
    crate::print::check(stdout.flush())?;
    Ok(exit_code::SUCCESS)
}
