//! Processes that were started with a variable in their environment.

use std::io;

/// Returns the numbers of the processes, this one excluded, that were started with that variable set to that value.
///
/// A process that has changed its own environment since then still counts. Processes of other users count only as far as
/// this process may read their environment. A number may be another process's by the time it is used: open it first
/// ([`Opened::open`](super::open::Opened::open)), then ask [`has_variable`] again.
///
/// # Platform
/// Linux: `/proc/PID/environ`. Windows and macOS: `Unsupported`.
///
/// # Errors
/// `Unsupported`: this system does not show environments, or `/proc` is not that of the own pid namespace.
pub fn processes_with_variable(name: &str, value: &str) -> io::Result<Vec<u32>> {
    imp::processes_with_variable(name, value)
}

/// Returns true if the process with that number was started with that variable set to that value.
///
/// # Platform
/// As for [`processes_with_variable`]; false where that is `Unsupported`.
#[must_use]
pub fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    imp::has_variable(pid, name, value)
}

/// Returns the numbers of the processes, this one excluded, that have begun to exit and may still hold files and locks.
///
/// The kernel frees the memory of such a process first, which takes long if it is large. Its environment is gone by then, so
/// [`processes_with_variable`] does not return it.
///
/// # Platform
/// As for [`processes_with_variable`].
///
/// # Errors
/// As for [`processes_with_variable`].
pub fn exiting_processes() -> io::Result<Vec<u32>> {
    imp::exiting_processes()
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;

    use crate::process::procfs;

    pub(super) fn processes_with_variable(name: &str, value: &str) -> io::Result<Vec<u32>> {
        let pids = procfs::proc_is_ours().then(procfs::pids).flatten();
        let mut pids = pids.ok_or(io::ErrorKind::Unsupported)?;
        let own = std::process::id();
        pids.retain(|pid| *pid != own && has_variable(*pid, name, value));
        Ok(pids)
    }

    /// `PF_EXITING` of the kernel, in the flags of `/proc/PID/stat`.
    const EXITING: u64 = 0x4;

    pub(super) fn exiting_processes() -> io::Result<Vec<u32>> {
        let pids = procfs::proc_is_ours().then(procfs::pids).flatten();
        let mut pids = pids.ok_or(io::ErrorKind::Unsupported)?;
        let own = std::process::id();
        pids.retain(|pid| *pid != own && is_exiting(*pid));
        Ok(pids)
    }

    /// Returns false for a process that has ended and is not reaped: it holds nothing.
    fn is_exiting(pid: u32) -> bool {
        let stat = procfs::read(&format!("/proc/{pid}/stat")).unwrap_or_default();
        let text = String::from_utf8_lossy(&stat);
        // The name may have blanks and parentheses.
        let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let state = fields.next();
        let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
        !matches!(state, None | Some("Z" | "X")) && flags.is_some_and(|flags| flags & EXITING != 0)
    }

    pub(super) fn has_variable(pid: u32, name: &str, value: &str) -> bool {
        // Empty for a process that has ended and is not reaped.
        let environment = procfs::read(&format!("/proc/{pid}/environ")).unwrap_or_default();
        let is_it = |variable: &[u8]| {
            let rest = variable.strip_prefix(name.as_bytes());
            rest.and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
        };
        environment.split(|byte| *byte == 0).any(is_it)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    pub(super) fn processes_with_variable(_name: &str, _value: &str) -> io::Result<Vec<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn exiting_processes() -> io::Result<Vec<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn has_variable(_pid: u32, _name: &str, _value: &str) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_a_variable_that_it_was_started_with() {
        let value = format!("of-{}", std::process::id());
        let find = || processes_with_variable("PIPEWRIGHT_FIND_ME", &value).unwrap();
        assert_eq!(find(), []);
        let mut child = Command::new("sh")
            .args(["-c", "unset PIPEWRIGHT_FIND_ME; echo up; read -r line"])
            .env("PIPEWRIGHT_FIND_ME", &value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        assert_eq!(find(), [child.id()]);
        assert!(!has_variable(child.id(), "PIPEWRIGHT_FIND_ME", "of"));
        assert!(!has_variable(child.id(), "PIPEWRIGHT_FIND", &value));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(find(), []);
    }
}
