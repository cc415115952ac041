//! Exit codes: unsigned numbers of 32 bits.

use std::fmt;
use std::os::windows::process::ExitStatusExt as _;

use super::ExitStatus;

/// The exit code of a killed process, as in std.
pub(crate) const KILLED: u32 = 1;

/// The lowest code that is a status of the kernel (`NTSTATUS`), which people know in hexadecimal.
const HIGH_BIT: u32 = 0x8000_0000;

pub(super) fn code(raw: u32) -> Option<i32> {
    Some(raw as i32)
}

pub(super) fn signal(_: u32) -> Option<i32> {
    None
}

pub(super) fn was_killed(raw: u32) -> bool {
    raw == KILLED
}

pub(super) fn core_dumped(_: u32) -> bool {
    false
}

pub(super) fn from_std(status: std::process::ExitStatus) -> u32 {
    // There is always a code on this platform.
    status.code().unwrap_or_default() as u32
}

pub(super) fn to_std(raw: u32) -> std::process::ExitStatus {
    std::process::ExitStatus::from_raw(raw)
}

/// Prints the words of std.
pub(super) fn show(status: &ExitStatus, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match status.raw() {
        code if code & HIGH_BIT != 0 => write!(f, "exit code: {code:#x}"),
        code => write!(f, "exit code: {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::ExitStatus;

    #[test]
    fn status_prints_and_converts_like_std() {
        for (raw, words) in [
            (0, "exit code: 0"),
            (1, "exit code: 1"),
            (259, "exit code: 259"),
            (0xC000_0005_u32 as i32, "exit code: 0xc0000005"),
            (-1, "exit code: 0xffffffff"),
        ] {
            let status = ExitStatus::from_raw(raw);
            let std = std::process::ExitStatus::from(status);
            assert_eq!((status.to_string(), std.to_string()), (words.to_owned(), words.to_owned()));
            assert_eq!((status.code(), std.code()), (Some(raw), Some(raw)));
            assert_eq!(ExitStatus::from(std), status);
            assert_eq!((status.signal(), status.core_dumped()), (None, false));
            assert_eq!(status.success(), raw == 0);
        }
    }
}
