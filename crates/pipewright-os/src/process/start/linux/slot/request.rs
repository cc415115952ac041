//! A plan as the supervisor reads it, the handles that go with it, and the memory of the plans.

use std::io::{self, IoSlice};
use std::iter;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::base::handle::is_close_on_exec;
use crate::process::contain::linux::limits::{Joins, KeptGroups};
use crate::process::nolibc::message::{
    CGROUP_HANDLE, CGROUP_PROCS_HANDLE, CURRENT_DIR_HANDLE, GROUP_HANDLE, MOST_HANDLES, PLAN_BYTES,
    TERMINAL_HANDLE, field, flag, group,
};
use crate::process::start::layout::Layout;
use crate::process::start::linux::{default_signals, limits, own_terminal};
use crate::process::start::plan::{self, Way};
use crate::process::start::{BadInput, ChildStdio, Group, Plan, SpawnError, Step, is_path, layout};

/// Refuses options that a slot does not have.
pub(super) fn check_options(plan: &Plan<'_>) -> Result<(), SpawnError> {
    // Stdio, the terminal, the working directory, a cgroup and three groups of limits are handles too.
    const MOST_INHERITED: usize = MOST_HANDLES - 10;
    plan::check_options(plan, Way::LinuxSlot)?;
    if plan.inherit.list().len() > MOST_INHERITED {
        return Err(SpawnError::bad(BadInput::NotInSlot("inherit")));
    }
    Ok(())
}

/// The handles of a start. The targets of all are in the plan.
pub(super) struct Handles<'a> {
    fds: Vec<BorrowedFd<'a>>,
    /// The number of each in the child.
    targets: Vec<u64>,
    /// This process's working directory, if the child needs it.
    current_dir: Option<OwnedFd>,
}

impl<'a> Handles<'a> {
    /// Returns the handles of a plan, and of the control groups that the command joins.
    pub(super) fn of(
        plan: &Plan<'a>,
        groups: Option<&'a dyn KeptGroups>,
    ) -> Result<Handles<'a>, SpawnError> {
        let list = plan.inherit.list();
        layout::check_numbers(list)?;
        let mut handles = Handles {
            fds: Vec::with_capacity(list.len() + 10),
            targets: Vec::with_capacity(list.len() + 10),
            current_dir: None,
        };
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        for ((target, stdio), own) in (0..).zip(plan.stdio).zip(own) {
            let fd = match stdio {
                // If one of them was closed, another handle of this process may have its number, which an exec closes.
                ChildStdio::Inherit if is_close_on_exec(target).unwrap_or(true) => continue,
                ChildStdio::Inherit => own,
                ChildStdio::Handle(handle) => handle.as_fd(),
            };
            handles.fds.push(fd);
            handles.targets.push(target as u64);
        }
        for entry in list {
            handles.fds.push(entry.0.as_fd());
            handles.targets.push(layout::number_in_child(entry) as u64);
        }
        if let Some(terminal) = own_terminal(plan) {
            handles.fds.push(terminal.as_fd());
            handles.targets.push(TERMINAL_HANDLE);
        }
        if let Some(Joins { cgroup, v1 }) = groups.map(KeptGroups::joins) {
            let v2 = cgroup.into_iter().flatten().zip([CGROUP_HANDLE, CGROUP_PROCS_HANDLE]);
            for (fd, target) in v2.chain(v1.into_iter().zip(iter::repeat(GROUP_HANDLE))) {
                handles.fds.push(fd);
                handles.targets.push(target);
            }
        }
        // A relative path starts there: the directory itself, or the program.
        if plan.current_dir.is_none_or(|dir| !dir.is_absolute()) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(CWD, c".", flags, Mode::empty());
            handles.current_dir = Some(opened.map_err(|error| {
                let step = if error == Errno::ACCESS { Step::CurrentDir } else { Step::Create };
                SpawnError::new(step, error.into())
            })?);
            handles.targets.push(CURRENT_DIR_HANDLE);
        }
        Ok(handles)
    }

    /// Calls `send` with all handles.
    pub(super) fn send(
        &self,
        send: impl FnOnce(&[BorrowedFd<'_>]) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let current_dir = self.current_dir.as_ref().map(|dir| dir.as_fd());
        let all: Vec<_> = self.fds.iter().copied().chain(current_dir).collect();
        send(&all)
    }

    /// Returns the error of a request that could not be sent.
    pub(super) fn error(&self, error: Errno) -> SpawnError {
        let is_closed = |fd: &BorrowedFd<'_>| rustix::io::fcntl_getfd(fd) == Err(Errno::BADF);
        let closed = self.fds.iter().position(is_closed).filter(|_| error == Errno::BADF);
        let step = match closed.and_then(|place| Some((place, *self.targets.get(place)?))) {
            Some((_, target @ 0..=2)) => Step::Stdio(target as u8),
            Some((_, TERMINAL_HANDLE)) => Step::Terminal,
            Some((_, GROUP_HANDLE | CGROUP_HANDLE | CGROUP_PROCS_HANDLE)) => Step::TreeLimits,
            Some((place, _)) => {
                let stdio = self.targets.iter().filter(|target| **target <= 2).count();
                Step::Inherit(place.saturating_sub(stdio))
            }
            None => Step::Create,
        };
        SpawnError::new(step, error.into())
    }

    /// Returns the flags for standard handles that the child does not have.
    fn missing_stdio(&self) -> u64 {
        let missing = (0..3).filter(|number| !self.targets.contains(number));
        missing.map(|number| flag::CLOSES_STDIN << number).sum()
    }
}

/// A plan, and what else the supervisor needs to know.
pub(super) struct PlanWords<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) layout: &'a Layout,
    pub(super) may_retry: bool,
    pub(super) ignores_sigchld: bool,
}

