//! Wake-ups: a flag that any thread can raise and that a wait can include, the other events to wait for, and a thread
//! that parks until its waker is called.

use std::marker::PhantomData;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(windows)]
use std::os::windows::io::BorrowedHandle;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::{fmt, io};

#[cfg(all(windows, any(feature = "process", feature = "tokio", test)))]
pub(crate) use imp::is_signalled;

/// A flag that stays raised until it is lowered.
///
/// # Platform
/// Linux: an eventfd. Windows: a manual-reset event. macOS: a pipe, which is readable while the
/// flag is raised.
///
/// ```
/// # use pipewright_os::base::wake::Wake;
/// let wake = Wake::new()?;
/// assert!(!wake.is_raised());
/// wake.raise();
/// assert!(wake.is_raised());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Wake(pub(crate) imp::Wake);

impl Wake {
    /// Makes a flag that is not raised.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn new() -> io::Result<Wake> {
        imp::Wake::new().map(Wake)
    }

    /// Raises the flag and wakes all waiters. Raising it again does nothing.
    pub fn raise(&self) {
        self.0.raise();
    }

    /// Lowers the flag again.
    pub fn lower(&self) {
        self.0.lower();
    }

    /// Returns true if the flag is raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.is_raised()
    }
}

impl WaitEvent for Wake {
    fn source(&self) -> EventSource<'_> {
        imp::source(self)
    }

    fn has_happened(&self) -> bool {
        self.is_raised()
    }
}

/// A flag that is raised once and stays raised. The first wait for it makes its [`Wake`].
///
/// [`raise`](Self::raise) and [`notify_all`](Self::notify_all) neither lock nor allocate, so a
/// signal handler may call them.
#[derive(Debug, Default)]
pub struct Latch {
    is_raised: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Latch {
    /// Raises the flag and wakes all waiters.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.notify_all();
    }

    /// Returns true once the flag has been raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Wakes all waiters without raising the flag.
    pub fn notify_all(&self) {
        // Pairs with the fence in `wake`: either this sees the new wake, or its maker sees the
        // flag.
        fence(Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake.raise();
        }
    }

    /// Returns the wake, if a wait has made one.
    #[must_use]
    pub fn existing_wake(&self) -> Option<&Wake> {
        self.wake.get()
    }

    /// Returns the wake to wait for. Check the flag afterwards: a raise before the wake was made
    /// has not raised the wake.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn wake(&self) -> io::Result<&Wake> {
        if self.wake.get().is_none() {
            // Ignored: another thread has made one first, which works too.
            let _ = self.wake.set(Wake::new()?);
        }
        let wake = self.wake.get().ok_or(io::ErrorKind::NotFound)?;
        fence(Ordering::SeqCst);
        Ok(wake)
    }
}

/// An event to wait for that is no pipe: the exit of a child, a flag, the end of a channel.
pub trait WaitEvent: Send + Sync {
    /// Returns the object through which the kernel reports the event.
    fn source(&self) -> EventSource<'_>;

    /// Returns the object through which the kernel reports [room](crate::base::wait::Slot::Room).
    fn room(&self) -> EventSource<'_> {
        self.source()
    }

    /// Returns true if the event has happened. Called for a [`EventSource::Unwaitable`].
    fn has_happened(&self) -> bool;
}

impl fmt::Debug for dyn WaitEvent + '_ {
    /// Prints no fields. `Debug` is not a supertrait: every program would contain the code that formats its events.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitEvent")
    }
}

/// The system object behind an [`WaitEvent`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum EventSource<'a> {
    /// A descriptor that becomes readable.
    #[cfg(unix)]
    Readable(BorrowedFd<'a>),
    /// A descriptor that becomes writable.
    #[cfg(unix)]
    Writable(BorrowedFd<'a>),
    /// A handle that becomes signalled.
    #[cfg(windows)]
    Signalled(BorrowedHandle<'a>),
    /// No object: [`WaitEvent::has_happened`] is called every few milliseconds.
    Unwaitable(PhantomData<&'a ()>),
}

impl EventSource<'_> {
    /// The source of an event that no system object reports.
    pub const UNWAITABLE: EventSource<'static> = EventSource::Unwaitable(PhantomData);
}

/// Polls until the result is ready. Parks the thread until its waker is called.
pub fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(done) = poll(&mut context) {
            return done;
        }
        thread::park();
    }
}

