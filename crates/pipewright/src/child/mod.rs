//! A started child, in std's shape: waiting for it, stopping it, reading all of it, and its limits.

#[cfg(feature = "tokio")]
mod task;

use std::ffi::OsStr;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::limits::{HeldLimits, OutOfMemory, TreeResources};
use pipewright_os::process::pty::{ChildTerminal, Pty};
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::TreeUsage;
#[cfg(feature = "tokio")]
pub(crate) use task::async_waits;

use crate::error::Error;
use crate::events::Events;
use crate::lines::Lines;
use crate::output::{Capture, Output};
use crate::process_handle::ProcessHandle;
use crate::run::{
    Collect, HeldTerminal, OwnedProcess, Run, RunSettings, SpawnedRun, Started, StopRequest,
    TerminalEnds,
};
use crate::text::into_text;
use crate::{ChildStderr, ChildStdin, ChildStdout};

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

/// Waits, which several threads may call at once.
impl Child {
    /// Waits until the child has ended. First closes its piped stdin, if it was not taken, so that a child that
    /// reads to the end of its input ends.
    ///
    /// The command's timeouts and cancel token apply. Piped streams are not read: use
    /// [`wait_with_output`](Self::wait_with_output) for a child that may fill them.
    ///
    /// # Errors
    /// The status is lost ([`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost)), or the wait itself failed,
    /// which does not affect the child. If a [`Stdio::reader`](crate::Stdio::reader) that feeds stdin failed, the
    /// child was killed, and this returns the reader's error.
    pub fn wait(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.wait_async());
        match self.wait_until(None)? {
            Some(status) => Ok(status),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.run.cannot("wait for", io::ErrorKind::TimedOut.into())),
        }
    }

    /// Returns the exit status, or `None` while the child runs. Never blocks, and enforces no timeout.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let ended =
            self.process().try_wait().map_err(|error| self.run.cannot("wait for", error))?;
        if ended.is_some() {
            drop(self.take_child_terminal());
            self.run.ended();
        }
        Ok(ended.map(|ended| ended.status))
    }

    /// Waits until the child has ended, for at most `limit`. Returns `None` if it is still running then; it keeps
    /// running. Otherwise like [`wait`](Self::wait): a piped stdin is closed first, and the command's timeouts and
    /// cancel token apply meanwhile.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    ///
    /// ```
    /// use pipewright::Command;
    /// use std::time::Duration;
    /// let child = Command::new("sleep").arg("60").spawn()?;
    /// assert_eq!(child.try_wait_for(Duration::from_millis(10))?, None);
    /// child.kill()?;
    /// assert!(child.try_wait_for(Duration::from_secs(60))?.is_some());
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "wait_timeout")]
    pub fn try_wait_for(&self, limit: Duration) -> Result<Option<ExitStatus>, Error> {
        run_async_for_test!(self.try_wait_for_async(limit));
        // A limit too long for the clock means no limit.
        self.wait_until(Instant::now().checked_add(limit))
    }

    /// Stops the child as a timeout does, and waits for its end. Sends the command's
    /// [`stop_signal`](crate::Command::stop_signal) to every process that [`kill`](Self::kill) would kill, and
    /// after its [`kill_grace`](crate::Command::kill_grace) kills those that remain. If the child has already
    /// ended, that is not an error, and nothing is signalled.
    ///
    /// Meanwhile, piped streams are not read and stdin is not closed.
    ///
    /// # Platform
    /// Windows: a child that cannot receive a stop signal (see [`own_group`](crate::Command::own_group)) is killed
    /// at once.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait) and [`kill`](Self::kill).
    ///
    /// ```
    /// use pipewright::{Command, Signal};
    /// let child = Command::new("sleep").arg("60").spawn()?;
    /// assert_eq!(child.stop()?.terminating_signal(), Some(Signal::TERM));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "terminate")]
    pub fn stop(&self) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_async());
        self.stop_as(self.run.stop_request())
    }

    /// Like [`stop`](Self::stop), with this signal and grace instead of the command's. A zero grace kills at once.
    ///
    /// # Errors
    /// Those of [`stop`](Self::stop).
    pub fn stop_with(&self, signal: Signal, grace: Duration) -> Result<ExitStatus, Error> {
        run_async_for_test!(self.stop_with_async(signal, grace));
        self.stop_as(StopRequest { signal, grace })
    }

    fn stop_as(&self, request: StopRequest) -> Result<ExitStatus, Error> {
        self.run.stop(request)?;
        self.status()
    }

    fn wait_until(&self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        self.run.close_stdin(self.stdin.as_ref())?;
        if self.run.needs_a_run() {
            if !self.run.wait(until)? {
                return Ok(None);
            }
        } else {
            let waited = match until {
                // Without pidfds, waiting for several things at once would need a thread.
                None => self.process().wait().map(drop),
                until => wait::any(&mut [Slot::Event(&**self.process())], until).map(drop),
            };
            waited.map_err(|error| self.run.cannot("wait for", error))?;
        }
        let status = self.try_wait()?;
        if status.is_some() {
            self.run.stop_input()?;
        }
        Ok(status)
    }

    /// Returns the status of a child that has ended.
    pub(super) fn status(&self) -> Result<ExitStatus, Error> {
        let ended = self.process().wait().map_err(|error| self.run.cannot("wait for", error))?;
        drop(self.take_child_terminal());
        self.run.ended();
        self.run.stop_input()?;
        Ok(ended.status)
    }
}

