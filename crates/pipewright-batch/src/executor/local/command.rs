//! The command of an attempt.

use std::io;
use std::sync::{Arc, PoisonError};

use pipewright::{Command, Contain, Limit, Scope, Source, Stdio};
use pipewright_os::base::this_process::{Shown, pwd_without_look};
use pipewright_os::process::start::GUARDS_GROUPS;

use super::input::Stdin;
use super::slots::Place;
use super::{LocalSettings, SharedSink};
use crate::executor::Attempt;
use crate::job::JobStdin;

/// A command that cannot be built.
pub(super) enum Unbuilt {
    /// There are no words.
    NoCommand,
    NoHandle(io::Error),
}

/// Builds the command, or returns the reason why it cannot be started.
pub(super) fn build(
    settings: &LocalSettings,
    attempt: &Attempt,
    stdin: &mut Stdin,
    sink: Option<&SharedSink>,
    place: Place,
    has_terminal: bool,
) -> Result<Command, Unbuilt> {
    let Some((program, args)) = attempt.argv.split_first() else {
        return Err(Unbuilt::NoCommand);
    };
    let mut command = Command::new(program);
    command.args(args);
    // The thread of all jobs must not wait for one directory.
    match attempt.current_dir.as_deref().and_then(pwd_without_look) {
        Some(Shown::Path(dir)) => drop(command.env("PWD", dir)),
        Some(Shown::Unknown) => drop(command.env_remove("PWD")),
        None => {}
    }
    for (name, value) in &attempt.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    for (handle, number) in attempt.handles.iter() {
        let handle = handle.try_clone().map_err(Unbuilt::NoHandle)?;
        command.inherit_fd_as(handle, *number);
    }
    if let Some(dir) = &attempt.current_dir {
        command.current_dir(dir);
    }
    command.stdin(match &attempt.stdin {
        JobStdin::Null => Stdio::null(),
        JobStdin::Bytes(bytes) => Stdio::bytes(bytes.clone()),
        JobStdin::File(path) => match stdin.file() {
            Some(file) => Stdio::from(file.map_err(Unbuilt::NoHandle)?),
            None => Stdio::open(path),
        },
    });
    if let Some(timeout) = attempt.timeout {
        command.timeout(timeout);
    }
    if let Some(timeout) = settings.idle_timeout {
        command.idle_timeout(timeout);
    }
    command.stop_signal(settings.stop_signal).kill_grace(settings.kill_grace);
    match sink {
        Some(sink) => {
            command.stdout(tee(sink, Source::Stdout)).stderr(tee(sink, Source::Stderr));
            if !sink.lock().unwrap_or_else(PoisonError::into_inner).is_live() {
                command.coalesce_reads();
            }
            // The sink has the bytes, so nothing is kept here.
            command
                .limit(settings.limit_bytes.map_or(Limit::keep_head(0), Limit::fail).count_only());
        }
        None => {
            command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        }
    }
    // Ctrl-C at the terminal must reach the batch alone, which lets the jobs end. A group is enough for that, but a job that
    // asks a question at the terminal would be suspended there for ever. In a session it has none, and fails. Without a
    // terminal a group costs less. On Windows, a stop needs the console of this process.
    match has_terminal {
        true => command.own_session(),
        false => command.own_group(),
    };
    match place {
        Place::Tree(slot, limits) => {
            command.contain_in(&slot);
            if let Some(limits) = limits {
                command.limits(limits);
            }
        }
        // A guard of the group ends all of it with the runner, so that a resume starts beside nothing. It cannot enter a session.
        Place::Group if GUARDS_GROUPS && !has_terminal => {
            command.contain(Contain::Tree).kill_on_parent_exit(Scope::Tree);
        }
        Place::Group => {
            command.contain(Contain::Group).kill_on_parent_exit(Scope::Child);
        }
    }
    Ok(command)
}

/// Returns a stream that hands all bytes to the sink.
fn tee(sink: &SharedSink, source: Source) -> Stdio {
    let sink = Arc::clone(sink);
    Stdio::tee_with(move |bytes| {
        // A sink is consistent between calls.
        sink.lock().unwrap_or_else(PoisonError::into_inner).write(source, bytes);
    })
}
