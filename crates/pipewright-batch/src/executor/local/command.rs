//! The command of an attempt.

use pipewright::{Command, Contain, Limit, Scope, Stdio};

use super::{Containing, LocalSettings, SharedSink};
use crate::executor::Attempt;
use crate::job::JobStdin;

/// The bytes of a stream that are kept for messages.
const TAIL_BYTES: usize = 2048;

/// Builds the command, or returns the reason why it cannot be started.
pub(super) fn build(
    settings: &LocalSettings,
    attempt: &Attempt,
    _sink: Option<&SharedSink>,
) -> Result<Command, String> {
    let Some((program, args)) = attempt.argv.split_first() else {
        return Err("the command is empty".to_owned());
    };
    let mut command = Command::new(program);
    command.args(args);
    for (name, value) in &attempt.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(dir) = &attempt.current_dir {
        command.current_dir(dir);
    }
    command.stdin(match &attempt.stdin {
        JobStdin::Null => Stdio::null(),
        JobStdin::Bytes(bytes) => Stdio::bytes(bytes.clone()),
        JobStdin::File(path) => Stdio::open(path),
    });
    if let Some(timeout) = attempt.timeout {
        command.timeout(timeout);
    }
    if let Some(timeout) = settings.idle_timeout {
        command.idle_timeout(timeout);
    }
    command.stop_signal(settings.stop_signal).kill_grace(settings.kill_grace);
    command.limit(match settings.limit_bytes {
        Some(bytes) => Limit::fail(bytes),
        None => Limit::keep_tail(TAIL_BYTES),
    });
    // Ctrl-C at the terminal must reach the batch alone, which lets the jobs end.
    command.own_group();
    match settings.contain {
        Containing::Tree => {
            command.contain(Contain::Tree).kill_on_parent_exit(Scope::Tree);
        }
        Containing::Group => {
            command.contain(Contain::Group).kill_on_parent_exit(Scope::Child);
        }
    }
    Ok(command)
}
