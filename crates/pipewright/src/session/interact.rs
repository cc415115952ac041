//! A session in the hands of a person: this process's terminal, in raw mode, and that of the child become one.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::stdio::{console_in, console_writer};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::terminal::{self, OutputMode, RawMode, StopRequests, TerminalChanges};

use super::pump::write_slot;
use super::{PAUSE, Session};
use crate::child::Child;
use crate::command::{Command, Stdio};
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
    /// Connects this process's terminal with that of the child, until the child's output ends or the escape character
    /// is typed (pexpect's is Ctrl-], `0x1d`). Output that nobody has taken is shown first.
    ///
    /// Meanwhile this process's terminal is in raw mode, so that Ctrl-C and all other keys reach the child, and its
    /// size is the child's. A stop from elsewhere (`kill -TSTP`) restores its settings first, and after `fg` it is raw
    /// again. Its settings are restored when this returns, however it does; a helper process restores them if this
    /// process is killed.
    ///
    /// Without a terminal as stdin, its bytes are typed, and then the end of the input.
    ///
    /// # Platform
    /// Unix: `tcsetattr`, and handlers for SIGWINCH, SIGCONT and SIGTSTP meanwhile; the helper is `/bin/sh`, which
    /// waits for the end of a pipe and runs `stty`. Without `/bin/sh` and `stty`, only SIGKILL leaves raw mode behind.
    /// Windows: `SetConsoleMode`, and a look at the size every 100 ms; never run there.
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

/// The room for one read of typed bytes.
const TYPED_BYTES: usize = 4 << 10;

/// The typed bytes that wait for the child. A person types no more; input from elsewhere waits then.
const MOST_TYPED_BYTES: usize = 64 << 10;

/// The time that the child has to read what was typed before the escape character. The person may want to leave because
/// it reads nothing.
const LAST_TYPING: Duration = Duration::from_secs(1);

/// The slots of a wait.
pub(super) type Slots<'a> = [Slot<'a>; 6];

/// Changes of this process's terminal, and requests to stop this process.
pub(super) struct Watched {
    pub(super) changes: TerminalChanges,
    pub(super) stops: StopRequests,
}

/// The state of a connection.
pub(super) struct Relay {
    /// `None` after its end.
    stdin: Option<PipeReader>,
    /// The end of stdin is still to be typed.
    owes_end: bool,
    /// `None` if stdout is closed.
    stdout: Option<PipeWriter>,
    /// Output that is still to be shown, and the number of bytes that have been.
    shown: Option<(Arc<Vec<u8>>, usize)>,
    escape: Option<u8>,
    leaving: Option<Leaving>,
    /// Dropped in any case, also by a panic.
    raw: Option<RawTerminal>,
    /// Dropped after them.
    #[expect(dead_code, reason = "its drop restores the modes")]
    output_mode: OutputMode,
}

/// The times by which the rest has to be typed and shown, after the escape character.
#[derive(Clone, Copy)]
struct Leaving {
    types_until: Instant,
    shows_until: Instant,
}

impl Relay {
    pub(super) fn new(escape: Option<u8>) -> io::Result<Relay> {
        io::stdout().flush()?;
        let stdin = Some(PipeReader::from(console_in()?));
        let output_mode = OutputMode::of_stdout();
        let (stdout, raw) = (console_writer(false)?, RawTerminal::of_stdin()?);
        Ok(Relay {
            stdin,
            owes_end: false,
            stdout,
            shown: None,
            escape,
            leaving: None,
            raw,
            output_mode,
        })
    }

