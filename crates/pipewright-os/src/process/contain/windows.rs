//! A job object: every process that one of its processes starts is in it too.

use std::ffi::c_void;
use std::mem::{self, offset_of};
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, ptr, thread};

use windows_sys::Win32::Foundation::ERROR_MORE_DATA;
use windows_sys::Win32::System::JobObjects::{
    CreateJobObjectW, IsProcessInJob, JOB_OBJECT_CPU_RATE_CONTROL_ENABLE,
    JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP, JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
    JOB_OBJECT_LIMIT_BREAKAWAY_OK, JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION,
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK, JOBOBJECT_BASIC_ACCOUNTING_INFORMATION,
    JOBOBJECT_BASIC_PROCESS_ID_LIST, JOBOBJECT_CPU_RATE_CONTROL_INFORMATION,
    JOBOBJECT_CPU_RATE_CONTROL_INFORMATION_0, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectBasicAccountingInformation, JobObjectBasicProcessIdList,
    JobObjectCpuRateControlInformation, JobObjectExtendedLimitInformation,
    QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    ALL_PROCESSOR_GROUPS, GetActiveProcessorCount, GetCurrentProcess,
};

use super::EndWait;
use crate::base::handle::size_of_u32;
use crate::process::child::{ChildHandle, ContainedTree, Containment};
use crate::process::limits::job::{cpu_rate, kept_memory};
use crate::process::limits::{
    HeldLimits, LimitKind, LimitMechanism, LimitUnavailable, TreeLimits, TreeResources,
};
use crate::process::member::Member;
use crate::process::process_object::ProcessObject;
use crate::process::status::KILLED;
use crate::process::usage::TreeUsage;

const PAUSE: Duration = Duration::from_millis(1);

/// A job. This is its only handle: when it is closed, the system kills every process in the job. That
/// includes the end of this process, whatever its cause.
#[derive(Debug)]
pub(crate) struct Job(OwnedHandle);

impl Job {
    /// Creates the job of a whole tree. A member that crashes ends: no dialog about it keeps the tree.
    pub(crate) fn for_tree(allow_breakaway: bool) -> io::Result<Job> {
        let breakaway = if allow_breakaway { JOB_OBJECT_LIMIT_BREAKAWAY_OK } else { 0 };
        Job::new(breakaway | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION)
    }

    fn new(limits: u32) -> io::Result<Job> {
        // SAFETY: no attributes, so that it is not inherited, and no name.
        let handle = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, and owned nowhere else.
        let job = Job(unsafe { OwnedHandle::from_raw_handle(handle) });
        let mut info = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        info.BasicLimitInformation.LimitFlags = limits | JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        job.set_extended(&info)?;
        Ok(job)
    }

