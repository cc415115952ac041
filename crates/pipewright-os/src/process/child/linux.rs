//! A child is held by a pidfd, a handle that a later process with the same number can never get.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fmt, io};

use rustix::io::Errno;

use super::{ContainedTree, Containment};
use crate::base::generation::PerProcess;
use crate::base::service_thread;
use crate::base::signal::{Signal, group_of};
use crate::base::wake::{EventSource, Wake};
use crate::process::pidfd::{
    SavedStatus, is_refused, last_error, last_signal_result, saved_status, send,
};
use crate::process::procfs;
use crate::process::status::{Ended, ExitStatus};
use crate::process::usage::{Usage, from_timeval, switches_of};

/// The flag of pidfd_send_signal(2), since Linux 6.9.
const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 1 << 2;

#[derive(Debug)]
pub(crate) struct ChildHandle {
    pid: i32,
    pidfd: Option<Pidfd>,
    /// The peak memory of this process right after the start of the child: see [`Usage::peak_rss_bytes`].
    /// Earlier, other threads could still have raised the figure that the child began with.
    parent_peak_rss_bytes: Option<u64>,
    ended: Mutex<Option<Ended>>,
    /// Without a pidfd: raised by a thread that waits for this one child.
    exit_wake: OnceLock<Arc<Wake>>,
    /// The reporter of its exit status, if it is the child of a supervisor and not of this process.
    reporter: Option<Box<dyn ExitReporter>>,
    pub(crate) containment: Containment,
    pub(crate) tree: Option<Box<dyn ContainedTree>>,
}

/// The pidfd of a child.
#[derive(Debug)]
enum Pidfd {
    Own(OwnedFd),
    /// A member holds the process by the same one.
    Shared(Arc<OwnedFd>),
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Pidfd::Own(pidfd) => pidfd.as_fd(),
            Pidfd::Shared(pidfd) => pidfd.as_fd(),
        }
    }
}

/// The source of the exit status of a child that another process reaps.
pub(crate) trait ExitReporter: fmt::Debug + Send + Sync {
    /// Returns the exit status of the child; `None` while it runs, or while there is no report yet.
    fn end(&self) -> io::Result<Option<Ended>>;
    /// Blocks until there may be another report.
    fn wait_for_more(&self) -> io::Result<()>;
    /// Returns true if a stop has been reported since the last call.
    fn take_stop(&self) -> bool;
    /// Returns a descriptor that polls readable when there is another report.
    fn pollable(&self) -> BorrowedFd<'_>;
}

/// Returns the event of the exit. Without pidfds and without threads no descriptor reports it.
pub(super) fn source(exit: &ChildHandle) -> EventSource<'_> {
    exit.pollable().map_or(EventSource::UNWAITABLE, EventSource::Readable)
}

impl ChildHandle {
    /// Takes ownership of a child that has not been reaped yet.
    pub(crate) fn new(pid: i32, pidfd: Option<OwnedFd>) -> ChildHandle {
        ChildHandle {
            pid,
            pidfd: pidfd.map(Pidfd::Own),
            parent_peak_rss_bytes: counted_peak_rss_bytes(),
            ended: Mutex::new(None),
            exit_wake: OnceLock::new(),
            reporter: None,
            containment: Containment::None,
            tree: None,
        }
    }

    /// Takes ownership of a child that a member holds too, by the same pidfd.
    pub(crate) fn sharing(pid: i32, pidfd: Arc<OwnedFd>) -> ChildHandle {
        ChildHandle { pidfd: Some(Pidfd::Shared(pidfd)), ..ChildHandle::new(pid, None) }
    }

    /// Takes ownership of a child whose parent is a process that uses little memory: its own peak is larger.
    pub(crate) fn of_small_parent(pid: i32, pidfd: OwnedFd) -> ChildHandle {
        ChildHandle {
            pid,
            pidfd: Some(Pidfd::Own(pidfd)),
            parent_peak_rss_bytes: None,
            ended: Mutex::new(None),
            exit_wake: OnceLock::new(),
            reporter: None,
            containment: Containment::None,
            tree: None,
        }
    }

    /// Sets the reporter of a child that belongs to a supervisor.
    pub(crate) fn with_reporter(self, reporter: Box<dyn ExitReporter>) -> ChildHandle {
        ChildHandle { reporter: Some(reporter), ..self }
    }

    pub(crate) fn with_tree(self, tree: Box<dyn ContainedTree>) -> ChildHandle {
        ChildHandle { containment: tree.containment(), tree: Some(tree), ..self }
    }

    pub(super) fn already_ended() -> ChildHandle {
        let exit = ChildHandle::new(0, None);
        *exit.lock() = Some(Ended::default());
        exit
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid as u32
    }

