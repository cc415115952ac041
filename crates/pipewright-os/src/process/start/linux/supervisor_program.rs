//! The program that the guard and the supervisor execute, and its handles; and a trial of it, to find out if it works
//! on this machine.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr};

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::clone::{self, CloneRequest, Stack};
use super::{own_pidfd, raw_syscall};
use crate::base::signal::AllBlocked;
use crate::process::child::{ChildHandle, linux as exit};
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::contain::linux::image;
use crate::process::contain::linux::report::{
    NotStarted, Reports, StartedCommand, SupervisorReport,
};
use crate::process::nolibc::steps::own_pid;
use crate::process::pidfd::send;

/// The number of handles that the program gets, under the numbers from 0 on (`supervisor/main.rs`).
pub(super) const HANDLES: usize = 7;
pub(super) const NONE: RawFd = -1;
const HOST: usize = 0;
pub(super) const GUARD_PIDFD: usize = 2;
/// The number of the proof in the guard, which has no guard above it.
pub(super) const PROOF: usize = GUARD_PIDFD;
pub(super) const CHILDREN: usize = 5;
/// The number of the memory with the plans of a slot's commands.
pub(super) const PLANS: usize = 6;

/// The program, its handles, and the groups of the tree.
#[derive(Clone, Copy)]
pub(super) struct SupervisorProgram {
    image: RawFd,
    /// The handles; [`NONE`] for a missing one.
    pub(super) handles: [RawFd; HANDLES],
    cgroup: [u8; NAME_BYTES],
    /// The paths of the groups of version 1, one for each controller.
    groups: [[u8; PATH_BYTES]; GROUPS],
    /// The host reads figures of the groups after the end of the tree.
    has_figures: bool,
    /// The tree lives on if the host ends.
    lives_on: bool,
}

/// The room for the name of a cgroup, with its NUL.
const NAME_BYTES: usize = 64;
/// The room for the path of a group, with its NUL. A longer one is not passed, so the supervisor does not remove it.
const PATH_BYTES: usize = 512;
const GROUPS: usize = 3;

impl SupervisorProgram {
    /// Creates the program. `groups` are those of the tree's limits, if it has limits.
    pub(super) fn new(
        image: BorrowedFd<'_>,
        host: BorrowedFd<'_>,
        host_pidfd: BorrowedFd<'_>,
        cgroup: Option<&Cgroup>,
        groups: Option<&[CString]>,
    ) -> SupervisorProgram {
        let number = |fd: Option<BorrowedFd<'_>>| fd.map_or(NONE, |fd| fd.as_raw_fd());
        let mut name = [0; NAME_BYTES];
        let bytes = cgroup.map_or(&[][..], |cgroup| cgroup.name().to_bytes());
        for (place, byte) in name.iter_mut().zip(bytes).take(NAME_BYTES - 1) {
            *place = *byte;
        }
        let mut paths = [[0; PATH_BYTES]; GROUPS];
        let fitting = groups.unwrap_or_default().iter().map(|path| path.as_bytes_with_nul());
        let fitting = fitting.filter(|path| path.len() <= PATH_BYTES);
        for (place, path) in paths.iter_mut().zip(fitting) {
            place[..path.len()].copy_from_slice(path);
        }
        SupervisorProgram {
            image: image.as_raw_fd(),
            handles: [
                host.as_raw_fd(),
                host_pidfd.as_raw_fd(),
                NONE,
                number(cgroup.and_then(Cgroup::kill_file)),
                number(cgroup.map(Cgroup::parent)),
                NONE,
                NONE,
            ],
            cgroup: name,
            groups: paths,
            has_figures: groups.is_some(),
            lives_on: false,
        }
    }

    /// Sets that the tree lives on if the host ends.
    pub(super) fn that_lives_on(self, lives_on: bool) -> SupervisorProgram {
        SupervisorProgram { lives_on, ..self }
    }

    /// Creates a program that supervises no process.
    fn for_trial(image: BorrowedFd<'_>, host: BorrowedFd<'_>) -> SupervisorProgram {
        let mut handles = [NONE; HANDLES];
        handles[HOST] = host.as_raw_fd();
        let groups = [[0; PATH_BYTES]; GROUPS];
        SupervisorProgram {
            image: image.as_raw_fd(),
            handles,
            cgroup: [0; NAME_BYTES],
            groups,
            has_figures: false,
            lives_on: false,
        }
    }

    /// Reports the result of the command's start to the host.
    pub(super) fn report_start(
        &self,
        pid: i32,
        pidfd: Option<&OwnedFd>,
        errno: i32,
    ) -> Result<(), i32> {
        let words = StartedCommand::words(pid, own_pid(), errno);
        raw_syscall::send(self.handles[HOST], &words, pidfd.map(|fd| fd.as_raw_fd()))
    }

    /// Reports to the host why the command cannot be supervised.
    pub(super) fn report_failure(&self, errno: i32) {
        // Ignored: the end of this process shows the failure, only without its reason.
        let _ = raw_syscall::send(self.handles[HOST], &NotStarted::words(errno), None);
    }

    /// Reports to the host that the result of the start could not be sent.
    pub(super) fn report_unknown(&self, errno: i32) {
        // Ignored: as above.
        let words = NotStarted::words_of_unknown(errno);
        let _ = raw_syscall::send(self.handles[HOST], &words, None);
    }

    /// Executes the program. Returns only on failure, with the error. The handles are then those by which this process
    /// can use them.
    pub(super) fn execute(&mut self, role: &CStr, subject: i32) -> i32 {
        raw_syscall::close_all_except(self.image, &self.handles);
        if self.handles[CHILDREN] == NONE {
            match raw_syscall::open_children() {
                Ok(children) => self.handles[CHILDREN] = children,
                Err(errno) => return errno,
            }
        }
        let subject = Digits::of(subject);
        let cgroup = CStr::from_bytes_until_nul(&self.cgroup).unwrap_or(c"");
        let [first, second, third] = &self.groups;
        let [first, second, third] =
            [first, second, third].map(|it| CStr::from_bytes_until_nul(it).unwrap_or(c""));
        let subject = subject.as_c_str();
        let figures = if self.has_figures { c"figures" } else { c"" };
        let lives_on = if self.lives_on { c"lives on" } else { c"" };
        let name = c"pipewright-supervisor";
        let arguments = [name, role, subject, cgroup, first, second, third, figures, lives_on];
        raw_syscall::exec_image(self.image, &mut self.handles, arguments)
    }
}

/// A number as a C string, made without an allocation.
pub(super) struct Digits([u8; Digits::BYTES]);

impl Digits {
    /// The size: ten digits and a NUL.
    const BYTES: usize = 11;

    pub(super) fn of(number: i32) -> Digits {
        let mut digits = [0; Digits::BYTES];
        let mut left = number.unsigned_abs();
        for digit in digits.iter_mut().rev().skip(1) {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Digits(digits)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

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
        reports.started().map_err(NotStarted::into_source)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_zero_padded_decimal() {
        let text = |number| Digits::of(number).0;
        assert_eq!(&text(0), b"0000000000\0");
        assert_eq!(&text(4_194_304), b"0004194304\0");
        assert_eq!(&text(i32::MAX), b"2147483647\0");
    }
}
