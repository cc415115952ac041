//! io_uring: one ring, and the requests that it has.

mod entry;
mod setup;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use io_uring::{EnterFlags, IoUring};
use rustix::io::Errno;

use super::RingOptions;
use crate::base::generation::Generation;
use crate::base::wake::Wake;
use crate::disk::file::{Finished, Request};
use crate::disk::in_flight::InFlight;
use crate::disk::unavailable::UnavailableReason;

/// What an entry is called that cancels another one: nobody waits for it.
const CANCEL: u64 = u64::MAX;

/// What the entry is called that waits for the flag.
const WAKE: u64 = u64::MAX - 1;

pub(crate) struct Ring {
    /// Not dropped in a fork of this process, which has neither its memory nor its requests.
    ring: ManuallyDrop<IoUring>,
    home: Generation,
    /// What the kernel may touch.
    requests: InFlight,
    /// The entries that the kernel has not taken yet, in order.
    unsubmitted: VecDeque<u64>,
    /// Ends waits.
    wake: Option<Arc<Wake>>,
    /// The kernel has an entry that waits for it.
    is_wake_armed: bool,
    /// Flags for a wait without requests.
    idle: EnterFlags,
    /// The kernel takes calls from the thread that made the ring, and no others.
    _of_this_thread: PhantomData<*const ()>,
}