    /// Does what needs no wait. Returns the reason if the connection is over.
    pub(super) fn advance(
        &mut self,
        session: &mut Session,
        watched: &mut Watched,
    ) -> Result<Option<InteractEnd>, Error> {
        if watched.stops.is_asked() {
            self.stop(watched)
                .map_err(|error| session.cannot("connect the terminal with", error))?;
            self.follow_terminal(session)?;
        }
        if self.shown.is_none() && self.leaving.is_none() {
            let unread = session.pump.take_unread();
            if !unread.is_empty() && self.stdout.is_some() {
                self.shown = Some((Arc::new(unread), 0));
            }
        }
        if self.owes_end && !session.pump.is_typing() {
            match session.pty()?.send_eof() {
                Ok(()) => self.owes_end = false,
                // There is no room for it yet.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(session.cannot("type at the terminal of", error)),
            }
        }
        if self.shown.is_some() {
            let is_late = self.leaving.is_some_and(|leaving| Instant::now() >= leaving.shows_until);
            let late = || session.cannot("show the output of", io::ErrorKind::TimedOut.into());
            return if is_late { Err(late()) } else { Ok(None) };
        }
        if let Some(leaving) = self.leaving {
            if session.pump.is_typing() && Instant::now() < leaving.types_until {
                return Ok(None);
            }
            session.pump.stop_typing();
            return Ok(Some(InteractEnd::Escape));
        }
        Ok(session.pump.is_at_end().then_some(InteractEnd::Ended))
    }

    /// Returns the slots of the next wait, and the time at which it has to end.
    pub(super) fn submit<'a>(
        &mut self,
        session: &mut Session,
        watched: &'a Watched,
    ) -> (Slots<'a>, Option<Instant>) {
        // While the person's terminal takes no more, the child waits as it would at its own.
        let [read, write] = session.pump.submit_ends(self.shown.is_none());
        let takes_keys = session.pump.typing_bytes() < MOST_TYPED_BYTES && self.leaving.is_none();
        let typed = |stdin| Slot::Read(stdin, Vec::with_capacity(TYPED_BYTES));
        let typed = self.stdin.take_if(|_| takes_keys).map_or(Slot::Off, typed);
        let show = write_slot(&self.shown, &mut self.stdout);
        let (changed, next_look) = match self.raw {
            Some(_) => (watched.changes.slot(), watched.changes.next_look()),
            None => (Slot::Off, None),
        };
        let retry = self.owes_end.then(|| Instant::now() + PAUSE);
        let leaves = self.leaving.map(|leaving| match self.shown.is_some() {
            true => leaving.shows_until,
            false => leaving.types_until,
        });
        let until = [next_look, retry, leaves].into_iter().flatten().min();
        ([read, write, typed, show, changed, watched.stops.slot()], until)
    }

    /// Takes back the slots of a wait, and handles the results.
    pub(super) fn complete(
        &mut self,
        session: &mut Session,
        watched: &Watched,
        slots: Slots<'_>,
        waited: io::Result<usize>,
    ) -> Result<(), Error> {
        let [read, write, typed, show, changed, _] = slots;
        let pumped = session.pump.complete([read, write, Slot::Off], waited);
        pumped.map_err(|error| session.cannot("read the terminal of", error))?;
        match typed {
            Slot::ReadDone(_, _, Ok(0)) => self.owes_end = true,
            Slot::ReadDone(stdin, bytes, Ok(_)) => {
                self.stdin = Some(stdin);
                self.type_bytes(session, &bytes);
            }
            Slot::ReadDone(_, _, Err(error)) => return Err(session.cannot("read stdin for", error)),
            Slot::Read(stdin, _) => self.stdin = Some(stdin),
            _ => {}
        }
        match show {
            Slot::Write(stdout, ..) => self.stdout = Some(stdout),
            Slot::WriteDone(stdout, bytes, Ok(count)) => {
                self.stdout = Some(stdout);
                let from = self.shown.take().map_or(0, |(_, from)| from) + count;
                self.shown = (from < bytes.len()).then_some((bytes, from));
            }
            Slot::WriteDone(_, _, Err(error)) => {
                return Err(session.cannot("show the output of", error));
            }
            _ => {}
        }
        match watched.changes.take(&changed) {
            true => self.follow_terminal(session),
            false => Ok(()),
        }
    }

    /// Stops this process, which a signal has asked for, with its terminal's own modes.
    fn stop(&mut self, watched: &mut Watched) -> io::Result<()> {
        let was_raw = self.raw.take().is_some();
        watched.stops.follow()?;
        if was_raw {
            self.raw = RawTerminal::of_stdin()?;
        }
        Ok(())
    }

    /// Gives the child's terminal the size of this process's, which is raw, also after a stop of this process.
    fn follow_terminal(&mut self, session: &mut Session) -> Result<(), Error> {
        let Some(raw) = &mut self.raw else { return Ok(()) };
        raw.renew().map_err(|error| session.cannot("connect the terminal with", error))?;
        let Some(size) = terminal::size() else { return Ok(()) };
        let now = session.pty()?.window_size();
        if now.is_ok_and(|now| now == size) {
            return Ok(());
        }
        session.resize(size)
    }

    fn type_bytes(&mut self, session: &mut Session, bytes: &[u8]) {
        let is_escape = |key: &u8| Some(*key) == self.escape;
        let end = bytes.iter().position(is_escape);
        session.pump.type_more(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
        if end.is_some() {
            let (now, deadline) = (Instant::now(), session.deadline());
            let types_until = now + LAST_TYPING;
            self.leaving =
                Some(Leaving { types_until, shows_until: deadline.unwrap_or(types_until) });
        }
    }
}

