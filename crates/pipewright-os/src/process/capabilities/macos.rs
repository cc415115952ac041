//! One harmless call for each facility.

use std::io;

use rustix::fs::Access;

use super::Facility;
use super::entry::{About, facility, open_files, processes, value};
use crate::process::kqueue::ExitWatch;
use crate::process::libproc::StartTime;

pub(super) fn facilities() -> Vec<Facility> {
    vec![
        facility(
            "kqueue",
            kqueue(),
            About {
                used_for: "waiting for the end of a process",
                without: "the process is polled",
                needs: "kevent with EVFILT_PROC",
            },
        ),
        facility(
            "libproc",
            libproc_works(),
            About {
                used_for: "finding the descendants of a child",
                without: "a kill reaches only the child and its group",
                needs: "proc_pidinfo (macOS 10.5)",
            },
        ),
        facility(
            "guard",
            shell(),
            About {
                used_for: "ending a child with its program: /bin/sh waits for the end of the program",
                without: "no child can be ended with its program",
                needs: "/bin/sh",
            },
        ),
        value(
            "open handles",
            open_files(),
            "the number of handles that this process may have open",
        ),
        value("processes", processes(), "the number of processes that this user may have"),
        value(
            "kernel",
            kernel(),
            "the oldest supported version is macOS 11 (Darwin 20); on x86-64, macOS 10.15 (Darwin 19)",
        ),
    ]
}

fn kqueue() -> io::Result<String> {
    ExitWatch::of(std::process::id()).map(|_| String::new())
}

fn libproc_works() -> io::Result<String> {
    let own = StartTime::of(std::process::id());
    own.map(|_| String::new()).ok_or_else(io::Error::last_os_error)
}

fn shell() -> io::Result<String> {
    rustix::fs::access("/bin/sh", Access::EXEC_OK)?;
    Ok("/bin/sh".to_owned())
}

fn kernel() -> String {
    // SAFETY: `utsname` consists of byte arrays, for which all zeroes is a valid value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: a live struct that the call fills.
    if unsafe { libc::uname(&raw mut names) } != 0 {
        return io::Error::last_os_error().to_string();
    }
    let release = names.release.map(|byte| byte as u8);
    let release = release.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(release).into_owned()
}