    pub(super) fn wait(&self) -> io::Result<Ended> {
        if let Some(ended) = *self.lock() {
            return Ok(ended);
        }
        if let Some(reporter) = &self.reporter {
            loop {
                reporter.wait_for_more()?;
                if let Some(ended) = self.try_wait()? {
                    return Ok(ended);
                }
            }
        }
        // WNOWAIT leaves the child for the reap below, which holds the lock. So a signal that is sent by
        // number never reaches a later process with that number.
        match waitid(self.target(), libc::WEXITED | libc::WNOWAIT) {
            Ok(_) => {}
            // Reaped elsewhere, perhaps by another thread of this program: try_wait finds out.
            Err(Errno::CHILD) => {}
            Err(error) => return Err(error.into()),
        }
        match self.try_wait()? {
            Some(ended) => Ok(ended),
            // Cannot happen after WEXITED has returned; not worth a panic if it does.
            None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    pub(super) fn wait_exclusive(&mut self) -> io::Result<Ended> {
        if self.reporter.is_some() {
            return self.wait();
        }
        match self.reap(libc::WEXITED)? {
            Some(ended) => Ok(ended),
            // Cannot happen without WNOHANG; not worth a panic if it does.
            None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    pub(super) fn try_wait(&self) -> io::Result<Option<Ended>> {
        self.reap(libc::WEXITED | libc::WNOHANG)
    }

    fn reap(&self, options: i32) -> io::Result<Option<Ended>> {
        let mut state = self.lock();
        if state.is_some() {
            return Ok(*state);
        }
        if let Some(reporter) = &self.reporter {
            *state = match reporter.end() {
                Ok(ended) => ended.map(|ended| Ended {
                    usage: ended.usage.map(|usage| self.without_inherited_peak(usage)),
                    ..ended
                }),
                Err(error) => {
                    let status = self.status_after_external_reap();
                    Some(Ended { status: status.ok_or(error)?, usage: None })
                }
            };
            return Ok(*state);
        }
        let ended = match waitid(self.target(), options) {
            Ok(None) => return Ok(None),
            Ok(Some((status, usage))) => {
                Ended { status, usage: Some(self.without_inherited_peak(usage)) }
            }
            Err(error @ Errno::CHILD) => {
                Ended { status: self.status_after_external_reap().ok_or(error)?, usage: None }
            }
            Err(error) => return Err(error.into()),
        };
        *state = Some(ended);
        Ok(*state)
    }

    pub(super) fn take_stop(&self) -> bool {
        // A stop was reported, and the child has not been continued since.
        self.has_been_stopped() && self.is_stopped()
    }

    pub(super) fn is_stopped(&self) -> bool {
        procfs::is_stopped(self.pid())
    }

    fn has_been_stopped(&self) -> bool {
        if let Some(reporter) = &self.reporter {
            // Ignored: a reported end stays there for the next wait.
            let _ = self.try_wait();
            return reporter.take_stop();
        }
        let ended = self.lock();
        ended.is_none()
            && matches!(waitid(self.target(), libc::WSTOPPED | libc::WNOHANG), Ok(Some(_)))
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        if let Some(pidfd) = &self.pidfd {
            match send(pidfd.as_fd(), signal.number(), 0) {
                Err(error) if is_refused(error) && self.reporter.is_none() => {}
                done => return Ok(done?),
            }
        }
        self.signal_by_number(self.pid, signal)
    }

    pub(super) fn signal_group(&self, signal: Signal) -> io::Result<bool> {
        if let Some(pidfd) = &self.pidfd {
            match send(pidfd.as_fd(), signal.number(), PIDFD_SIGNAL_PROCESS_GROUP) {
                // A kernel before 6.9 does not know the flag: EINVAL.
                Err(error) if is_refused(error) || error == Errno::INVAL => {}
                done => return Ok(done?),
            }
        }
        self.signal_by_number(-self.pid, signal)
    }

    pub(super) fn group_survives_reap(&self) -> bool {
        // Signal 0 is not delivered. ESRCH means that the kernel knows the flag.
        match &self.pidfd {
            Some(pidfd) => send(pidfd.as_fd(), 0, PIDFD_SIGNAL_PROCESS_GROUP).is_ok(),
            None => false,
        }
    }

    #[expect(clippy::unused_self, reason = "the contract's")]
    pub(super) fn end_group(&self) -> u32 {
        // Trees are held in other ways.
        0
    }

    pub(super) fn group_is_alive(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        let answers = matches!(send(pidfd.as_fd(), 0, PIDFD_SIGNAL_PROCESS_GROUP), Ok(true));
        // Zombies answer too, and under an init that does not reap they answer for ever.
        answers && procfs::group_lives(self.pid()).unwrap_or(true)
    }

    pub(super) fn is_group_leader(&self) -> bool {
        self.is_in_group(self.pid())
    }

    pub(super) fn is_in_group(&self, group: u32) -> bool {
        let is_in = group_of(self.pid).is_some_and(|found| found as u32 == group);
        // Checked afterwards: then the group was the child's.
        is_in && self.owns_pid()
    }

    pub(super) fn rss_bytes(&self) -> Option<u64> {
        let bytes = status_field_bytes(&format!("/proc/{}/status", self.pid()), b"VmRSS:");
        // Checked afterwards: then the figure was the child's.
        bytes.filter(|_| self.owns_pid())
    }

    pub(super) fn owns_pid(&self) -> bool {
        if self.lock().is_some() {
            return false;
        }
        match &self.pidfd {
            // ESRCH: it has been reaped elsewhere.
            Some(pidfd) => !matches!(send(pidfd.as_fd(), 0, 0), Ok(false)),
            None => true,
        }
    }

    /// Sends a signal with `kill(2)`, under the lock that the reap takes: an unreaped child keeps its
    /// number.
    fn signal_by_number(&self, pid: i32, signal: Signal) -> io::Result<bool> {
        let ended = self.lock();
        // A supervisor decides when to reap its child, and with that how long the number stays taken.
        if ended.is_some() || self.reporter.is_some() {
            return Ok(false);
        }
        // SAFETY: kill takes two numbers.
        match unsafe { libc::kill(pid, signal.number()) } {
            0 => Ok(true),
            _ => Ok(last_signal_result()?),
        }
    }

    /// Returns true if the child has ended. Does not reap it. True also if the status is lost.
    pub(crate) fn has_ended(&self) -> bool {
        if self.lock().is_some() {
            return true;
        }
        if let Some(reporter) = &self.reporter {
            return !matches!(reporter.end(), Ok(None));
        }
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        !matches!(waitid(self.target(), options), Ok(None))
    }

    /// Returns a descriptor that polls readable once the child has ended. Without pidfds and without
    /// threads there is none, and the caller has to poll [`has_ended`](Self::has_ended).
    pub(crate) fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(reporter) = &self.reporter {
            return Ok(reporter.pollable());
        }
        if let Some(pidfd) = &self.pidfd {
            return Ok(pidfd.as_fd());
        }
        if self.exit_wake.get().is_none() {
            let exit_wake = Arc::new(Wake::new()?);
            if self.lock().is_some() {
                // Reaped: the number may belong to another process by now.
                exit_wake.raise();
            } else {
                raise_at_exit(self.pid, Arc::clone(&exit_wake))?;
            }
            // Ignored: another thread was faster, and its flag is raised as well.
            let _ = self.exit_wake.set(exit_wake);
        }
        match self.exit_wake.get() {
            Some(exit_wake) => Ok(exit_wake.0.as_fd()),
            None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
        }
    }

    fn target(&self) -> WaitTarget<'_> {
        match &self.pidfd {
            Some(pidfd) if !pidfd_wait_is_refused() => WaitTarget::Pidfd(pidfd.as_fd()),
            _ => WaitTarget::Pid(self.pid),
        }
    }

    fn without_inherited_peak(&self, usage: Usage) -> Usage {
        let counted = usage.counted_peak_rss_bytes;
        let peak = counted.filter(|_| counted > self.parent_peak_rss_bytes);
        Usage { peak_rss_bytes: peak, ..usage }
    }

    pub(super) fn refine_peak_memory(&self, usage: Usage) -> Usage {
        let counted = usage.counted_peak_rss_bytes;
        let inherited = inherited_peak_rss_bytes();
        if usage.peak_rss_bytes.is_some() || self.parent_peak_rss_bytes > inherited {
            return usage;
        }
        // The peak of this process is now at least its peak at the start. So a larger figure is the child's
        // own.
        let peak = counted.filter(|_| own_peak_rss_bytes().is_some_and(|own| counted > Some(own)));
        Usage { peak_rss_bytes: peak, ..usage }
    }

    fn status_after_external_reap(&self) -> Option<ExitStatus> {
        match saved_status(self.pidfd.as_ref()?.as_fd()) {
            SavedStatus::Known(status) => Some(status),
            SavedStatus::NotReaped | SavedStatus::Unavailable => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Ended>> {
        // The state is one assignment: a panic elsewhere cannot have left it half-written.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks up in advance the figure that [`ChildHandle::refine_peak_memory`] needs, while a child runs and no caller
/// waits for the result.
pub(crate) fn preload_peak_memory() {
    let _ = inherited_peak_rss_bytes();
}

/// Returns the peak from `getrusage` if it is more than this process ever used itself. Then it is the peak
/// of the program that started this one, which stays until this process exceeds it. Looked up once.
fn inherited_peak_rss_bytes() -> Option<u64> {
    static INHERITED: PerProcess<Option<u64>> = PerProcess::new(|| {
        let counted = counted_peak_rss_bytes();
        counted.filter(|_| counted > own_peak_rss_bytes())
    });
    *INHERITED.get()
}

/// Reads `VmHWM` of `/proc/self/status` (proc(5)), which never includes the memory of another program.
fn own_peak_rss_bytes() -> Option<u64> {
    status_field_bytes("/proc/self/status", b"VmHWM:")
}

fn status_field_bytes(path: &str, name: &[u8]) -> Option<u64> {
    let status = procfs::read(path).ok()?;
    let mut lines = status.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(name))?;
    // A figure of more than 4 TiB is treated as unknown.
    let kib = procfs::number(procfs::words(line).next()?)?;
    Some(u64::from(kib) * 1024)
}

/// Starts a thread that raises the flag at the child's exit. Without pidfds, one thread per child is the
/// way to poll an exit that neither takes over SIGCHLD nor reaps other children. The thread does not reap
/// the child (WNOWAIT) and ends with it.
fn raise_at_exit(pid: i32, exit_wake: Arc<Wake>) -> io::Result<()> {
    service_thread::start(c"pipewright-exit", move || {
        // Ignored: ECHILD means that the child is reaped already, which is an end too.
        let _ = waitid(WaitTarget::Pid(pid), libc::WEXITED | libc::WNOWAIT);
        exit_wake.raise();
    })
}

/// Returns true if `waitid` does not take pidfds: `P_PIDFD` came with Linux 5.4, the pidfd itself with 5.3.
/// Tested once.
fn pidfd_wait_is_refused() -> bool {
    static REFUSED: PerProcess<bool> = PerProcess::new(|| {
        // EBADF if P_PIDFD is known, EINVAL if it is not.
        matches!(waitid(WaitTarget::NoPidfd, libc::WEXITED | libc::WNOHANG), Err(Errno::INVAL))
    });
    *REFUSED.get()
}

/// The process to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitTarget<'a> {
    Pid(i32),
    Pidfd(BorrowedFd<'a>),
    /// An invalid pidfd: the error shows which of the arguments the kernel checks first.
    NoPidfd,
}

/// Waits with the given `WEXITED | ...` options; `None` if `WNOHANG` found it running.
///
/// For the peak memory only the kernel's figure is filled in; see [`Usage::peak_rss_bytes`].
pub(crate) fn waitid(
    target: WaitTarget<'_>,
    options: i32,
) -> rustix::io::Result<Option<(ExitStatus, Usage)>> {
    let (kind, id) = match target {
        WaitTarget::Pid(pid) => (libc::P_PID, pid),
        WaitTarget::Pidfd(fd) => (libc::P_PIDFD, fd.as_raw_fd()),
        // A number beyond every limit.
        WaitTarget::NoPidfd => (libc::P_PIDFD, i32::MAX),
    };
    // SAFETY: siginfo_t and rusage are plain integers, for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as above.
    let mut usage: libc::rusage = unsafe { MaybeUninit::zeroed().assume_init() };
    loop {
        // SAFETY: both pointers are to live values of the types that the call writes.
        let result = unsafe {
            libc::syscall(libc::SYS_waitid, kind, id, &raw mut info, options, &raw mut usage)
        };
        if result == 0 {
            break;
        }
        match last_error() {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
    // SAFETY: the call succeeded, so this is a SIGCHLD record or still all zeroes.
    let pid = unsafe { info.si_pid() };
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    Ok(Some((pack(info.si_code, status), from_rusage(&usage))))
}

fn from_rusage(usage: &libc::rusage) -> Usage {
    Usage {
        user: from_timeval(usage.ru_utime),
        system: from_timeval(usage.ru_stime),
        switches: switches_of(usage),
        // Linux counts in KiB (getrusage(2)).
        counted_peak_rss_bytes: u64::try_from(usage.ru_maxrss).ok().map(|kib| kib * 1024),
        peak_rss_bytes: None,
    }
}

/// Returns the peak memory, in bytes, of this process or of the program that started it, whichever is more.
fn counted_peak_rss_bytes() -> Option<u64> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled it in; all zeroes was a value before.
    let usage = unsafe { usage.assume_init() };
    from_rusage(&usage).counted_peak_rss_bytes
}

/// Packs the result of `waitid(2)` into the wait status of `wait(2)`.
fn pack(si_code: i32, si_status: i32) -> ExitStatus {
    ExitStatus::from_raw(match si_code {
        libc::CLD_EXITED => (si_status & 0xff) << 8,
        libc::CLD_DUMPED => si_status | 0x80,
        _ => si_status,
    })
}
