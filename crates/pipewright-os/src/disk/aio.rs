//! Asynchronous direct reads and writes by Linux AIO, the older interface.
//!
//! Many containers that forbid io_uring allow it. Requests that are not direct, or that have to allocate disk
//! space first, are performed inside the submitting call.

#[cfg(not(target_os = "linux"))]
use crate::disk::unavailable as imp;

use std::io;
use std::sync::Arc;

use crate::base::wake::Wake;
use crate::disk::file::{FileRequest, FinishedRequest};
use crate::disk::unavailable::UnavailableReason;

/// A queue of operations in the kernel.
///
/// # Drop
/// Waits for operations in flight.
#[derive(Debug)]
pub struct Aio(imp::Aio);

impl Aio {
    /// Creates a queue. Raising the flag interrupts its waits.
    ///
    /// # Platform
    /// Linux: `io_setup`. Not available elsewhere.
    ///
    /// # Errors
    /// The reason why Linux AIO is unavailable.
    #[doc(alias = "io_setup")]
    pub fn new(depth: usize, wake: Option<Arc<Wake>>) -> Result<Aio, UnavailableReason> {
        imp::Aio::new(depth, wake).map(Aio)
    }

    /// Pushes a read or a write. The next [`submit`](Aio::submit) or wait submits it.
    ///
    /// # Errors
    /// The request, if its token is invalid or in use, or if it is neither a read nor a write.
    pub fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.0.push(token, request)
    }

    /// Submits the pushed operations.
    ///
    /// # Errors
    /// The system's error. Operations that were not submitted stay pushed.
    #[doc(alias = "io_submit")]
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    /// Submits the pushed operations and waits until one is complete, or until the queue's flag is raised,
    /// which lowers it. Without a flag it returns at once if nothing is in flight.
    ///
    /// # Errors
    /// As for [`Aio::submit`] and `poll`.
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    /// Takes a completed operation, if there is one.
    pub fn take(&mut self) -> Option<FinishedRequest> {
        self.0.take()
    }
}

