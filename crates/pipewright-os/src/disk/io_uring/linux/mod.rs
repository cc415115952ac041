//! io_uring: one ring and its requests.

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
use crate::disk::file::{FileRequest, FinishedRequest};
use crate::disk::in_flight::InFlight;
use crate::disk::unavailable::UnavailableReason;

/// The user data of entries that cancel another entry. Their completions are ignored.
const CANCEL: u64 = u64::MAX;

/// The user data of the entry that polls the wake flag.
const WAKE: u64 = u64::MAX - 1;

pub(crate) struct Uring {
    /// Not dropped in a fork of this process, which has neither the ring's memory nor its requests.
    ring: ManuallyDrop<IoUring>,
    created_in: Generation,
    /// The limit on kernel threads that it was created with.
    workers: Option<u32>,
    /// The requests, which own what the kernel may touch.
    requests: InFlight,
    /// The entries that the kernel has not accepted yet, in order.
    unsubmitted: VecDeque<u64>,
    /// The flag that interrupts waits.
    wake: Option<Arc<Wake>>,
    /// True if an entry polls the flag.
    is_wake_armed: bool,
    /// The flags for a wait without requests.
    idle: EnterFlags,
    /// Only the thread that created the ring may use it.
    _of_this_thread: PhantomData<*const ()>,
}

impl Uring {
    pub(crate) fn new(
        options: RingOptions,
        wake: Option<Arc<Wake>>,
    ) -> Result<Uring, UnavailableReason> {
        let ring = setup::set_up(options)?;
        let mut idle = EnterFlags::GETEVENTS;
        if ring.params().is_feature_no_iowait() {
            // Don't count idle waits as iowait. A wait with requests is counted, because the processor then
            // sleeps less deeply.
            idle |= EnterFlags::NO_IOWAIT;
        }
        let requests = InFlight::new(options.depth);
        Ok(Uring {
            ring: ManuallyDrop::new(ring),
            created_in: Generation::current(),
            workers: options.workers,
            requests,
            unsubmitted: VecDeque::new(),
            wake,
            is_wake_armed: false,
            idle,
            _of_this_thread: PhantomData,
        })
    }

    pub(crate) fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        if !self.created_in.is_current() || !self.requests.is_free(token) || !self.has_room() {
            return Err(request);
        }
        let entry = entry::of(&request).user_data(token as u64);
        // SAFETY: the file is open, and the memory is valid for that many bytes and used by nobody else, until
        // the kernel has completed the entry. The request owns both. It is stored in the next line and kept
        // until then (`take`), even if the ring is dropped. Moving the request does not move its memory, which
        // is on the heap. For a write the memory is only read, by us and by the kernel.
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

    /// Fails in a fork of this process, where anything may be mapped at the ring's address.
    fn check_home(&self) -> io::Result<()> {
        if self.created_in.is_current() { Ok(()) } else { Err(Errno::OPNOTSUPP.into()) }
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

    pub(crate) fn take(&mut self) -> Option<FinishedRequest> {
        self.check_home().ok()?;
        loop {
            let done = self.ring.completion().next()?;
            match done.user_data() {
                // The completion of a cancel is not that of the cancelled entry.
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
                // The kernel's number for an entry that it has dropped before it began.
                let ran = done.result() != -libc::ECANCELED;
                return Some(FinishedRequest { token, request, result, ran });
            }
        }
    }

    pub(crate) fn cancel(&mut self, token: usize) {
        if !self.created_in.is_current() {
            return;
        }
        // Ignored, both: an entry that is not cancelled completes normally.
        let _ = self.push_entry(entry::cancel(token as u64).user_data(CANCEL), CANCEL);
        let _ = self.submit();
    }

    /// Pushes an entry that refers to no memory.
    fn push_entry(&mut self, entry: io_uring::squeue::Entry, name: u64) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the entry names another entry, or an open descriptor of which the kernel holds its own
        // reference.
        let pushed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        if pushed {
            self.unsubmitted.push_back(name);
        }
        pushed
    }