struct Unpark(Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

// An eventfd on Linux, a pipe elsewhere: both are readable while the flag is raised.
#[cfg(unix)]
mod imp {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::EventSource;

    #[derive(Debug)]
    pub(crate) struct Wake {
        raised: AtomicBool,
        read: OwnedFd,
        #[cfg(not(target_os = "linux"))]
        write: OwnedFd,
    }

    impl Wake {
        #[cfg(target_os = "linux")]
        pub(super) fn new() -> io::Result<Wake> {
            use rustix::event::EventfdFlags;
            let read = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Wake { raised: AtomicBool::new(false), read })
        }

        #[cfg(not(target_os = "linux"))]
        pub(super) fn new() -> io::Result<Wake> {
            // As in `base::pipe`, which uses this module.
            let (read, write) = rustix::pipe::pipe()?;
            for end in [&read, &write] {
                rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
                rustix::fs::fcntl_setfl(end, rustix::fs::OFlags::NONBLOCK)?;
            }
            Ok(Wake { raised: AtomicBool::new(false), read, write })
        }

        pub(super) fn raise(&self) {
            if !self.raised.swap(true, Ordering::SeqCst) {
                // Ignored: the only possible error is EAGAIN, and then it is readable already.
                let _ = rustix::io::write(self.write_end(), &1_u64.to_ne_bytes());
            }
        }

        pub(super) fn lower(&self) {
            let mut taken = [0_u8; 8];
            // Unconditional, because a raise may be between its store and its write. Ignored: EAGAIN
            // means that there was nothing to read.
            let _ = rustix::io::read(&self.read, &mut taken);
            // Last: the caller checks its state after this, so it sees any raise from before. If this
            // came first, a raise could come in between and its byte would be read away: the flag would
            // stay raised with no waiter woken.
            self.raised.store(false, Ordering::SeqCst);
        }

        pub(super) fn is_raised(&self) -> bool {
            self.raised.load(Ordering::SeqCst)
        }

        #[cfg(target_os = "linux")]
        fn write_end(&self) -> BorrowedFd<'_> {
            self.read.as_fd()
        }

        #[cfg(not(target_os = "linux"))]
        fn write_end(&self) -> BorrowedFd<'_> {
            self.write.as_fd()
        }
    }

    pub(super) fn source(wake: &super::Wake) -> EventSource<'_> {
        EventSource::Readable(wake.0.read.as_fd())
    }

    impl AsFd for Wake {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.read.as_fd()
        }
    }
}

// A manual-reset event.
#[cfg(windows)]
mod imp {
    use std::io;
    use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
    use std::ptr;

    use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
    use windows_sys::Win32::System::Threading::{
        CreateEventW, ResetEvent, SetEvent, WaitForSingleObject,
    };

    use super::EventSource;

    #[derive(Debug)]
    pub(crate) struct Wake(OwnedHandle);

    impl Wake {
        pub(crate) fn new() -> io::Result<Wake> {
            // SAFETY: no attributes (so it is not inheritable), no name; manual reset, initially not
            // set.
            let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
            if event.is_null() {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: made by the call above, and owned by nothing else.
            Ok(Wake(unsafe { OwnedHandle::from_raw_handle(event) }))
        }

        pub(crate) fn raise(&self) {
            // Ignored: an open event cannot fail. SAFETY: it is open.
            let _ = unsafe { SetEvent(self.0.as_raw_handle()) };
        }

        pub(crate) fn lower(&self) {
            // Ignored: as above. SAFETY: as above.
            let _ = unsafe { ResetEvent(self.0.as_raw_handle()) };
        }

        pub(crate) fn is_raised(&self) -> bool {
            is_signalled(self.0.as_handle())
        }
    }

    /// Returns true if a waitable handle is signalled: an event is set, a process has ended.
    pub(crate) fn is_signalled(handle: BorrowedHandle<'_>) -> bool {
        // SAFETY: an open handle, and a timeout of 0.
        unsafe { WaitForSingleObject(handle.as_raw_handle(), 0) == WAIT_OBJECT_0 }
    }

    impl AsHandle for super::Wake {
        fn as_handle(&self) -> BorrowedHandle<'_> {
            self.0.0.as_handle()
        }
    }

    pub(super) fn source(wake: &super::Wake) -> EventSource<'_> {
        EventSource::Signalled(wake.as_handle())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::wait::{self, Slot};

    #[test]
    fn no_raise_is_lost_to_a_concurrent_lower() {
        // With one processor each raise costs several switches of threads, and nothing happens at the same time.
        let is_alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let raises = if cfg!(windows) {
            500
        } else if is_alone {
            5_000
        } else {
            50_000
        };
        let (wake, lost) = (Wake::new().unwrap(), AtomicBool::new(false));
        let (posted, seen) = ([const { AtomicU32::new(0) }; 2], [const { AtomicU32::new(0) }; 2]);
        std::thread::scope(|scope| {
            for (posted, seen) in posted.iter().zip(&seen) {
                scope.spawn(|| {
                    for number in 1..=raises {
                        posted.store(number, Ordering::SeqCst);
                        wake.raise();
                        while seen.load(Ordering::SeqCst) < number {
                            if lost.load(Ordering::SeqCst) {
                                return;
                            }
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while seen.iter().any(|seen| seen.load(Ordering::SeqCst) < raises) {
                // From the last raise on: a slow machine takes longer for all of them.
                let until = Some(Instant::now() + Duration::from_secs(60));
                if wait::any(&mut [Slot::Event(&wake)], until).unwrap() == 0 {
                    lost.store(true, Ordering::SeqCst);
                    return;
                }
                wake.lower();
                for (posted, seen) in posted.iter().zip(&seen) {
                    seen.store(posted.load(Ordering::SeqCst), Ordering::SeqCst);
                }
            }
        });
        assert!(!lost.into_inner(), "a raise was lost");
    }

    #[test]
    fn block_on_sleeps_until_it_is_woken() {
        let mut polls = 0;
        let done = block_on(|context| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(polls);
            }
            let waker = context.waker().clone();
            thread::spawn(move || waker.wake());
            Poll::Pending
        });
        assert!(done == 3);
    }
}
