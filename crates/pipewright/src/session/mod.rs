//! A conversation with a program on a terminal: types, and waits for what the program shows.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the session: start, waits, typing, end |
//! | `pattern.rs` | what to wait for, and what was found |
//! | `search.rs` | the unread output and the search in it; no system call |
//! | `seen.rs` | the output as a person has seen it, for errors |
//! | `pump.rs` | reads and writes at the terminal, one wait at a time |
//! | `key.rs` | the bytes of keys |
//! | `interact.rs` | the session in the hands of a person |
//! | `relay.rs` | the connection of the two terminals |
//! | `raw.rs` | this process's terminal in raw mode |
//! | `cast.rs` | a recording of the output, for asciinema |
//! | `screen.rs` | the screen as a person sees it: feature `screen` |
//! | `task.rs` | the waits for tasks: feature `tokio` |

mod cast;
mod interact;
mod key;
mod pattern;
mod pump;
mod raw;
mod relay;
#[cfg(feature = "screen")]
mod screen;
mod search;
mod seen;
#[cfg(feature = "tokio")]
mod task;

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::process::pty::{Pty, PtySize};
use pipewright_os::process::status::ExitStatus;

pub use cast::{CastFormat, CastWriter};
pub use interact::InteractEnd;
pub use key::Key;
pub use pattern::{Match, Pattern};
pub use raw::RawTerminal;
#[cfg(feature = "screen")]
pub use screen::Screen;

use crate::child::Child;
use crate::command::Command;
use crate::error::{Error, ErrorKind, FailedOperation, NotSeen};
use pump::{Progress, Pump};
use search::{Found, Search};

/// The time that a wait of a new session takes at most, as in pexpect.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two looks at something that reports no change: a setting of the terminal, room for a character.
const PAUSE: Duration = Duration::from_millis(10);

/// A program on a terminal of its own, and what it has written and nobody has taken yet (feature `session`).
///
/// Each wait takes the output up to the end of its match, so the next one starts after it. A wait that fails takes nothing;
/// its error has the last 2 KiB of the output, as a person has seen it. `docs/pty.md` in the repository has a table for users of pexpect.
///
/// At most 4 MiB of unread output are kept, the last ones. While a call waits or types, output is read; otherwise a program
/// that writes more than the terminal holds (about 12 KiB on Linux) waits.
///
/// # Drop
/// The terminal hangs up, which ends most programs. For all, set [`kill_on_drop`](Command::kill_on_drop) or
/// [`contain`](Command::contain).
///
/// ```
/// # if cfg!(unix) {
/// use pipewright::{Command, Session};
/// let mut session = Session::spawn(Command::new("sh").args(["-c", "printf 'name: '; read name; echo hello $name"]))?;
/// session.expect("name: ")?;
/// session.send_line("Ada")?;
/// let found = session.expect("hello Ada")?;
/// assert_eq!(found.before_text(), "Ada\r\n", "the echo");
/// assert!(session.wait()?.success());
/// # }
/// # Ok::<(), pipewright::Error>(())
/// ```
#[doc(alias = "expect")]
#[doc(alias = "pexpect")]
#[derive(Debug)]
pub struct Session {
    child: Child,
    pump: Pump,
    timeout: Duration,
}

/// A wait for patterns, between its steps.
struct Wait<'a> {
    search: Search<'a>,
    until: Option<Instant>,
    is_over: bool,
    /// The last step has read output, and more may be there.
    may_follow: bool,
}

