//! A pipe through which a child that does not share the parent's memory reports its error.
//!
//! A child with closures is forked. Besides, an emulator may turn a vfork into a plain fork (qemu-user,
//! valgrind): then the child writes its result into a copy, and the parent does not wait for the exec
//! either. So until a start has shown that memory is shared here, each start has a pipe that the exec
//! closes.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};

use super::child::{ChildSetup, FailureReport};
use super::stop_watch::{PAUSE_NANOS, StopWatch};
use crate::process::nolibc::steps::Stdio;

/// True once a child has been seen to write to the parent's memory.
static MEMORY_IS_SHARED: AtomicBool = AtomicBool::new(false);

/// The pipe for the report of a child that does not share the parent's memory.
pub(super) enum ErrorPipe {
    /// Not needed.
    None,
    Ends(OwnedFd, OwnedFd),
    /// Could not be created.
    Failed(Errno),
}

impl ErrorPipe {
    /// Creates the pipe for a setup, if it may be needed.
    pub(super) fn new(setup: &ChildSetup<'_>, is_forked: bool) -> ErrorPipe {
        if !is_forked && MEMORY_IS_SHARED.load(Ordering::Relaxed) {
            return ErrorPipe::None;
        }
        match ends(setup) {
            Ok((read, write)) => {
                setup.report_to.store(write.as_raw_fd(), Ordering::Relaxed);
                ErrorPipe::Ends(read, write)
            }
            Err(error) => ErrorPipe::Failed(error),
        }
    }

    /// Copies the child's report into the setup, once the child has been created.
    ///
    /// # Errors
    /// The result of the start is unknown.
    pub(super) fn finish(self, setup: &ChildSetup<'_>, mut watch: StopWatch) -> io::Result<()> {
        if setup.has_begun.load(Ordering::Relaxed) {
            MEMORY_IS_SHARED.store(true, Ordering::Relaxed);
            return Ok(());
        }
        match self {
            // The child was killed before its first instruction.
            ErrorPipe::None => Ok(()),
            ErrorPipe::Failed(error) => Err(error.into()),
            ErrorPipe::Ends(read, write) => {
                drop(write);
                while setup.changes_identity() && !is_readable(&read) && !watch.has_ended() {}
                let mut report = [0; size_of::<FailureReport>()];
                // The pipe ends with the exec, or with the child. An incomplete report counts as none.
                let count = retry_on_intr(|| rustix::io::read(&read, &mut report))?;
                if count == report.len() {
                    setup.record(report);
                }
                Ok(())
            }
        }
    }
}

/// Waits a moment for a report, or for the end of the pipe. An error is for the read.
fn is_readable(read: &OwnedFd) -> bool {
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE_NANOS };
    let mut polled = [PollFd::new(read, PollFlags::IN)];
    !matches!(rustix::event::poll(&mut polled, Some(&pause)), Ok(0) | Err(Errno::INTR))
}

/// Creates the ends, with numbers that no handle will be placed under and that the setup does not name. A
/// handle that other code has closed is an error, and must not be confused with one of these.
fn ends(setup: &ChildSetup<'_>) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let is_named = |fd: RawFd| {
        let is_moved = setup.steps.moves.iter().any(|place| place.from == fd || place.to == fd);
        let is_source = |stdio: &Stdio| matches!(stdio, Stdio::From(source) if *source == fd);
        fd <= libc::STDERR_FILENO || is_moved || setup.steps.stdio.iter().any(is_source)
    };
    let move_away = |mut end: OwnedFd| {
        while is_named(end.as_raw_fd()) {
            end = rustix::io::fcntl_dupfd_cloexec(&end, end.as_raw_fd() + 1)?;
        }
        Ok(end)
    };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((move_away(read)?, move_away(write)?))
}
