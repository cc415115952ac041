//! The choices for the standard handles of a child, the files that they name, and a terminal of its own.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fmt, io};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::late_open::{self, LateOpen};
use pipewright_os::base::pipe::Mode;
use pipewright_os::process::pty::{self, PtySize};
use pipewright_os::process::start::Group;
use pipewright_os::process::std_process::{
    ParentStream, STD_STDIN_MODE, Stdio as StdStdio, StdioKind,
};

use super::start::{ChildEnd, Prepared, StdioDefault, StdioDefaults};
use super::{ChildEnv, Command};
use crate::error::{Error, could_not_open_terminal};
use crate::input::Owner;
use crate::outcome::Source;
use crate::run::{
    OpenTee, OpenTeeFile, OpenTeeWith, OutputEnd, ParentEnds, Rules, TeeTarget, TerminalEnds,
    on_demand, open_tee_lines, open_tee_map, open_tee_with,
};

/// A choice for a child's stdin, stdout or stderr.
///
/// Besides std's constructors there are files by path, input from memory or a reader, and [`tee`](Stdio::tee).
/// Anything that owns a handle converts: `File`, `OwnedFd`, a [`PipeReader`](crate::PipeReader), another child's
/// stream. `io::stdout()`, `io::stderr()` and [`process::Stdio`](crate::process::Stdio) convert too.
///
/// ```
/// use pipewright::{Command, Stdio};
/// let log = std::env::temp_dir().join(format!("stdio-doc-{}", std::process::id()));
/// Command::new("echo").arg("one").stdout(Stdio::create(&log)).run()?;
/// Command::new("echo").arg("two").stdout(Stdio::append(&log)).run()?;
/// assert_eq!(Command::new("cat").stdin(Stdio::open(&log)).read()?, "one\ntwo");
/// # std::fs::remove_file(log).unwrap();
/// # Ok::<(), pipewright::Error>(())
/// ```
pub struct Stdio(pub(super) Choice);

/// The kinds of [`Stdio`].
pub(super) enum Choice {
    Inherit,
    Null,
    /// A pipe; the mode is that of the parent's end of stdin. The parent's ends of stdout and stderr are always
    /// `Async`.
    Piped(Mode),
    Tee(OpenTee),
    TeeTarget(OpenTeeTarget, Box<Stdio>),
    /// All runs of the command share the closure.
    TeeWith(OpenTeeWith),
    /// As `TeeWith`. What it passes on goes to this process's stream, so the stages of a pipeline can share it.
    TeeMap(OpenTeeWith),
    Handle(Handle),
    /// This process's stdout or stderr, for any stream of the child.
    Parent(ParentStream),
    Open(NamedFile),
    Create(NamedFile),
    Append(NamedFile),
    Bytes(Arc<Vec<u8>>),
    BytesOf(Owner),
    /// The first run takes the reader.
    Reader(Mutex<Option<Box<dyn io::Read + Send>>>),
}

/// Opens the target of a tee. A pointer, for program size: see [`on_demand`](crate::run::on_demand).
type OpenTeeTarget = fn(&Command, stream: usize, target: &Stdio) -> Result<TeeTarget, Error>;

impl Stdio {
    /// Inherits the stream of this process.
    #[must_use]
    pub fn inherit() -> Stdio {
        Stdio(Choice::Inherit)
    }

    /// Connects the stream to the null device: input is empty, and output is discarded.
    #[must_use]
    pub fn null() -> Stdio {
        Stdio(Choice::Null)
    }

    /// Connects the stream to this process by a pipe. The capturing verbs read it; after `spawn` it is a field of
    /// [`Child`](crate::Child).
    #[doc(alias = "pipe")]
    #[must_use]
    pub fn piped() -> Stdio {
        Stdio(Choice::Piped(Mode::Sync))
    }

    /// Makes a pipe like [`piped`](Self::piped), for a stdin that a task will write to.
    ///
    /// # Platform
    /// Unix: same as `piped`. Windows: the parent's end of stdin is overlapped, as those of stdout and stderr
    /// always are, so [`into_async`](crate::PipeWriter#method.into_async) (feature `tokio`) needs no thread. A
    /// `write` still blocks until it is complete; the difference matters only if you pass the handle on.
    #[must_use]
    pub fn piped_async() -> Stdio {
        Stdio(Choice::Piped(Mode::Async))
    }

