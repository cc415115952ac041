//! The terminal of a child, before the start and while a run holds it.

use pipewright_os::process::pty::{ChildTerminal, Pty};

/// The two sides of a terminal, until the start.
#[derive(Debug)]
pub(crate) struct TerminalEnds {
    pub(crate) pty: Pty,
    pub(crate) child_end: ChildTerminal,
}

/// The sides of the child's terminal that this process holds while the child runs.
#[derive(Debug, Default)]
pub(crate) struct HeldTerminal {
    /// This process's side: the terminal would hang up without it, even if nobody reads any more.
    #[expect(dead_code, reason = "it is only held")]
    pub(crate) pty: Option<Pty>,
    /// The child's side: the output cannot end before the child does. A child that closes the terminal, and opens it again
    /// (`/dev/tty`), would otherwise be lost in between.
    pub(crate) child_end: Option<ChildTerminal>,
}