    /// Returns true if another entry can be pushed. Submits the pushed entries if the queue is full.
    fn has_room(&mut self) -> bool {
        if self.ring.submission().is_full() {
            // Ignored: the ring is then still full.
            let _ = self.submit();
        }
        !self.ring.submission().is_full()
    }

    /// Submits the pushed entries and waits for that many completions. Returns the number of entries
    /// submitted.
    fn enter(&mut self, at_least: u32, flags: EnterFlags) -> io::Result<usize> {
        let unsubmitted = self.unsubmitted.len() as u32;
        // SAFETY: as many entries as were pushed, no signal mask, and only entries of ours.
        let entered = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(unsubmitted, at_least, flags.bits(), None)
        };
        match entered {
            Ok(taken) => {
                self.unsubmitted.drain(..taken.min(self.unsubmitted.len()));
                Ok(taken)
            }
            // A signal, or no space for completions until some are taken. The caller looks for completions and
            // calls again.
            Err(error) if at_least > 0 && is_transient(&error) => Ok(0),
            // The same without a wait.
            Err(error) if is_transient(&error) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    let is_full = error.kind() == io::ErrorKind::WouldBlock;
    is_full || matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY))
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("requests", &self.requests.count()).finish_non_exhaustive()
    }
}

impl Uring {
    /// Waits for all requests in the kernel, so that none of their memory is in use when it is freed.
    fn finish(&mut self) {
        // No call submits these any more, so the kernel never sees them.
        for token in std::mem::take(&mut self.unsubmitted) {
            // Entries for a cancel or for the flag own nothing.
            drop(usize::try_from(token).ok().and_then(|token| self.requests.take(token)));
        }
        if self.requests.count() == 0 {
            return;
        }
        setup::cancel_all(&self.ring);
        while self.requests.count() > 0 {
            while self.take().is_some() {}
            if self.requests.count() > 0 && self.enter(1, EnterFlags::GETEVENTS).is_err() {
                // Their completions can no longer be read, so leave their memory to the kernel forever.
                self.requests.leak();
                return;
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.created_in.is_current() {
            self.requests.leak();
            return;
        }
        self.finish();
        setup::release_workers(&self.ring, self.workers);
        // SAFETY: nothing uses it after this.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::generation::tests::in_a_fork;
    use crate::base::skipped::{Need, skipped};

    #[test]
    fn a_fork_leaves_the_ring_alone() {
        let options = RingOptions { depth: 4, workers: None };
        let Ok(ring) = Uring::new(options, None) else {
            return crate::base::skipped::skipped(
                crate::base::skipped::Need::IoUring,
                "there is no io_uring here",
            );
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

    #[test]
    fn the_limit_on_kernel_threads_is_the_smallest_of_the_living_rings() {
        let limits = || {
            let ring = IoUring::new(4).unwrap();
            let mut now = [0, 0];
            ring.submitter().register_iowq_max_workers(&mut now).map(|()| now).ok()
        };
        let ring = |workers| Uring::new(RingOptions { depth: 4, workers }, None).ok();
        let Some(first) = ring(None) else {
            return skipped(Need::IoUring, "rings have a limit on kernel threads");
        };
        let Some(usual) = limits() else {
            return skipped(Need::Kernel("5.15"), "rings have a limit on kernel threads");
        };
        let (three, one) = (ring(Some(3)), ring(Some(1)));
        assert_eq!(limits(), Some([1, 1]));
        drop(one);
        assert_eq!(limits(), Some([3, 3]));
        let another = ring(None);
        assert_eq!(limits(), Some([3, 3]));
        drop(three);
        assert_eq!(limits(), Some(usual));
        drop((first, another));
        let alone = ring(Some(2));
        assert_eq!(limits(), Some([2, 2]));
        drop(alone);
        assert_ne!(limits(), Some([2, 2]));
    }
}
