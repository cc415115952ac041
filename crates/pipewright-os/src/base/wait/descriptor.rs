//! One descriptor for a whole wait, for an event loop that this crate does not know.

use std::io;
use std::time::Instant;

use super::Slot;

/// A descriptor that becomes readable when a wait for some slots would return.
///
/// An event loop waits for this one descriptor instead of calling [`any`](super::any), which would block its thread.
///
/// # Platform
/// Linux: an `epoll`, with a `timerfd` for the deadlines of [`update`](Self::update). Other systems: `Unsupported`.
///
/// # Drop
/// Closes the descriptor. The loop has to stop waiting for it first.
#[derive(Debug)]
pub struct WaitDescriptor(imp::Descriptor);

impl WaitDescriptor {
    /// Makes a descriptor that waits for nothing.
    ///
    /// # Errors
    /// No more handles are available; `Unsupported` on this system.
    pub fn new() -> io::Result<WaitDescriptor> {
        imp::Descriptor::new().map(WaitDescriptor)
    }

    /// Returns the number of the descriptor. It stays the same until the drop.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number()
    }

    /// Sets the slots and the deadline to wait for. Each call passes the same sources at the same indices; a slot that
    /// is done or off is left out.
    ///
    /// # Errors
    /// No more handles are available, or the system has no memory.
    pub fn update(&mut self, slots: &[Slot<'_>], deadline: Option<Instant>) -> io::Result<()> {
        self.0.update(slots, deadline)
    }

    /// Sets the slots to wait for, as [`update`](Self::update) does, without a timer. Returns the time at which the
    /// caller has to stop waiting, which takes no further handle.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn register(
        &mut self,
        slots: &[Slot<'_>],
        deadline: Option<Instant>,
    ) -> io::Result<Option<Instant>> {
        self.0.register(slots, deadline)
    }
}

/// The descriptor is an `epoll`, which can be waited for like any other descriptor.
#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
    use std::time::{Duration, Instant};

    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use super::super::unix::{CHECK_INTERVAL, Polled, source};
    use super::Slot;

    /// The most slots of one wait. One child has at most five.
    const MAX_SLOTS: usize = 8;

    #[derive(Debug)]
    pub(super) struct Descriptor {
        epoll: OwnedFd,
        /// The number of the registered descriptor of each slot. The `epoll` forgets those that are closed.
        registered: [Option<RawFd>; MAX_SLOTS],
        /// The timer, made for the first deadline, and the time that is set.
        timer: Option<OwnedFd>,
        deadline: Option<Instant>,
    }

    impl Descriptor {
        pub(super) fn new() -> io::Result<Descriptor> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            Ok(Descriptor { epoll, registered: [None; MAX_SLOTS], timer: None, deadline: None })
        }

        pub(super) fn number(&self) -> i32 {
            self.epoll.as_raw_fd()
        }

        pub(super) fn update(
            &mut self,
            slots: &[Slot<'_>],
            deadline: Option<Instant>,
        ) -> io::Result<()> {
            let next = self.register(slots, deadline)?;
            self.set_timer(next)
        }

        pub(super) fn register(
            &mut self,
            slots: &[Slot<'_>],
            deadline: Option<Instant>,
        ) -> io::Result<Option<Instant>> {
            if slots.len() > MAX_SLOTS {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut needs_check = false;
            for (index, registered) in self.registered.iter_mut().enumerate() {
                let wanted = match slots.get(index).and_then(source) {
                    Some(Polled::Fd(fd, events)) => Some((fd, events)),
                    Some(Polled::Unpollable) => {
                        needs_check = true;
                        None
                    }
                    None => None,
                };
                if *registered == wanted.map(|(fd, _)| fd.as_raw_fd()) {
                    continue;
                }
                if let Some(number) = registered.take() {
                    remove(&self.epoll, number);
                }
                if let Some((fd, events)) = wanted {
                    if add(&self.epoll, fd, events)? {
                        *registered = Some(fd.as_raw_fd());
                    } else {
                        needs_check = true;
                    }
                }
            }
            let check = needs_check.then(|| Instant::now() + CHECK_INTERVAL);
            Ok([deadline, check].into_iter().flatten().min())
        }

        fn set_timer(&mut self, deadline: Option<Instant>) -> io::Result<()> {
            // A timer that has expired stays readable until it is set again.
            if deadline == self.deadline {
                return Ok(());
            }
            let timer = match &mut self.timer {
                Some(timer) => timer,
                none => {
                    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                    let timer = none.insert(timerfd_create(TimerfdClockId::Monotonic, flags)?);
                    epoll::add(&self.epoll, &*timer, EventData::new_u64(0), EventFlags::IN)?;
                    timer
                }
            };
            let left = deadline.map(|deadline| {
                // Zero would mean no timer.
                deadline.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1))
            });
            let left = left.unwrap_or_default();
            let it_value = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let new = Itimerspec { it_interval, it_value };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &new)?;
            self.deadline = deadline;
            Ok(())
        }
    }

    /// Registers the descriptor. Returns false if it cannot be waited for, as a file cannot.
    fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>, events: libc::c_short) -> io::Result<bool> {
        let flags = if events == libc::POLLOUT { EventFlags::OUT } else { EventFlags::IN };
        match epoll::add(epoll, fd, EventData::new_u64(0), flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(true),
            Err(Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the registration of a descriptor that may have been closed meanwhile. Its number may belong to another
    /// open file then, which the `epoll` does not have.
    fn remove(epoll: &OwnedFd, number: RawFd) {
        let (this, no_event) = (epoll.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: numbers, and no event is needed to remove one. An error is ignored: the registration has ended with
        // the descriptor.
        let _ = unsafe { libc::epoll_ctl(this, libc::EPOLL_CTL_DEL, number, no_event) };
    }
}

/// No such descriptor on this system.
#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::time::Instant;

    use super::Slot;

    /// A descriptor that is never made.
    #[derive(Debug)]
    pub(super) enum Descriptor {}

    impl Descriptor {
        pub(super) fn new() -> io::Result<Descriptor> {
            let words = "this system has no descriptor for a whole wait";
            Err(io::Error::new(io::ErrorKind::Unsupported, words))
        }

        pub(super) fn number(&self) -> i32 {
            match *self {}
        }

        pub(super) fn update(&mut self, _: &[Slot<'_>], _: Option<Instant>) -> io::Result<()> {
            match *self {}
        }

        pub(super) fn register(
            &mut self,
            _: &[Slot<'_>],
            _: Option<Instant>,
        ) -> io::Result<Option<Instant>> {
            match *self {}
        }
    }
}
