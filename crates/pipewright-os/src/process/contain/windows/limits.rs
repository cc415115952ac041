//! The limits of a job, and the usage of its processes.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::ptr;
use std::time::Duration;

use windows_sys::Win32::System::JobObjects::{
    JOB_OBJECT_CPU_RATE_CONTROL_ENABLE, JOB_OBJECT_CPU_RATE_CONTROL_HARD_CAP,
    JOB_OBJECT_LIMIT_ACTIVE_PROCESS, JOB_OBJECT_LIMIT_JOB_MEMORY,
    JOBOBJECT_CPU_RATE_CONTROL_INFORMATION, JOBOBJECT_CPU_RATE_CONTROL_INFORMATION_0,
    JobObjectCpuRateControlInformation, QueryInformationJobObject, SetInformationJobObject,
};

use windows_sys::Win32::System::Threading::{ALL_PROCESSOR_GROUPS, GetActiveProcessorCount};

use super::Job;
use crate::base::handle::size_of_u32;
use crate::process::limits::job::{cpu_rate, kept_memory};
use crate::process::limits::{HeldLimits, LimitKind, LimitMechanism, LimitUnavailable, TreeLimits};
use crate::process::usage::TreeUsage;

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
pub(super) fn usage(job: &Job) -> TreeUsage {
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