    fn set_extended(&self, info: &JOBOBJECT_EXTENDED_LIMIT_INFORMATION) -> io::Result<()> {
        // SAFETY: the job is open; a live struct, of the class that is named, and its size.
        let set = unsafe {
            SetInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                ptr::from_ref(info).cast::<c_void>(),
                size_of_u32::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>(),
            )
        };
        if set == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn extended(&self) -> io::Result<JOBOBJECT_EXTENDED_LIMIT_INFORMATION> {
        let mut info = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        // SAFETY: the job is open; a live struct, of the class that is named, and its size.
        let ok = unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectExtendedLimitInformation,
                (&raw mut info).cast::<c_void>(),
                size_of_u32::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>(),
                ptr::null_mut(),
            )
        };
        if ok == 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
    }

    /// Kills its processes, and waits a moment for their end. Returns true if none is left.
    pub(crate) fn empty(&self) -> bool {
        let mut wait = EndWait::new();
        loop {
            match self.active() {
                Ok(0) => return true,
                _ if wait.next().is_none() => return false,
                _ => self.kill(),
            }
            thread::park_timeout(PAUSE);
        }
    }

    /// Returns the number of its processes that have not ended.
    fn active(&self) -> io::Result<u32> {
        Ok(self.accounting()?.ActiveProcesses)
    }

    fn accounting(&self) -> io::Result<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION> {
        let mut info = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: the job is open; a live struct, of the class that is named, and its size.
        let ok = unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicAccountingInformation,
                (&raw mut info).cast::<c_void>(),
                size_of_u32::<JOBOBJECT_BASIC_ACCOUNTING_INFORMATION>(),
                ptr::null_mut(),
            )
        };
        if ok == 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
    }

    /// Returns the numbers of its processes.
    fn pids(&self) -> Vec<u32> {
        const FIRST_ROOM: usize = 64;
        const MOST_ROOM: usize = 1 << 20;
        let mut room = FIRST_ROOM;
        while room <= MOST_ROOM {
            match self.pids_in(room) {
                // The list has grown meanwhile, or was longer from the start.
                Err(error) if error.raw_os_error() == Some(ERROR_MORE_DATA as i32) => room *= 4,
                listed => return listed.unwrap_or_default(),
            }
        }
        Vec::new()
    }

    fn pids_in(&self, room: usize) -> io::Result<Vec<u32>> {
        type List = JOBOBJECT_BASIC_PROCESS_ID_LIST;
        const WORD: usize = mem::size_of::<usize>();
        const HEAD: usize = offset_of!(List, ProcessIdList) / WORD;
        // Words, so that the struct and the numbers after it are aligned.
        let mut words = vec![0_usize; HEAD + room.max(1)];
        let bytes = u32::try_from(words.len() * WORD).unwrap_or(u32::MAX);
        let list = words.as_mut_ptr();
        // SAFETY: the job is open; the buffer has as many live bytes as passed.
        let ok = unsafe {
            QueryInformationJobObject(
                self.0.as_raw_handle(),
                JobObjectBasicProcessIdList,
                list.cast::<c_void>(),
                bytes,
                ptr::null_mut(),
            )
        };
        if ok == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the buffer is at least as large as the struct, aligned, and was filled.
        let count = unsafe { (*list.cast::<List>()).NumberOfProcessIdsInList };
        let numbers = words.iter().skip(HEAD).take(count as usize);
        Ok(numbers.filter_map(|number| u32::try_from(*number).ok()).collect())
    }

    fn kill(&self) {
        // Ignored: this process owns the job, so nothing is denied; `is_alive` finds what is left. SAFETY: it is open.
        let _ = unsafe { TerminateJobObject(self.0.as_raw_handle(), KILLED) };
    }
}

impl AsHandle for Job {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.as_handle()
    }
}

/// Returns the job for children that end with this process, but whose own children do not: the system creates
/// those outside the job. The job is held until this process ends.
///
/// `replace`: the last job has refused a child. A job that has processes accepts only those of its own chain
/// of jobs, so a child that has broken away from this process's job keeps others out. Then another job is
/// made; one without processes is used again.
pub(crate) fn kill_on_close_job(replace: bool) -> io::Result<BorrowedHandle<'static>> {
    static JOB: Mutex<Option<&'static Job>> = Mutex::new(None);
    // The state is a pointer, which is whole at any time.
    let mut last = JOB.lock().unwrap_or_else(PoisonError::into_inner);
    let job = match *last {
        Some(job) if !replace || job.active()? == 0 => job,
        _ => {
            // Never dropped: a drop would end its children.
            Box::leak(Box::new(Job::new(JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK)?))
        }
    };
    *last = Some(job);
    Ok(job.as_handle())
}

/// Returns true if this process is in a job, which may be the reason why another job is refused.
pub(crate) fn is_in_job() -> io::Result<bool> {
    let mut is_in_one = 0;
    // SAFETY: no arguments; a pseudo handle, which is never closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: that handle, a null job, which means any job, and a live number.
    let ok = unsafe { IsProcessInJob(own, ptr::null_mut(), &raw mut is_in_one) };
    if ok == 0 { Err(io::Error::last_os_error()) } else { Ok(is_in_one != 0) }
}

/// Returns true if the system started that process on its own, or if it is gone already.
fn is_console_host_or_gone(pid: u32) -> bool {
    // A process that may not be opened counts as one of the tree.
    let Ok(opened) = ProcessObject::open(pid) else { return false };
    opened.is_none_or(|process| process.has_ended() || process.is_console_host())
}

