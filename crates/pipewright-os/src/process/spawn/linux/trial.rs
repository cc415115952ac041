//! Starts the supervisor's program alone, to find out if it works on this machine.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::clone::{self, CloneRequest};
use super::stack::Stack;
use super::supervisor_program::SupervisorProgram;
use super::{own_pidfd, raw_syscall};
use crate::base::signal::AllBlocked;
use crate::process::child::{ChildHandle, linux as exit};
use crate::process::contain::linux::image;
use crate::process::contain::linux::report::{NotStarted, Reports, SupervisorReport};
use crate::process::pidfd::send;

struct Trial {
    program: SupervisorProgram,
    /// True if the new process shares memory. An emulator may make it a fork; then nothing can be
    /// supervised.
    shares_memory: AtomicBool,
}

/// Finds out if a supervisor works on this machine, even if nothing has been started below one.
///
/// # Errors
/// The reason why it does not work; or there is no room to find out.
pub(crate) fn try_supervisor() -> io::Result<()> {
    let image = image::image()?;
    if !image::is_proven() {
        try_image(image).map_err(image::judge)?;
        image::prove();
    }
    Ok(())
}

/// Starts the program alone, once, to see if this machine lets it run and work.
fn try_image(image: BorrowedFd<'_>) -> io::Result<()> {
    let (reports, theirs) = Reports::pair()?;
    let trial = Trial {
        program: SupervisorProgram::for_trial(image, theirs.as_fd()),
        shares_memory: AtomicBool::new(false),
    };
    let stack = Stack::take()?;
    let mut pidfd = -1;
    let request = CloneRequest {
        stack: &stack,
        cgroup: None,
        must_be_born_in_cgroup: false,
        after_clone3: run_alone,
        after_clone: run_alone,
        argument: ptr::from_ref(&trial).cast_mut().cast(),
        pidfd: Some(&raw mut pidfd),
    };
    let pid = {
        let _blocked = AllBlocked::new();
        // SAFETY: nothing else uses the stack, the entry does not return, and the trial stays where it is
        // until this block ends.
        unsafe { clone::vfork(&request) }?
    };
    // Ignored: this process may ignore SIGCHLD, or another part of it reaps all children.
    if let Ok(ended) = ChildHandle(exit::ChildHandle::new(pid, own_pidfd(pidfd))).wait() {
        image::error_of(ended.status)?;
    }
    if !trial.shares_memory.into_inner() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The calls that the host itself makes while it holds a tree may be refused as well.
    send(pidfd_open(getpid(), PidfdFlags::empty())?.as_fd(), 0, 0)?;
    reports.try_request_end()?;
    // A message that has not arrived says nothing about this machine.
    let lost = || io::Error::from_raw_os_error(libc::EAGAIN);
    if reports.peek()?.ok_or_else(lost)? == SupervisorReport::Started {
        reports.started().map_err(|error| match error {
            NotStarted::Command(error) | NotStarted::Supervisor(error) => error,
        })?;
    }
    if reports.take()?.ok_or_else(lost)? == SupervisorReport::CanWork {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

extern "C" fn run_alone(argument: *mut c_void) -> c_int {
    // SAFETY: the caller, which waits for this process, keeps it where it is.
    let Trial { program, shares_memory } = unsafe { &*argument.cast_const().cast::<Trial>() };
    shares_memory.store(true, Ordering::Relaxed);
    raw_syscall::become_subreaper();
    raw_syscall::reset_sigchld();
    let is_possible = raw_syscall::open_own_pidfd().and_then(|_| program.report_start(0, None, 0));
    raw_syscall::exit(match is_possible {
        Ok(()) => {
            let mut program = *program;
            program.execute(c"trial", 0)
        }
        Err(errno) => errno,
    })
}
