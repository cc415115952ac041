//! `pipewright pipe`: a pipeline without a shell.

mod parse;
mod report;

use pipewright::{CancelToken, Command, Error, ErrorKind, Pipeline, PipelineOutput, Scope, Stdio};

use pipewright_os::base::error::Quoted;

use crate::args::{ContainKind, PipelineOptions};
use crate::run::command::{count_only, set_containment, watched};
use crate::run::environment::set_environment;
use crate::run::interrupt::{Followed, Interrupt};
use crate::run::message;
use crate::run::report_target::ReportTarget;
use crate::run::same_file::check_link;
use crate::run::{code_of, lost_output};
use crate::stuck::StartWatch;
use crate::{Failure, exit_code, print_error};
use parse::{OutputFile, Parsed};
use report::PipeReport;

/// Runs the pipeline, and writes its report.
pub(crate) fn run(options: &PipelineOptions) -> Result<i32, Failure> {
    let parsed = Parsed::parse(&options.words)?;
    let cancel = CancelToken::new();
    let token = cancel.clone();
    let has_begun = move || token.is_waited_for();
    let watch = StartWatch::new(options.common.timeout(), "the pipeline".to_owned(), has_begun);
    let target = ReportTarget::open(&options.common)?;
    for (word, program) in parsed.hints.iter().filter(|_| !options.common.quiet) {
        let word = word.to_string_lossy();
        print_error(&format!(
            "'{word}' is an argument of {} here, because pipe is no shell: for that, use sh -c '...'; to pass it without \
             this hint, write '\\{word}'",
            Quoted(program)
        ));
    }
    let interrupt =
        Interrupt::catch(&cancel, options.common.contain != ContainKind::Group, Followed::Nothing)
            .map_err(Failure::cannot("catch signals"))?;
    let attempt = |kill_scope| -> Result<_, Failure> {
        let mut pipeline = build(options, &parsed, kill_scope)?;
        set_rules(&mut pipeline, options, &cancel);
        Ok(pipeline.output())
    };
    let mut result = attempt(Scope::Tree)?;
    if matches!(&result, Err(error) if matches!(error.kind(), ErrorKind::Unsupported)) {
        // No supervisor is available: falls back to weaker containment, which the report names.
        result = attempt(Scope::Child)?;
    }
    interrupt.command_ended();
    watch.iter().for_each(StartWatch::rests);
    print_result(options, &parsed, &result);
    let code = match &result {
        Ok(output) => code_of(output, &interrupt, &options.common),
        Err(error) => exit_code::of_error(error),
    };
    let code = match target {
        Some(target) => target.write_or_fail(&PipeReport::new(options, &parsed, &result), code),
        None => code,
    };
    Ok(interrupt.end(result.as_deref().ok(), false, code))
}

fn build(
    options: &PipelineOptions,
    parsed: &Parsed,
    kill_scope: Scope,
) -> Result<Pipeline<'static>, Failure> {
    let mut commands = Vec::with_capacity(parsed.stages.len());
    for words in &parsed.stages {
        let (program, args) =
            words.split_first().ok_or_else(|| Failure("the pipeline has an empty stage".into()))?;
        let mut command = Command::new(program);
        command.args(args);
        set_environment(&mut command, &options.common)?;
        set_containment(&mut command, options.common.contain, kill_scope);
        command.stderr(if options.common.passes_through() {
            Stdio::tee()
        } else {
            Stdio::inherit()
        });
        commands.push(command);
    }
    if let Some(first) = commands.first_mut() {
        first.stdin(match &parsed.input {
            Some(file) => Stdio::open(file),
            None => Stdio::inherit(),
        });
    }
    if let Some(OutputFile::Create(file) | OutputFile::Append(file)) = &parsed.output {
        check_link(file)?;
    }
    if let Some(last) = commands.last_mut() {
        last.stdout(match &parsed.output {
            Some(OutputFile::Create(file)) => watched(Stdio::create(file), &options.common),
            Some(OutputFile::Append(file)) => watched(Stdio::append(file), &options.common),
            None if options.common.passes_through() => Stdio::tee(),
            None => Stdio::inherit(),
        });
    }
    Ok(Pipeline::new(commands))
}

fn set_rules(pipeline: &mut Pipeline<'_>, options: &PipelineOptions, cancel: &CancelToken) {
    if let Some(timeout) = options.common.timeout() {
        pipeline.timeout(timeout);
    }
    if let Some(timeout) = options.common.idle_timeout() {
        pipeline.idle_timeout(timeout);
    }
    pipeline
        .kill_grace(options.common.kill_grace.duration)
        .stop_signal(options.common.stop_signal)
        .cancel(cancel);
    pipeline.linger(options.common.linger.to_linger()).pipefail(!options.no_pipefail);
    pipeline.limit(count_only(options.common.limit));
    if options.common.contain == ContainKind::Group {
        pipeline.foreground();
    }
}

/// Prints a message about an error, or about the end of the pipeline.
fn print_result(
    options: &PipelineOptions,
    parsed: &Parsed,
    result: &Result<PipelineOutput, Error>,
) {
    let output = match result {
        Ok(output) => output,
        Err(error) => return print_error(&error.to_string()),
    };
    if let Some(failed) = lost_output(output) {
        print_error(&failed.to_string());
    }
    let times = message::Times { common: &options.common, total: None };
    let message = message::about_end(&name(parsed), output, &times);
    if let Some(message) = message.filter(|_| !options.common.quiet) {
        print_error(&message);
    }
}

/// Returns the programs as they are typed: `"a | b"`.
fn name(parsed: &Parsed) -> String {
    let programs = parsed.stages.iter().filter_map(|words| words.first());
    let programs: Vec<_> = programs.map(|program| program.to_string_lossy()).collect();
    message::quoted(&programs.join(" | "))
}
