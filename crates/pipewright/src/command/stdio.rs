//! What a child's standard handle can be.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe::Mode;
use pipewright_os::process::std_process::{
    ParentStream, STD_STDIN_MODE, Stdio as StdStdio, StdioKind,
};

use super::Command;
use crate::error::Error;
use crate::run::{OpenTee, TeeTarget, on_demand};

/// What a child's stdin, stdout or stderr is to be.
///
/// Beside std's constructors there are files by their paths, input from memory, and
/// [`tee`](Stdio::tee). Anything that owns a handle converts: `File`, `OwnedFd`, a
/// [`PipeReader`](crate::PipeReader), another child's stream; so do `io::stdout()`, `io::stderr()` and
/// [`process::Stdio`](crate::process::Stdio).
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

/// The choices.
pub(super) enum Choice {
    Inherit,
    Null,
    /// How our end of stdin is made; those of the others can always be waited for.
    Piped(Mode),
    Tee(OpenTee),
    TeeTarget(FindTee, Box<Stdio>),
    Handle(Handle),
    /// Our stdout or stderr, whichever stream of the child it becomes.
    Parent(ParentStream),
    Open(PathBuf),
    Create(PathBuf),
    Append(PathBuf),
    Bytes(Arc<Vec<u8>>),
    /// Taken by the first run.
    Reader(Mutex<Option<Box<dyn io::Read + Send>>>),
}

/// Finds what a stream is passed on to. By a pointer: see [`on_demand`](crate::run::on_demand).
pub(super) type FindTee = fn(&Command, stream: usize, target: &Stdio) -> Result<TeeTarget, Error>;

impl Stdio {
    /// Ours.
    #[must_use]
    pub fn inherit() -> Stdio {
        Stdio(Choice::Inherit)
    }

    /// Nothing to read; whatever is written vanishes.
    #[must_use]
    pub fn null() -> Stdio {
        Stdio(Choice::Null)
    }

    /// A pipe to us: captured by the verbs that capture, a field of [`Child`](crate::Child) after
    /// `spawn`.
    #[doc(alias = "pipe")]
    #[must_use]
    pub fn piped() -> Stdio {
        Stdio(Choice::Piped(Mode::Sync))
    }

    /// The same, where our end of stdin is to be written to by a task.
    ///
    /// # Platform
    /// Unix: no difference. Windows: our end of stdin overlaps, as
    /// those of the other streams always do, so that
    /// [`into_async`](crate::PipeWriter#method.into_async) (feature `tokio`) takes no thread. A
    /// `write` waits until it is done all the same; only who gives the handle away
    /// gives away one that overlaps.
    #[must_use]
    pub fn piped_async() -> Stdio {
        Stdio(Choice::Piped(Mode::Async))
    }

    /// For stdout and stderr: captured, and passed through to ours as it comes.
    ///
    /// Where ours is not read, the child's is not read either and the child waits; timeouts, kills
    /// and cancels come in time all the same, and the idle timeout does not count meanwhile. When
    /// the command is stopped, ours has to go on taking what is left, or 250 ms later that is given
    /// up. Where ours fails (a full disk, a reader that has gone), capturing goes on, and
    /// [`tee_failed`](crate::Captured::tee_failed) tells; the verbs that have no place for that fail
    /// instead, unless it is the reader that has gone. A stream of ours that is closed takes nothing
    /// and is no failure. The mode of our stream, which others may share, is not changed.
    ///
    /// # Platform
    /// Linux: a pipe or a terminal is opened anew through `/proc/self/fd`, for an `O_NONBLOCK` of our
    /// own; where that is refused, `poll` and writes of at most `PIPE_BUF`, which a terminal that is
    /// stopped can hold up. A file is written to as it is, so a disk that does not answer holds up
    /// the run.
    #[must_use]
    pub fn tee() -> Stdio {
        Stdio(Choice::Tee(on_demand::OPEN_TEE))
    }

