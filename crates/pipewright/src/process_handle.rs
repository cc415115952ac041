//! A light handle to one process: a child, or one opened by pid.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::open::{Opened, ProcessState};
use pipewright_os::process::status::ExitStatus;

use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::outcome::Outcome;
use crate::run::OwnedProcess;

/// A handle to one process, without streams: a child ([`start`](Self::start)), or any process of the machine
/// ([`open`](Self::open)).
///
/// The handle refers to the same process for its whole lifetime: a later process with the same pid is never waited
/// for or signalled. All methods take `&self`, so one thread can wait while another kills. Signals and kills reach
/// only the process itself. To reach its descendants too, use a [`Command`](crate::Command) with a timeout, or a
/// [`Child`](crate::Child).
///
/// # Platform
/// Linux: a pidfd. macOS: a kqueue. Windows: a process handle.
///
/// # Drop
/// The process keeps running. If it was started by this handle (or came from a [`Child`](crate::Child)), it is
/// reaped in the background when it ends, unless [`kill_on_drop`](crate::Command::kill_on_drop) was set.
///
/// ```
/// use pipewright::{Command, Outcome, ProcessHandle};
/// use std::time::Duration;
///
/// let process = ProcessHandle::start(Command::new("sleep").arg("60"))?;
/// assert_eq!(process.try_wait_for(Duration::from_millis(10))?, None);
///
/// // A second handle, opened by pid, as another program would.
/// let same = ProcessHandle::open(process.pid())?;
/// assert!(same.kill()?);
/// let end = process.wait()?;
/// assert_eq!(end.outcome, Some(Outcome::Signaled));
/// assert!(!same.kill()?, "it has ended already");
/// # Ok::<(), pipewright::Error>(())
/// ```
#[derive(Debug)]
pub struct ProcessHandle {
    inner: Inner,
    /// The name in errors: the program, or the pid.
    name: OsString,
}

/// The end of a process. The status may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessEnd {
    /// The exit status. `None` if the process was not a child of this process and the system does not report it.
    pub status: Option<ExitStatus>,
    /// The reason for the end: [`TimedOut`](Outcome::TimedOut) or [`Cancelled`](Outcome::Cancelled) if the call
    /// that returned this killed the process. `None` if the reason depends on a status that is not known.
    pub outcome: Option<Outcome>,
}

impl ProcessEnd {
    /// Returns true if the call that returned this killed the process.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::TimedOut | Outcome::Cancelled))
    }

    /// Sets the outcome if the kill may have ended the process. It may also have ended by itself before the kill
    /// arrived.
    fn after_kill(mut self, sent: bool, outcome: Outcome) -> ProcessEnd {
        if sent && self.status.is_none_or(|it| it.was_killed()) {
            self.outcome = Some(outcome);
        }
        self
    }
}

