//! `pipewright pipe`: a pipeline without a shell, seen through to its end.

mod report;
mod words;

use pipewright::{CancelToken, Command, Error, ErrorKind, Pipeline, PipelineOutput, Scope, Stdio};

use crate::args::{Contain, PipeOptions};
use crate::run::command::{counting, hold, seen, set_surroundings};
use crate::run::interrupt::Interrupt;
use crate::run::message;
use crate::run::report::deliver;
use crate::run::{code_of, lost_output};
use crate::{Failure, complain, exit_code};
use report::Report;
use words::{Output, Typed};

/// Runs the pipeline and reports.
pub(crate) fn run(options: &PipeOptions) -> Result<i32, Failure> {
    let typed = Typed::parse(&options.words)?;
    let cancel = CancelToken::new();
    let interrupt = Interrupt::catch(&cancel, options.common.contain != Contain::Group, false)
        .map_err(Failure::cannot("catch signals"))?;
    let attempt = |ends_with_us| -> Result<_, Failure> {
        let mut pipeline = build(options, &typed, ends_with_us)?;
        set_rules(&mut pipeline, options, &cancel);
        Ok(pipeline.output())
    };
    let mut result = attempt(Scope::Tree)?;
    if matches!(&result, Err(error) if matches!(error.kind(), ErrorKind::Unsupported)) {
        // Without a supervisor: then what can be had without one, and the report says so.
        result = attempt(Scope::Child)?;
    }
    interrupt.rest();
    say(options, &typed, &result);
    let code = match &result {
        Ok(output) => code_of(output, &interrupt),
        Err(error) => exit_code::of_error(error),
    };
    let code = match options.common.report() {
        Some(path) => deliver(&Report::new(options, &typed, &result), path, code),
        None => code,
    };
    Ok(interrupt.end(result.as_deref().ok(), false, code))
}

fn build(
    options: &PipeOptions,
    typed: &Typed,
    ends_with_us: Scope,
) -> Result<Pipeline<'static>, Failure> {
    let mut commands = Vec::with_capacity(typed.stages.len());
    for words in &typed.stages {
        let (program, args) =
            words.split_first().ok_or_else(|| Failure("the pipeline has an empty stage".into()))?;
        let mut command = Command::new(program);
        command.args(args);
        set_surroundings(&mut command, &options.common)?;
        hold(&mut command, options.common.contain, ends_with_us);
        command.stderr(if options.common.passes_through() {
            Stdio::tee()
        } else {
            Stdio::inherit()
        });
        commands.push(command);
    }
    if let Some(first) = commands.first_mut() {
        first.stdin(match &typed.input {
            Some(file) => Stdio::open(file),
            None => Stdio::inherit(),
        });
    }
    if let Some(last) = commands.last_mut() {
        last.stdout(match &typed.output {
            Some(Output::Create(file)) => seen(Stdio::create(file), &options.common),
            Some(Output::Append(file)) => seen(Stdio::append(file), &options.common),
            None if options.common.passes_through() => Stdio::tee(),
            None => Stdio::inherit(),
        });
    }
    Ok(Pipeline::new(commands))
}

fn set_rules(pipeline: &mut Pipeline<'_>, options: &PipeOptions, cancel: &CancelToken) {
    if let Some(timeout) = &options.common.timeout {
        pipeline.timeout(timeout.duration);
    }
    if let Some(timeout) = &options.common.idle_timeout {
        pipeline.idle_timeout(timeout.duration);
    }
    pipeline
        .kill_grace(options.common.kill_grace.duration)
        .stop_signal(options.common.stop_signal)
        .cancel(cancel);
    pipeline.linger(options.common.linger.to_linger()).pipefail(!options.no_pipefail);
    pipeline.limit(counting(options.common.limit));
}

/// Prints a message about an error, or about the end of the pipeline.
fn say(options: &PipeOptions, typed: &Typed, result: &Result<PipelineOutput, Error>) {
    let output = match result {
        Ok(output) => output,
        Err(error) => return complain(&error.to_string()),
    };
    if let Some(failed) = lost_output(output) {
        complain(&failed.to_string());
    }
    let message = message::about_end(&name(typed), output, &options.common);
    if let Some(message) = message.filter(|_| !options.common.quiet) {
        complain(&message);
    }
}

/// Returns the programs as they are typed: `"a | b"`.
fn name(typed: &Typed) -> String {
    let programs = typed.stages.iter().filter_map(|words| words.first());
    let programs: Vec<_> = programs.map(|program| program.to_string_lossy()).collect();
    message::quoted(&programs.join(" | "))
}