impl<'a> Wait<'a> {
    fn new(patterns: &'a [Pattern], until: Option<Instant>) -> Wait<'a> {
        Wait { search: Search::new(patterns), until, is_over: false, may_follow: false }
    }

    /// Returns the time at which the next step ends: at once, if a search waits for a pause of the output.
    fn next(&self) -> Option<Instant> {
        if self.search.is_postponed() { Some(Instant::now()) } else { self.until }
    }
}

/// Returns true if that time has come. Each step of each wait asks, because a step that reads output says nothing about it.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

impl Session {
    /// Starts the command on a terminal: that of [`Command::pty`], or by default one of 24 rows and 80 columns.
    ///
    /// # Errors
    /// Those of [`Command::spawn`]. [`InvalidInput`](ErrorKind::InvalidInput): neither stdout nor stderr is the terminal; or, with the
    /// feature `screen`, it has more than 1,048,576 characters.
    pub fn spawn(command: &mut Command) -> Result<Session, Error> {
        command.pty_by_default(PtySize::default());
        #[cfg(feature = "screen")]
        if command.pty_size().is_some_and(|size| !screen::is_possible(size)) {
            return Err(command.misuse("the screen has at most 1,048,576 characters"));
        }
        // Each call of a session waits in its own way; the command's timeouts hold in all of them, and between them.
        command.enforce_in_background_if_needed();
        let mut child = command.spawn()?;
        let cannot = |error| Error::cannot(command.get_program(), "use the terminal of", error);
        let no_terminal = || command.misuse("a session needs a terminal");
        let pty = child.pty().ok_or_else(no_terminal)?;
        let (reader, writer) = (pty.reader().map_err(cannot)?, pty.writer().map_err(cannot)?);
        #[cfg(feature = "screen")]
        let size = pty.window_size().map_err(cannot)?;
        // Another handle of the same stream, which nobody reads.
        child.forget_terminal_reader();
        let pump = Pump::new(
            reader,
            writer,
            #[cfg(feature = "screen")]
            size,
        );
        Ok(Session { child, pump, timeout: DEFAULT_TIMEOUT })
    }

    /// Sets the time that each later wait takes at most. The default is 30 s, as in pexpect.
    pub fn set_timeout(&mut self, timeout: Duration) -> &mut Session {
        self.timeout = timeout;
        self
    }

    /// Waits for the pattern in the output that has not been taken, and takes the output up to its end.
    ///
    /// # Errors
    /// [`NotSeen`](ErrorKind::NotSeen) if it does not come in time, or if the output has ended.
    /// The terminal could not be read.
    pub fn expect(&mut self, pattern: impl Into<Pattern>) -> Result<Match, Error> {
        self.expect_any([pattern.into()])
    }

    /// Waits for the first of several patterns, and takes the output up to its end. The one that begins first in the output
    /// counts; if several begin there, the first of the list. [`Match::index`] is its place in the list.
    ///
    /// # Errors
    /// Those of [`expect`](Self::expect). A list with [`Pattern::Timeout`] or [`Pattern::End`] has that as a match instead.
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, Pattern, Session};
    /// let mut session = Session::spawn(Command::new("sh").args(["-c", "echo permission denied; exit 1"]))?;
    /// let found = session.expect_any([Pattern::from("$ "), "denied".into(), Pattern::End])?;
    /// assert_eq!((found.index, found.before_text().as_str()), (1, "permission "));
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn expect_any<I>(&mut self, patterns: I) -> Result<Match, Error>
    where
        I: IntoIterator<Item: Into<Pattern>>,
    {
        let patterns: Vec<Pattern> = patterns.into_iter().map(Into::into).collect();
        let mut wait = Wait::new(&patterns, self.deadline());
        loop {
            if let Some(found) = self.advance(&mut wait)? {
                return Ok(found);
            }
            let stepped = self.pump.step(wait.next());
            self.stepped(&mut wait, stepped)?;
        }
    }

    /// Returns the match if there is one, or an error if the time is over.
    fn advance(&mut self, wait: &mut Wait<'_>) -> Result<Option<Match>, Error> {
        match self.pump.find(&mut wait.search, wait.may_follow) {
            None if wait.is_over => self.not_in_time(wait.search.patterns()).map(Some),
            found => Ok(found),
        }
    }

