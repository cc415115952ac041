//! Starts the command of a plan. The new process shares the memory of this one until its exec.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::slice;

use crate::nolibc::call;
use crate::nolibc::steps::clone::{self, NewProcess};
use crate::nolibc::message::{
    CGROUP_HANDLE, CGROUP_PROCS_HANDLE, CURRENT_DIR_HANDLE, GROUP_HANDLE, MOST_HANDLES, PLAN_BYTES,
    Plan, STARTED, TERMINAL_HANDLE, field, flag, group, send,
};
use crate::nolibc::steps::{self, Failed, Group, Move, Stdio, Steps};
use crate::nolibc::{children, number, step};
use crate::request::Handles;
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
struct NewCommand<'a> {
    steps: Steps<'a>,
    /// The `cgroup.procs` by which the new process joins the cgroup that it was not born in.
    cgroup_procs: Cell<Option<i32>>,
    /// The failed step, and its error; 0 is success.
    failed: Cell<Failed>,
}

/// The most control groups that a command joins by a file.
const MOST_GROUPS: usize = 4;

/// The handles of a start, sorted.
struct Sorted {
    stdio: [Stdio; 3],
    moves: [MaybeUninit<Move>; MOST_HANDLES],
    move_count: usize,
    groups: [i32; MOST_GROUPS],
    group_count: usize,
    own_terminal: Option<i32>,
    host_dir: Option<i32>,
    /// The cgroup that the command is born in, and its `cgroup.procs`.
    cgroup: Option<i32>,
    cgroup_procs: Option<i32>,
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
        // For the commands: this process blocks these signals. A new process has the memory of this one, which must not be dumped,
        // and which a dump would end too (Linux before 5.16).
        steps::die_without_dump(steps::DUMPS);
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
        let mut sorted = Sorted::none(&plan);
        let Some(steps) = sorted.sort(&plan, handles).and_then(|()| sorted.steps(&plan)) else {
            self.report_failure(job, EINVAL);
            return None;
        };
        let command = NewCommand {
            steps,
            cgroup_procs: Cell::new(sorted.cgroup_procs),
            failed: Cell::new((step::CREATE, 0)),
        };
        let mut pidfd = system::NO_FD;
        let pid = self.clone(&command, sorted.cgroup, &mut pidfd);
        if pid < 0 {
            self.report_failure(job, -pid as i32);
            return None;
        }
        let pid = pid as i32;
        let (failed_step, failed) = command.failed.get();
        let started = failed == 0 && {
            let words = [STARTED, i64::from(pid), job, 0, 0, 0];
            const MSG_DONTWAIT: usize = 0x40;
            send(system::HOST, &words, Some(pidfd), MSG_DONTWAIT) >= 0
        };
        call(number::CLOSE, [pidfd as usize, 0, 0, 0, 0, 0]);
        if started {
            return Some(pid);
        }
        // It has ended on its own, or the host knows nothing of it. Nothing that it has started may be left to the next job.
        children::end_children(system::CHILDREN);
        // From a send that failed, for which there is no better error.
        const ENOBUFS: i32 = 105;
        report(job, if failed != 0 { failed } else { ENOBUFS }, failed_step);
        None
    }

    /// Reports that no process could be created.
    pub fn report_failure(&self, job: i64, errno: i32) {
        report(job, errno, step::CREATE);
    }

    /// Creates the process, and returns when it has loaded its program or has ended.
    fn clone(&self, command: &NewCommand<'_>, cgroup: Option<i32>, pidfd: &mut i32) -> isize {
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
        if cgroup.is_some() {
            let procs = command.cgroup_procs.take();
            // SAFETY: the last process on the stack has left it, because this one has slept until then. The entry does
            // not return. The argument stays where it is: this process sleeps until the new one does not use it any more.
            let pid = unsafe { clone::clone3(flags, STACK_BYTES, cgroup, &new) };
            if pid >= 0 {
                return pid;
            }
            // Linux before 5.7, or a sandbox: it joins by a write, and an error shows there.
            command.cgroup_procs.set(procs);
        }
        // SAFETY: as above.
        unsafe { clone::clone(flags | SIGCHLD, &new) }
    }
}

