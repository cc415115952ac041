//! A conversation with a program on a terminal: types, and waits for what the program shows.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the session: start, waits, typing, end; the bytes of keys; the waits for tasks |
//! | `search.rs` | what to wait for, the unread output and the search in it; the output as a person has seen it; no system call |
//! | `pump.rs` | reads and writes at the terminal, one wait at a time |
//! | `interact.rs` | the session in the hands of a person: both terminals connected, this process's in raw mode |
//! | `cast.rs` | a recording of the output, for asciinema |
//! | `screen.rs` | the screen as a person sees it: feature `screen` |

mod cast;
mod interact;
mod pump;
#[cfg(feature = "screen")]
mod screen;
mod search;

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::process::pty::{Pty, PtySize};
use pipewright_os::process::status::ExitStatus;

use crate::child::Child;
use crate::command::Command;
use crate::error::{Error, ErrorKind, FailedOperation, NotSeen};
use pump::{Progress, Pump};
use search::{Found, Search};

pub use cast::{CastFormat, CastWriter};
pub use interact::{InteractEnd, RawTerminal};
#[cfg(feature = "screen")]
pub use screen::Screen;
pub use search::{Match, Pattern};

/// The time that a wait of a new session takes at most, as in pexpect.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two looks at something that reports no change: a setting of the terminal, room for a character.
const PAUSE: Duration = Duration::from_millis(10);

/// A program on a terminal of its own, and what it has written and nobody has taken yet (feature `session`).
///
/// Each wait takes the output up to the end of its match, so the next one starts after it. A wait that fails takes
/// nothing; its error has the last 2 KiB of the output, as a person has seen it. `docs/pty.md` in the repository has a
/// table for users of pexpect.
///
/// At most 4 MiB of unread output are kept, the last ones. While a call waits or types, output is read; otherwise a
/// program that writes more than the terminal holds (about 12 KiB on Linux) waits.
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

/// Returns true if that time has come. Each step of each wait asks, because a step that reads output says nothing about
/// it.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

impl Session {
    /// Starts the command on a terminal: that of [`Command::pty`], or by default one of 24 rows and 80 columns.
    ///
    /// # Errors
    /// Those of [`Command::spawn`]. [`InvalidInput`](ErrorKind::InvalidInput): neither stdout nor stderr is the
    /// terminal; or, with the feature `screen`, it has more than 1,048,576 characters.
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

    /// Waits for the first of several patterns, and takes the output up to its end. The one that begins first in the
    /// output counts; if several begin there, the first of the list. [`Match::index`] is its place in the list.
    ///
    /// # Errors
    /// Those of [`expect`](Self::expect). A list with [`Pattern::Timeout`] or [`Pattern::End`] has that as a match
    /// instead.
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
    /// Those of [`expect`](Self::expect). More came than is kept (`FileTooLarge`): wait for parts of it, or read all
    /// with [`Command::capture`].
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
    /// The program does not read its input, and the terminal's buffer stays full until the timeout; or no process has
    /// the terminal open any more.
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
        self.not_seen_words(search::describe(patterns), reason)
    }

    fn not_seen_words(&self, wanted: String, reason: NotSeen) -> Error {
        let kind = ErrorKind::NotSeen { wanted, reason, tail: self.pump.tail() };
        Error::new(self.child.program(), FailedOperation::Child("continue with"), kind, None)
    }

    fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::cannot(self.child.program(), doing, error)
    }
}

/// A key of a keyboard, with the bytes that xterm and most other terminals send for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Key {
    /// Enter: a carriage return.
    Enter,
    /// Tab.
    Tab,
    /// Escape.
    Escape,
    /// Backspace: DEL, which Linux terminals erase with.
    Backspace,
    /// An arrow key.
    Up,
    /// An arrow key.
    Down,
    /// An arrow key.
    Left,
    /// An arrow key.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page Up.
    PageUp,
    /// Page Down.
    PageDown,
    /// Insert.
    Insert,
    /// Delete.
    Delete,
    /// A function key, F1 to F12. Others type nothing.
    F(u8),
    /// A letter, or one of `@ [ \ ] ^ _`, with the Control key. Other characters are typed as they are.
    Ctrl(char),
    /// A character with the Alt key.
    Alt(char),
}