/// A contained tree.
#[derive(Debug)]
pub(crate) struct JobTree {
    /// Shared with the slot that the tree is in, if it is in one.
    job: Arc<Job>,
    /// The process at the root of the tree. Its handle stays open as long as the tree exists.
    command: u32,
    /// The number of killed processes, not counting the command.
    killed: AtomicU32,
    /// The limits of the job, if it has limits.
    held: Option<HeldLimits>,
}

impl JobTree {
    pub(crate) fn new(job: Arc<Job>, command: u32) -> JobTree {
        JobTree { job, command, killed: AtomicU32::new(0), held: None }
    }

    pub(crate) fn with_limits(self, held: HeldLimits) -> JobTree {
        JobTree { held: Some(held), ..self }
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        self.job.pids().into_iter().filter(|pid| *pid != self.command)
    }
}

impl ContainedTree for JobTree {
    fn containment(&self) -> Containment {
        Containment::Job
    }

    fn kill(&self) {
        let others = self.others().filter(|pid| !is_console_host_or_gone(*pid)).count();
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        // The largest count is the right one: a second kill finds fewer.
        self.killed.fetch_max(others, Ordering::Relaxed);
        self.job.kill();
    }

    fn is_alive(&self) -> bool {
        self.job.active().is_ok_and(|active| active > 0)
    }

    fn last(&self) -> Option<&Member> {
        None
    }

    fn end(&self) -> u32 {
        if self.is_alive() {
            self.kill();
        }
        let mut wait = EndWait::new();
        while self.is_alive() && wait.next().is_some() {
            thread::park_timeout(PAUSE);
        }
        self.killed.load(Ordering::Relaxed)
    }

    fn collect(&self, members: &mut Vec<Member>) -> io::Result<()> {
        let open = |pid| Member::open(pid, members, |_| true);
        let opened: Vec<Member> = self.others().filter_map(open).collect();
        // A number may have passed to another process between the list and the handle. Now the handle keeps
        // it, so a second list under the same number means the opened process.
        let listed = self.job.pids();
        members.extend(opened.into_iter().filter(|member| listed.contains(&member.pid())));
        Ok(())
    }

    fn resources(&self) -> Option<TreeResources> {
        let held = self.held.clone()?;
        Some(TreeResources { held, usage: usage(&self.job), ..TreeResources::default() })
    }

    fn release(self: Box<Self>) -> Option<ChildHandle> {
        None
    }
}

/// Sets the limits of a job. Each is read back: some systems accept a limit and do not keep it.
pub(crate) fn limit(job: &Job, limits: TreeLimits) -> Result<HeldLimits, LimitUnavailable> {
    let mut held = HeldLimits { limits, ..HeldLimits::default() };
    for kind in limits.kinds() {
        let set = match kind {
            LimitKind::Memory => set_memory(job, limits.memory_max_bytes.unwrap_or(u64::MAX)),
            LimitKind::Pids => set_processes(job, limits.pids_max.unwrap_or(u64::MAX)),
            LimitKind::Cpu => set_cpu(job, limits.cpu_time_per_second.unwrap_or(Duration::MAX)),
            LimitKind::Swap => Err(other("a job counts memory and page file together")),
            LimitKind::OomGroup => Err(other("Windows kills no process for lack of memory")),
        };
        if let Err(error) = set {
            let unavailable = LimitUnavailable::new(kind, error.to_string());
            if !limits.best_effort {
                return Err(unavailable);
            }
            held.limits.remove(kind);
            held.missing.push(unavailable);
        }
    }
    held.mechanism = held.limits.kinds().next().map(|_| LimitMechanism::Job);
    Ok(held)
}

