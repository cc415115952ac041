//! A terminal of its own for the child.

use pipewright_os::process::pty::{self, PtySize};
use pipewright_os::process::start::Group;

use super::start::{ChildEnd, Prepared, StdioDefault, StdioDefaults};
use super::stdio::Choice;
use super::{ChildEnv, Command};
use crate::error::{Error, could_not_open_terminal};
use crate::run::{OpenTee, OutputEnd, ParentEnds, TeeTarget, TerminalEnds, on_demand};

/// The setting of [`Command::pty`].
#[derive(Debug, Clone, Copy)]
pub(super) struct PtySetting {
    pub(super) size: PtySize,
    /// Opens the terminal. A pointer, for program size: see [`on_demand`](crate::run::on_demand).
    pub(super) prepare: PreparePty,
    /// Copies the output to this process's stdout, for verbs whose streams are inherited by default.
    pub(super) tee: OpenTee,
}

/// Opens the terminal and the streams that are kept apart from it.
type PreparePty = fn(&Command, PtySize, ChildEnv, StdioDefaults) -> Result<Prepared, Error>;

impl Command {
    /// Gives the child a terminal of its own, of this size: its stdin, stdout and stderr, and the controlling terminal of
    /// a new session. Programs then behave as for a person: with colours, prompts, progress bars and line buffering.
    ///
    /// All verbs work as before. The terminal's output is the child's stdout, with the text of stderr in it, and with CR
    /// LF where the child writes a line feed ([`lines`](Self::lines) removes both). Every byte that was written before the
    /// child's end is read, and the end of the stream does not depend on this process.
    ///
    /// A stream that you set is not the terminal: [`stderr(Stdio::piped())`](Self::stderr) keeps stderr apart, and
    /// `stdin(Stdio::null())` gives an empty stdin. Only a tee for stdout leaves stdout the terminal, and copies its
    /// output. One of stdout and stderr has to be the terminal.
    ///
    /// The capturing verbs type the end of the input once, before the start, because nobody types anything else: a program
    /// that reads lines finds an empty stdin. A program that reads keys waits, so set a [`timeout`](Self::timeout) or
    /// `stdin(Stdio::null())`. [`status`](Self::status) and [`run`](Self::run) copy the output to this process's stdout.
    /// After [`spawn`](Self::spawn), [`Child::pty`](crate::Child::pty) types, resizes and reads;
    /// [`child.stdout`](crate::Child::stdout) reads as well.
    ///
    /// A stop reaches the group of the child, and the descendants that can be found. When the last handle of this side is
    /// closed (the [`Child`](crate::Child) is dropped, this process ends), the terminal hangs up and the session gets
    /// SIGHUP.
    ///
    /// # Platform
    /// Linux: `/dev/ptmx`, `TIOCSPTLCK`, `TIOCGPTPEER`; in the child `setsid` and `TIOCSCTTY`, without a fork. macOS
    /// (type-checked, never run): `posix_openpt`; the child is forked. Windows 10 1809 and later: `CreatePseudoConsole`.
    /// The Windows part has never run on Windows: Wine has a stub, which starts children and passes no byte.
    ///
    /// # Errors
    /// The verb fails with [`Unsupported`](crate::ErrorKind::Unsupported) if the system has no pseudo-terminals (no
    /// `/dev/ptmx`, no devpts), with [`Limit`](crate::ErrorKind::Limit) if all are in use, and with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for settings that contradict a terminal:
    /// [`detached`](Self::detached), [`foreground`](Self::foreground), [`process_group`](Self::process_group),
    /// a stage of a pipeline, and verbs that return no [`Child`](crate::Child).
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, PtySize};
    /// let capture = Command::new("sh")
    ///     .args(["-c", "test -t 0 && test -t 1 && test -t 2 && stty size"])
    ///     .pty(PtySize { rows: 30, cols: 100 })
    ///     .capture()?;
    /// assert_eq!(capture.stdout, "30 100\r\n");
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "terminal")]
    #[doc(alias = "openpty")]
    #[doc(alias = "forkpty")]
    pub fn pty(&mut self, size: PtySize) -> &mut Command {
        self.own_session();
        self.options.see_to_end();
        self.pty =
            Some(PtySetting { size, prepare: Command::prepare_pty, tee: on_demand::OPEN_TEE });
        self
    }

    /// Gives the child a terminal of this size, unless one is set.
    #[cfg(feature = "session")]
    pub(crate) fn pty_by_default(&mut self, size: PtySize) {
        if self.pty.is_none() {
            self.pty(size);
        }
    }

    /// Returns the size of the terminal.
    #[cfg(feature = "screen")]
    pub(crate) fn pty_size(&self) -> Option<PtySize> {
        self.pty.map(|pty| pty.size)
    }

    /// Enforces the rules in the background, if anything but the child itself can end it.
    #[cfg(feature = "session")]
    pub(crate) fn enforce_in_background_if_needed(&mut self) {
        if self.options.rules.can_stop() {
            self.enforce_in_background();
        }
    }

    /// Refuses settings that contradict a terminal.
    pub(super) fn check_pty(&self) -> Result<(), Error> {
        let refused = [
            ("detached", self.lifetime.detached),
            ("foreground", self.lifetime.foreground.is_some()),
        ];
        if let Some((setter, _)) = refused.iter().find(|(_, is_set)| *is_set) {
            return Err(self.misuse(&format!("`pty` and `{setter}` contradict each other")));
        }
        if self.unix.group != Group::Session {
            return Err(self.misuse("`pty` starts a session, so no process group can be set"));
        }
        Ok(())
    }

    /// Opens the terminal and the streams that are kept apart from it.
    fn prepare_pty(
        &self,
        size: PtySize,
        env: ChildEnv,
        defaults: StdioDefaults,
    ) -> Result<Prepared, Error> {
        let opened = pty::open(size).map_err(|error| could_not_open_terminal(&self.program, error));
        let (pty, child_end) = opened?;
        let cannot_open = |error| self.cannot_open("a terminal", error);
        if let Some(user) = self.unix.identity.user {
            // Ignored: who may not become that user cannot start the command, either.
            let _ = child_end.give_to_user(user);
        }
        let (stdin, mut ends) = match self.stdin {
            Some(_) => self.open_stdin(defaults.stdin)?,
            None => (ChildEnd::Terminal, ParentEnds::default()),
        };
        if self.stdin.is_none() && matches!(defaults.stdin, StdioDefault::Null) {
            pty.send_eof_unseen().map_err(cannot_open)?;
        }
        let output = |tee| pty.reader().map(|pipe| OutputEnd::new(pipe, tee)).map_err(cannot_open);
        let mut stdout = ChildEnd::Terminal;
        match self.terminal_tee(defaults)? {
            Some(tee) => ends.stdout = Some(output(tee)?),
            None => {
                (stdout, ends.stdout) =
                    self.open_output(1, self.stdout.as_ref(), defaults.stdout)?
            }
        }
        let has_stdout = matches!(stdout, ChildEnd::Terminal);
        let stderr = match &self.stderr {
            _ if self.merge_stderr => ChildEnd::SameAsStdout,
            None => ChildEnd::Terminal,
            Some(stderr) => {
                let (child_end, ours) = self.open_output(2, Some(stderr), defaults.stderr)?;
                ends.stderr = ours;
                child_end
            }
        };
        let has_stderr = matches!(stderr, ChildEnd::Terminal);
        match (has_stdout, has_stderr) {
            (true, _) => ends.stderr_merged = has_stderr || self.merge_stderr,
            (false, true) => {
                let tee = self.default_tee(defaults, defaults.stderr);
                ends.stderr = Some(output(tee)?);
            }
            (false, false) => {
                return Err(self.misuse("with `pty`, stdout or stderr has to be the terminal"));
            }
        }
        ends.terminal = Some(TerminalEnds { pty, child_end });
        Ok(Prepared { env, stdio: [stdin, stdout, stderr], ends })
    }

    /// Returns the tee of the terminal's output, if there is one; `None` if stdout is not the terminal.
    #[expect(clippy::option_option, reason = "no terminal, and a terminal without a tee")]
    fn terminal_tee(&self, defaults: StdioDefaults) -> Result<Option<Option<TeeTarget>>, Error> {
        Ok(match self.stdout.as_ref().map(|stdout| &stdout.0) {
            None => Some(self.default_tee(defaults, defaults.stdout)),
            Some(Choice::Tee(open)) => Some(Some(TeeTarget::SameStream(*open))),
            Some(Choice::TeeTarget(find, target)) => Some(Some(find(self, 1, target)?)),
            Some(Choice::TeeWith(open)) => Some(Some(TeeTarget::Closure(open.clone()))),
            Some(_) => None,
        })
    }

    /// Returns the tee of a stream that is not set. A stream that would be inherited is copied, unless the caller gets the
    /// child and reads it.
    fn default_tee(&self, defaults: StdioDefaults, stream: StdioDefault) -> Option<TeeTarget> {
        match stream {
            StdioDefault::Tee(open) => Some(TeeTarget::SameStream(open)),
            StdioDefault::Inherit if !defaults.caller_reads => {
                self.pty.map(|setting| TeeTarget::SameStream(setting.tee))
            }
            _ => None,
        }
    }

    /// Refuses a terminal where nobody would hold its other side.
    pub(super) fn refuse_pty_for(&self, reason: &str) -> Result<(), Error> {
        match self.pty {
            Some(_) => Err(self.misuse(&format!("`pty` {reason}"))),
            None => Ok(()),
        }
    }
}