    /// Captures stdout or stderr, and also writes it to this process's own stdout or stderr as it arrives.
    ///
    /// If that target is not read, the child's output is not read either, and the child blocks. Timeouts, kills and
    /// cancels still act in time, and the idle timeout pauses meanwhile. After a stop, and if the time is up, a limit
    /// is exceeded or the run is cancelled after the child's end, the remaining output is given up if the target
    /// accepts nothing for 250 ms, or not all of it in 5 s. If the target fails (a full disk, a closed reader), the
    /// capture continues and [`tee_failed`](crate::Captured::tee_failed) reports the failure. Verbs that cannot report
    /// it fail instead, unless the reader was closed. If this process's stream is closed, nothing is written to it, and
    /// that is not a failure. With [`Limit::fail`](crate::Limit::fail) the target gets no byte beyond the limit. The
    /// mode of the target, which other processes may share, is not changed.
    ///
    /// # Platform
    /// Linux: a pipe or a terminal is reopened through `/proc/self/fd`, to set `O_NONBLOCK` without affecting
    /// others. If that is refused, `poll` and writes of at most `PIPE_BUF` are used; a stopped terminal can block
    /// those. A file is written to directly, so a disk that does not answer blocks the run.
    #[must_use]
    pub fn tee() -> Stdio {
        Stdio(Choice::Tee(on_demand::OPEN_TEE))
    }

    /// Captures stdout or stderr, and passes it on to a file or another handle as it arrives. Because the output
    /// passes through this process, [`idle_timeout`](crate::Command::idle_timeout) and
    /// [`limit`](crate::Command::limit) apply to it.
    ///
    /// Otherwise like [`tee`](Self::tee), which is `tee_to` with [`inherit`](Self::inherit). In a pipeline it works
    /// for the stdout of the last stage; it does not work for stderr, because all stages share one stderr pipe.
    ///
    /// # Platform
    /// As for [`tee`](Self::tee).
    ///
    /// ```
    /// use pipewright::{Command, Limit, Outcome, Stdio};
    /// let log = std::env::temp_dir().join(format!("tee-to-doc-{}", std::process::id()));
    /// let mut command = Command::new("yes");
    /// command.stdout(Stdio::tee_to(Stdio::create(&log))).limit(Limit::fail(10_000));
    /// assert_eq!(command.output()?.outcome, Outcome::LimitExceeded);
    /// assert_eq!(std::fs::metadata(&log).unwrap().len(), 10_000);
    /// # std::fs::remove_file(log).unwrap();
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn tee_to(target: impl Into<Stdio>) -> Stdio {
        Stdio(Choice::TeeTarget(Command::open_tee_target, Box::new(target.into())))
    }

