//! Starts the command of a plan. The new process shares the memory of this one until its exec.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::slice;

use crate::call::call;
use crate::child;
use crate::clone::{self, NewProcess};
use crate::clone3;
use crate::message::{CGROUP_HANDLE, MOST_HANDLES, PLAN_BYTES, Plan, STARTED, step};
use crate::number;
use crate::request::{Handles, send_with_handle};
use crate::system;

/// The size of the stack of a new process: enough for a chain of system calls.
const STACK_BYTES: usize = 64 << 10;

const EMFILE: i32 = 24;
const EINVAL: i32 = 22;

/// The memory of the plans, and the stack of new processes.
pub struct Starter {
    memory: usize,
    stack: usize,
}

/// The input of a new process, and its result.
pub struct NewCommand<'a> {
    pub plan: Plan<'a>,
    pub handles: &'a Handles,
    /// The place for the numbers of the handles in the new process, away from each other's targets.
    pub moved: *mut i32,
    /// True if the new process is born in its cgroup.
    pub is_in_cgroup: Cell<bool>,
    /// The step that failed, and its error; 0 is success.
    pub failed_step: Cell<u32>,
    pub errno: Cell<i32>,
}

impl Starter {
    /// Maps the memory; `None` if that fails.
    pub fn new() -> Option<Starter> {
        const READ: usize = 1;
        const READ_WRITE: usize = 3;
        const SHARED: usize = 1;
        const PRIVATE_ANONYMOUS: usize = 0x22;
        let memory = map(PLAN_BYTES, READ, SHARED, system::PLANS as usize)?;
        let stack = map(STACK_BYTES, READ_WRITE, PRIVATE_ANONYMOUS, usize::MAX)?;
        call(number::CLOSE, [system::PLANS as usize, 0, 0, 0, 0, 0]);
        // A command gets none of this process's own handles.
        let mut fd = 0;
        while fd < system::FIRST_FREE {
            const F_SETFD: usize = 2;
            const FD_CLOEXEC: usize = 1;
            // Ignored: the number is not open.
            call(number::FCNTL, [fd, F_SETFD, FD_CLOEXEC, 0, 0, 0]);
            fd += 1;
        }
        Some(Starter { memory, stack })
    }

    /// Returns the address of the memory.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Starts the command, and reports the result to the host. Returns its number if it runs.
    pub fn start(&self, job: i64, bytes: usize, handles: &Handles) -> Option<i32> {
        // SAFETY: the mapping has at least that many bytes, and the host writes to it only between two starts.
        let words = unsafe { slice::from_raw_parts(self.memory as *const u64, bytes / 8) };
        let plan = Plan::new(words, self.memory as u64);
        if handles.is_truncated() {
            self.report_failure(job, EMFILE);
            return None;
        }
        if !plan.is_whole() || plan.handle_count() != handles.count() {
            self.report_failure(job, EINVAL);
            return None;
        }
        let mut moved = MaybeUninit::<[i32; MOST_HANDLES]>::uninit();
        let command = NewCommand {
            plan,
            handles,
            moved: moved.as_mut_ptr().cast(),
            is_in_cgroup: Cell::new(false),
            failed_step: Cell::new(step::CREATE),
            errno: Cell::new(0),
        };
        let mut pidfd = system::NO_FD;
        let pid = self.clone(&command, &mut pidfd);
        if pid < 0 {
            self.report_failure(job, -pid as i32);
            return None;
        }
        let pid = pid as i32;
        let failed = command.errno.get();
        let started =
            failed == 0 && send_with_handle(&[STARTED, i64::from(pid), job, 0, 0, 0], pidfd);
        call(number::CLOSE, [pidfd as usize, 0, 0, 0, 0, 0]);
        if started {
            return Some(pid);
        }
        // It has ended on its own, or the host knows nothing of it. Nothing that it has started may be left to the next job.
        system::end_children();
        // From a send that failed, for which there is no better error.
        const ENOBUFS: i32 = 105;
        let errno = if failed != 0 { failed } else { ENOBUFS };
        report(job, errno, command.failed_step.get());
        None
    }

    /// Reports that no process could be created.
    pub fn report_failure(&self, job: i64, errno: i32) {
        report(job, errno, step::CREATE);
    }

    /// Creates the process, and returns when it has loaded its program or has ended.
    fn clone(&self, command: &NewCommand<'_>, pidfd: &mut i32) -> isize {
        const CLONE_VM: u64 = 0x100;
        const CLONE_PIDFD: u64 = 0x1000;
        const CLONE_VFORK: u64 = 0x4000;
        const SIGCHLD: u64 = 17;
        let new = NewProcess {
            stack_top: (self.stack + STACK_BYTES) as *mut u8,
            entry: run,
            argument: (&raw const *command).cast_mut().cast(),
            pidfd,
            child_tid: core::ptr::null_mut(),
        };
        let flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD;
        if let Some(cgroup) = command.cgroup() {
            command.is_in_cgroup.set(true);
            // SAFETY: the last process on the stack has left it, because this one has slept until then. The entry does
            // not return. The argument stays where it is: this process sleeps until the new one does not use it any more.
            let pid =
                unsafe { clone3::clone_into_cgroup(flags, SIGCHLD, STACK_BYTES, cgroup, &new) };
            if pid >= 0 {
                return pid;
            }
            // Linux before 5.7, or a sandbox: it joins by a write, and an error shows there.
            command.is_in_cgroup.set(false);
        }
        // SAFETY: as above.
        unsafe { clone::clone(flags | SIGCHLD, &new) }
    }
}

impl NewCommand<'_> {
    /// Returns the handle of the cgroup that the command is born in.
    fn cgroup(&self) -> Option<i32> {
        let mut index = 0;
        while let (Some(fd), Some(target)) = (self.handles.get(index), self.plan.target(index)) {
            if target == CGROUP_HANDLE {
                return Some(fd);
            }
            index += 1;
        }
        None
    }
}

fn report(job: i64, errno: i32, failed_step: u32) {
    system::send(&[STARTED, 0, job, i64::from(errno), 0, i64::from(failed_step)]);
}

/// Returns the address of a new mapping.
fn map(bytes: usize, rights: usize, kind: usize, fd: usize) -> Option<usize> {
    const MOST_ERRNO: isize = 4095;
    let address = call(number::MMAP, [0, bytes, rights, kind, fd, 0]);
    (!(-MOST_ERRNO..0).contains(&address)).then_some(address as usize)
}

extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: the caller, which waits for this process, keeps it where it is.
    let command = unsafe { &*argument.cast_const().cast::<NewCommand<'_>>() };
    if let Err((failed_step, errno)) = child::become_program(command) {
        command.failed_step.set(failed_step);
        command.errno.set(errno);
    }
    system::exit(127)
}
