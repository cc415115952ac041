//! Start times of processes, which tell a process from a later one with the same number.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

/// Returns the start time of the process that has that number now. `None` if no process has it, if it has ended, or if the
/// time is unknown.
///
/// The unit depends on the system: a start time can only be compared with others of the same system. On Linux they count from
/// the boot, so they can only be compared with others of the same boot ([`boot_id`](../../host/boot/fn.boot_id.html)).
///
/// # Platform
/// Linux: `/proc/PID/stat`, if `/proc` shows this pid namespace. macOS: `proc_pidinfo`, which an ordinary user may call for its
/// own processes only. Windows: `GetProcessTimes`.
///
/// ```
/// # use pipewright_os::process::start_time::start_time;
/// let own = std::process::id();
/// assert_eq!(start_time(own), start_time(own));
/// ```
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    imp::start_time(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_start_time_and_a_missing_one_has_none() {
        let own = start_time(std::process::id());
        assert!(own.is_some_and(|time| time > 0), "{own:?}");
        assert_eq!(own, start_time(std::process::id()));
        assert_eq!(start_time(u32::MAX), None);
    }
}
