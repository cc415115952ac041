//! A started child, in std's shape.

mod limits;
mod read_all;
#[cfg(feature = "tokio")]
mod task;
mod wait;

use std::ffi::OsStr;
use std::sync::{Mutex, PoisonError};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::pty::{ChildTerminal, Pty};

use crate::error::Error;
use crate::process_handle::ProcessHandle;
use crate::run::{OwnedProcess, RunSettings, SpawnedRun, Started, TerminalEnds};
use crate::{ChildStderr, ChildStdin, ChildStdout};
#[cfg(feature = "tokio")]
pub(crate) use task::async_waits;

/// A running child, or one that has ended.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// As in std, the child keeps running. Unlike in std, it does not become a zombie: a background thread, started for
/// the first such child, reaps it when it ends.
///
/// If the child's tree is contained ([`Contain::Tree`](crate::Contain::Tree)), the drop kills the child and its tree,
/// and waits for them for at most 1 s. With [`kill_on_drop`](crate::Command::kill_on_drop), the drop kills the child.
#[derive(Debug)]
pub struct Child {
    /// The parent's end of the child's stdin, if piped. Dropping it closes the child's input.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's stdout, if piped.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's stderr, if piped.
    pub stderr: Option<ChildStderr>,
    pty: Option<Pty>,
    /// The child's side of its terminal, on a system where this process has to close it when the child has ended.
    child_terminal: Mutex<Option<ChildTerminal>>,
    run: SpawnedRun<OwnedProcess>,
}

impl Child {
    pub(crate) fn new(started: Started, program: &OsStr, options: &RunSettings) -> Child {
        let Started { process, mut ends, at, foreground } = started;
        let (pty, child_end) = match ends.terminal.take() {
            Some(TerminalEnds { pty, child_end }) => (Some(pty), child_end.release()),
            None => (None, None),
        };
        let child_terminal = Mutex::new(child_end);
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(process, ends, program.to_owned(), at, foreground, options);
        Child { stdin, stdout, stderr, pty, child_terminal, run }
    }

    /// Returns the process id. The name is std's.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process().pid()
    }

    /// Returns the process id, like [`id`](Self::id).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Returns the handle that the other crates of this project wait for, together with their own sources.
    #[doc(hidden)]
    #[must_use]
    pub fn child_handle(&self) -> &ChildHandle {
        self.process()
    }

    /// Kills the child, the process group that it leads, if any, and the descendants that can be found. A child
    /// that has already ended is not an error. The child still has to be waited for, or dropped.
    ///
    /// # Errors
    /// The child changed its user, so this process may not signal it. Or there was no room to find all descendants
    /// ([`ErrorKind::Limit`](crate::ErrorKind::Limit)): the others are killed.
    #[doc(alias = "terminate")]
    pub fn kill(&self) -> Result<(), Error> {
        self.run.kill()
    }

    /// Returns the mechanism that contains the child. It decides which processes [`kill`](Self::kill), a timeout and a
    /// cancel reach.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.process().containment()
    }

    /// Sends a signal to the child alone. Returns `false` if it has already ended.
    ///
    /// A later process with the same pid never gets the signal.
    ///
    /// # Errors
    /// The child changed its user, so this process may not signal it.
    /// [`Unsupported`](crate::ErrorKind::Unsupported): Windows cannot send this signal to the child (see
    /// [`own_group`](crate::Command::own_group)); it can always send `KILL`.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        self.process().signal(signal).map_err(|error| self.run.cannot("signal", error))
    }

    /// Returns the terminal of a child that was started with [`Command::pty`](crate::Command::pty).
    ///
    /// [`stdout`](Self::stdout) is a handle that reads the terminal, and [`Pty::reader`] returns others. The reader finds
    /// the end of the stream when the last process has closed the terminal.
    ///
    /// # Platform
    /// Windows before 11 24H2: the stream ends once a method of the child has found that the child has ended.
    ///
    /// ```
    /// # if cfg!(unix) {
    /// use pipewright::{Command, PtySize};
    /// use std::io::Write as _;
    /// let child = Command::new("sh")
    ///     .args(["-c", "read line; echo got $line; stty size"])
    ///     .pty(PtySize::default())
    ///     .spawn()?;
    /// let pty = child.pty().unwrap();
    /// pty.set_echo(false).unwrap();
    /// pty.resize(PtySize { rows: 50, cols: 132 }).unwrap();
    /// pty.writer().unwrap().write_all(b"hello\n").unwrap();
    /// assert_eq!(child.read_all_text()?.stdout, "got hello\r\n50 132\r\n");
    /// # }
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use]
    pub fn pty(&self) -> Option<&Pty> {
        self.pty.as_ref()
    }

    /// Returns the program, for errors.
    #[cfg(feature = "session")]
    pub(crate) fn program(&self) -> &OsStr {
        self.run.program()
    }

    /// Closes the handle that reads the terminal.
    #[cfg(feature = "session")]
    pub(crate) fn forget_terminal_reader(&mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            stream.take_if(|reader| reader.most_buffered_of_terminal().is_some());
        }
    }

    /// Takes the child's side of its terminal, which ends the output when it is dropped.
    fn take_child_terminal(&self) -> Option<ChildTerminal> {
        // A pointer, which is consistent at any time.
        self.child_terminal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn process(&self) -> &OwnedProcess {
        self.run.processes()
    }
}

impl From<Child> for ProcessHandle {
    /// Keeps the process and drops the rest: streams that were not taken are closed, and timeouts no longer apply.
    /// Input that was given to the command is still fed.
    fn from(child: Child) -> ProcessHandle {
        let (process, program) = child.run.into_parts();
        ProcessHandle::started(process, &program)
    }
}
