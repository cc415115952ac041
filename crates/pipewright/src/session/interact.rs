//! A session in the hands of a person: this process's terminal and that of the child become one.

use pipewright_os::base::wait;
use pipewright_os::process::terminal::{StopRequests, TerminalChanges};

use super::Session;
use super::relay::{Relay, Watched};
use crate::error::Error;

/// The reason why [`Session::interact`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InteractEnd {
    /// The person has typed the escape character.
    Escape,
    /// The output of the child has ended.
    Ended,
}

impl Session {
    /// Connects this process's terminal with that of the child, until the child's output ends or the escape character is
    /// typed (pexpect's is Ctrl-], `0x1d`). Output that nobody has taken is shown first.
    ///
    /// Meanwhile this process's terminal is in raw mode, so that Ctrl-C and all other keys reach the child, and its size is
    /// the child's. A stop from elsewhere (`kill -TSTP`) restores its settings first, and after `fg` it is raw again. Its settings are restored when this returns, however it does; a helper process restores them if this
    /// process is killed.
    ///
    /// Without a terminal as stdin, its bytes are typed, and then the end of the input.
    ///
    /// # Platform
    /// Unix: `tcsetattr`, and handlers for SIGWINCH, SIGCONT and SIGTSTP meanwhile; the helper is `/bin/sh`, which waits for the end of a pipe and
    /// runs `stty`. Without `/bin/sh` and `stty`, only SIGKILL leaves raw mode behind. Windows: `SetConsoleMode`, and a look at
    /// the size every 100 ms; never run there.
    ///
    /// # Errors
    /// This process's terminal, or the child's, could not be used.
    pub fn interact(&mut self, escape: Option<u8>) -> Result<InteractEnd, Error> {
        let (mut relay, mut watched) = self.connect(escape)?;
        loop {
            if let Some(end) = relay.advance(self, &mut watched)? {
                return Ok(end);
            }
            let (mut slots, until) = relay.submit(self, &watched);
            let waited = wait::any(&mut slots, until);
            relay.complete(self, &watched, slots, waited)?;
        }
    }

    /// Connects the two terminals.
    pub(super) fn connect(&mut self, escape: Option<u8>) -> Result<(Relay, Watched), Error> {
        let cannot = |error| self.cannot("connect the terminal with", error);
        let changes = TerminalChanges::watch().map_err(cannot)?;
        let stops = StopRequests::hold().map_err(cannot)?;
        let mut relay = Relay::new(escape).map_err(cannot)?;
        relay.follow_terminal(self)?;
        Ok((relay, Watched { changes, stops }))
    }
}
