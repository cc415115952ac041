//! Asynchronous file operations by io_uring.
//!
//! The ring owns everything that the kernel may read or write from [`Uring::push`] until the kernel has
//! completed it, so that no caller can free it too early.

#[cfg(not(target_os = "linux"))]
use crate::disk::unavailable as imp;

use std::io;
use std::sync::Arc;

use crate::base::wake::Wake;
use crate::disk::file::{FileRequest, FinishedRequest};
use crate::disk::unavailable::UnavailableReason;

/// The options of a ring.
#[derive(Debug, Clone, Copy)]
pub struct RingOptions {
    /// The maximum number of operations in flight.
    pub depth: usize,
    /// The maximum number of kernel threads for operations that block. `None`: the kernel's limit for files, 4
    /// per processor.
    pub workers: Option<u32>,
}

/// A ring. It belongs to the thread that created it.
///
/// # Drop
/// Cancels what the kernel has not started and waits for the rest.
#[derive(Debug)]
pub struct Uring(imp::Uring);

impl Uring {
    /// Creates a ring and submits an empty operation to check that it works. Raising the flag interrupts its
    /// waits.
    ///
    /// # Platform
    /// Linux 5.6 and later: `io_uring_setup` with `SINGLE_ISSUER` and `DEFER_TASKRUN` (6.1), or with
    /// `SINGLE_ISSUER` and `COOP_TASKRUN` (6.0), or with `COOP_TASKRUN` alone (5.19), or without;
    /// `IORING_REGISTER_PROBE` to check each operation;
    /// `IORING_REGISTER_IOWQ_MAX_WORKERS` (5.15). No kernel thread polls. Not available elsewhere.
    ///
    /// # Errors
    /// The reason why io_uring is unavailable.
    #[doc(alias = "io_uring_setup")]
    pub fn new(options: RingOptions, wake: Option<Arc<Wake>>) -> Result<Uring, UnavailableReason> {
        imp::Uring::new(options, wake).map(Uring)
    }

    /// Pushes an operation. The next [`submit`](Uring::submit) or wait submits it to the kernel.
    ///
    /// `token` identifies it. It must be less than the depth and not in use.
    ///
    /// # Errors
    /// The request, if the token is invalid or in use.
    pub fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.0.push(token, request)
    }

    /// Submits the pushed operations to the kernel. Doesn't wait.
    ///
    /// Operations that can complete at once do so in the call and can be [taken](Uring::take) afterwards. With
    /// `DEFER_TASKRUN`, no other operation is complete then: later completions need a wait.
    ///
    /// # Errors
    /// The system's error. Operations that were not submitted stay pushed.
    #[doc(alias = "io_uring_enter")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Submits the pushed operations and waits until one is complete, or until the ring's flag is raised,
    /// which lowers it. A signal can end the wait early. Without a flag it returns at once if nothing is in
    /// flight.
    ///
    /// # Errors
    /// As for [`Uring::submit`].
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// Takes a completed operation, if there is one.
    pub fn take(&mut self) -> Option<FinishedRequest> {
        self.0.take()
    }

    /// Asks the kernel to cancel an operation that it has not started. The operation completes in any case,
    /// with `ECANCELED` or with its own result.
    #[doc(alias = "IORING_OP_ASYNC_CANCEL")]
    pub fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }
}

// io_uring: one ring and its requests.
#[cfg(target_os = "linux")]
mod imp {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::io;
    use std::marker::PhantomData;
    use std::mem::ManuallyDrop;
    use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
    use std::sync::Arc;

    use io_uring::opcode::{AsyncCancel, Fallocate, Fsync, Nop, PollAdd, Read, Write};
    use io_uring::squeue::{Entry, Flags};
    use io_uring::types::{CancelBuilder, Fd, FsyncFlags, Timespec};
    use io_uring::{EnterFlags, IoUring, Probe};
    use rustix::io::Errno;

