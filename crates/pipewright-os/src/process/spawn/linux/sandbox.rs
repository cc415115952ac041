//! The rights of a thread, as far as they can be read: Linux keeps them per thread, not per process.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getuid};

use crate::process::procfs;

/// The rights of a thread. A new thread gets those of the thread that starts it.
///
/// A Landlock domain is not included, because the kernel does not report it. It also reports only the
/// number of seccomp filters, not the filters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sandbox {
    /// Users, groups, capabilities, `no_new_privs`, and the mode and number of seccomp filters.
    status: Vec<u8>,
    /// The label of SELinux, AppArmor or Smack.
    label: Vec<u8>,
    secure_bits: i32,
    session_keyring: i64,
}

/// The lines of `/proc/thread-self/status` (proc(5)) to compare, by their beginnings.
const LINES: [&[u8]; 6] = [b"Uid:", b"Gid:", b"Groups:", b"Cap", b"NoNewPrivs:", b"Seccomp"];

impl Sandbox {
    /// Returns the rights of the calling thread.
    pub(super) fn here() -> Sandbox {
        Sandbox {
            status: procfs::read("/proc/thread-self/status")
                .map_or_else(|_| without_proc(), filter),
            label: label(),
            secure_bits: secure_bits(),
            session_keyring: session_keyring(),
        }
    }
}

/// Returns the label of this thread; empty if no security module has labels.
fn label() -> Vec<u8> {
    static NO_LABELS: AtomicBool = AtomicBool::new(false);
    if NO_LABELS.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let mut label = [0; 1024];
    let mut read = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/thread-self/attr/current", flags, Mode::empty())?;
        rustix::io::read(file, &mut label)
    };
    match read() {
        Ok(count) => label.iter().take(count).copied().collect(),
        Err(error) => {
            // No label can appear later. Other errors say nothing about labels.
            let no_labels = matches!(error, Errno::INVAL | Errno::NOENT);
            NO_LABELS.store(no_labels, Ordering::Relaxed);
            Vec::new()
        }
    }
}

fn filter(status: Vec<u8>) -> Vec<u8> {
    let lines = status.split_inclusive(|byte| *byte == b'\n');
    let lines_to_compare =
        lines.filter(|line| LINES.iter().any(|beginning| line.starts_with(beginning)));
    lines_to_compare.flatten().copied().collect()
}

/// Returns the facts that system calls report, for systems without `/proc`.
fn without_proc() -> Vec<u8> {
    format!("{:?}", Rights::here()).into_bytes()
}

/// The rights of a thread that a few system calls report. Without the label, and with the mode of seccomp only, but as cheap as
/// each start in a slot needs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rights {
    users: [Uid; 2],
    groups: [Gid; 2],
    supplementary: Vec<Gid>,
    /// Effective, permitted and inheritable, twice 32 bits.
    capabilities: [u32; 6],
    no_new_privs: i32,
    seccomp: i32,
    secure_bits: i32,
    session_keyring: i64,
    /// The device and the number of the root directory.
    root: Option<(u64, u64)>,
}

impl Rights {
    /// Returns the rights of the calling thread.
    pub(super) fn here() -> Rights {
        const VERSION_3: u32 = 0x2008_0522;
        let header = [VERSION_3, 0];
        let mut capabilities = [0_u32; 6];
        let place = capabilities.as_mut_ptr();
        // SAFETY: a live header, for this thread, and room for what that version writes.
        unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), place) };
        Rights {
            users: [getuid(), geteuid()],
            groups: [getgid(), getegid()],
            supplementary: rustix::process::getgroups().unwrap_or_default(),
            capabilities,
            // SAFETY: reads only.
            no_new_privs: unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) },
            // SAFETY: reads only.
            seccomp: unsafe { libc::prctl(libc::PR_GET_SECCOMP) },
            secure_bits: secure_bits(),
            session_keyring: session_keyring(),
            root: rustix::fs::stat("/").ok().map(|root| (root.st_dev, root.st_ino)),
        }
    }
}

fn secure_bits() -> i32 {
    // SAFETY: reads only.
    unsafe { libc::prctl(libc::PR_GET_SECUREBITS) }
}

/// Returns the number of the session keyring. A filter may refuse the call; then the error is compared.
fn session_keyring() -> i64 {
    const KEYCTL_GET_KEYRING_ID: i32 = 0;
    const KEY_SPEC_SESSION_KEYRING: i32 = -3;
    // SAFETY: numbers; no keyring is made.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_differ_after_no_new_privs() {
        let here = Sandbox::here();
        assert!(here.status.starts_with(b"Uid:"), "{here:?}");
        assert!(String::from_utf8_lossy(&here.status).contains("\nNoNewPrivs:\t"), "{here:?}");
        let given_up = std::thread::spawn(|| {
            let before = Sandbox::here();
            // SAFETY: numbers; the setting belongs to this thread alone.
            let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            (before, done, Sandbox::here(), without_proc())
        });
        let (before, done, after, by_calls) = given_up.join().unwrap();
        assert_eq!((&before, done), (&here, 0));
        let had_given_up = String::from_utf8_lossy(&here.status).contains("NoNewPrivs:\t1");
        assert_eq!(after == here, had_given_up);
        assert_eq!(by_calls == without_proc(), had_given_up);
    }
}
