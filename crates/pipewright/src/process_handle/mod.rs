//! A light handle on one process: a child, or one that was opened by its number.

mod inner;
#[cfg(feature = "tokio")]
mod task;

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::open::Opened;
use pipewright_os::process::status::ExitStatus;

use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Operation};
use crate::outcome::Outcome;
use crate::run::Process;
use inner::Inner;

/// A handle on one process, without streams: a child ([`start`](Self::start)), or any process of
/// the machine ([`open`](Self::open)).
///
/// It means that one process for as long as it lives: a later process with the same number is
/// never waited for and never signalled. Every method takes `&self`, so one thread can wait while
/// another kills. Signals and kills reach the process itself and nobody below it; a
/// [`Command`](crate::Command) with a timeout, or a [`Child`](crate::Child), reaches its descendants too.
///
/// # Platform
/// Linux: a pidfd.
///
/// # Drop
/// The process goes on running. One that was started by this handle (or came as a [`Child`](crate::Child)) is
/// reaped in the background when it ends, unless [`kill_on_drop`](crate::Command::kill_on_drop) was set.
///
/// ```
/// use pipewright::{Command, Outcome, ProcessHandle};
/// use std::time::Duration;
///
/// let process = ProcessHandle::start(Command::new("sleep").arg("60"))?;
/// assert_eq!(process.try_wait_for(Duration::from_millis(10))?, None);
///
/// // A second handle, by the number, as another program would get one.
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
    /// For errors.
    name: OsString,
}

/// How a process ended, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessEnd {
    /// Its status. `None`: it was no child of this process, and the system does not tell.
    pub status: Option<ExitStatus>,
    /// Why it ended: [`TimedOut`](Outcome::TimedOut) or [`Cancelled`](Outcome::Cancelled) where
    /// the call that tells of it has killed it; `None` where only the status could tell, and is not
    /// known.
    pub outcome: Option<Outcome>,
}

impl ProcessEnd {
    /// Whether the call that tells of it has killed it.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        matches!(self.outcome, Some(Outcome::TimedOut | Outcome::Cancelled))
    }

    /// The same, where the kill that was sent may have caused it. It may have ended by itself while
    /// that was on its way.
    fn after_kill(mut self, sent: bool, why: Outcome) -> ProcessEnd {
        if sent && self.status.is_none_or(|it| it.was_killed()) {
            self.outcome = Some(why);
        }
        self
    }
}

impl ProcessHandle {
    /// Opens the process that has that number now, whoever started it. One that has ended, and
    /// whose parent has not taken notice of it, counts.
    ///
    /// Numbers are reused: whether it is the process that the number once stood for is for the
    /// caller to know. It is certain for a child that nobody has waited for. Any process can be
    /// opened and waited for; to signal it is a question of rights.
    ///
    /// A child of this process that is waited for through such a handle is reaped by that, as by
    /// any other wait.
    ///
    /// # Platform
    /// Linux: `pidfd_open`. Where it is refused this is an error: there is no other way that
    /// could not end up signalling a stranger.
    ///
    /// # Errors
    /// [`NoSuchProcess`](ErrorKind::NoSuchProcess): none has that number; that of a thread is
    /// none. [`InvalidInput`](ErrorKind::InvalidInput): none can have it (0, more than
    /// `i32::MAX`). [`Unsupported`](ErrorKind::Unsupported): the machine has no handles on
    /// processes.
    ///
    /// ```
    /// use pipewright::{ErrorKind, ProcessHandle};
    /// let us = ProcessHandle::open(std::process::id())?;
    /// assert_eq!(us.try_wait()?, None);
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

    pub(crate) fn started(process: Arc<Process>, program: &OsStr) -> ProcessHandle {
        ProcessHandle { inner: Inner::Started(process), name: program.to_owned() }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.pid()
    }