    use super::RingOptions;
    use crate::base::generation::Generation;
    use crate::base::test_hooks::{Forced, is_forced};
    use crate::base::wake::Wake;
    use crate::disk::file::{Action, FileRequest, FinishedRequest, InFlight};
    use crate::disk::unavailable::{RefusalContext, UnavailableReason};

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
            let ring = set_up(options)?;
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

        pub(crate) fn push(
            &mut self,
            token: usize,
            request: FileRequest,
        ) -> Result<(), FileRequest> {
            if !self.created_in.is_current() || !self.requests.is_free(token) || !self.has_room() {
                return Err(request);
            }
            let entry = of(&request).user_data(token as u64);
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
                    let entry = readable(wake.0.as_fd()).user_data(WAKE);
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
            let _ = self.push_entry(cancel(token as u64).user_data(CANCEL), CANCEL);
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
                self.ring.submitter().enter::<libc::sigset_t>(
                    unsubmitted,
                    at_least,
                    flags.bits(),
                    None,
                )
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
            f.debug_struct("Uring")
                .field("requests", &self.requests.count())
                .finish_non_exhaustive()
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
            cancel_all(&self.ring);
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
            release_workers(&self.ring, self.workers);
            // SAFETY: nothing uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }

    // The creation of a ring with the best features of the kernel.

    /// The maximum number of entries of a ring. More operations are submitted in several calls.
    const MAX_ENTRIES: usize = 32_768;
    const MIN_ENTRIES: u32 = 8;

    fn set_up(options: RingOptions) -> Result<IoUring, UnavailableReason> {
        if is_forced(Forced::NoIoUring) {
            return Err(UnavailableReason::LeftOut);
        }
        let judge = |error: io::Error| RefusalContext::now().judge(&error);
        let depth = options.depth.clamp(MIN_ENTRIES as usize, MAX_ENTRIES) as u32;
        let mut ring = make(depth).map_err(judge)?;
        check_operations(&ring)?;
        // A seccomp filter may allow the first call but not the one that submits.
        test_nop(&mut ring).map_err(judge)?;
        limit_workers(&ring, options.workers);
        Ok(ring)
    }

    /// Creates a ring. Kernels before 5.12 count its memory as locked memory, so a smaller one may fit.
    fn make(mut entries: u32) -> io::Result<IoUring> {
        loop {
            match make_with_flags(entries) {
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOMEM) && entries > MIN_ENTRIES =>
                {
                    entries = (entries / 2).max(MIN_ENTRIES);
                }
                result => return result,
            }
        }
    }

