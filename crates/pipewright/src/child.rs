//! A started child, in std's shape: waiting for it, stopping it, reading all of it, and its limits.

use std::ffi::OsStr;

use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::limits::{HeldLimits, OutOfMemory, TreeResources};
use pipewright_os::process::pty::Pty;
use pipewright_os::process::tree::processes_of;
use pipewright_os::process::usage::TreeUsage;

use crate::error::Error;
#[cfg(feature = "tokio")]
use crate::events::AsyncEvents;
use crate::events::Events;
#[cfg(feature = "tokio")]
use crate::lines::AsyncLines;
use crate::lines::Lines;
use crate::output::{Capture, Output, into_text};
use crate::process_handle::ProcessHandle;
#[cfg(feature = "tokio")]
use crate::run::check_runtime_to_wait;
use crate::run::{
    Collect, OwnedProcess, Run, RunSettings, SpawnedRun, Started, TerminalEnds, spawned_verbs,
};
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
    run: SpawnedRun<OwnedProcess>,
}

impl Child {
    pub(crate) fn new(started: Started, program: &OsStr, options: &RunSettings) -> Child {
        let Started { process, mut ends, at, foreground } = started;
        let (pty, child_end) = match ends.terminal.take() {
            Some(TerminalEnds { pty, child_end }) => (Some(pty), child_end.release()),
            None => (None, None),
        };
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(process, ends, program.to_owned(), at, foreground, options);
        Child { stdin, stdout, stderr, pty, run: run.with_terminal(child_end) }
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

    /// Returns the mechanism that contains the child. It decides which processes [`kill`](Self::kill), a timeout and a
    /// cancel reach.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.process().containment()
    }

    /// Returns the process ids of the child's tree, for people to read and for tools: of the child, unless it has
    /// ended, and of its descendants that can be found. With [`Contain::Tree`](crate::Contain::Tree) those are all
    /// that it ever started; a supervisor is not among them. Any of them may end meanwhile.
    ///
    /// # Platform
    /// Linux: `cgroup.procs` of its cgroup, and `/proc/PID/task/TID/children`. macOS: `proc_listpids`. Windows: the
    /// list of its job, and `CreateToolhelp32Snapshot`.
    ///
    /// # Errors
    /// Not all of them can be listed or opened. `Unsupported`: this system shows none, as without `/proc`.
    ///
    /// ```
    /// use pipewright::{Command, Contain};
    /// let mut command = Command::new("sh");
    /// let child = command.args(["-c", "sleep 600 & sleep 600"]).contain(Contain::Tree).spawn()?;
    /// let own = child.tree_processes()?;
    /// assert!(own.contains(&child.pid()));
    /// child.kill()?;
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn tree_processes(&self) -> Result<Vec<u32>, Error> {
        let listed = processes_of(self.process());
        listed.map_err(|error| Error::cannot(self.run.program(), "list the processes of", error))
    }

    /// Returns the terminal of a child that was started with [`Command::pty`](crate::Command::pty).
    ///
    /// [`stdout`](Self::stdout) is a handle that reads the terminal, and [`Pty::reader`] returns others. The reader
    /// finds the end of the stream when the last process has closed the terminal.
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

spawned_verbs!(Child);

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
        self.run.into_run((self.stdin.take(), outputs), self.pty.take(), collect)
    }
}

/// Limits and resources of a child with [limits](crate::Command::limits). All of these return `None` for other
/// children. Each call asks the kernel, and costs a few reads of files.
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

    /// Returns the facts about a kill for lack of memory, if the kernel has killed a process of the child so far. The
    /// child itself may run on, and [`wait`](Self::wait) returns its exit status as that of any other.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<OutOfMemory> {
        self.resources()?.out_of_memory
    }

    fn resources(&self) -> Option<TreeResources> {
        self.process().tree()?.resources()
    }
}

/// Async reads for tokio tasks, with the feature `tokio`.
#[cfg(feature = "tokio")]
impl Child {
    /// Like [`read_all_bytes`](Self::read_all_bytes), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the child.
    ///
    /// # Errors
    /// Those of [`read_all_bytes`](Self::read_all_bytes); `Unsupported` outside a tokio runtime. The child is then
    /// dropped, not killed.
    pub async fn read_all_bytes_async(self) -> Result<Output, Error> {
        check_runtime_to_wait(self.run.program())?;
        self.into_run(Collect::All).finish_async().await
    }

    /// Same as [`read_all_bytes_async`](Self::read_all_bytes_async), under the name in std and tokio.
    ///
    /// # Cancellation
    /// Dropping the future drops the child.
    ///
    /// # Errors
    /// Those of [`read_all_bytes_async`](Self::read_all_bytes_async).
    pub async fn wait_with_output_async(self) -> Result<Output, Error> {
        self.read_all_bytes_async().await
    }

    /// Like [`read_all_text`](Self::read_all_text), without blocking the thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the child.
    ///
    /// # Errors
    /// Those of [`read_all_text`](Self::read_all_text); `Unsupported` outside a tokio runtime. The child is then
    /// dropped, not killed.
    pub async fn read_all_text_async(self) -> Result<Capture, Error> {
        let (program, decoding) = (self.run.program().clone(), self.run.options().decoding);
        into_text(&program, decoding, self.read_all_bytes_async().await?)
    }

    /// Like [`read_all_lines`](Self::read_all_lines), for a task.
    ///
    /// # Cancellation
    /// Not async: returns at once. See [`AsyncLines::next`].
    ///
    /// # Errors
    /// Those of [`read_all_lines`](Self::read_all_lines).
    pub fn read_all_lines_async(self) -> Result<AsyncLines, Error> {
        self.read_all_lines().map(AsyncLines::new)
    }

    /// Like [`read_all_events`](Self::read_all_events), for a task.
    ///
    /// # Cancellation
    /// Not async: returns at once. See [`AsyncEvents::next`].
    #[must_use = "the child waits when its pipes are full"]
    pub fn read_all_events_async(self) -> AsyncEvents {
        AsyncEvents::new(self.read_all_events())
    }
}
