//! A process that is held by a handle of its own, so that its number cannot pass to another.

use std::io;
use std::sync::Arc;

use crate::base::signal::Signal;
use crate::base::wait::Slot;
use crate::base::wake::{EventSource, WaitEvent};

/// A process that need not be a child of this one, held so that its number cannot pass to another.
#[derive(Debug, Clone)]
pub struct Member(pub(crate) Arc<imp::Member>);

impl WaitEvent for Member {
    fn source(&self) -> EventSource<'_> {
        imp::source(self)
    }

    fn has_happened(&self) -> bool {
        !self.is_alive()
    }
}

impl Member {
    /// Returns a slot that waits for the end of the process, and that keeps its number from passing to
    /// another meanwhile.
    #[must_use]
    pub fn to_slot(&self) -> Slot<'static> {
        Slot::Owned(Arc::new(self.clone()))
    }

    /// Returns the process id, for people to read.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends a signal. Returns false if the process is gone; then nothing was signalled.
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`. macOS: `kill`, if `NOTE_EXIT` has not come and the start time is
    /// unchanged. No call does both at once: another process is signalled if this one ends, is reaped and
    /// its number is given out again in between. Windows: `TerminateProcess` for `KILL`.
    ///
    /// # Errors
    /// `PermissionDenied`: it belongs to another user. `Unsupported` (Windows): every signal but `KILL`.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal(signal)
    }

    /// Returns its process group; `None` if it is gone, and on Windows, which does not report it.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.0.group()
    }

    /// Returns true if it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Returns true if it cannot start a process now, because it is stopped or has ended.
    pub(crate) fn is_stopped_or_ended(&self) -> bool {
        self.0.is_stopped_or_ended()
    }
}

// A member is held by a pidfd. Beyond [`MOST_OPEN`] of them the pidfd is opened again for each use.
#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    use super::Member as Public;
    use crate::base::error::is_lack_of_room;
    use crate::base::signal::Signal;
    use crate::base::wake::EventSource;
    use crate::process::pidfd::{open_pidfd, send};
    use crate::process::procfs::Stat;

    /// The most members of one list whose pidfds stay open: a stop of a tree with a thousand processes would take all
    /// handles that a program may have by default, and other threads could open nothing meanwhile.
    const MOST_OPEN: usize = 64;

    #[derive(Debug)]
    pub(crate) struct Member {
        pid: u32,
        hold: Hold,
    }

    #[derive(Debug)]
    enum Hold {
        Pidfd(OwnedFd),
        /// The pidfd that a child handle has too.
        Shared(Arc<OwnedFd>),
        /// The time of its start, which no later process with its number has.
        Start(u64),
    }

    impl Member {
        pub(super) fn pid(&self) -> u32 {
            self.pid
        }

        pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
            let sent = self.with_pidfd(|pidfd| send(pidfd, signal.number(), 0))?;
            Ok(sent.unwrap_or(false))
        }

        pub(super) fn group(&self) -> Option<u32> {
            let stat = Stat::of(self.pid).ok()??;
            // Checked afterwards: if it no longer keeps its number, the answer may be another process's.
            self.owns_pid().is_ok_and(|owns| owns).then_some(stat.group)
        }

        pub(super) fn is_alive(&self) -> bool {
            matches!(self.has_ended_within(Duration::ZERO), Ok(false) | Err(_))
        }

        /// Waits until it has ended, at most that long. Returns true if it has. A signal cuts the wait short.
        pub(super) fn wait_timeout(&self, limit: Duration) -> bool {
            matches!(self.has_ended_within(limit), Ok(true))
        }

        fn has_ended_within(&self, limit: Duration) -> rustix::io::Result<bool> {
            let polled = self.with_pidfd(|pidfd| {
                let mut polled = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
                poll(&mut polled, Timespec::try_from(limit).ok().as_ref())
            })?;
            Ok(polled.is_none_or(|events| events > 0))
        }

        /// Calls `act` with a pidfd of it; `None` if it is gone.
        ///
        /// # Errors
        /// The error of the call; or there is no room for a handle, which says nothing about the process.
        fn with_pidfd<T>(
            &self,
            act: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
        ) -> rustix::io::Result<Option<T>> {
            match &self.hold {
                Hold::Pidfd(pidfd) => act(pidfd.as_fd()).map(Some),
                Hold::Shared(pidfd) => act(pidfd.as_fd()).map(Some),
                Hold::Start(start) => {
                    let Some(pidfd) = open_pidfd(self.pid as i32)? else { return Ok(None) };
                    // Checked after the pidfd is open, as by `open`.
                    let is_it = Stat::of(self.pid)?.is_some_and(|stat| stat.start == *start);
                    if is_it { act(pidfd.as_fd()).map(Some) } else { Ok(None) }
                }
            }
        }

        pub(super) fn is_stopped_or_ended(&self) -> bool {
            let has_gone = matches!(self.owns_pid(), Ok(false));
            has_gone
                || Stat::of(self.pid)
                    .is_ok_and(|stat| stat.is_none_or(|stat| stat.is_stopped_or_ended()))
        }

        /// Returns true if it is unreaped, so that no other process can have its number.
        pub(crate) fn owns_pid(&self) -> rustix::io::Result<bool> {
            match self.with_pidfd(|pidfd| send(pidfd, 0, 0)) {
                // Another user's.
                Err(Errno::PERM) => Ok(true),
                sent => Ok(sent?.unwrap_or(false)),
            }
        }
    }

    impl Public {
        /// Returns its pidfd, if that is open: it is unless [`Public::open`] made it.
        pub(crate) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
            match &self.0.hold {
                Hold::Pidfd(pidfd) => Some(pidfd.as_fd()),
                Hold::Shared(pidfd) => Some(pidfd.as_fd()),
                Hold::Start(_) => None,
            }
        }

        /// Returns true if it is unreaped, so that no other process can have its number.
        ///
        /// # Errors
        /// There is no room to find out.
        pub(crate) fn owns_pid(&self) -> io::Result<bool> {
            Ok(self.0.owns_pid()?)
        }

        pub(crate) fn wait_timeout(&self, limit: Duration) -> bool {
            self.0.wait_timeout(limit)
        }

        /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended or is a member
        /// already.
        ///
        /// # Errors
        /// There is no room to open it.
        pub(crate) fn open(
            pid: u32,
            members: &[Public],
            belongs: impl FnOnce() -> io::Result<bool>,
        ) -> io::Result<Option<Public>> {
            for member in members.iter().filter(|member| member.0.pid == pid) {
                if member.0.owns_pid()? {
                    return Ok(None);
                }
            }
            let pidfd = match open_pidfd(pid as i32) {
                Ok(Some(pidfd)) => pidfd,
                Ok(None) => return Ok(None),
                Err(error) if is_lack_of_room(error) => return Err(error.into()),
                // This machine has no pidfds: no member can be held.
                Err(_) => return Ok(None),
            };
            // Checked after the pidfd is open: if the number had passed to another process before, that one
            // would not belong.
            if !belongs()? {
                return Ok(None);
            }
            if members.len() < MOST_OPEN && leaves_room(&pidfd) {
                return Ok(Some(Public::new(pid, pidfd)));
            }
            // The pidfd is open, so this is the start of the same process, unless it has been reaped since.
            let Some(stat) = Stat::of(pid)? else { return Ok(None) };
            let hold = Hold::Start(stat.start);
            let is_it = !matches!(send(pidfd.as_fd(), 0, 0), Ok(false));
            Ok(is_it.then(|| Public(Arc::new(Member { pid, hold }))))
        }

        /// Makes a member that has the pidfd of a child handle.
        pub(crate) fn sharing(pid: u32, pidfd: Arc<OwnedFd>) -> Public {
            Public(Arc::new(Member { pid, hold: Hold::Shared(pidfd) }))
        }

        pub(crate) fn new(pid: u32, pidfd: OwnedFd) -> Public {
            Public(Arc::new(Member { pid, hold: Hold::Pidfd(pidfd) }))
        }
    }

    /// Returns true if, beside that one, as many handles are free as finding and signalling another process takes.
    fn leaves_room(pidfd: &OwnedFd) -> bool {
        pidfd.try_clone().and_then(|_second| pidfd.try_clone().map(|_third| ())).is_ok()
    }

    pub(super) fn source(member: &Public) -> EventSource<'_> {
        member.pidfd().map_or(EventSource::UNWAITABLE, EventSource::Readable)
    }
}

// A member is held by a kqueue and its start time.
//
// The kqueue is bound to the process, so until it has fired the number is that process's. But a signal can
// go only by the number. It could reach another process if, in the few instructions between the last check
// and `kill(2)`, the process ended, was reaped, and its number was given out again, for which the kernel
// first has to go through all the other numbers.
#[cfg(target_os = "macos")]
mod imp {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;

    use super::Member as Public;
    use crate::base::signal::Signal;
    use crate::base::wake::EventSource;
    use crate::process::kqueue::ExitWatch;
    use crate::process::libproc::{ProcessInfo, StartTime, is_taken, kill};
    use crate::process::status::ExitStatus;

    #[derive(Debug)]
    pub(crate) struct Member {
        pid: u32,
        watch: ExitWatch,
        /// The start time; unknown for another user's process.
        start_time: Option<StartTime>,
    }

    impl Member {
        fn of(pid: u32) -> io::Result<Option<Member>> {
            let watch = ExitWatch::of(pid)?;
            // Read after the watch is made: if the watch has not fired by then, both are about one process.
            let start_time = StartTime::of(pid);
            Ok(is_taken(pid).then_some(Member { pid, watch, start_time }))
        }

        pub(super) fn pid(&self) -> u32 {
            self.pid
        }

        pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
            if self.has_ended() {
                // Until it is reaped it would accept the signal, without effect.
                return Ok(self.owns_pid());
            }
            if !self.has_same_start_time() {
                return Ok(false);
            }
            match i32::try_from(self.pid) {
                Ok(pid) => kill(pid, signal),
                Err(_) => Ok(false),
            }
        }

        pub(super) fn group(&self) -> Option<u32> {
            let state = ProcessInfo::of(self.pid)?;
            // Checked afterwards: if it no longer keeps its number, the answer may be another process's.
            self.owns_pid().then_some(state.group)
        }

        pub(super) fn is_alive(&self) -> bool {
            !self.has_ended()
        }

        pub(super) fn is_stopped_or_ended(&self) -> bool {
            !self.owns_pid()
                || ProcessInfo::of(self.pid).is_none_or(|state| state.is_stopped_or_ended())
        }

        pub(crate) fn has_ended(&self) -> bool {
            self.watch.has_fired()
        }

        /// Returns true if it has not been reaped, so that no other process can have its number.
        pub(crate) fn owns_pid(&self) -> bool {
            if !self.has_ended() {
                return self.has_same_start_time() && is_taken(self.pid);
            }
            // It is a zombie or about to become one: a process that runs got the number later.
            ProcessInfo::of(self.pid).is_some_and(|state| state.is_ending())
                && self.has_same_start_time()
        }

        /// Compares the start times. Times that cannot be compared prove nothing: the process belongs,
        /// or now belongs, to another user.
        fn has_same_start_time(&self) -> bool {
            match (self.start_time, StartTime::of(self.pid)) {
                (Some(then), Some(now)) => then == now,
                _ => true,
            }
        }
    }

    impl Public {
        /// Opens the process that has the number; `None` if there is none.
        pub(crate) fn of(pid: u32) -> io::Result<Option<Public>> {
            Ok(Member::of(pid)?.map(|member| Public(Arc::new(member))))
        }

        pub(crate) fn has_ended(&self) -> bool {
            self.0.has_ended()
        }

        /// Takes the exit status, if the kernel reported it.
        pub(crate) fn take_status(&self) -> Option<ExitStatus> {
            self.0.watch.take_status()
        }

        /// Returns true if it has not been reaped, so that no other process can have its number.
        pub(crate) fn keeps_pid(&self) -> bool {
            self.0.owns_pid()
        }

        /// Does the same, in the form of systems on which that can fail.
        pub(crate) fn owns_pid(&self) -> io::Result<bool> {
            Ok(self.keeps_pid())
        }

        /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended or is a member
        /// already.
        pub(crate) fn open(
            pid: u32,
            members: &[Public],
            belongs: impl FnOnce() -> io::Result<bool>,
        ) -> io::Result<Option<Public>> {
            let known = |member: &Public| member.0.pid == pid && member.0.owns_pid();
            if members.iter().any(known) {
                return Ok(None);
            }
            // An error means that there is no room.
            let Some(member) = Public::of(pid)? else { return Ok(None) };
            // Checked once it is open: if the number had passed to another process before, that one would not
            // belong; and if the process had ended since, the watch would have fired.
            Ok((belongs()? && member.is_alive()).then_some(member))
        }
    }

    pub(super) fn source(member: &Public) -> EventSource<'_> {
        EventSource::Readable(member.as_fd())
    }

    impl AsFd for Public {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.watch.as_fd()
        }
    }
}

// A member is held by a HANDLE.
#[cfg(windows)]
mod imp {
    use std::io;
    use std::os::windows::io::{AsHandle, BorrowedHandle};
    use std::sync::Arc;

    use super::Member as Public;
    use crate::base::signal::Signal;
    use crate::base::wake::EventSource;
    use crate::process::process_object::{ProcessObject, unsupported};

    #[derive(Debug)]
    pub(crate) struct Member {
        pid: u32,
        process: ProcessObject,
    }

    impl Member {
        pub(super) fn pid(&self) -> u32 {
            self.pid
        }

        pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
            if signal == Signal::KILL {
                return self.process.kill();
            }
            if self.process.has_ended() {
                return Ok(false);
            }
            Err(unsupported(signal, "Windows can only kill it"))
        }

        #[expect(clippy::unused_self, reason = "the contract's")]
        pub(super) fn group(&self) -> Option<u32> {
            // The system does not report the group of a process.
            None
        }

        pub(super) fn is_alive(&self) -> bool {
            !self.process.has_ended()
        }

        #[expect(clippy::unused_self, reason = "the contract's")]
        pub(super) fn is_stopped_or_ended(&self) -> bool {
            // Windows does not stop processes, so there is nothing to wait for.
            true
        }
    }

    pub(super) fn source(member: &Public) -> EventSource<'_> {
        EventSource::Signalled(member.as_handle())
    }

    impl AsHandle for Public {
        fn as_handle(&self) -> BorrowedHandle<'_> {
            self.0.process.as_handle()
        }
    }

    impl Public {
        pub(crate) fn new(pid: u32, process: ProcessObject) -> Public {
            Public(Arc::new(Member { pid, process }))
        }

        pub(crate) fn process(&self) -> &ProcessObject {
            &self.0.process
        }

        /// Opens a process, if it `belongs` once it is open; `None` if it is gone, has ended, may not be
        /// queried, or is a member already.
        pub(crate) fn open(
            pid: u32,
            members: &[Public],
            belongs: impl FnOnce(&ProcessObject) -> bool,
        ) -> Option<Public> {
            // A member keeps its number.
            if members.iter().any(|member| member.0.pid == pid) {
                return None;
            }
            let process = ProcessObject::open(pid).ok().flatten()?;
            let taken = !process.has_ended() && belongs(&process);
            taken.then(|| Public::new(pid, process))
        }
    }
}
