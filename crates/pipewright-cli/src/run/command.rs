//! Builds a command from options.

use std::ffi::OsStr;
use std::path::Path;

use pipewright::{CancelToken, Command, Handle, Limit, Scope, Source, Stdio};

use super::environment::set_environment;
use super::kept::Kept;
use super::line_marks::LineMarks;
use super::same_file::{self, is_merged};
use crate::Failure;
use crate::args::{CommonOptions, ContainKind, RunOptions};

/// Builds the command.
pub(super) fn build(
    options: &RunOptions,
    cancel: &CancelToken,
    kept: &Kept,
) -> Result<Command, Failure> {
    let (program, args) = options
        .command
        .split_first()
        .ok_or_else(|| Failure("the command is missing".to_owned()))?;
    let mut command = Command::new(program);
    command.args(args);
    same_file::check_links(options)?;
    if options.detach {
        set_files(&mut command, options);
    } else {
        command.cancel(cancel);
        set_times(&mut command, options);
        command.limit(count_only(options.common.limit));
        if options.pty {
            set_terminal_streams(&mut command, options);
        } else {
            command.foreground();
            set_streams(&mut command, options, kept);
        }
    }
    if let Some(limits) = options.resources.limits(measures(options)) {
        command.limits(limits);
    }
    set_environment(&mut command, &options.common)?;
    for number in &options.inherit {
        command.inherit_fd_as(duplicate(*number)?, *number);
    }
    Ok(command)
}

/// Returns true if the resources of the whole tree are reported.
fn measures(options: &RunOptions) -> bool {
    options.common.report().is_some() && options.common.contain == ContainKind::Tree
}

/// Sets the containment, and kills the command or its tree when this process exits.
pub(crate) fn set_containment(command: &mut Command, contain: ContainKind, kill_scope: Scope) {
    command.contain(match contain {
        ContainKind::None => pipewright::Contain::None,
        ContainKind::Group => pipewright::Contain::Group,
        ContainKind::Tree => pipewright::Contain::Tree,
    });
    let whole = contain == ContainKind::Tree;
    command.kill_on_parent_exit(if whole { kill_scope } else { Scope::Child });
}

fn set_times(command: &mut Command, options: &RunOptions) {
    if let Some(timeout) = options.common.timeout() {
        command.timeout(timeout);
    }
    if let Some(timeout) = options.common.idle_timeout() {
        command.idle_timeout(timeout);
    }
    command.kill_grace(options.common.kill_grace.duration).stop_signal(options.common.stop_signal);
    command.linger(options.common.linger.to_linger());
}

fn set_streams(command: &mut Command, options: &RunOptions, kept: &Kept) {
    set_stdin(command, options);
    let output = |target: Option<&Path>, stream| match target.map(OutputTarget::of) {
        Some(OutputTarget::File(path)) => watched(file_to_write(path, options), &options.common),
        Some(OutputTarget::Null) => watched(Stdio::null(), &options.common),
        None if options.is_captured() => kept.stdio(stream),
        _ if options.prefix.is_some() || options.timestamps => marked(stream, options),
        _ if options.common.passes_through() => Stdio::tee(),
        _ => Stdio::inherit(),
    };
    command.stdout(output(options.stdout.as_deref(), Source::Stdout));
    if options.merge || is_merged(options) {
        command.merge_stderr();
    } else {
        command.stderr(output(options.stderr.as_deref(), Source::Stderr));
    }
}

/// Sets the streams that `--pty` keeps apart from the terminal.
fn set_terminal_streams(command: &mut Command, options: &RunOptions) {
    if options.stdin.is_some() {
        set_stdin(command, options);
    }
    if let Some(path) = &options.stderr {
        command.stderr(watched(file_to_write(path, options), &options.common));
    }
}

/// Returns the destination of the terminal's output: a file, stdout, or a closure that records it, shows it or keeps it.
pub(super) fn watched_terminal(
    options: &RunOptions,
    record: Option<impl FnMut(&[u8]) + Send + 'static>,
    kept: &Kept,
) -> Stdio {
    match (options.stdout.as_deref().map(OutputTarget::of), record) {
        (None, Some(mut record)) if options.is_captured() => {
            let mut keep = kept.closure(Source::Stdout);
            Stdio::tee_with(move |chunk| {
                record(chunk);
                keep(chunk);
            })
        }
        (_, Some(record)) => Stdio::tee_with(record),
        (Some(OutputTarget::File(path)), None) => Stdio::tee_to(file_to_write(path, options)),
        (Some(OutputTarget::Null), None) => Stdio::tee_to(Stdio::null()),
        _ if options.is_captured() => kept.stdio(Source::Stdout),
        _ if options.prefix.is_some() || options.timestamps => marked(Source::Stdout, options),
        _ => Stdio::tee(),
    }
}

/// Passes output to a file through this process if a timeout or a limit has to watch it.
pub(crate) fn watched(file: Stdio, options: &CommonOptions) -> Stdio {
    let is_watched = options.idle_timeout().is_some() || options.limit.is_some();
    if is_watched { Stdio::tee_to(file) } else { file }
}

/// Passes output on with a mark at the start of each line.
fn marked(stream: Source, options: &RunOptions) -> Stdio {
    let mut marks = LineMarks::new(options.prefix.as_deref(), options.timestamps);
    Stdio::tee_map(stream, move |bytes| marks.mark(bytes))
}

/// Returns a limit that counts the output and keeps none of it.
pub(crate) fn count_only(limit: Option<usize>) -> Limit {
    limit.map_or(Limit::keep_head(0), Limit::fail).count_only()
}

/// Sets the streams of a detached command: files, or null by default.
fn set_files(command: &mut Command, options: &RunOptions) {
    if options.stdin.is_some() {
        set_stdin(command, options);
    }
    let output = |target: &Path| match OutputTarget::of(target) {
        OutputTarget::File(path) => file_to_write(path, options),
        OutputTarget::Null => Stdio::null(),
        OutputTarget::Inherit => Stdio::inherit(),
    };
    if let Some(target) = &options.stdout {
        command.stdout(output(target));
    }
    if options.merge || is_merged(options) {
        command.merge_stderr();
    } else if let Some(target) = &options.stderr {
        command.stderr(output(target));
    }
}

fn set_stdin(command: &mut Command, options: &RunOptions) {
    command.stdin(match options.stdin.as_deref().map(OsStr::as_encoded_bytes) {
        None | Some(b"inherit" | b"-") => Stdio::inherit(),
        Some(b"null") => Stdio::null(),
        Some(_) => Stdio::open(options.stdin.clone().unwrap_or_default()),
    });
}

/// The value of `--stdout` or `--stderr`.
pub(super) enum OutputTarget<'a> {
    Inherit,
    Null,
    File(&'a Path),
}

impl OutputTarget<'_> {
    pub(super) fn of(target: &Path) -> OutputTarget<'_> {
        match target.as_os_str().as_encoded_bytes() {
            b"inherit" | b"-" => OutputTarget::Inherit,
            b"null" => OutputTarget::Null,
            _ => OutputTarget::File(target),
        }
    }
}

fn file_to_write(path: &Path, options: &RunOptions) -> Stdio {
    if options.append { Stdio::append(path) } else { Stdio::create(path) }
}

/// Duplicates a handle of this process.
fn duplicate(number: i32) -> Result<Handle, Failure> {
    if (0..=2).contains(&number) {
        return Err(Failure(format!(
            "cannot inherit file descriptor {number}: use --stdin, --stdout or --stderr"
        )));
    }
    Handle::copy_of_number(number)
        .map_err(|error| Failure(format!("cannot inherit file descriptor {number}: {error}")))
}
