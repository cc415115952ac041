//! A pipe through which a child reports its error if it does not share our memory.
//!
//! A child with closures is forked. And an emulator may make a plain fork of a vfork (qemu-user, valgrind): then what the child writes down is
//! written in a copy, and the parent does not wait for the exec either. Until a start has shown that memory is
//! shared here, a pipe that an exec closes comes along.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};

use super::child::{Job, Report};

/// A child has been seen to write to our memory.
static MEMORY_IS_SHARED: AtomicBool = AtomicBool::new(false);

/// The pipe for the report of a child that does not share our memory.
pub(super) enum ErrorPipe {
    /// It is not needed.
    None,
    Ends(OwnedFd, OwnedFd),
    /// It cannot be had.
    Failed(Errno),
}

impl ErrorPipe {
    /// Opens one for that job, if it may be needed.
    pub(super) fn new(job: &Job<'_>, is_forked: bool) -> ErrorPipe {
        if !is_forked && MEMORY_IS_SHARED.load(Ordering::Relaxed) {
            return ErrorPipe::None;
        }
        match ends(job) {
            Ok((read, write)) => {
                job.report_to.store(write.as_raw_fd(), Ordering::Relaxed);
                ErrorPipe::Ends(read, write)
            }
            Err(error) => ErrorPipe::Failed(error),
        }
    }

    /// Brings what the child has reported into the job, once the child has been created.
    ///
    /// # Errors
    /// It is not known how the start went.
    pub(super) fn settle(self, job: &Job<'_>) -> io::Result<()> {
        if job.began.load(Ordering::Relaxed) {
            MEMORY_IS_SHARED.store(true, Ordering::Relaxed);
            return Ok(());
        }
        match self {
            // Killed before its first instruction.
            ErrorPipe::None => Ok(()),
            ErrorPipe::Failed(error) => Err(error.into()),
            ErrorPipe::Ends(read, write) => {
                drop(write);
                let mut report = [0; size_of::<Report>()];
                // It ends with the exec, or with the child. No report is a part of one.
                let count = retry_on_intr(|| rustix::io::read(&read, &mut report))?;
                if count == report.len() {
                    job.take(report);
                }
                Ok(())
            }
        }
    }
}

/// Both have numbers that nothing is going to be placed under, and that the job does not name: a handle that
/// was closed behind its owner is an error, and must not be taken for one of these.
fn ends(job: &Job<'_>) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let is_named = |fd: RawFd| {
        let is_moved = job.moves.iter().any(|place| place.from == fd || place.to == fd);
        fd <= libc::STDERR_FILENO || is_moved || job.stdio.contains(&Some(fd))
    };
    let lift = |mut end: OwnedFd| {
        while is_named(end.as_raw_fd()) {
            end = rustix::io::fcntl_dupfd_cloexec(&end, end.as_raw_fd() + 1)?;
        }
        Ok(end)
    };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((lift(read)?, lift(write)?))
}