impl PlanWords<'_> {
    /// Adds the words of the plan, for a memory at that address. The strings of the layout follow them.
    pub(super) fn encode(&self, handles: &Handles<'_>, base: u64, bytes: &mut Vec<u8>) {
        let PlanWords { plan, layout, .. } = self;
        let address = |words: usize| base + (words * size_of::<u64>()) as u64;
        let pointers_at = field::COUNT;
        let limits_at = pointers_at + layout.pointer_count();
        let targets_at = limits_at + 3 * plan.unix.limits.len();
        let count = targets_at + handles.targets.len();
        let strings = address(count);

        bytes.reserve(count * size_of::<u64>());
        let mut push = |word: u64| bytes.extend_from_slice(&word.to_ne_bytes());
        let (kind, id) = match plan.unix.group {
            Group::Same => (group::SAME, 0),
            Group::Own => (group::OWN, 0),
            Group::Join(id) => (group::JOIN, i64::from(id) as u64),
            Group::Session => (group::SESSION, 0),
        };
        let flags = [
            (!is_path(plan.program), flag::SEARCHES),
            (self.may_retry, flag::MAY_RETRY),
            (self.ignores_sigchld, flag::IGNORES_SIGCHLD),
            (plan.unix.umask.is_some(), flag::HAS_UMASK),
            (plan.unix.nice.is_some(), flag::HAS_NICE),
        ];
        let flags: u64 =
            flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        for word in [
            address(pointers_at),
            address(pointers_at + layout.envp_index()),
            address(pointers_at + layout.candidates_index()),
            layout.current_dir_offset().map_or(0, |at| strings + at as u64),
            flags | handles.missing_stdio(),
            kind,
            id,
            plan.unix.umask.map_or(0, u64::from),
            plan.unix.nice.map_or(0, |nice| i64::from(nice) as u64),
            address(limits_at),
            plan.unix.limits.len() as u64,
            address(targets_at),
            handles.targets.len() as u64,
            default_signals(plan),
        ] {
            push(word);
        }
        layout.pointers_at(strings).for_each(&mut push);
        limits(plan).for_each(&mut push);
        handles.targets.iter().copied().for_each(push);
    }
}

/// The most bytes of a plan that stay in memory for the next one.
const KEPT_BYTES: usize = 1 << 20;

/// The memory of the plans, which the supervisor maps and this process only writes to. This process does not map it: a
/// write reports a lack of memory, an access would end this process.
#[derive(Debug)]
pub(super) struct Plans {
    memory: OwnedFd,
    /// The address of the memory in the supervisor.
    base: u64,
    /// The bytes of the last plan.
    written: usize,
    /// The words of the last plan, kept for their memory.
    words: Vec<u8>,
}

impl Plans {
    pub(super) fn new() -> io::Result<Plans> {
        const NAME: &std::ffi::CStr = c"pipewright-plans";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Without the flag the kernel writes a warning to its log, or refuses (vm.memfd_noexec). Linux before 6.3 does
        // not know it.
        let memory = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
            made => made,
        }?;
        // Other code of this process could otherwise truncate it, and the supervisor would be killed (SIGBUS).
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK)?;
        Ok(Plans { memory, base: 0, written: 0, words: Vec::new() })
    }

    /// Sets the address of the memory in the supervisor.
    pub(super) fn at(self, base: u64) -> Plans {
        Plans { base, ..self }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Writes a plan, and returns its size. No start may be in progress.
    pub(super) fn write(
        &mut self,
        plan: &PlanWords<'_>,
        handles: &Handles<'_>,
    ) -> Result<usize, SpawnError> {
        self.words.clear();
        plan.encode(handles, self.base, &mut self.words);
        let strings = plan.layout.bytes();
        let length = self.words.len() + strings.len();
        if length > PLAN_BYTES {
            // More than the kernel accepts.
            return Err(SpawnError::new(Step::Exec, Errno::TOOBIG.into()));
        }
        // A write beyond the limit would end this process (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < length as u64) {
            return Err(SpawnError::new(Step::Create, Errno::FBIG.into()));
        }
        let parts = [IoSlice::new(&self.words), IoSlice::new(strings)];
        let written = rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.memory, &parts, 0));
        match written {
            Ok(count) if count == length => {
                self.written = length;
                Ok(length)
            }
            // There was no memory for the rest.
            Ok(_) => Err(SpawnError::new(Step::Create, Errno::NOMEM.into())),
            Err(error) => Err(SpawnError::new(Step::Create, error.into())),
        }
    }

    /// Frees the memory of a large plan. No start may be in progress.
    pub(super) fn trim(&mut self) {
        if self.written > KEPT_BYTES {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Ignored: the memory is used for the next plan.
            let _ = rustix::fs::fallocate(&self.memory, flags, 0, self.written as u64);
            self.written = 0;
            self.words = Vec::new();
        }
    }
}
