//! What `libproc` says of processes (sys/proc_info.h): numbers only, so every answer is about
//! whoever has the number when it is given.

use std::io;
use std::mem::{MaybeUninit, size_of};

use crate::base::signal::Signal;

/// What is told of any process, whoever it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) parent: u32,
    pub(crate) group: u32,
    status: u32,
    flags: u32,
}

impl State {
    /// Of a process, or of one that has ended and is not reaped. `None` too where a sandbox refuses
    /// to tell.
    pub(crate) fn of(pid: u32) -> Option<State> {
        let info: libc::proc_bsdshortinfo = info(pid, libc::PROC_PIDT_SHORTBSDINFO)?;
        Some(State {
            parent: info.pbsi_ppid,
            group: info.pbsi_pgid,
            status: info.pbsi_status,
            flags: info.pbsi_flags,
        })
    }

    /// Whether it has ended, and waits to be reaped.
    pub(crate) fn has_ended(&self) -> bool {
        self.status == libc::SZOMB
    }

    /// Whether it is on its way out: nothing of its program runs any more.
    pub(crate) fn is_ending(&self) -> bool {
        /// PROC_FLAG_INEXIT
        const IN_EXIT: u32 = 4;
        self.has_ended() || self.flags & IN_EXIT != 0
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.status == libc::SSTOP
    }

    /// Whether it starts nobody any more, for now.
    pub(crate) fn rests(&self) -> bool {
        self.is_stopped() || self.is_ending()
    }
}

/// Whether somebody has the number, a zombie included. It asks for no right that a sandbox could
/// refuse, as the calls above do.
pub(crate) fn is_taken(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: numbers; signal 0 reaches nobody.
    let result = unsafe { libc::kill(pid, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// `kill(2)`. `false`: there is nobody.
pub(crate) fn kill(pid: i32, signal: Signal) -> io::Result<bool> {
    // SAFETY: kill takes two numbers.
    if unsafe { libc::kill(pid, signal.number()) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(false) } else { Err(error) }
}

/// When a process was started: by the clock of the machine, in seconds and microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started(u64, u64);

impl Started {
    /// Of a process, or of one that has ended and is not reaped. `None` too where it belongs to
    /// another user, and we are not root.
    pub(crate) fn of(pid: u32) -> Option<Started> {
        let info: libc::proc_bsdinfo = info(pid, libc::PROC_PIDTBSDINFO)?;
        Some(Started(info.pbi_start_tvsec, info.pbi_start_tvusec))
    }
}

/// How much memory a process uses. `None` too where it belongs to another user, and we are not root.
pub(crate) fn rss_bytes(pid: u32) -> Option<u64> {
    let info: libc::proc_taskinfo = info(pid, libc::PROC_PIDTASKINFO)?;
    Some(info.pti_resident_size)
}

/// Integers, for which all zeroes is a value.
trait Info {}
impl Info for libc::proc_taskinfo {}
impl Info for libc::proc_bsdinfo {}
impl Info for libc::proc_bsdshortinfo {}

fn info<T: Info>(pid: u32, flavor: libc::c_int) -> Option<T> {
    /// Those that have ended and are not reaped are meant as well.
    const ZOMBIES_TOO: u64 = 1;
    let pid = libc::c_int::try_from(pid).ok()?;
    let mut info = MaybeUninit::<T>::zeroed();
    let bytes = size_of::<T>() as libc::c_int;
    // SAFETY: room for what that flavor tells, and its size.
    let told =
        unsafe { libc::proc_pidinfo(pid, flavor, ZOMBIES_TOO, info.as_mut_ptr().cast(), bytes) };
    // SAFETY: the call has filled it in; and all zeroes was a value before.
    (told == bytes).then(|| unsafe { info.assume_init() })
}

/// The children of a process, zombies included.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    const PROC_PPID_ONLY: u32 = 6;
    list(PROC_PPID_ONLY, pid)
}

/// The members of a process group, zombies included.
pub(crate) fn members_of(group: u32) -> Vec<u32> {
    const PROC_PGRP_ONLY: u32 = 2;
    list(PROC_PGRP_ONLY, group)
}

fn list(kind: u32, of: u32) -> Vec<u32> {
    const MOST: usize = 1 << 20;
    let mut pids: Vec<u32> = vec![0; 64];
    loop {
        let bytes = size_of_val(pids.as_slice());
        // SAFETY: room for so many bytes.
        let told = unsafe {
            libc::proc_listpids(kind, of, pids.as_mut_ptr().cast(), bytes as libc::c_int)
        };
        // It tells bytes; 0 or less is nobody, or an error, and then nobody is found.
        let count = usize::try_from(told).unwrap_or(0) / size_of::<u32>();
        if count < pids.len() || pids.len() >= MOST {
            pids.truncate(count);
            return pids;
        }
        // Filled to its end: there may be more.
        pids.resize(pids.len() * 4, 0);
    }
}