    /// Captures stdout or stderr, and also calls a closure with each chunk of it as it arrives, in order.
    ///
    /// The verb that waits calls the closure on its own thread, or in the poll of its task: no thread is added, and a
    /// closure that blocks delays timeouts, kills and all other runs of that thread. Chunks have any length but 0, and
    /// can end in the middle of a line or of a character. The closure gets every byte that is read, also those that a
    /// [`limit`](crate::Command::limit) drops. So with [`Limit::keep_tail`](crate::Limit::keep_tail) it sees the whole
    /// stream, while the capture keeps only the last bytes.
    ///
    /// All runs of the command share the closure, also runs at the same time, which call it one at a time. After
    /// [`spawn`](crate::Command::spawn), the verbs of the child that read its output call it; a stream that the caller
    /// takes out of the child does not reach it. In a pipeline it works for the stdout of the last stage; it does not
    /// work for stderr, because all stages share one stderr pipe.
    ///
    /// # Panics
    /// A panic of the closure continues in the verb, after the chunk has been handled. If it is caught, lines, events
    /// and a [`Runner`](crate::Runner) can continue with nothing lost. A verb that it ends has dropped the run: the
    /// child's streams are closed. The child is killed if a task waited for it, or with
    /// [`kill_on_drop`](crate::Command::kill_on_drop).
    ///
    /// ```
    /// use pipewright::{Command, Limit, Stdio};
    /// use std::sync::{Arc, Mutex};
    /// let seen = Arc::new(Mutex::new(Vec::new()));
    /// let to = Arc::clone(&seen);
    /// let mut command = Command::new("seq");
    /// command.arg("100").stdout(Stdio::tee_with(move |chunk| to.lock().unwrap().extend_from_slice(chunk)));
    /// let done = command.limit(Limit::keep_tail(7)).capture()?;
    /// assert_eq!(done.stdout, "99\n100\n");
    /// assert_eq!(seen.lock().unwrap().len(), 292);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn tee_with(closure: impl FnMut(&[u8]) + Send + 'static) -> Stdio {
        Stdio(Choice::TeeWith(open_tee_with(closure)))
    }

    /// Captures stdout or stderr, and also calls a closure with each line of it as it arrives, its line feed included.
    ///
    /// The last line may have no line feed; it comes when the stream ends, also at its end by a timeout. A line of more
    /// than 64 KiB comes in pieces of 64 KiB, so that memory stays bounded. Otherwise like
    /// [`tee_with`](Self::tee_with): the lines of runs at the same time are never mixed.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let print = |line: &[u8]| print!("build: {}", String::from_utf8_lossy(line));
    /// let done = Command::new("echo").arg("hi").stdout(Stdio::tee_lines(print)).capture()?;
    /// assert_eq!(done.stdout, "hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn tee_lines(closure: impl FnMut(&[u8]) + Send + 'static) -> Stdio {
        Stdio(Choice::TeeWith(open_tee_lines(closure)))
    }

    /// Captures the stream, and passes on what the closure makes of each chunk, to that stream of this process and to a
    /// file, which is opened once the child has been started. Otherwise like [`tee`](Self::tee). As the stderr of a
    /// stage it has to be that of all stages: the first one is used.
    #[doc(hidden)]
    #[must_use]
    pub fn tee_map(
        to: Source,
        file: Option<OpenTeeFile>,
        map: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Stdio {
        Stdio(Choice::TeeMap(open_tee_map(to, file, map)))
    }

    /// Reads from the file at `path`, which must exist. It is opened when the command runs. The open of a named pipe
    /// waits for its other side, within the timeout of the command and until it is cancelled.
    #[must_use]
    pub fn open(path: impl Into<PathBuf>) -> Stdio {
        Stdio(Choice::Open(NamedFile::new(path.into())))
    }

    /// Writes to the file at `path`, which is created or truncated. It is opened when the command runs.
    #[must_use]
    pub fn create(path: impl Into<PathBuf>) -> Stdio {
        Stdio(Choice::Create(NamedFile::new(path.into())))
    }

    /// Appends to the file at `path`, which is created if missing. It is opened when the command runs.
    #[must_use]
    pub fn append(path: impl Into<PathBuf>) -> Stdio {
        Stdio(Choice::Append(NamedFile::new(path.into())))
    }

    /// Feeds these bytes to stdin, then closes it. They are fed while the output is read, so any length is safe. A
    /// child that does not read all of them is not an error (see [`stdin_unread`](crate::Captured::stdin_unread)).
    ///
    /// After [`spawn`](crate::Command::spawn) they are fed even if no verb waits: the start fills the pipe, and the
    /// background thread that also reaps dropped children feeds the rest until the child ends.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// use std::io::Read;
    /// let mut child = Command::new("tr")
    ///     .args(["a-z", "A-Z"])
    ///     .stdin(Stdio::bytes("hello"))
    ///     .stdout(Stdio::piped())
    ///     .spawn()?;
    /// let mut text = String::new();
    /// child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    /// assert_eq!(text, "HELLO");
    /// assert!(child.wait()?.success());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "input")]
    #[must_use]
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Stdio {
        Stdio(Choice::Bytes(Arc::new(bytes.into())))
    }

    /// Feeds the bytes of their owner, such as a mapped file, as [`bytes`](Stdio::bytes) does, and never has a copy of
    /// all of them. The command and its runs share the owner.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let text = Command::new("cat").stdin(Stdio::bytes_of("hello")).read()?;
    /// assert_eq!(text, "hello");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn bytes_of(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Stdio {
        Stdio(Choice::BytesOf(Arc::new(owner)))
    }

    /// Feeds everything from the reader to stdin, reading it as the child takes it. The command can run only once.
    ///
    /// Verbs that run the command to its end call the reader on their own thread: a reader that blocks delays the
    /// timeout too. After [`spawn`](crate::Command::spawn) the reader runs on its own background thread, even if no
    /// verb waits. That thread ends with the reader or with the child, but a blocked call of `read` has to return
    /// first.
    ///
    /// # Errors
    /// If the reader fails, or panics after `spawn`, the verb that waits returns the error. The child is killed,
    /// because it could mistake the partial input for all of it. After `spawn` on Linux without pidfds it is not
    /// killed: it sees the end of its input, and the error is returned after it has ended.
    #[must_use]
    pub fn reader(reader: impl io::Read + Send + 'static) -> Stdio {
        Stdio(Choice::Reader(Mutex::new(Some(Box::new(reader)))))
    }
}

