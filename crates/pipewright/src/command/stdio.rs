//! The choices for the standard handles of a child, and the files that they name.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::late_open::{self, LateOpen};
use pipewright_os::base::pipe::Mode;
use pipewright_os::process::std_process::{
    ParentStream, STD_STDIN_MODE, Stdio as StdStdio, StdioKind,
};

use super::Command;
use crate::error::Error;
use crate::input::Owner;
use crate::outcome::Source;
use crate::rules::Rules;
use crate::run::{OpenTee, OpenTeeWith, TeeTarget, on_demand, open_tee_map, open_tee_with};

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
pub(super) type OpenTeeTarget =
    fn(&Command, stream: usize, target: &Stdio) -> Result<TeeTarget, Error>;

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
    /// cancels still act in time, and the idle timeout pauses meanwhile. After a stop, and if the time is up, a limit is exceeded or
    /// the run is cancelled after the child's end, the remaining output is given up if the target accepts nothing for 250 ms, or
    /// not all of it in 5 s. If the target fails (a full disk, a closed reader), the capture
    /// continues and [`tee_failed`](crate::Captured::tee_failed) reports the failure. Verbs that cannot report it fail
    /// instead, unless the reader was closed. If this process's stream is closed, nothing is written to it, and that
    /// is not a failure. With [`Limit::fail`](crate::Limit::fail) the target gets no byte beyond the limit. The mode of the target, which other processes may share, is not changed.
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
    /// A panic of the closure continues in the verb, after the chunk has been handled. If it is caught, lines, events and
    /// a [`Runner`](crate::Runner) can continue with nothing lost. A verb that it ends has dropped the run: the child's
    /// streams are closed. The child is killed if a task waited for it, or with
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

    /// Captures the stream, and passes on what the closure makes of each chunk, to that stream of this process. Otherwise like
    /// [`tee`](Self::tee).
    #[doc(hidden)]
    #[must_use]
    pub fn tee_map(to: Source, map: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> Stdio {
        Stdio(Choice::TeeWith(open_tee_map(to, map)))
    }

    /// Reads from the file at `path`, which must exist. It is opened when the command runs. The open of a named pipe waits for its
    /// other side, within the timeout of the command and until it is cancelled.
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