    /// Waits until the process has ended, and tells how; again and again if asked.
    ///
    /// # Platform
    /// Linux: `waitid(P_PIDFD)` for a child. For others the pidfd is polled, and
    /// `PIDFD_GET_INFO` tells the status (6.15 and later) once the parent has reaped the
    /// process, for which this waits 50 ms.
    ///
    /// # Errors
    /// Its status is lost, where it was started by this program: see
    /// [`StatusLost`](ErrorKind::StatusLost).
    pub fn wait(&self) -> Result<ProcessEnd, Error> {
        run_async_for_test!(self.wait_async());
        match self.wait_until(None)? {
            Some(end) => Ok(end),
            // Cannot happen without a deadline; not worth a panic if it does.
            None => Err(self.cannot(WAIT, io::ErrorKind::TimedOut.into())),
        }
    }

    /// How the process ended, or `None` while it runs. Never blocks.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ProcessEnd>, Error> {
        self.inner.end().map_err(|error| self.cannot(WAIT, error))
    }

    /// Waits until the process has ended, but not longer than that; then it is `None`, and the
    /// process goes on running.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[doc(alias = "wait_timeout")]
    pub fn try_wait_for(&self, limit: Duration) -> Result<Option<ProcessEnd>, Error> {
        run_async_for_test!(self.try_wait_for_async(limit));
        match Instant::now().checked_add(limit) {
            None => self.wait().map(Some),
            deadline => self.wait_until(deadline),
        }
    }

    /// Waits until the process has ended. If it has not after that time it is killed, and waited
    /// for however long that takes. Zero kills at once.
    ///
    /// [`ProcessEnd::was_killed`] tells which: a process that ends by itself at the last moment was
    /// not killed.
    ///
    /// # Errors
    /// As [`wait`](Self::wait) and [`kill`](Self::kill); the process may then go on running.
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

    /// Waits until the process has ended. When the token is cancelled before that, the process is
    /// killed, and waited for however long that takes. A signal that the token
    /// [passes on](CancelToken::pass_on) is sent to it.
    ///
    /// # Errors
    /// As [`wait`](Self::wait) and [`kill`](Self::kill); the process may then go on running.
    pub fn wait_or_kill_on_cancel(&self, token: &CancelToken) -> Result<ProcessEnd, Error> {
        run_async_for_test!(self.wait_or_kill_on_cancel_async(token));
        let ended = self.inner.wait(None, Some(token));
        match ended.map_err(|error| self.cannot(WAIT, error))? {
            Some(end) => Ok(end),
            None => self.kill_and_wait(Outcome::Cancelled),
        }
    }

    /// Sends the process a signal. `false`: it has ended already, and nobody was signalled.
    ///
    /// # Errors
    /// [`PermissionDenied`](ErrorKind::PermissionDenied): it belongs to somebody else.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        // One that has ended and is not reaped would take the signal, and nothing would come of it.
        match self.try_wait() {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(false),
            Err(error) if *error.kind() == ErrorKind::StatusLost => return Ok(false),
            Err(error) => return Err(error),
        }
        self.inner.signal(signal).map_err(|error| self.cannot(SIGNAL, error))
    }

    /// Kills the process. `false`: it has ended already, and nobody was killed. It still has to be
    /// waited for, or dropped.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn kill(&self) -> Result<bool, Error> {
        self.signal(Signal::KILL)
    }

    fn kill_and_wait(&self, why: Outcome) -> Result<ProcessEnd, Error> {
        let sent = self.kill()?;
        Ok(self.wait()?.after_kill(sent, why))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<Option<ProcessEnd>, Error> {
        self.inner.wait(deadline, None).map_err(|error| self.cannot(WAIT, error))
    }

    fn cannot(&self, doing: [&'static str; 2], error: io::Error) -> Error {
        let [to_child, to_opened] = doing;
        let doing = if matches!(self.inner, Inner::Started(_)) { to_child } else { to_opened };
        Error::cannot(&self.name, doing, error)
    }
}

/// What is done to a child, which has a name, and to a process that has a number.
const WAIT: [&str; 2] = ["wait for", "wait for process"];
const SIGNAL: [&str; 2] = ["signal", "signal process"];

fn could_not_open(number: &OsStr, error: io::Error) -> Error {
    const DOING: &str = "open process";
    let kind = match error.kind() {
        io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        io::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => return Error::cannot(number, DOING, error),
    };
    Error::new(number, Operation::Child(DOING), kind, Some(error))
}
