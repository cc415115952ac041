//! The name of this machine, and the identity of its current boot.

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

/// Returns the identity of the current boot: another text after each start of the machine. `None` if it is unknown.
///
/// # Platform
/// Linux: `/proc/sys/kernel/random/boot_id`, which containers share with their host. macOS: the sysctl
/// `kern.bootsessionuuid`. Windows: always `None`; start times of processes are unique across boots there.
///
/// ```
/// # use pipewright_os::host::boot::boot_id;
/// assert_eq!(boot_id(), boot_id());
/// ```
#[must_use]
pub fn boot_id() -> Option<String> {
    imp::boot_id()
}

/// Returns the name of this machine in its network. `None` if it has none.
///
/// # Platform
/// Linux: `/proc/sys/kernel/hostname`. macOS: the sysctl `kern.hostname`. Windows: the variable `COMPUTERNAME`.
///
/// ```
/// # use pipewright_os::host::boot::host_name;
/// assert!(host_name().is_none_or(|name| !name.is_empty()));
/// ```
#[must_use]
#[doc(alias = "gethostname")]
pub fn host_name() -> Option<String> {
    imp::host_name().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_an_identity_except_on_windows() {
        let id = boot_id();
        assert_eq!(id.is_some(), !cfg!(windows), "{id:?}");
        assert!(id.is_none_or(|id| id.len() >= 32 && id.trim() == id));
    }

    #[test]
    fn the_machine_has_a_name() {
        let name = host_name().unwrap();
        assert!(name.trim() == name && !name.contains('\0'), "{name:?}");
    }
}
