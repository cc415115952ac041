//! The child's end of a stream.

use pipewright_os::base::handle::Handle;
use pipewright_os::process::pty::ChildTerminal;
use pipewright_os::process::spawn::ChildStdio;

use super::Stdio;
use super::stdio::Choice;

/// The child's end of one of its standard streams.
#[derive(Debug)]
pub(super) enum ChildEnd {
    Inherit,
    /// The terminal of the child.
    Terminal,
    /// The handle that the command has for this stream.
    OfCommand,
    Owned(Handle),
    SameAsStdout,
}

impl ChildEnd {
    pub(super) fn as_plan<'a>(
        &'a self,
        setting: Option<&'a Stdio>,
        terminal: Option<&'a ChildTerminal>,
    ) -> ChildStdio<'a> {
        match (self, setting) {
            (ChildEnd::Owned(handle), _) => ChildStdio::Handle(handle),
            (ChildEnd::Terminal, _) => {
                terminal.map_or(ChildStdio::Inherit, ChildStdio::of_terminal)
            }
            (ChildEnd::OfCommand, Some(Stdio(Choice::Handle(handle)))) => {
                ChildStdio::Handle(handle)
            }
            _ => ChildStdio::Inherit,
        }
    }
}