impl Ring {
    pub(crate) fn new(
        options: RingOptions,
        wake: Option<Arc<Wake>>,
    ) -> Result<Ring, UnavailableReason> {
        let ring = setup::set_up(options)?;
        let mut idle = EnterFlags::GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            // A ring that waits for requests is no disk that keeps the machine waiting. Where it has some
            // it is one, and a processor that knows sleeps less deeply.
            idle |= EnterFlags::NO_IOWAIT;
        }
        let requests = InFlight::new(options.depth);
        Ok(Ring {
            ring: ManuallyDrop::new(ring),
            home: Generation::current(),
            requests,
            unsubmitted: VecDeque::new(),
            wake,
            is_wake_armed: false,
            idle,
            _of_this_thread: PhantomData,
        })
    }

    pub(crate) fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        if !self.home.is_here() || !self.requests.is_free(token) || !self.has_room() {
            return Err(request);
        }
        let entry = entry::of(&request).user_data(token as u64);
        // SAFETY: the file is open and the memory is there, for that many bytes and nobody else's, until the
        // kernel has completed the entry: the request, which owns both, is kept from the next line until
        // then (`take`), also when the ring is dropped, and moving it does not move its memory, which is on
        // the heap. The memory of a write is only read, by us and by the kernel.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Err(request);
        }
        self.requests.put(token, request);
        self.unsubmitted.push_back(token as u64);
        Ok(())
    }

    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.check_home()?;
        while !self.unsubmitted.is_empty() {
            if self.enter(0, EnterFlags::empty())? == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }

    /// Says that a fork of this process has no ring. What is mapped at its address may be anything.
    fn check_home(&self) -> io::Result<()> {
        if self.home.is_here() { Ok(()) } else { Err(Errno::OPNOTSUPP.into()) }
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.check_home()?;
        if !self.ring.completion().is_empty() {
            return self
                .submit()
                .or_else(|error| if is_transient(&error) { Ok(()) } else { Err(error) });
        }
        match &self.wake {
            None if self.requests.count() == 0 => return Ok(()),
            Some(wake) if !self.is_wake_armed => {
                let entry = entry::readable(wake.0.as_fd()).user_data(WAKE);
                self.is_wake_armed = self.push_entry(entry, WAKE);
            }
            _ => {}
        }
        let has_requests = self.requests.count() > 0;
        let flags = if has_requests { EnterFlags::GETEVENTS } else { self.idle };
        self.enter(1, flags).map(drop)
    }

    pub(crate) fn take(&mut self) -> Option<Finished> {
        self.check_home().ok()?;
        loop {
            let done = self.ring.completion().next()?;
            match done.user_data() {
                // The end of a cancel is not the end of what it was to cancel.
                CANCEL => continue,
                WAKE => {
                    self.is_wake_armed = false;
                    if let Some(wake) = &self.wake {
                        wake.lower();
                    }
                    continue;
                }
                _ => {}
            }
            let token = usize::try_from(done.user_data()).ok()?;
            let result = match usize::try_from(done.result()) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(io::Error::from_raw_os_error(-done.result())),
            };
            if let Some(request) = self.requests.take(token) {
                return Some(Finished { token, request, result });
            }
        }
    }

    pub(crate) fn cancel(&mut self, token: usize) {
        if !self.home.is_here() {
            return;
        }
        // Ignored, both: what is not cancelled is done as if nobody had asked.
        let _ = self.push_entry(entry::cancel(token as u64).user_data(CANCEL), CANCEL);
        let _ = self.submit();
    }

    /// Pushes an entry that refers to no memory.
    fn push_entry(&mut self, entry: io_uring::squeue::Entry, name: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: it names another entry, or a descriptor that is open; the kernel holds that itself.
        let pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        if pushed {
            self.unsubmitted.push_back(name);
        }
        pushed
    }

    /// Whether another entry can be pushed; hands over those that are in its way.
    fn has_room(&mut self) -> bool {
        if self.ring.submission().is_full() {
            // Ignored: then it is still full.
            let _ = self.submit();
        }
        !self.ring.submission().is_full()
    }

    /// Hands over what was pushed, and waits for so many completions. Gives how many entries were taken.
    fn enter(&mut self, at_least: u32, flags: EnterFlags) -> io::Result<usize> {
        let unsubmitted = self.unsubmitted.len() as u32;
        // SAFETY: as many entries as were pushed, no signal mask, and nothing that is not ours in them.
        let entered = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(unsubmitted, at_least, flags.bits(), None)
        };
        match entered {
            Ok(taken) => {
                self.unsubmitted.drain(..taken.min(self.unsubmitted.len()));
                Ok(taken)
            }
            // A signal; or no room for completions before some are taken. Those who wait look and come again.
            Err(error) if at_least > 0 && is_transient(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    let is_full = error.kind() == io::ErrorKind::WouldBlock;
    is_full || matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY))
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("requests", &self.requests.count()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Waits for what the kernel has, so that nothing of it is used when it is freed.
    fn finish(&mut self) {
        // What the kernel has not seen it will not see: no call hands it over any more.
        for token in std::mem::take(&mut self.unsubmitted) {
            // Of a cancel, or of the wait for the flag, nothing is kept.
            drop(usize::try_from(token).ok().and_then(|token| self.requests.take(token)));
        }
        if self.requests.count() == 0 {
            return;
        }
        setup::cancel_all(&self.ring);
        while self.requests.count() > 0 {
            while self.take().is_some() {}
            if self.requests.count() > 0 && self.enter(1, EnterFlags::GETEVENTS).is_err() {
                // Nothing can be learned of them any more, so their memory is the kernel's for ever.
                self.requests.leak();
                return;
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.home.is_here() {
            self.requests.leak();
            return;
        }
        self.finish();
        // SAFETY: the last that is done with it.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::generation::tests::in_a_fork;

    #[test]
    fn a_fork_leaves_the_ring_alone() {
        let options = RingOptions { depth: 4, workers: None };
        let Ok(ring) = Ring::new(options, None) else {
            return eprintln!("SKIPPED: there is no io_uring here");
        };
        let mut ring = Some(ring);
        assert!(in_a_fork(|| {
            let Some(mut ring) = ring.take() else { return false };
            let refuses = ring.submit().is_err() && ring.wait().is_err() && ring.take().is_none();
            ring.cancel(0);
            drop(ring);
            refuses
        }));
        let mut ring = ring.unwrap();
        ring.submit().unwrap();
        ring.wait().unwrap();
    }
}