    /// Handles the result of a step of the wait.
    fn stepped(&self, wait: &mut Wait<'_>, stepped: io::Result<Progress>) -> Result<(), Error> {
        match stepped {
            Ok(Progress::Ended) => Err(self.not_seen(wait.search.patterns(), NotSeen::Ended)),
            Ok(progress) => {
                // Output that never pauses does not put off the end.
                wait.is_over = is_over(wait.until);
                wait.may_follow = progress == Progress::Done && !wait.is_over;
                Ok(())
            }
            Err(error) => Err(self.cannot("read the terminal of", error)),
        }
    }

    /// Waits for the end of the output, and takes all of it.
    ///
    /// # Errors
    /// Those of [`expect`](Self::expect). More came than is kept (`FileTooLarge`): wait for parts of it, or read all with
    /// [`Command::capture`].
    pub fn expect_end(&mut self) -> Result<Vec<u8>, Error> {
        let found = self.expect(Pattern::End)?;
        self.whole(found)
    }

    /// Returns the output of a match at the end, unless a part was dropped.
    fn whole(&self, found: Match) -> Result<Vec<u8>, Error> {
        if found.dropped > 0 {
            let words = format!(
                "of {} bytes only the last {} were kept",
                found.dropped.saturating_add(found.before.len() as u64),
                found.before.len()
            );
            let error = io::Error::new(io::ErrorKind::FileTooLarge, words);
            return Err(self.cannot("read all output of", error));
        }
        Ok(found.before)
    }

    /// Waits until the terminal no longer echoes what is typed: the program reads a password.
    ///
    /// A password that is typed sooner is echoed, or dropped by the program together with all other early input.
    ///
    /// # Errors
    /// [`NotSeen`](ErrorKind::NotSeen) if that does not happen in time. Windows: `Unsupported`.
    #[doc(alias = "waitnoecho")]
    pub fn expect_no_echo(&mut self) -> Result<(), Error> {
        let until = self.deadline();
        loop {
            let echoes = self.pty()?.echoes();
            if !echoes.map_err(|error| self.cannot("ask the terminal of", error))? {
                return Ok(());
            }
            if is_over(until) {
                let wanted = "a prompt without echo".to_owned();
                return Err(self.not_seen_words(wanted, NotSeen::TimedOut(self.timeout)));
            }
            let pause = Instant::now().checked_add(PAUSE);
            match self.pump.step(pause) {
                Ok(Progress::Done | Progress::TimeIsUp) => {}
                Ok(Progress::Ended) => {
                    let wanted = "a prompt without echo".to_owned();
                    return Err(self.not_seen_words(wanted, NotSeen::Ended));
                }
                Err(error) => return Err(self.cannot("read the terminal of", error)),
            }
        }
    }