impl Key {
    /// Returns the bytes. `application_cursor`: the program has asked for the other codes of the arrow keys.
    fn bytes(self, application_cursor: bool) -> Vec<u8> {
        let cursor = |letter: char| match application_cursor {
            true => format!("\x1bO{letter}"),
            false => format!("\x1b[{letter}"),
        };
        let numbered = |number: u8| format!("\x1b[{number}~");
        let text = match self {
            Key::Enter => "\r".to_owned(),
            Key::Tab => "\t".to_owned(),
            Key::Escape => "\x1b".to_owned(),
            Key::Backspace => "\x7f".to_owned(),
            Key::Up => cursor('A'),
            Key::Down => cursor('B'),
            Key::Right => cursor('C'),
            Key::Left => cursor('D'),
            Key::Home => cursor('H'),
            Key::End => cursor('F'),
            Key::Insert => numbered(2),
            Key::Delete => numbered(3),
            Key::PageUp => numbered(5),
            Key::PageDown => numbered(6),
            Key::F(number @ 1..=4) => format!("\x1bO{}", char::from(b'P' + number - 1)),
            Key::F(5) => numbered(15),
            Key::F(number @ 6..=10) => numbered(number + 11),
            Key::F(number @ 11..=12) => numbered(number + 12),
            Key::F(_) => String::new(),
            Key::Ctrl(character @ ('@'..='_' | 'a'..='z')) => {
                char::from(character.to_ascii_uppercase() as u8 & 0x1f).to_string()
            }
            Key::Ctrl(character) => character.to_string(),
            Key::Alt(character) => format!("\x1b{character}"),
        };
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_bytes_of_xterm() {
        let of = |key: Key| String::from_utf8(key.bytes(false)).unwrap();
        assert_eq!(
            [of(Key::Ctrl('c')), of(Key::Ctrl('C')), of(Key::Ctrl('['))],
            ["\x03", "\x03", "\x1b"]
        );
        assert_eq!(
            [of(Key::Ctrl('@')), of(Key::Ctrl('_')), of(Key::Alt('x'))],
            ["\0", "\x1f", "\x1bx"]
        );
        assert_eq!([of(Key::F(1)), of(Key::F(4)), of(Key::F(5))], ["\x1bOP", "\x1bOS", "\x1b[15~"]);
        assert_eq!(
            [of(Key::F(6)), of(Key::F(10)), of(Key::F(11))],
            ["\x1b[17~", "\x1b[21~", "\x1b[23~"]
        );
        assert_eq!([of(Key::F(12)), of(Key::F(0)), of(Key::F(13))], ["\x1b[24~", "", ""]);
        assert_eq!(of(Key::Up), "\x1b[A");
        assert_eq!(Key::Up.bytes(true), b"\x1bOA");
    }
}

/// The waits of a session for tasks: feature `tokio`.
#[cfg(feature = "tokio")]
mod task {
    use std::future::poll_fn;
    use std::io;
    use std::task::Poll;
    use std::time::Instant;

    use pipewright_os::base::wait::{Slot, Watch};

    use super::interact::InteractEnd;
    use super::pump::{Progress, Pump};
    use super::search::{Match, Pattern};
    use super::{Session, Wait};
    use crate::error::Error;
    use crate::run::check_runtime_to_wait;

    /// Async waits for tokio tasks, with the feature `tokio`.
    impl Session {
        /// Like [`expect`](Self::expect), without blocking the thread.
        ///
        /// # Cancellation
        /// Dropping the future loses no output: what was read stays [unread](Self::unread).
        ///
        /// # Errors
        /// Those of [`expect`](Self::expect); `Unsupported` outside a tokio runtime.
        pub async fn expect_async(&mut self, pattern: impl Into<Pattern>) -> Result<Match, Error> {
            self.expect_any_async([pattern.into()]).await
        }

