//! A flag that every arrival of a signal, or of one of several, raises.

use std::io;
use std::sync::Arc;

use super::SignalLatches;
use crate::base::signal::Signal;
use crate::base::wake::Wake;

/// A flag that every arrival of these signals raises, as long as this lives. They have no other effect meanwhile.
///
/// # Platform
/// As for [`SignalLatches`].
///
/// # Drop
/// Restores the previous effect of the signals, unless other code has set another handler meanwhile.
#[derive(Debug)]
pub struct SignalFlag {
    /// Dropped first: no handler raises the flag afterwards.
    _registered: SignalLatches,
    wake: Arc<Wake>,
}

impl SignalFlag {
    /// Raises the flag from now on. Returns `None` if one of the signals is ignored, or never arrives on this system.
    ///
    /// # Errors
    /// A signal cannot be handled (`KILL`, `STOP`), or no more handles are available.
    pub fn install(signals: &[Signal]) -> io::Result<Option<SignalFlag>> {
        let wake = Arc::new(Wake::new()?);
        let registered = SignalLatches::raise_each_time(signals, Arc::clone(&wake))?;
        Ok(registered.map(|registered| SignalFlag { _registered: registered, wake }))
    }

    /// Returns the flag, to wait for it and to lower it.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::wait::{self, Slot};

    #[test]
    fn every_arrival_raises_the_flag_and_the_signal_has_its_effect_again_afterwards() {
        // A signal that ends the process if it is not handled, and that no other test takes.
        let flag = SignalFlag::install(&[Signal::ABRT]).unwrap().unwrap();
        for _ in 0..3 {
            assert!(!flag.wake().is_raised());
            Signal::ABRT.raise();
            let until = Some(Instant::now() + Duration::from_secs(60));
            assert_eq!(wait::any(&mut [Slot::Event(flag.wake())], until).unwrap(), 1);
            flag.wake().lower();
        }
        drop(flag);
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only queries, into a live struct.
        let asked = unsafe { libc::sigaction(libc::SIGABRT, std::ptr::null(), now.as_mut_ptr()) };
        assert_eq!(asked, 0);
        // SAFETY: initialized by the call.
        assert_eq!(unsafe { now.assume_init() }.sa_sigaction, libc::SIG_DFL);
    }
}
