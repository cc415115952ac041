//! The program that the guard and the supervisor execute, and its handles.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use super::digits::Digits;
use super::raw_syscall;
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::contain::linux::report::{NotStarted, StartedCommand};
use crate::process::nolibc::steps::own_pid;

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
    pub(super) fn for_trial(image: BorrowedFd<'_>, host: BorrowedFd<'_>) -> SupervisorProgram {
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

    /// Executes the program. Returns only on failure, with the error. The handles are then those by which this process can use them.
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