    /// For stdout and stderr: captured, and passed on to a file, or to whatever has a handle, as it comes: what is
    /// written there is seen, so that [`idle_timeout`](crate::Command::idle_timeout) and
    /// [`limit`](crate::Command::limit) hold for it.
    ///
    /// As with [`tee`](Self::tee), which is what it is to [`inherit`](Self::inherit). A stage of a pipeline has its
    /// stdout passed on so, where it is the last, and not its stderr: that is one pipe for all stages.
    ///
    /// # Platform
    /// As with [`tee`](Self::tee).
    ///
    /// ```
    /// use pipewright::{Command, Limit, Outcome, Stdio};
    /// let log = std::env::temp_dir().join(format!("tee-to-doc-{}", std::process::id()));
    /// let mut command = Command::new("yes");
    /// command.stdout(Stdio::tee_to(Stdio::create(&log))).limit(Limit::fail(10_000));
    /// assert_eq!(command.output()?.outcome, Outcome::LimitExceeded);
    /// assert!(std::fs::metadata(&log).unwrap().len() >= 10_000);
    /// # std::fs::remove_file(log).unwrap();
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn tee_to(target: impl Into<Stdio>) -> Stdio {
        Stdio(Choice::TeeTarget(Command::find_tee, Box::new(target.into())))
    }

    /// The file at that path, which must exist, to read from. It is opened when the command runs.
    #[must_use]
    pub fn open(path: impl Into<PathBuf>) -> Stdio {
        Stdio(Choice::Open(path.into()))
    }

    /// The file at that path, made or emptied, to write to. It is opened when the command runs.
    #[must_use]
    pub fn create(path: impl Into<PathBuf>) -> Stdio {
        Stdio(Choice::Create(path.into()))
    }

    /// The file at that path, made where it is missing, to append to. It is opened when the
    /// command runs.
    #[must_use]
    pub fn append(path: impl Into<PathBuf>) -> Stdio {
        Stdio(Choice::Append(path.into()))
    }

    /// For stdin: these bytes, then the end. They are fed while the output is read, so any amount
    /// is safe; a child that does not take them all is no error (see
    /// [`stdin_unread`](crate::Captured::stdin_unread)).
    ///
    /// After [`spawn`](crate::Command::spawn) they are fed whether a verb waits or not: what fits into the pipe at
    /// once, and the rest by the background thread that also reaps dropped children, until the child ends.
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

    /// For stdin: everything that the reader gives, read when the child takes it. A command runs with it once.
    ///
    /// The verbs that run the command to its end read it on their own thread: a reader that blocks holds up the
    /// timeout as well. After [`spawn`](crate::Command::spawn) it is read on a background thread of its own, whether a
    /// verb waits or not. That thread ends with the reader or with the child, but a call of `read` that blocks has to
    /// return first.
    ///
    /// # Errors
    /// A reader that fails, or panics after `spawn`, is an error of the verb that waits. The child is killed: it could
    /// take the part that it has for the whole. (Linux without pidfds: not after `spawn`. The child finds the end of its
    /// input then, and the error is told when it has ended.)
    #[must_use]
    pub fn reader(reader: impl io::Read + Send + 'static) -> Stdio {
        Stdio(Choice::Reader(Mutex::new(Some(Box::new(reader)))))
    }
}

impl<T: Into<StdStdio>> From<T> for Stdio {
    /// Gives the child a copy of a handle, which the command keeps open until it is dropped; or
    /// what a [`process::Stdio`](crate::process::Stdio) says.
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
            Choice::Open(path) => return f.debug_tuple("Stdio::open").field(path).finish(),
            Choice::Create(path) => return f.debug_tuple("Stdio::create").field(path).finish(),
            Choice::Append(path) => return f.debug_tuple("Stdio::append").field(path).finish(),
            Choice::Bytes(bytes) => return write!(f, "Stdio::bytes({} bytes)", bytes.len()),
            Choice::Reader(_) => "Reader",
        };
        write!(f, "Stdio({name})")
    }
}
