//! Wait statuses, as `wait(2)` packs them.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;

use super::ExitStatus;
use crate::base::signal::Signal;

pub(super) fn code(raw: u32) -> Option<i32> {
    let raw = raw as i32;
    libc::WIFEXITED(raw).then(|| libc::WEXITSTATUS(raw))
}

pub(super) fn signal(raw: u32) -> Option<i32> {
    let raw = raw as i32;
    libc::WIFSIGNALED(raw).then(|| libc::WTERMSIG(raw))
}

pub(super) fn was_killed(raw: u32) -> bool {
    signal(raw) == Some(libc::SIGKILL)
}

pub(super) fn core_dumped(raw: u32) -> bool {
    let raw = raw as i32;
    libc::WIFSIGNALED(raw) && libc::WCOREDUMP(raw)
}

pub(super) fn from_std(status: std::process::ExitStatus) -> u32 {
    status.into_raw() as u32
}

pub(super) fn to_std(raw: u32) -> std::process::ExitStatus {
    std::process::ExitStatus::from_raw(raw as i32)
}

/// Prints the words of std, with the signal's name after its number.
pub(super) fn show(status: &ExitStatus, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(code) = status.code() {
        return write!(f, "exit status: {code}");
    }
    if let Some(number) = status.signal() {
        write!(f, "signal: {number}")?;
        if let Some(name) = Signal::from_number(number).and_then(Signal::name) {
            write!(f, " ({name})")?;
        }
        return f.write_str(if status.core_dumped() { " (core dumped)" } else { "" });
    }
    write!(f, "wait status: {:#x}", status.raw())
}

/// Packs the result of `waitid(2)` into the wait status of `wait(2)`.
#[cfg(target_os = "linux")]
pub(crate) fn pack(si_code: i32, si_status: i32) -> ExitStatus {
    ExitStatus::from_raw(match si_code {
        libc::CLD_EXITED => (si_status & 0xff) << 8,
        libc::CLD_DUMPED => si_status | 0x80,
        _ => si_status,
    })
}