/// Returns the usage of the processes that were ever in the job.
fn usage(job: &Job) -> TreeUsage {
    let mut usage = TreeUsage::default();
    if let Ok(info) = job.accounting() {
        usage.user = of_100_ns(info.TotalUserTime);
        usage.system = of_100_ns(info.TotalKernelTime);
    }
    if let Ok(info) = job.extended() {
        // 0: the system does not count it.
        let peak = u64::try_from(info.PeakJobMemoryUsed).ok();
        usage.peak_memory_bytes = peak.filter(|bytes| *bytes > 0);
    }
    usage
}

fn set_memory(job: &Job, bytes: u64) -> io::Result<()> {
    let mut info = job.extended()?;
    // The kernel keeps whole pages.
    info.JobMemoryLimit = kept_memory(usize::try_from(bytes).unwrap_or(usize::MAX) as u64) as usize;
    info.BasicLimitInformation.LimitFlags |= JOB_OBJECT_LIMIT_JOB_MEMORY;
    job.set_extended(&info)?;
    let found = job.extended()?;
    let is_set = found.BasicLimitInformation.LimitFlags & JOB_OBJECT_LIMIT_JOB_MEMORY != 0;
    if is_set && found.JobMemoryLimit == info.JobMemoryLimit { Ok(()) } else { Err(not_kept()) }
}

fn set_processes(job: &Job, most: u64) -> io::Result<()> {
    let mut info = job.extended()?;
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    info.BasicLimitInformation.ActiveProcessLimit = most;
    info.BasicLimitInformation.LimitFlags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
    job.set_extended(&info)?;
    let found = job.extended()?.BasicLimitInformation;
    let is_set = found.LimitFlags & JOB_OBJECT_LIMIT_ACTIVE_PROCESS != 0;
    if is_set && found.ActiveProcessLimit == most { Ok(()) } else { Err(not_kept()) }
}

/// Limits the CPU time, which the system takes as a part of all processors.
fn set_cpu(job: &Job, time_per_second: Duration) -> io::Result<()> {
    // Those of all groups: a process sees those of its own group, at most 64.
    // SAFETY: takes a number.
    let processors = unsafe { GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) };
    let rate = cpu_rate(time_per_second, processors as usize);
    let set = JOBOBJECT_CPU_RATE_CONTROL_INFORMATION {
        ControlFlags: JOB_OBJECT_CPU_RATE_CONTROL_ENABLE | JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP,
        Anonymous: JOBOBJECT_CPU_RATE_CONTROL_INFORMATION_0 { CpuRate: rate },
    };
    let size = size_of_u32::<JOBOBJECT_CPU_RATE_CONTROL_INFORMATION>();
    // SAFETY: the job is open; a live struct, of the class that is named, and its size.
    let done = unsafe {
        SetInformationJobObject(
            job.0.as_raw_handle(),
            JobObjectCpuRateControlInformation,
            (&raw const set).cast::<c_void>(),
            size,
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = JOBOBJECT_CPU_RATE_CONTROL_INFORMATION::default();
    // SAFETY: as above.
    let done = unsafe {
        QueryInformationJobObject(
            job.0.as_raw_handle(),
            JobObjectCpuRateControlInformation,
            (&raw mut found).cast::<c_void>(),
            size,
            ptr::null_mut(),
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    if found.ControlFlags == set.ControlFlags { Ok(()) } else { Err(not_kept()) }
}

fn not_kept() -> io::Error {
    other("the system accepted the limit of the job and did not keep it")
}

fn other(message: &'static str) -> io::Error {
    io::Error::other(message)
}

fn of_100_ns(time: i64) -> Option<Duration> {
    let nanos = u64::try_from(time).ok()?.checked_mul(100)?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::skipped::{Need, skipped};

    #[test]
    fn a_member_that_crashes_opens_no_dialog() {
        for allow_breakaway in [false, true] {
            let job = Job::for_tree(allow_breakaway).unwrap();
            let flags = job.extended().unwrap().BasicLimitInformation.LimitFlags;
            if flags == 0 {
                return skipped(Need::Windows, "the system shows no limits of a job");
            }
            assert_ne!(flags & JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION, 0);
            assert_ne!(flags & JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE, 0);
            assert_eq!(flags & JOB_OBJECT_LIMIT_BREAKAWAY_OK != 0, allow_breakaway);
        }
    }
}