    fn make_with_flags(entries: u32) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        // Children get neither the ring nor its mappings.
        builder.dontfork();
        let plain = builder.clone();
        let mut cooperative = builder.clone();
        cooperative.setup_coop_taskrun();
        let mut single = cooperative.clone();
        single.setup_single_issuer();
        // Completions are produced only in our own calls that ask for them. Nothing interrupts this thread, and a
        // request that is done after a submit was done inside it.
        builder.setup_single_issuer().setup_defer_taskrun();
        for builder in [&builder, &single, &cooperative] {
            match builder.build(entries) {
                // The kernel does not support a flag.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                result => return result,
            }
        }
        plain.build(entries)
    }

    fn check_operations(ring: &IoUring) -> Result<(), UnavailableReason> {
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|error| {
            match error.raw_os_error() {
                // Kernels before 5.6 have neither the probe nor the operations.
                Some(libc::EINVAL) => UnavailableReason::KernelTooOld,
                _ => RefusalContext::now().judge(&error),
            }
        })?;
        for (operation, code) in [
            ("read", Read::CODE),
            ("write", Write::CODE),
            ("fsync", Fsync::CODE),
            ("fallocate", Fallocate::CODE),
            ("async_cancel", AsyncCancel::CODE),
            ("poll_add", PollAdd::CODE),
        ] {
            if !probe.is_supported(code) {
                return Err(UnavailableReason::OperationMissing { operation });
            }
        }
        Ok(())
    }

    /// The limits on the kernel threads, which a thread has for all its rings together.
    struct WorkerLimits {
        made_in: Generation,
        /// Those of the living rings.
        asked: Vec<Option<u32>>,
        /// Those before the first of these rings.
        before: [u32; 2],
    }

    thread_local! {
        static LIMITS: RefCell<Option<WorkerLimits>> = const { RefCell::new(None) };
    }

    /// Limits the kernel threads for one more ring of this thread. The kernel has its own limit for those that work on
    /// files, and only the user's process limit for the others.
    fn limit_workers(ring: &IoUring, workers: Option<u32>) {
        LIMITS.with_borrow_mut(|limits| {
            // Not those of a process of which this is a fork.
            let known = limits.take().filter(|it| it.made_in.is_current() && !it.asked.is_empty());
            let limits = limits.insert(known.unwrap_or_else(|| WorkerLimits {
                made_in: Generation::current(),
                asked: Vec::new(),
                before: set_workers(ring, [0, 0]),
            }));
            limits.asked.push(workers);
            limits.apply(ring);
        });
    }

    /// Restores the limits that are in force without this ring of this thread.
    fn release_workers(ring: &IoUring, workers: Option<u32>) {
        LIMITS.with_borrow_mut(|limits| {
            let Some(limits) = limits else { return };
            if let Some(place) = limits.asked.iter().position(|asked| *asked == workers) {
                limits.asked.swap_remove(place);
            }
            if limits.asked.is_empty() {
                set_workers(ring, limits.before);
            } else {
                limits.apply(ring);
            }
        });
    }

    impl WorkerLimits {
        /// Sets the smallest limit that one of the rings wants.
        fn apply(&self, ring: &IoUring) {
            let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let most = self.asked.iter().flatten().min().copied().unwrap_or(4 * processors as u32);
            set_workers(ring, [most, most]);
        }
    }

    /// Sets the limits for files and for others, and returns those before. 0 keeps one.
    fn set_workers(ring: &IoUring, mut limits: [u32; 2]) -> [u32; 2] {
        // Ignored: kernels before 5.15 have no such call.
        match ring.submitter().register_iowq_max_workers(&mut limits) {
            Ok(()) => limits,
            Err(_) => [0, 0],
        }
    }

    fn test_nop(ring: &mut IoUring) -> io::Result<()> {
        let nothing = Nop::new().build();
        // SAFETY: an entry without a file and without memory.
        unsafe { ring.submission().push(&nothing) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
        loop {
            match ring.submit_and_wait(1) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while ring.completion().next().is_some() {}
        Ok(())
    }

    /// Cancels all entries that have not started. Doesn't wait.
    fn cancel_all(ring: &IoUring) {
        // Ignored: kernels before 6.0 have no such call, and complete all entries.
        let _ = ring.submitter().register_sync_cancel(Some(Timespec::new()), CancelBuilder::any());
    }

    /// Returns the entry for a request. It refers to the request's file and memory, and owns neither.
    fn of(request: &FileRequest) -> Entry {
        let fd = Fd(request.file.as_fd().as_raw_fd());
        // At most 0x7ffff000.
        let left = request.left() as u32;
        // Inside the allocation, or at its end: `from` is at most the length.
        let start = request.buffer.start().as_ptr().wrapping_add(request.from);
        let entry = match request.action {
            Action::Read => Read::new(fd, start, left).offset(request.offset).build(),
            Action::Write => Write::new(fd, start, left).offset(request.offset).build(),
            Action::SyncAll => Fsync::new(fd).build(),
            Action::SyncData => Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Action::Allocate(bytes) => Fallocate::new(fd, bytes).offset(request.offset).build(),
        };
        // Not on the first try, because it would use a kernel thread unnecessarily. Without the flag, a request
        // that failed with EAGAIN more than once would fail again.
        if request.may_wait { entry.flags(Flags::ASYNC) } else { entry }
    }

    /// Returns the entry that cancels another one.
    fn cancel(of: u64) -> Entry {
        AsyncCancel::new(of).build()
    }

    /// Returns the entry that completes when the descriptor is readable.
    fn readable(fd: BorrowedFd<'_>) -> Entry {
        PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build()
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
                let refuses =
                    ring.submit().is_err() && ring.wait().is_err() && ring.take().is_none();
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
}
