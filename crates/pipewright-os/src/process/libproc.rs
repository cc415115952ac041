//! Process information from `libproc` (sys/proc_info.h). It is addressed by number only, so every answer is
//! about the process that has the number at that moment.

use std::io;
use std::mem::{MaybeUninit, size_of};

use crate::base::signal::Signal;

/// The facts that any process may read about any other, whatever user it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessInfo {
    pub(crate) parent: u32,
    pub(crate) group: u32,
    status: u32,
    flags: u32,
}

impl ProcessInfo {
    /// Reads the state of a process, even if it has ended and is not reaped. `None` too if a sandbox refuses.
    pub(crate) fn of(pid: u32) -> Option<ProcessInfo> {
        let info: libc::proc_bsdshortinfo = info(pid, libc::PROC_PIDT_SHORTBSDINFO)?;
        Some(ProcessInfo {
            parent: info.pbsi_ppid,
            group: info.pbsi_pgid,
            status: info.pbsi_status,
            flags: info.pbsi_flags,
        })
    }

    /// Returns true if it has ended and waits to be reaped.
    pub(crate) fn has_ended(&self) -> bool {
        self.status == libc::SZOMB
    }

    /// Returns true if it is exiting or has ended: none of its program runs any more.
    pub(crate) fn is_ending(&self) -> bool {
        /// The flag PROC_FLAG_INEXIT.
        const IN_EXIT: u32 = 4;
        self.has_ended() || self.flags & IN_EXIT != 0
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.status == libc::SSTOP
    }

    /// Returns true if it cannot start a process now.
    pub(crate) fn is_stopped_or_ended(&self) -> bool {
        self.is_stopped() || self.is_ending()
    }
}

/// Returns true if a process has the number, zombies included. It needs no right that a sandbox could
/// refuse, as a sandbox can refuse the calls above.
pub(crate) fn is_taken(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: numbers; signal 0 is not delivered.
    let result = unsafe { libc::kill(pid, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Sends a signal (`kill(2)`). Returns false if there is no such process.
pub(crate) fn kill(pid: i32, signal: Signal) -> io::Result<bool> {
    // SAFETY: kill takes two numbers.
    if unsafe { libc::kill(pid, signal.number()) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(false) } else { Err(error) }
}

/// The start time of a process, by the clock of the machine, in seconds and microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartTime(u64, u64);

impl StartTime {
    /// Reads the start time of a process, even if it has ended and is not reaped. `None` too if it belongs to
    /// another user and this process is not root's.
    pub(crate) fn of(pid: u32) -> Option<StartTime> {
        let info: libc::proc_bsdinfo = info(pid, libc::PROC_PIDTBSDINFO)?;
        Some(StartTime(info.pbi_start_tvsec, info.pbi_start_tvusec))
    }

    pub(crate) fn as_microseconds(self) -> u64 {
        self.0.saturating_mul(1_000_000).saturating_add(self.1)
    }
}

/// Returns the memory that a process uses. `None` too if it belongs to another user and this process is not
/// root's.
pub(crate) fn rss_bytes(pid: u32) -> Option<u64> {
    let info: libc::proc_taskinfo = info(pid, libc::PROC_PIDTASKINFO)?;
    Some(info.pti_resident_size)
}

/// Structs of integers, for which all zeroes is a value.
trait Info {}
impl Info for libc::proc_taskinfo {}
impl Info for libc::proc_bsdinfo {}
impl Info for libc::proc_bsdshortinfo {}

fn info<T: Info>(pid: u32, flavor: libc::c_int) -> Option<T> {
    /// Includes processes that have ended and are not reaped.
    const ZOMBIES_TOO: u64 = 1;
    let pid = libc::c_int::try_from(pid).ok()?;
    let mut info = MaybeUninit::<T>::zeroed();
    let bytes = size_of::<T>() as libc::c_int;
    // SAFETY: room for what that flavor writes, and its size.
    let written =
        unsafe { libc::proc_pidinfo(pid, flavor, ZOMBIES_TOO, info.as_mut_ptr().cast(), bytes) };
    // SAFETY: the call has filled it in; all zeroes was a value before.
    (written == bytes).then(|| unsafe { info.assume_init() })
}

/// Returns the children of a process, zombies included.
pub(crate) fn children_of(pid: u32) -> io::Result<Vec<u32>> {
    const PROC_PPID_ONLY: u32 = 6;
    Ok(list(PROC_PPID_ONLY, pid))
}

/// Returns the members of a process group, zombies included.
pub(crate) fn members_of(group: u32) -> Vec<u32> {
    const PROC_PGRP_ONLY: u32 = 2;
    list(PROC_PGRP_ONLY, group)
}

/// Returns the numbers of all processes.
pub(crate) fn all_pids() -> Vec<u32> {
    const PROC_ALL_PIDS: u32 = 1;
    list(PROC_ALL_PIDS, 0)
}

fn list(kind: u32, of: u32) -> Vec<u32> {
    const MOST: usize = 1 << 20;
    let mut pids: Vec<u32> = vec![0; 64];
    loop {
        let bytes = size_of_val(pids.as_slice());
        // SAFETY: room for that many bytes.
        let written = unsafe {
            libc::proc_listpids(kind, of, pids.as_mut_ptr().cast(), bytes as libc::c_int)
        };
        // The result counts bytes; 0 or less means no process or an error, and then the list is empty.
        let count = usize::try_from(written).unwrap_or(0) / size_of::<u32>();
        if count < pids.len() || pids.len() >= MOST {
            pids.truncate(count);
            return pids;
        }
        // The list is full: there may be more.
        pids.resize(pids.len() * 4, 0);
    }
}
