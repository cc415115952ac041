//! A session in the hands of a person: this process's terminal and that of the child become one.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::stdio::console_in;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::terminal;

use super::Session;
use super::raw::RawTerminal;
use crate::error::Error;

/// The interval between two looks at the size of the user's terminal.
const SIZE_INTERVAL: Duration = Duration::from_millis(100);

/// The room for typed bytes.
const TYPED_BYTES: usize = 4 << 10;

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
    /// the child's. Its settings are restored when this returns, however it does; a helper process restores them if this
    /// process is killed.
    ///
    /// Without a terminal as stdin, its bytes are typed, and then the end of the input.
    ///
    /// # Platform
    /// Unix: `tcsetattr`; the helper is `/bin/sh`, which waits for the end of a pipe and runs `stty`. Without `/bin/sh` and
    /// `stty`, only SIGKILL leaves raw mode behind. The size is looked at ten times a second, so that no handler for
    /// SIGWINCH has to be installed. Windows: `SetConsoleMode`; never run there.
    ///
    /// # Errors
    /// This process's terminal, or the child's, could not be used.
    pub fn interact(&mut self, escape: Option<u8>) -> Result<InteractEnd, Error> {
        let stdin = console_in().map(PipeReader::from);
        let mut stdin = Some(stdin.map_err(|error| self.cannot("connect stdin with", error))?);
        // Dropped in any case, also by a panic.
        let raw =
            RawTerminal::of_stdin().map_err(|error| self.cannot("connect stdin with", error))?;
        let follows_size = raw.is_some();
        let mut next_look = Instant::now();
        self.show_unread()?;
        loop {
            let until = follows_size.then_some(next_look);
            if follows_size && Instant::now() >= next_look {
                self.follow_size()?;
                next_look = Instant::now() + SIZE_INTERVAL;
                continue;
            }
            match self.relay(&mut stdin, until, escape)? {
                Some(end) => return Ok(end),
                None => self.show_unread()?,
            }
        }
    }

    /// Waits once, for output or for typed bytes, and passes them on.
    fn relay(
        &mut self,
        stdin: &mut Option<PipeReader>,
        until: Option<Instant>,
        escape: Option<u8>,
    ) -> Result<Option<InteractEnd>, Error> {
        let Some([read, write, _]) = self.pump.submit(Slot::Off) else {
            return Ok(Some(InteractEnd::Ended));
        };
        let typed = match stdin.take() {
            Some(ours) => Slot::Read(ours, Vec::with_capacity(TYPED_BYTES)),
            None => Slot::Off,
        };
        let mut slots = [read, write, typed];
        let waited = wait::any(&mut slots, until);
        let [read, write, typed] = slots;
        let done = self.pump.complete([read, write, Slot::Off], waited);
        done.map_err(|error| self.cannot("read the terminal of", error))?;
        let bytes = match typed {
            Slot::ReadDone(_, _, Ok(0)) => {
                self.send_eof()?;
                return Ok(None);
            }
            Slot::ReadDone(ours, bytes, Ok(_)) => {
                *stdin = Some(ours);
                bytes
            }
            Slot::ReadDone(_, _, Err(error)) => return Err(self.cannot("read stdin for", error)),
            Slot::Read(ours, _) => {
                *stdin = Some(ours);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let before_escape = match escape.and_then(|key| bytes.iter().position(|byte| *byte == key))
        {
            Some(at) => bytes.get(..at).unwrap_or_default(),
            None => &bytes[..],
        };
        self.send(before_escape)?;
        Ok((before_escape.len() < bytes.len()).then_some(InteractEnd::Escape))
    }

    /// Writes the output that was read to stdout.
    fn show_unread(&mut self) -> Result<(), Error> {
        let shown = self.pump.take_unread();
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(&shown).and_then(|()| stdout.flush());
        written.map_err(|error| self.cannot("show the output of", error))
    }

    /// Gives the child's terminal the size of this process's.
    fn follow_size(&mut self) -> Result<(), Error> {
        let Some(size) = terminal::size() else { return Ok(()) };
        let now = self.pty()?.window_size();
        if now.is_ok_and(|now| now == size) {
            return Ok(());
        }
        self.resize(size)
    }
}