/// Verbs that read both streams while feeding the child's input, so that nothing deadlocks, and wait for the child.
///
/// They first close a piped stdin, unless you have taken it. In the result, a stream that is not piped, or that you
/// have taken, is empty, and its number of bytes ([`stdout_bytes`](crate::Captured::stdout_bytes)) is `None`. The
/// command's timeouts, limits and cancel token apply; the timeout counts from the start.
impl Child {
    /// Reads both streams to the end, waits for the child, and returns its output as bytes.
    ///
    /// # Errors
    /// The child could not be read from or waited for; it is then no longer running.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("sh")
    ///     .args(["-c", "echo out; echo err >&2"])
    ///     .stdout(Stdio::piped())
    ///     .stderr(Stdio::null())
    ///     .spawn()?;
    /// let output = child.read_all_bytes()?;
    /// assert_eq!((output.stdout.as_slice(), output.stderr_bytes), (&b"out\n"[..], None));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_bytes(self) -> Result<Output, Error> {
        run_async_for_test!(self.read_all_bytes_async());
        self.into_run(Collect::All).finish()
    }

    /// Same as [`read_all_bytes`](Self::read_all_bytes), under std's name.
    ///
    /// # Errors
    /// Those of [`read_all_bytes`](Self::read_all_bytes).
    pub fn wait_with_output(self) -> Result<Output, Error> {
        self.read_all_bytes()
    }

    /// Reads both streams to the end, waits for the child, and returns its output as text, decoded as by
    /// [`Command::capture`](crate::Command::capture).
    ///
    /// # Errors
    /// Those of [`read_all_bytes`](Self::read_all_bytes), and output that is not UTF-8 with `strict_utf8`.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.read_all_text()?.stdout, "hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_text(self) -> Result<Capture, Error> {
        run_async_for_test!(self.read_all_text_async());
        let (program, decoding) = (self.run.program().clone(), self.run.options().decoding);
        into_text(&program, decoding, self.read_all_bytes()?)
    }

    /// Returns an iterator over the lines of both streams as they arrive, like
    /// [`Command::lines`](crate::Command::lines). [`Lines::finish`] waits for the child.
    ///
    /// # Errors
    /// The command's encoding is not ASCII-compatible, so line ends cannot be found. The child is then dropped.
    /// Later errors are items.
    ///
    /// ```
    /// use pipewright::{Command, Stdio};
    /// let child = Command::new("seq").arg("3").stdout(Stdio::piped()).spawn()?;
    /// let lines: Result<Vec<_>, _> = child.read_all_lines()?.collect();
    /// assert_eq!(lines?.len(), 3);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn read_all_lines(self) -> Result<Lines, Error> {
        let RunSettings { decoding, max_line_bytes, .. } = *self.run.options();
        decoding.check_splits_at_line_feeds(self.run.program())?;
        Ok(Lines::new(self.into_run(Collect::Chunks).enforced(), decoding, max_line_bytes))
    }

    /// Returns an iterator over the child's events from now on, like [`Command::events`](crate::Command::events):
    /// the start, output of either piped stream, and the end.
    ///
    /// ```
    /// use pipewright::{Command, Event, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn()?;
    /// let mut written = Vec::new();
    /// for event in child.read_all_events() {
    ///     match event? {
    ///         Event::Stdout(bytes) => written.extend(bytes),
    ///         Event::Exited(ending) => assert!(ending.success()),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(written, b"hi\n");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[must_use = "the child waits when its pipes are full"]
    pub fn read_all_events(self) -> Events {
        Events::new(self.into_run(Collect::Chunks).enforced())
    }

    /// Returns the run that reads the streams.
    pub(super) fn into_run(mut self, collect: Collect) -> Run {
        let outputs = [self.stdout.take(), self.stderr.take()];
        let terminal = HeldTerminal { pty: self.pty.take(), child_end: self.take_child_terminal() };
        self.run.into_run((self.stdin.take(), outputs), terminal, collect)
    }
}

/// Limits and resources of a child with [limits](crate::Command::limits). All of these return `None` for other children. Each
/// call asks the kernel, and costs a few reads of files.
impl Child {
    /// Returns the limits in force, and those that are missing.
    #[must_use]
    pub fn limits(&self) -> Option<HeldLimits> {
        self.resources().map(|resources| resources.held)
    }

    /// Returns the resources that all processes of the child have used so far.
    ///
    /// ```
    /// use pipewright::{Command, Limits, Stdio};
    /// let limits = Limits::new().pids_max(50).best_effort();
    /// let child = Command::new("sort").limits(limits).stdin(Stdio::piped()).spawn();
    /// if let Ok(child) = child {
    ///     let used = child.tree_usage().and_then(|usage| usage.peak_pids);
    ///     println!("{used:?} processes at most");
    /// }
    /// ```
    #[must_use]
    pub fn tree_usage(&self) -> Option<TreeUsage> {
        self.resources().map(|resources| resources.usage)
    }

    /// Returns the facts about a kill for lack of memory, if the kernel has killed a process of the child so far. The child itself
    /// may run on, and [`wait`](Self::wait) returns its exit status as that of any other.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<OutOfMemory> {
        self.resources()?.out_of_memory
    }

    fn resources(&self) -> Option<TreeResources> {
        self.process().tree()?.resources()
    }
}
