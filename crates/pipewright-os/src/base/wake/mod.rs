//! A flag that any thread can raise and that a wait can include.

mod latch;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(all(windows, any(feature = "process", feature = "tokio", test)))]
pub(crate) use windows::is_signalled;

use std::io;

use crate::base::event::{EventSource, WaitEvent};
pub use latch::Latch;

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::Wake;
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
}
