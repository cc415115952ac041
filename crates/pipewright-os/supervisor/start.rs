//! Starts commands: the requests of a slot, the new process, which shares the memory of this one until its exec, and
//! the slot, from one command to the next.

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::slice;

use crate::WatchedTree;
use crate::nolibc::message::{
    CGROUP_HANDLE, CGROUP_PROCS_HANDLE, CURRENT_DIR_HANDLE, GROUP_HANDLE, MOST_HANDLES, Message,
    PLAN_BYTES, Part, Plan, READY, REQUEST_WORDS, RIGHTS_HEADER_BYTES, Request, Rights, SCM_RIGHTS,
    SOL_SOCKET, STARTED, TERMINAL_HANDLE, TREE_ENDED, field, flag, group, send,
};
use crate::nolibc::steps::clone::{self, NewProcess};
use crate::nolibc::steps::{self, Failed, Group, Move, Stdio, Steps, own_pid};
use crate::nolibc::{call, children, number, step};
use crate::system::{self, PollSet};

/// The handles that came with a request. Each is close-on-exec.
pub struct Handles {
    rights: MaybeUninit<Rights<MOST_HANDLES, MaybeUninit<i32>>>,
    count: usize,
    /// Some did not arrive, because there was no room for them.
    is_truncated: bool,
}

/// The result of [`Handles::receive`].
pub enum Received {
    Request(Request),
    /// Nothing, or a message that is no request.
    Nothing,
    /// The host has closed its end.
    End,
}

impl Handles {
    pub fn none() -> Handles {
        Handles { rights: MaybeUninit::uninit(), count: 0, is_truncated: false }
    }

    /// Takes the next request, if there is one, and its handles.
    pub fn receive(&mut self) -> Received {
        const MSG_DONTWAIT_CMSG_CLOEXEC: usize = 0x4000_0040;
        const MSG_CTRUNC: usize = 8;
        const EAGAIN: isize = 11;
        let mut words = MaybeUninit::<[i64; REQUEST_WORDS]>::uninit();
        let mut part = Part { base: words.as_mut_ptr().cast(), length: REQUEST_WORDS * 8 };
        let mut message = Message::of(&mut part);
        message.control = self.rights.as_mut_ptr().cast();
        message.control_bytes = size_of_val(&self.rights);
        let place = &raw mut message as usize;
        let socket = system::HOST as usize;
        let received = call(number::RECVMSG, [socket, place, MSG_DONTWAIT_CMSG_CLOEXEC, 0, 0, 0]);
        self.count = 0;
        if received == -EAGAIN {
            return Received::Nothing;
        }
        if received <= 0 {
            return Received::End;
        }
        self.is_truncated = message.flags & MSG_CTRUNC != 0;
        self.set_count(message.control_bytes);
        if received as usize != REQUEST_WORDS * 8 {
            return Received::Nothing;
        }
        // SAFETY: the kernel has just filled all of it.
        match Request::of_words(unsafe { words.assume_init_ref() }) {
            Some(request) => Received::Request(request),
            None => Received::Nothing,
        }
    }