impl Sorted {
    /// Returns no handles, with the standard ones closed that the host does not have either.
    fn none(plan: &Plan<'_>) -> Sorted {
        let stdio = |number: u64| match plan.has(flag::CLOSES_STDIN << number) {
            true => Stdio::Closed,
            false => Stdio::Kept,
        };
        Sorted {
            stdio: [stdio(0), stdio(1), stdio(2)],
            moves: [const { MaybeUninit::uninit() }; MOST_HANDLES],
            move_count: 0,
            groups: [system::NO_FD; MOST_GROUPS],
            group_count: 0,
            own_terminal: None,
            host_dir: None,
            cgroup: None,
            cgroup_procs: None,
        }
    }

    /// Adds the handles that came with the request; `None` if they are not those of the plan.
    fn sort(&mut self, plan: &Plan<'_>, handles: &Handles) -> Option<()> {
        let targets = plan.list(field::TARGETS, field::TARGET_COUNT, 1)?;
        if targets.len() != handles.count() {
            return None;
        }
        for (index, target) in targets.iter().enumerate() {
            let fd = handles.get(index)?;
            match *target {
                CURRENT_DIR_HANDLE => self.host_dir = Some(fd),
                TERMINAL_HANDLE => self.own_terminal = Some(fd),
                CGROUP_HANDLE => self.cgroup = Some(fd),
                CGROUP_PROCS_HANDLE => self.cgroup_procs = Some(fd),
                GROUP_HANDLE => {
                    *self.groups.get_mut(self.group_count)? = fd;
                    self.group_count += 1;
                }
                target @ 0..3 => *self.stdio.get_mut(target as usize)? = Stdio::From(fd),
                target => {
                    let place = self.moves.get_mut(self.move_count)?;
                    place.write(Move::new(fd, target as i32));
                    self.move_count += 1;
                }
            }
        }
        Some(())
    }

    /// Returns the steps of the plan with these handles; `None` if it is not whole.
    fn steps<'a>(&'a self, plan: &Plan<'a>) -> Option<Steps<'a>> {
        let moves = self.moves.as_ptr().cast::<Move>();
        let group = match plan.word(field::GROUP) {
            group::SAME => Group::Same,
            group::OWN => Group::Own,
            group::JOIN => Group::Join(plan.word(field::GROUP_ID) as i32),
            group::SESSION => Group::Session,
            _ => return None,
        };
        let candidates = plan.array(field::CANDIDATES)?;
        Some(Steps {
            default_signals: plan.word(field::DEFAULT_SIGNALS),
            ignores_sigchld: Cell::new(plan.has(flag::IGNORES_SIGCHLD)),
            groups: self.groups.get(..self.group_count)?,
            group,
            own_terminal: self.own_terminal,
            foreground: None,
            host_dir: self.host_dir,
            stdio: self.stdio,
            // SAFETY: so many have been written.
            moves: unsafe { slice::from_raw_parts(moves, self.move_count) },
            limits: plan.list(field::LIMITS, field::LIMIT_COUNT, 3)?,
            umask: plan.has(flag::HAS_UMASK).then_some(plan.word(field::UMASK) as u32),
            nice: plan.has(flag::HAS_NICE).then_some(plan.word(field::NICE) as i32),
            current_dir: plan.word(field::CURRENT_DIR) as *const c_char,
            argv: plan.array(field::ARGV)?.as_ptr().cast(),
            envp: plan.array(field::ENVP)?.as_ptr().cast(),
            // SAFETY: live words, which only the kernel takes for addresses.
            candidates: unsafe {
                slice::from_raw_parts(candidates.as_ptr().cast(), candidates.len())
            },
            searches: plan.has(flag::SEARCHES),
            mask: 0,
            may_retry: Cell::new(plan.has(flag::MAY_RETRY)),
            shares_memory: Cell::new(true),
        })
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
    let NewCommand { steps, cgroup_procs, failed } = command;
    let cgroup = cgroup_procs.get().map(|procs| (procs, step::TREE_LIMITS));
    failed.set(match steps::enter(steps, cgroup).and_then(|()| steps::enter_directory(steps)) {
        Ok(()) => (step::EXEC, steps::execute(steps, true)),
        Err(failed) => failed,
    });
    system::exit(127)
}