    /// Types bytes. Output is read meanwhile, so that neither side waits for the other.
    ///
    /// # Errors
    /// The program does not read its input, and the terminal's buffer stays full until the timeout; or no process has the
    /// terminal open any more.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        let until = self.deadline();
        let sent = self.pump.send(bytes.as_ref(), until);
        sent.map_err(|error| self.cannot("type at the terminal of", error))
    }

    /// Types the text and the Enter key, which is a carriage return.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[doc(alias = "sendline")]
    pub fn send_line(&mut self, text: impl AsRef<[u8]>) -> Result<(), Error> {
        self.send([text.as_ref(), b"\r"].concat())
    }

    /// Types a key.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[doc(alias = "sendcontrol")]
    pub fn send_key(&mut self, key: Key) -> Result<(), Error> {
        let bytes = key.bytes(self.pump.has_application_cursor());
        self.send(bytes)
    }

    /// Types the end of the input: see [`Pty::send_eof`].
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[doc(alias = "sendeof")]
    pub fn send_eof(&mut self) -> Result<(), Error> {
        self.send_special(Pty::send_eof)
    }

    /// Types the interrupt character: see [`Pty::send_interrupt`].
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[doc(alias = "sendintr")]
    pub fn send_interrupt(&mut self) -> Result<(), Error> {
        self.send_special(Pty::send_interrupt)
    }

    /// Types a character that the terminal knows, and reads output while there is no room for it.
    fn send_special(&mut self, send: fn(&Pty) -> io::Result<()>) -> Result<(), Error> {
        let until = self.deadline();
        loop {
            let pty = self.pty()?;
            let failed = match self.pump.check_open().and_then(|()| send(pty)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_full = failed.kind() == io::ErrorKind::WouldBlock;
            let failed = match is_full {
                true if is_over(until) => io::ErrorKind::TimedOut.into(),
                true => match self.pump.step(Instant::now().checked_add(PAUSE)) {
                    Ok(Progress::Done | Progress::TimeIsUp) => continue,
                    Ok(Progress::Ended) => io::ErrorKind::BrokenPipe.into(),
                    Err(error) => error,
                },
                false => failed,
            };
            return Err(self.cannot("type at the terminal of", failed));
        }
    }

    /// Changes the size of the terminal.
    ///
    /// # Errors
    /// The error of the call.
    #[doc(alias = "setwinsize")]
    pub fn resize(&mut self, size: PtySize) -> Result<(), Error> {
        #[cfg(feature = "screen")]
        if !screen::is_possible(size) {
            return Err(self.cannot("resize the terminal of", io::ErrorKind::InvalidInput.into()));
        }
        self.pump.resize(size);
        self.pty()?.resize(size).map_err(|error| self.cannot("resize the terminal of", error))
    }

    /// Returns the output that was read and that no wait has taken.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        self.pump.unread()
    }

    /// Returns the child, to signal it or to stop it.
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// Reads the rest of the output, and waits for the child, for at most the session's timeout. The output stays
    /// [unread](Self::unread).
    ///
    /// # Errors
    /// [`NotSeen`](ErrorKind::NotSeen) if the child still runs then. It could not be waited for.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        let until = self.deadline();
        let mut is_over_now = false;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.pump.drain();
                return Ok(status);
            }
            if is_over_now {
                let wanted = "the end of the child".to_owned();
                return Err(self.not_seen_words(wanted, NotSeen::TimedOut(self.timeout)));
            }
            match self.pump.step_or_end(self.child.child_handle(), until) {
                Ok(_) => is_over_now = is_over(until),
                Err(error) => return Err(self.cannot("read the terminal of", error)),
            }
        }
    }

    /// Returns the time at which a wait that begins now gives up; `None` if that is beyond the range of the clock.
    fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.timeout)
    }

    fn pty(&self) -> Result<&Pty, Error> {
        // It was there at the start, and nothing takes it.
        self.child
            .pty()
            .ok_or_else(|| self.cannot("use the terminal of", io::ErrorKind::NotFound.into()))
    }

    /// Returns the match of a list that has the timeout, or the error.
    fn not_in_time(&self, patterns: &[Pattern]) -> Result<Match, Error> {
        let is_timeout = |pattern: &Pattern| matches!(pattern, Pattern::Timeout);
        match patterns.iter().position(is_timeout) {
            Some(index) => {
                Ok(Found::nothing(index)
                    .into_match(self.pump.unread().to_vec(), self.pump.dropped()))
            }
            None => Err(self.not_seen(patterns, NotSeen::TimedOut(self.timeout))),
        }
    }

    fn not_seen(&self, patterns: &[Pattern], reason: NotSeen) -> Error {
        self.not_seen_words(pattern::describe(patterns), reason)
    }

    fn not_seen_words(&self, wanted: String, reason: NotSeen) -> Error {
        let kind = ErrorKind::NotSeen { wanted, reason, tail: self.pump.tail() };
        Error::new(self.child.program(), FailedOperation::Child("continue with"), kind, None)
    }

    fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::cannot(self.child.program(), doing, error)
    }
}