// `io_setup`, `io_submit`, `io_getevents`, `io_destroy`. The C library has no functions for them.
#[cfg(target_os = "linux")]
mod imp {
    use std::collections::VecDeque;
    use std::io;
    use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, PollFd, PollFlags};
    use rustix::io::Errno;

    use crate::base::generation::Generation;
    use crate::base::poll::poll_again;
    use crate::base::wake::Wake;
    use crate::disk::file::{Action, FileRequest, FinishedRequest, InFlight};
    use crate::disk::unavailable::{RefusalContext, UnavailableReason};

    /// `aio_context_t`.
    type Context = libc::c_ulong;

    /// The `struct iocb` (linux/aio_abi.h).
    #[repr(C)]
    #[derive(Debug, Default)]
    struct Iocb {
        data: u64,
        #[cfg(target_endian = "little")]
        key: u32,
        rw_flags: i32,
        #[cfg(target_endian = "big")]
        key: u32,
        opcode: u16,
        priority: i16,
        fd: u32,
        buffer: u64,
        bytes: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        result_fd: u32,
    }

    #[repr(C)]
    #[derive(Debug, Clone, Copy, Default)]
    struct IoEvent {
        data: u64,
        iocb: u64,
        result: i64,
        result2: i64,
    }

    const IOCB_CMD_PREAD: u16 = 0;
    const IOCB_CMD_PWRITE: u16 = 1;
    const IOCB_FLAG_RESFD: u32 = 1;

    #[derive(Debug)]
    pub(crate) struct Aio {
        context: Context,
        /// The process that created the context. A fork does not have the context, but may get another one with the
        /// same number.
        created_in: Generation,
        /// The requests, which own what the kernel may touch.
        requests: InFlight,
        /// The tokens of requests that have not been submitted.
        unsubmitted: VecDeque<usize>,
        /// The requests that the kernel refused or completed.
        done: VecDeque<(usize, i64)>,
        /// The flag that interrupts waits.
        wake: Option<Arc<Wake>>,
        /// Counts completions, so that one wait can cover them and the flag.
        completed: OwnedFd,
    }

    impl Aio {
        pub(crate) fn new(depth: usize, wake: Option<Arc<Wake>>) -> Result<Aio, UnavailableReason> {
            let judge = |error: io::Error| {
                RefusalContext { disabled: None, ..RefusalContext::now() }.judge(&error)
            };
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let completed =
                rustix::event::eventfd(0, flags).map_err(|error| judge(error.into()))?;
            let mut context: Context = 0;
            let most =
                libc::c_long::try_from(depth.max(1)).map_err(|_| UnavailableReason::Limit)?;
            // SAFETY: a number, and a context of value 0 to fill in.
            let result = unsafe { libc::syscall(libc::SYS_io_setup, most, &raw mut context) };
            if result != 0 {
                return Err(judge(io::Error::last_os_error()));
            }
            let requests = InFlight::new(depth);
            let (unsubmitted, done) = (VecDeque::new(), VecDeque::new());
            let created_in = Generation::current();
            Ok(Aio { context, created_in, requests, unsubmitted, done, wake, completed })
        }

        pub(crate) fn push(
            &mut self,
            token: usize,
            request: FileRequest,
        ) -> Result<(), FileRequest> {
            if !self.created_in.is_current() {
                return Err(request);
            }
            self.requests.put_transfer(token, request)?;
            self.unsubmitted.push_back(token);
            Ok(())
        }

        pub(crate) fn submit(&mut self) -> io::Result<()> {
            self.check_home()?;
            while let Some(token) = self.unsubmitted.front().copied() {
                // One at a time, because the call reports an error only for the first.
                match self.submit_one(token) {
                    Ok(()) => {}
                    // The queue is full until completions are taken.
                    Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Err(error),
                    Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                    Err(error) => {
                        let number = error.raw_os_error().unwrap_or(libc::EIO);
                        self.done.push_back((token, -i64::from(number)));
                    }
                }
                self.unsubmitted.pop_front();
            }
            Ok(())
        }

        /// Fails in a fork of this process, where the context's number may be that of another one.
        fn check_home(&self) -> io::Result<()> {
            if self.created_in.is_current() { Ok(()) } else { Err(Errno::OPNOTSUPP.into()) }
        }

        fn submit_one(&mut self, token: usize) -> io::Result<()> {
            let Some(request) = self.requests.get(token) else { return Ok(()) };
            let start = request.buffer.start().as_ptr().wrapping_add(request.from);
            let opcode =
                if request.action == Action::Read { IOCB_CMD_PREAD } else { IOCB_CMD_PWRITE };
            let mut block = Iocb {
                data: token as u64,
                opcode,
                fd: request.file.as_fd().as_raw_fd() as u32,
                buffer: start as u64,
                bytes: request.left() as u64,
                offset: request.offset as i64,
                flags: IOCB_FLAG_RESFD,
                result_fd: self.completed.as_raw_fd() as u32,
                ..Iocb::default()
            };
            let mut list = [&raw mut block];
            // SAFETY: a context of ours and a list of one. The call copies the block. The file is open, and the
            // memory is valid and used by nobody else, until the kernel has completed it: the request owns both
            // and is kept until then, even if this is dropped.
            let taken = unsafe {
                libc::syscall(
                    libc::SYS_io_submit,
                    self.context,
                    1 as libc::c_long,
                    list.as_mut_ptr(),
                )
            };
            if taken == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
        }

        pub(crate) fn wait(&mut self) -> io::Result<()> {
            self.submit_what_fits()?;
            if !self.done.is_empty() {
                return Ok(());
            }
            let Some(wake) = self.wake.clone() else {
                let is_in_flight = self.requests.count() > self.unsubmitted.len();
                return if is_in_flight { self.collect(1) } else { Ok(()) };
            };
            self.collect(0)?;
            if !self.done.is_empty() {
                return Ok(());
            }
            let mut polled =
                [PollFd::new(&self.completed, PollFlags::IN), PollFd::new(&wake.0, PollFlags::IN)];
            match poll_again(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !polled[1].revents().is_empty() {
                wake.lower();
            }
            let mut count = [0; 8];
            // Ignored: the read fails only if nothing was counted. It comes first, so that completions after the
            // collect below are counted again.
            let _ = rustix::io::read(&self.completed, &mut count);
            self.collect(0)
        }

        /// Submits until the queue is full. A full queue is a reason to wait, not an error.
        fn submit_what_fits(&mut self) -> io::Result<()> {
            match self.submit() {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
                result => result,
            }
        }

        /// Collects completions, after waiting for that many.
        fn collect(&mut self, at_least: libc::c_long) -> io::Result<()> {
            const AT_ONCE: usize = 64;
            let mut events = [IoEvent::default(); AT_ONCE];
            let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let timeout = if at_least == 0 { &raw const none } else { std::ptr::null() };
            // SAFETY: a context of ours, space for the named number of events, and no timeout or a live one.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    at_least,
                    AT_ONCE as libc::c_long,
                    events.as_mut_ptr(),
                    timeout,
                )
            };
            let Ok(count) = usize::try_from(count) else {
                let error = io::Error::last_os_error();
                let is_signal = error.kind() == io::ErrorKind::Interrupted;
                return if is_signal { Ok(()) } else { Err(error) };
            };
            let new = events.iter().take(count).map(|event| (event.data as usize, event.result));
            self.done.extend(new);
            Ok(())
        }

        pub(crate) fn take(&mut self) -> Option<FinishedRequest> {
            self.check_home().ok()?;
            loop {
                if self.done.is_empty() && self.requests.count() > self.unsubmitted.len() {
                    // Ignored: the next wait reports it.
                    let _ = self.collect(0);
                }
                let (token, result) = self.done.pop_front()?;
                let result = match usize::try_from(result) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => Err(io::Error::from_raw_os_error(
                        i32::try_from(-result).unwrap_or(libc::EIO),
                    )),
                };
                if let Some(request) = self.requests.take(token) {
                    return Some(FinishedRequest { token, request, result, ran: true });
                }
            }
        }
    }

    impl Drop for Aio {
        fn drop(&mut self) {
            if !self.created_in.is_current() {
                self.requests.leak();
                return;
            }
            // Waits for all that cannot be cancelled (io_destroy(2)). SAFETY: a context of ours that is not used
            // afterwards.
            let result = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
            if result != 0 {
                // The requests cannot be waited for, so leave their memory to the kernel forever.
                self.requests.leak();
            }
        }
    }

    #[cfg(all(test, not(miri)))]
    mod tests {
        use super::*;
        use crate::base::generation::tests::in_a_fork;

        #[test]
        fn a_fork_leaves_the_context_alone() {
            let Ok(aio) = Aio::new(4, None) else {
                return crate::base::skipped::skipped(
                    crate::base::skipped::Need::Aio,
                    "there is no Linux AIO here",
                );
            };
            let mut aio = Some(aio);
            assert!(in_a_fork(|| {
                let Some(mut aio) = aio.take() else { return false };
                aio.submit().is_err() && aio.wait().is_err() && aio.take().is_none()
            }));
            let mut aio = aio.unwrap();
            aio.submit().unwrap();
            aio.wait().unwrap();
        }
    }
}