impl<T: Into<StdStdio>> From<T> for Stdio {
    /// Gives the child a copy of the handle, or converts a [`process::Stdio`](crate::process::Stdio). The command
    /// keeps the handle open until it is dropped.
    fn from(owner: T) -> Stdio {
        Stdio(match owner.into().into_kind() {
            StdioKind::Null => Choice::Null,
            StdioKind::Piped => Choice::Piped(STD_STDIN_MODE),
            StdioKind::Parent(stream) => Choice::Parent(stream),
            StdioKind::Handle(handle) => Choice::Handle(handle),
            _ => Choice::Inherit,
        })
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.0 {
            Choice::Inherit => "Inherit",
            Choice::Null => "Null",
            Choice::Piped(_) => "Piped",
            Choice::Tee(_) => "Tee",
            Choice::TeeTarget(_, target) => {
                return f.debug_tuple("Stdio::tee_to").field(target).finish();
            }
            Choice::Parent(stream) => return write!(f, "Stdio({stream:?})"),
            Choice::Handle(handle) => return f.debug_tuple("Stdio").field(handle).finish(),
            Choice::Open(file) => return f.debug_tuple("Stdio::open").field(&file.path).finish(),
            Choice::Create(file) => {
                return f.debug_tuple("Stdio::create").field(&file.path).finish();
            }
            Choice::Append(file) => {
                return f.debug_tuple("Stdio::append").field(&file.path).finish();
            }
            Choice::Bytes(bytes) => return write!(f, "Stdio::bytes({} bytes)", bytes.len()),
            Choice::BytesOf(_) => "BytesOf",
            Choice::Reader(_) => "Reader",
            Choice::TeeWith(_) => return f.write_str("Stdio::tee_with"),
            Choice::TeeMap(_) => return f.write_str("Stdio::tee_map"),
        };
        write!(f, "Stdio({name})")
    }
}

/// The time between two looks at a cancellation.
const LOOK: Duration = Duration::from_millis(20);

/// A file, opened when the command starts.
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    /// A pointer, so that a program without such a file does not contain the code.
    pub(super) open: fn(&Path, &OpenOptions, &Rules) -> io::Result<File>,
}

impl NamedFile {
    pub(super) fn new(path: PathBuf) -> NamedFile {
        NamedFile { path, open }
    }
}

fn open(path: &Path, options: &OpenOptions, rules: &Rules) -> io::Result<File> {
    let Rules { timeout, deadline, cancel, .. } = rules;
    let is_bounded = timeout.is_some() || deadline.is_some() || cancel.is_some();
    if !is_bounded || !late_open::waits(path) {
        return options.open(path);
    }
    // A timeout beyond the range of the clock never expires.
    let by_timeout = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let end = by_timeout.into_iter().chain(*deadline).min();
    let open = LateOpen::start(path, options.clone())?;
    loop {
        let look = Instant::now() + LOOK;
        if let Some(file) = open.wait(Some(end.map_or(look, |end| end.min(look)))) {
            return file;
        }
        let words = "no other process has opened it";
        if cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, words));
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
    }
}

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
    /// Gives the child a terminal of its own, of this size: its stdin, stdout and stderr, and the controlling terminal
    /// of a new session. Programs then behave as for a person: with colours, prompts, progress bars and line buffering.
    ///
    /// All verbs work as before. The terminal's output is the child's stdout, with the text of stderr in it, and with
    /// CR LF where the child writes a line feed ([`lines`](Self::lines) removes both). Every byte that was written
    /// before the child's end is read, and the end of the stream does not depend on this process.
    ///
    /// A stream that you set is not the terminal: [`stderr(Stdio::piped())`](Self::stderr) keeps stderr apart, and
    /// `stdin(Stdio::null())` gives an empty stdin. Only a tee for stdout leaves stdout the terminal, and copies its
    /// output. One of stdout and stderr has to be the terminal.
    ///
    /// The capturing verbs type the end of the input once, before the start, because nobody types anything else: a
    /// program that reads lines finds an empty stdin. A program that reads keys waits, so set a
    /// [`timeout`](Self::timeout) or `stdin(Stdio::null())`. [`status`](Self::status) and [`run`](Self::run) copy the
    /// output to this process's stdout. After [`spawn`](Self::spawn), [`Child::pty`](crate::Child::pty) types, resizes
    /// and reads; [`child.stdout`](crate::Child::stdout) reads as well.
    ///
    /// A stop reaches the group of the child, and the descendants that can be found. When the last handle of this side
    /// is closed (the [`Child`](crate::Child) is dropped, this process ends), the terminal hangs up and the session
    /// gets SIGHUP.
    ///
    /// # Platform
    /// Linux: `/dev/ptmx`, `TIOCSPTLCK`, `TIOCGPTPEER`; in the child `setsid` and `TIOCSCTTY`, without a fork. macOS
    /// (type-checked, never run): `posix_openpt`; the child is forked. Windows 10 1809 and later:
    /// `CreatePseudoConsole`. The Windows part has never run on Windows: Wine has a stub, which starts children and
    /// passes no byte.
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
            Some(Choice::TeeWith(open) | Choice::TeeMap(open)) => {
                Some(Some(TeeTarget::Closure(open.clone())))
            }
            Some(_) => None,
        })
    }

    /// Returns the tee of a stream that is not set. A stream that would be inherited is copied, unless the caller gets
    /// the child and reads it.
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