impl ProcessHandle {
    /// Opens the process that has this pid now, whichever process started it. A zombie counts too.
    ///
    /// Pids are reused: the caller has to know that the pid still belongs to the intended process. For a child that
    /// has not been waited for, this is certain. Any process can be opened and waited for (Windows: with
    /// permission); signalling it needs permission.
    ///
    /// If the process is a child of this process, waiting through the handle reaps it, like any other wait.
    ///
    /// # Platform
    /// Linux: `pidfd_open`. If that is refused, this is an error: any other way could signal the wrong process.
    ///
    /// # Errors
    /// [`NoSuchProcess`](ErrorKind::NoSuchProcess): no process has this pid; the id of a thread does not count.
    /// [`InvalidInput`](ErrorKind::InvalidInput): no process can have this pid (0, or more than `i32::MAX`).
    /// [`Unsupported`](ErrorKind::Unsupported): the machine has no process handles.
    /// [`PermissionDenied`](ErrorKind::PermissionDenied) (Windows): this process may not wait for it.
    ///
    /// ```
    /// use pipewright::{ErrorKind, ProcessHandle};
    /// let this = ProcessHandle::open(std::process::id())?;
    /// assert_eq!(this.try_wait()?, None);
    /// assert_eq!(ProcessHandle::open(0).unwrap_err().kind(), &ErrorKind::InvalidInput);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn open(pid: u32) -> Result<ProcessHandle, Error> {
        let name = OsString::from(pid.to_string());
        match Opened::open(pid) {
            Ok(opened) => Ok(ProcessHandle { inner: Inner::Opened(opened), name }),
            Err(error) => Err(could_not_open(&name, error)),
        }
    }

    pub(crate) fn started(process: Arc<OwnedProcess>, program: &OsStr) -> ProcessHandle {
        ProcessHandle { inner: Inner::Started(process), name: program.to_owned() }
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.pid()
    }

    /// Waits until the process has ended, and returns its [`ProcessEnd`]. Later calls return the same.
    ///
    /// # Platform
    /// Linux: `waitid(P_PIDFD)` for a child. For another process the pidfd is polled, and `PIDFD_GET_INFO` (6.15
    /// and later) returns the status once the parent has reaped the process; this waits 50 ms for that.
    ///
    /// # Errors
    /// The process was started by this program, and its status is lost: see [`StatusLost`](ErrorKind::StatusLost).
    pub fn wait(&self) -> Result<ProcessEnd, Error> {
        run_async_for_test!(self.wait_async());
        match self.wait_until(None)? {
            Some(end) => Ok(end),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.cannot(WAIT, io::ErrorKind::TimedOut.into())),
        }
    }

    /// Returns the [`ProcessEnd`], or `None` while the process runs. Never blocks.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ProcessEnd>, Error> {
        self.inner.end().map_err(|error| self.cannot(WAIT, error))
    }

    /// Waits until the process has ended, for at most `limit`. Returns `None` if it is still running then; it keeps
    /// running.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    #[doc(alias = "wait_timeout")]
    pub fn try_wait_for(&self, limit: Duration) -> Result<Option<ProcessEnd>, Error> {
        run_async_for_test!(self.try_wait_for_async(limit));
        match Instant::now().checked_add(limit) {
            None => self.wait().map(Some),
            deadline => self.wait_until(deadline),
        }
    }

    /// Waits until the process has ended. If it is still running after `limit`, kills it and waits for its end
    /// without a limit. Zero kills at once.
    ///
    /// [`ProcessEnd::was_killed`] returns true if the kill ended it, and false if it ended by itself, even at the last
    /// moment.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait) and [`kill`](Self::kill). The process may still be running.
    ///
    /// ```
    /// use pipewright::{Command, Outcome, ProcessHandle};
    /// use std::time::Duration;
    /// let process = ProcessHandle::start(Command::new("sleep").arg("60"))?;
    /// let end = process.wait_or_kill_on_timeout(Duration::from_millis(10))?;
    /// assert_eq!(end.outcome, Some(Outcome::TimedOut));
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn wait_or_kill_on_timeout(&self, limit: Duration) -> Result<ProcessEnd, Error> {
        run_async_for_test!(self.wait_or_kill_on_timeout_async(limit));
        match self.try_wait_for(limit)? {
            Some(end) => Ok(end),
            None => self.kill_and_wait(Outcome::TimedOut),
        }
    }

    /// Waits until the process has ended. If the token is cancelled first, kills the process and waits for its end
    /// without a limit. Signals that the token [passes on](CancelToken::pass_on) are sent to the process.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait) and [`kill`](Self::kill). The process may still be running.
    pub fn wait_or_kill_on_cancel(&self, token: &CancelToken) -> Result<ProcessEnd, Error> {
        run_async_for_test!(self.wait_or_kill_on_cancel_async(token));
        let ended = self.inner.wait(None, Some(token));
        match ended.map_err(|error| self.cannot(WAIT, error))? {
            Some(end) => Ok(end),
            None => self.kill_and_wait(Outcome::Cancelled),
        }
    }

    /// Sends a signal to the process. Returns `false` if it has already ended; then nothing is signalled.
    ///
    /// # Errors
    /// [`PermissionDenied`](ErrorKind::PermissionDenied): the process belongs to another user.
    /// [`Unsupported`](ErrorKind::Unsupported): Windows cannot send this signal to the process; it can always send
    /// `KILL`.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        // A zombie accepts signals without any effect, so check first.
        match self.try_wait() {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(false),
            Err(error) if *error.kind() == ErrorKind::StatusLost => return Ok(false),
            Err(error) => return Err(error),
        }
        self.inner.signal(signal).map_err(|error| self.cannot(SIGNAL, error))
    }

    /// Kills the process. Returns `false` if it has already ended; then nothing is killed. The process still has to
    /// be waited for, or its handle dropped.
    ///
    /// # Errors
    /// Those of [`signal`](Self::signal).
    pub fn kill(&self) -> Result<bool, Error> {
        self.signal(Signal::KILL)
    }

    fn kill_and_wait(&self, outcome: Outcome) -> Result<ProcessEnd, Error> {
        let sent = self.kill()?;
        Ok(self.wait()?.after_kill(sent, outcome))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<Option<ProcessEnd>, Error> {
        self.inner.wait(deadline, None).map_err(|error| self.cannot(WAIT, error))
    }

    fn cannot(&self, operation: [&'static str; 2], error: io::Error) -> Error {
        let [to_child, to_opened] = operation;
        let operation = if matches!(self.inner, Inner::Started(_)) { to_child } else { to_opened };
        Error::cannot(&self.name, operation, error)
    }
}

/// The name of an action in errors: for a child, which has a name, and for a process known by pid.
const WAIT: [&str; 2] = ["wait for", "wait for process"];
const SIGNAL: [&str; 2] = ["signal", "signal process"];

fn could_not_open(number: &OsStr, error: io::Error) -> Error {
    const DOING: &str = "open process";
    let kind = match error.kind() {
        io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => return Error::cannot(number, DOING, error),
    };
    Error::new(number, FailedOperation::Child(DOING), kind, Some(error))
}

/// A parent that reaps its children should reap an ended process within this time. Until then the system does not
/// report the status.
const REAP_WAIT: Duration = Duration::from_millis(50);

#[derive(Debug)]
enum Inner {
    Started(Arc<OwnedProcess>),
    Opened(Opened),
}

impl Inner {
    fn pid(&self) -> u32 {
        match self {
            Inner::Started(process) => process.pid(),
            Inner::Opened(opened) => opened.member().pid(),
        }
    }

    /// Returns the end, if the process has ended.
    fn end(&self) -> io::Result<Option<ProcessEnd>> {
        Ok(match self {
            Inner::Started(process) => process.try_wait()?.map(|ended| end_of(Some(ended.status))),
            Inner::Opened(opened) => match opened.state()? {
                ProcessState::Running => None,
                ProcessState::Ended(ended) => Some(end_of(Some(ended.status))),
                ProcessState::StatusUnknown => Some(end_of(None)),
            },
        })
    }

    /// Waits for the end. Returns `None` if the deadline or a cancel came first.
    fn wait(
        &self,
        deadline: Option<Instant>,
        token: Option<&CancelToken>,
    ) -> io::Result<Option<ProcessEnd>> {
        if let (Inner::Started(process), None, None) = (self, deadline, token) {
            // Without pidfds, the wait below would need a thread.
            return Ok(Some(end_of(Some(process.wait()?.status))));
        }
        let mut end = self.end()?;
        if end.is_some() {
            return Ok(end);
        }
        while end.is_none() {
            let mut slots = self.slots(token)?;
            let done = wait::any(&mut slots, deadline)?;
            end = self.end()?;
            if end.is_none() && self.timed_out_or_cancelled(&slots, done, token) {
                return Ok(None);
            }
        }
        match (self, end) {
            (Inner::Opened(opened), Some(ProcessEnd { status: None, .. })) => {
                opened.wait_for_reap(REAP_WAIT);
                self.end()
            }
            (_, end) => Ok(end),
        }
    }

    /// Sends a signal. Returns `false` if the process has ended.
    fn signal(&self, signal: Signal) -> io::Result<bool> {
        match self {
            Inner::Started(process) => process.signal(signal),
            Inner::Opened(opened) => opened.signal(signal),
        }
    }

    /// Returns the slots to wait for: the end of the process, and the token.
    fn slots<'a>(&'a self, token: Option<&'a CancelToken>) -> io::Result<[Slot<'a>; 2]> {
        let end = match self {
            Inner::Started(process) => Slot::Event(&***process),
            Inner::Opened(opened) => opened.member().to_slot(),
        };
        Ok([end, token.map(CancelToken::wake).transpose()?.map_or(Slot::Off, |it| Slot::Event(it))])
    }

    /// Returns true if a wait for these slots ended by the deadline or a cancel. Forwards the token's pending
    /// signals to the process.
    fn timed_out_or_cancelled(
        &self,
        slots: &[Slot<'_>; 2],
        done: usize,
        token: Option<&CancelToken>,
    ) -> bool {
        let woken = matches!(slots[1], Slot::EventDone);
        let Some(token) = token.filter(|_| woken) else { return done == 0 };
        for signal in token.take_signals() {
            // Ignored: the process has ended meanwhile, or belongs to another user.
            let _ = self.signal(signal);
        }
        token.is_cancelled()
    }
}

fn end_of(status: Option<ExitStatus>) -> ProcessEnd {
    let outcome = |status: ExitStatus| match status.signal() {
        Some(_) => Outcome::Signaled,
        None => Outcome::Exited,
    };
    ProcessEnd { status, outcome: status.map(outcome) }
}

/// Waiting for a process, for tasks.
#[cfg(feature = "tokio")]
mod task {
    use std::future::poll_fn;
    use std::io;
    use std::time::{Duration, Instant};

    use pipewright_os::base::wait::{self, Watch};

    use super::{ProcessEnd, ProcessHandle, REAP_WAIT, WAIT};
    use crate::cancel::CancelToken;
    use crate::error::Error;
    use crate::outcome::Outcome;

    /// Async waits for tokio tasks, with the feature `tokio`.
    impl ProcessHandle {
        /// Like [`wait`](Self::wait), without blocking the thread.
        ///
        /// # Cancellation
        /// Dropping the future affects neither the process nor the handle.
        ///
        /// # Errors
        /// Those of [`wait`](Self::wait); `Unsupported` outside a tokio runtime.
        ///
        /// ```
        /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        /// let process = pipewright::Command::new("sleep").arg("0.01").start()?;
        /// let end = process.wait_async().await?;
        /// assert!(end.status.is_some_and(|status| status.success()));
        /// # Ok::<(), pipewright::Error>(())
        /// # }).unwrap();
        /// ```
        pub async fn wait_async(&self) -> Result<ProcessEnd, Error> {
            match self.watch(None, None).await? {
                Some(end) => Ok(end),
                // Cannot happen without a deadline; not worth a panic if it does.
                None => Err(self.cannot(WAIT, io::ErrorKind::TimedOut.into())),
            }
        }

        /// Like [`try_wait_for`](Self::try_wait_for), without blocking the thread.
        ///
        /// # Cancellation
        /// Dropping the future affects neither the process nor the handle.
        ///
        /// # Errors
        /// Those of [`try_wait_for`](Self::try_wait_for); `Unsupported` outside a tokio runtime.
        #[doc(alias = "wait_timeout")]
        pub async fn try_wait_for_async(
            &self,
            limit: Duration,
        ) -> Result<Option<ProcessEnd>, Error> {
            self.watch(Instant::now().checked_add(limit), None).await
        }

        /// Like [`wait_or_kill_on_timeout`](Self::wait_or_kill_on_timeout), without blocking the thread.
        ///
        /// # Cancellation
        /// Dropping the future affects neither the process nor the handle. A kill that was already sent takes effect.
        ///
        /// # Errors
        /// Those of [`wait_or_kill_on_timeout`](Self::wait_or_kill_on_timeout); `Unsupported` outside a tokio runtime.
        pub async fn wait_or_kill_on_timeout_async(
            &self,
            limit: Duration,
        ) -> Result<ProcessEnd, Error> {
            match self.try_wait_for_async(limit).await? {
                Some(end) => Ok(end),
                None => self.kill_and_wait_async(Outcome::TimedOut).await,
            }
        }

        /// Like [`wait_or_kill_on_cancel`](Self::wait_or_kill_on_cancel), without blocking the thread.
        ///
        /// # Cancellation
        /// Dropping the future affects neither the process nor the handle. A kill that was already sent takes effect.
        ///
        /// # Errors
        /// Those of [`wait_or_kill_on_cancel`](Self::wait_or_kill_on_cancel); `Unsupported` outside a tokio runtime.
        pub async fn wait_or_kill_on_cancel_async(
            &self,
            token: &CancelToken,
        ) -> Result<ProcessEnd, Error> {
            match self.watch(None, Some(token)).await? {
                Some(end) => Ok(end),
                None => self.kill_and_wait_async(Outcome::Cancelled).await,
            }
        }

        async fn kill_and_wait_async(&self, outcome: Outcome) -> Result<ProcessEnd, Error> {
            let sent = self.kill()?;
            Ok(self.wait_async().await?.after_kill(sent, outcome))
        }

        /// Adds the status of a process that is not a child, which the system may report once its parent has reaped it.
        async fn after_reap(&self, mut end: ProcessEnd) -> Result<ProcessEnd, Error> {
            const PAUSE: Duration = Duration::from_millis(1);
            let until = Instant::now() + REAP_WAIT;
            while end.status.is_none() && Instant::now() < until {
                tokio::time::sleep(PAUSE).await;
                end = self.inner.end().map_err(|error| self.cannot(WAIT, error))?.unwrap_or(end);
            }
            Ok(end)
        }

        /// Waits for the end. Returns `None` if the deadline or a cancel came first.
        async fn watch(
            &self,
            deadline: Option<Instant>,
            token: Option<&CancelToken>,
        ) -> Result<Option<ProcessEnd>, Error> {
            let cannot = |error| self.cannot(WAIT, error);
            // Checked even if the process has ended: a status may have to be waited for, with a timer.
            wait::check_runtime().map_err(cannot)?;
            let mut watch = Watch::default();
            loop {
                if let Some(end) = self.inner.end().map_err(cannot)? {
                    return self.after_reap(end).await.map(Some);
                }
                let mut slots = self.inner.slots(token).map_err(cannot)?;
                let done = poll_fn(|cx| watch.poll_wait(cx, &mut slots, deadline)).await;
                let done = done.map_err(cannot)?;
                if self.inner.timed_out_or_cancelled(&slots, done, token) {
                    return self.inner.end().map_err(cannot);
                }
            }
        }
    }
}
