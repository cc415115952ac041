//! Learns of a Ctrl-C that only the command's process group gets: with `--contain group` the command is the job in the foreground,
//! and this process is not.
//!
//! Nothing tells who has typed, and a command that answers Ctrl-C with an exit code of its own looks like one that has failed. So a
//! shell waits beside the command, in its group, and is killed by the SIGINT that the command answers. Only an attempt that may be
//! repeated has one. A Ctrl-C before the shell has joined the group, in the first milliseconds, goes unnoticed.

use std::time::Duration;

use pipewright::{Child, Command, Error, Output, Signal, Stdio};

use super::interrupt::Interrupt;

/// A process in the group of a command.
///
/// # Drop
/// Ends it: it reads a pipe, which ends too if this process is killed.
struct GroupWatch(Child);

impl GroupWatch {
    /// Joins the group of a command. `None` if the command has ended, or if there is no room: then a Ctrl-C goes unnoticed.
    fn start(leader: u32) -> Option<GroupWatch> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read end"]).process_group(i32::try_from(leader).ok()?);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().ok().map(GroupWatch)
    }

    /// Returns true if Ctrl-C has reached the group.
    fn was_interrupted(self) -> bool {
        // Ignored: it has ended. It may be stopped, as the command was by Ctrl-Z.
        let _ = self.0.signal(Signal::CONT);
        // This closes its stdin. A signal that was sent before comes first.
        self.0.wait().is_ok_and(|status| status.terminating_signal() == Some(Signal::INT))
    }
}

/// Runs a command that leads the job in the foreground, and records a Ctrl-C that it answers in its own way.
pub(super) fn output(command: &mut Command, interrupt: &Interrupt) -> Result<Output, Error> {
    let mut running = command.start_output()?;
    let watch = GroupWatch::start(running.pid());
    let output = loop {
        // No clock has a time so late.
        match running.wait_for(Duration::MAX) {
            Ok(None) => {}
            Ok(Some(output)) => break Ok(output),
            Err(error) => break Err(error),
        }
    };
    if watch.is_some_and(GroupWatch::was_interrupted) {
        interrupt.ctrl_c_typed();
    }
    output
}