    /// Counts the handles in the control message, of which the kernel has written that many bytes.
    fn set_count(&mut self, written: usize) {
        if written < RIGHTS_HEADER_BYTES {
            return;
        }
        let rights = self.rights.as_ptr();
        // SAFETY: the kernel has written the header.
        let (level, kind) = unsafe { ((*rights).level, (*rights).kind) };
        // SAFETY: as above.
        let bytes = unsafe { (*rights).bytes };
        if level == SOL_SOCKET && kind == SCM_RIGHTS && bytes >= RIGHTS_HEADER_BYTES {
            let count = (bytes - RIGHTS_HEADER_BYTES) / 4;
            self.count = if count < MOST_HANDLES { count } else { MOST_HANDLES };
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Returns a handle; `None` beyond the last one.
    pub fn get(&self, index: usize) -> Option<i32> {
        if index >= self.count {
            return None;
        }
        let first =
            self.rights.as_ptr().cast::<u8>().wrapping_add(RIGHTS_HEADER_BYTES).cast::<i32>();
        // SAFETY: the kernel has written that many numbers, and the index is less.
        Some(unsafe { first.wrapping_add(index).read() })
    }

    /// Closes the handles of this process. A command has its own.
    pub fn close(&self) {
        let mut index = 0;
        while let Some(fd) = self.get(index) {
            call(number::CLOSE, [fd as usize, 0, 0, 0, 0, 0]);
            index += 1;
        }
    }
}

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
        // For the commands: this process blocks these signals. A new process has the memory of this one, which must not
        // be dumped, and which a dump would end too (Linux before 5.16).
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
        let (failed_step, failed) = match failed {
            0 => {
                let words = [STARTED, i64::from(pid), job, 0, 0, 0];
                const MSG_DONTWAIT: usize = 0x40;
                let sent = send(system::HOST, &words, Some(pidfd), MSG_DONTWAIT);
                (step::CONFIRM, if sent < 0 { -sent as i32 } else { 0 })
            }
            failed => (failed_step, failed),
        };
        call(number::CLOSE, [pidfd as usize, 0, 0, 0, 0, 0]);
        if failed == 0 {
            return Some(pid);
        }
        // It has ended on its own, or the host knows nothing of it. Nothing that it has started may be left to the next
        // job.
        children::end_children(system::CHILDREN);
        report(job, failed, failed_step);
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
            // not return. The argument stays where it is: this process sleeps until the new one does not use it any
            // more.
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
            // SAFETY: this many have been written.
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

/// The number of no process.
const NONE: i32 = 0;

// The supervisor of a slot starts one command after another, and leaves nothing of one before the next. The host asks
// for a start by a message (`nolibc/message.rs`), and gets the result, then the messages that every supervisor sends.
// When the command and all its descendants have ended, or have been killed at the host's request, this process has no
// child, and waits for the next request.

/// Serves the host until it closes its end, or ends.
pub fn serve() -> ! {
    // A failure shows as the end of this process.
    let Some(exits) = system::child_exit_signalfd() else { system::exit(1) };
    let Some(starter) = Starter::new() else { system::exit(1) };
    system::send(&[READY, i64::from(own_pid()), starter.memory() as i64, 0, 0, 0]);
    let mut poll_set = PollSet::new(exits, system::READABLE | system::AT_END);
    let mut slot = Slot { tree: WatchedTree::supervised(NONE), job: 0, is_last: false };
    loop {
        let has_children = slot.tree.reap();
        if !has_children {
            slot.note_end();
            if slot.is_last {
                system::exit(0)
            }
        }
        if slot.tree.finishing {
            system::kill_children();
            system::pause(crate::PASS_NANOS);
            system::wait_for_children(exits, crate::KILL_AGAIN_NANOS);
            continue;
        }
        let woken = poll_set.wait_for_requests();
        if woken.must_end {
            // Before a request is read: the command would start only to be killed.
            slot.end_now();
            slot.is_last = true;
        } else if woken.by_host {
            slot.answer(&starter);
        }
    }
}

struct Slot {
    /// The tree of the job; its subject is [`NONE`] between two jobs.
    tree: WatchedTree,
    job: i64,
    /// No job follows this one.
    is_last: bool,
}

impl Slot {
    fn answer(&mut self, starter: &Starter) {
        const EBUSY: i32 = 16;
        let mut handles = Handles::none();
        match handles.receive() {
            Received::Nothing => {}
            Received::End => {
                self.end_now();
                self.is_last = true;
            }
            Received::Request(Request::EndTree { job }) => {
                // The request may have crossed the report of the end.
                if job == self.job && self.tree.subject != NONE {
                    self.end_now();
                }
            }
            Received::Request(Request::Start { job, .. }) if self.tree.subject != NONE => {
                starter.report_failure(job, EBUSY);
            }
            Received::Request(Request::Start { job, bytes }) => {
                if let Some(pid) = starter.start(job, bytes, &handles) {
                    self.tree = WatchedTree::supervised(pid);
                    self.job = job;
                }
            }
        }
        handles.close();
    }

    /// Kills the tree from now on.
    fn end_now(&mut self) {
        // A process that had ended before was not killed.
        if self.tree.reap() {
            self.tree.finishing = true;
        } else {
            self.note_end();
        }
    }

    /// Reports the end of the tree, unless the end of the command already was.
    fn note_end(&mut self) {
        if self.tree.subject != NONE && !self.tree.end_reported {
            system::send(&[TREE_ENDED, self.tree.killed, 0, 0, 0, 0]);
        }
        self.tree = WatchedTree::supervised(NONE);
    }
}