        /// Like [`expect_any`](Self::expect_any), without blocking the thread.
        ///
        /// # Cancellation
        /// As for [`expect_async`](Self::expect_async).
        ///
        /// # Errors
        /// Those of [`expect_async`](Self::expect_async).
        pub async fn expect_any_async<I>(&mut self, patterns: I) -> Result<Match, Error>
        where
            I: IntoIterator<Item: Into<Pattern>>,
        {
            check_runtime_to_wait(self.child.program())?;
            let patterns: Vec<Pattern> = patterns.into_iter().map(Into::into).collect();
            let mut wait = Wait::new(&patterns, self.deadline());
            let mut watch = Watch::default();
            loop {
                if let Some(found) = self.advance(&mut wait)? {
                    return Ok(found);
                }
                let stepped = step(&mut self.pump, &mut watch, wait.next()).await;
                self.stepped(&mut wait, stepped)?;
            }
        }

        /// Like [`send`](Self::send), without blocking the thread.
        ///
        /// # Cancellation
        /// Dropping the future stops the typing; a part may have been typed.
        ///
        /// # Errors
        /// Those of [`send`](Self::send); `Unsupported` outside a tokio runtime.
        pub async fn send_async(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
            check_runtime_to_wait(self.child.program())?;
            let until = self.deadline();
            let cannot =
                |error| Error::cannot(self.child.program(), "type at the terminal of", error);
            self.pump.check_open().map_err(cannot)?;
            // Also drops what a future that was dropped has left.
            self.pump.begin_typing(bytes.as_ref());
            let mut watch = Watch::default();
            while self.pump.is_typing() {
                let stepped = step(&mut self.pump, &mut watch, until).await;
                self.pump.typed(stepped, until).map_err(cannot)?;
            }
            Ok(())
        }

        /// Like [`send_line`](Self::send_line), without blocking the thread.
        ///
        /// # Cancellation
        /// As for [`send_async`](Self::send_async).
        ///
        /// # Errors
        /// Those of [`send_async`](Self::send_async).
        pub async fn send_line_async(&mut self, text: impl AsRef<[u8]>) -> Result<(), Error> {
            self.send_async([text.as_ref(), b"\r"].concat()).await
        }

        /// Like [`interact`](Self::interact), without blocking the thread: other tasks run while a person types, also
        /// while the person's terminal is stopped (Ctrl-S).
        ///
        /// # Cancellation
        /// Dropping the future restores the modes of this process's terminal. Output that was read and not shown is
        /// lost.
        ///
        /// # Errors
        /// Those of [`interact`](Self::interact); `Unsupported` outside a tokio runtime.
        pub async fn interact_async(&mut self, escape: Option<u8>) -> Result<InteractEnd, Error> {
            check_runtime_to_wait(self.child.program())?;
            let (mut relay, mut watched) = self.connect(escape)?;
            let mut watch = Watch::default();
            loop {
                if let Some(end) = relay.advance(self, &mut watched)? {
                    return Ok(end);
                }
                poll_fn(|cx| {
                    let (mut slots, until) = relay.submit(self, &watched);
                    match watch.poll_wait(cx, &mut slots, until) {
                        Poll::Ready(waited) => {
                            Poll::Ready(relay.complete(self, &watched, slots, waited))
                        }
                        Poll::Pending => {
                            // Takes the ends back: nothing is done.
                            let _ = relay.complete(self, &watched, slots, Ok(0));
                            Poll::Pending
                        }
                    }
                })
                .await?;
            }
        }
    }

    /// Waits once.
    async fn step(
        pump: &mut Pump,
        watch: &mut Watch,
        until: Option<Instant>,
    ) -> io::Result<Progress> {
        poll_fn(|cx| {
            let Some(mut slots) = pump.submit(Slot::Off) else {
                return Poll::Ready(Ok(Progress::Ended));
            };
            match watch.poll_wait(cx, &mut slots, until) {
                Poll::Ready(waited) => Poll::Ready(pump.complete(slots, waited)),
                Poll::Pending => {
                    // Takes the ends back: nothing is done.
                    let _ = pump.complete(slots, Ok(0));
                    Poll::Pending
                }
            }
        })
        .await
    }
}