/// The terminal that is this process's stdin, in raw mode (feature `session`): each key is read at once, none is
/// echoed, and none is a signal. [`Session::interact`](crate::Session::interact) uses it.
///
/// # Platform
/// Unix: `tcsetattr`. Windows: `SetConsoleMode`; never run there.
///
/// # Drop
/// Restores the earlier modes, unless this process is in the background, and a shell has set its own. If this process
/// is killed, a helper process restores them: `/bin/sh`, which waits for the end of a pipe and runs `stty` (Unix). If
/// one of these programs is missing, SIGKILL leaves raw mode behind.
#[derive(Debug)]
pub struct RawTerminal {
    mode: Option<RawMode>,
    guard: Option<Child>,
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // The guard stays until the modes are restored.
        drop(self.mode.take());
        // Killed before the pipe to it is closed, which would make it restore the modes: somebody else may have set
        // some by then.
        if let Some(guard) = &self.guard {
            // Ignored: it has ended.
            let _ = guard.kill();
        }
    }
}

impl RawTerminal {
    /// Sets the raw mode. Returns `None` if stdin is not a terminal. In the background this process is stopped first
    /// (SIGTTOU), until a shell puts it in the foreground.
    ///
    /// # Errors
    /// The error of the call.
    ///
    /// ```no_run
    /// use std::io::Read as _;
    /// let raw = pipewright::RawTerminal::of_stdin()?;
    /// let mut key = [0];
    /// std::io::stdin().read_exact(&mut key)?;
    /// drop(raw);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "cfmakeraw")]
    pub fn of_stdin() -> io::Result<Option<RawTerminal>> {
        // Before the modes are read: in the background they are those of a shell that edits its line.
        terminal::wait_for_foreground();
        let guard = start_guard();
        let mode = RawMode::of_stdin()?;
        Ok(mode.map(|mode| RawTerminal { mode: Some(mode), guard }))
    }

    /// Sets the raw mode again after this process was stopped and continued (SIGCONT). The modes that a shell has set
    /// meanwhile are those that the drop restores.
    ///
    /// # Errors
    /// The error of the call.
    pub fn renew(&mut self) -> io::Result<()> {
        terminal::wait_for_foreground();
        // A shell that edits no lines leaves the modes as they are.
        if self.mode.as_ref().is_some_and(RawMode::is_set) {
            return Ok(());
        }
        if let Some(renewed) = RawTerminal::of_stdin()? {
            if let Some(mode) = self.mode.take() {
                mode.forget();
            }
            *self = renewed;
        }
        Ok(())
    }
}

/// Starts the process that restores the terminal's modes if this one is killed. `None`: stdin is not a terminal, or the
/// programs are missing.
fn start_guard() -> Option<Child> {
    let script = terminal::RESTORE_SCRIPT?;
    let modes = Command::new("stty").arg("-g").stdin(Stdio::inherit()).read().ok()?;
    let mut guard = Command::new("/bin/sh");
    guard.args(["-c", script, &modes]).own_group().kill_on_drop();
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}
