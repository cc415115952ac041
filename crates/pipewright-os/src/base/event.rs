//! Events: a child exits, a flag is raised, a message arrives.

use std::fmt;
use std::marker::PhantomData;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(windows)]
use std::os::windows::io::BorrowedHandle;

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
