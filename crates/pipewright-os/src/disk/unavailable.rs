//! The reasons why the kernel's asynchronous I/O is unavailable here, and stand-ins for what a system lacks.

use std::sync::Arc;
use std::{fmt, io};

use crate::base::wake::Wake;
use crate::disk::file::{FileRequest, FinishedRequest};

/// A reason why an I/O mechanism is unavailable on this machine or in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnavailableReason {
    /// This operating system does not have it.
    NotThisSystem,
    /// A test does without it (`PIPEWRIGHT_FORCE=io_uring` in a build with test hooks).
    LeftOut,
    /// The kernel is too old.
    KernelTooOld,
    /// The administrator has disabled it.
    Disabled {
        /// The value of `kernel.io_uring_disabled`: 1 allows it only for one group, 2 for no process.
        sysctl: u32,
    },
    /// A seccomp filter blocks it, as in most containers.
    Seccomp,
    /// It was refused for an unknown reason.
    Denied,
    /// It needs more locked memory than the user may have (`RLIMIT_MEMLOCK`).
    MemlockLimit {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// Too many files are open, or all programs together have reserved too many requests (`fs.aio-max-nr`).
    Limit,
    /// The kernel lacks one of the required operations.
    OperationMissing {
        /// The name of the operation.
        operation: &'static str,
    },
    /// The system reported another error.
    Error {
        /// The `errno`.
        number: i32,
    },
}

impl UnavailableReason {
    /// Returns a stable, machine-readable name such as `seccomp` or `disabled`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            UnavailableReason::NotThisSystem => "not_this_system",
            UnavailableReason::LeftOut => "left_out",
            UnavailableReason::KernelTooOld => "kernel_too_old",
            UnavailableReason::Disabled { .. } => "disabled",
            UnavailableReason::Seccomp => "seccomp",
            UnavailableReason::Denied => "denied",
            UnavailableReason::MemlockLimit { .. } => "memlock_limit",
            UnavailableReason::Limit => "limit",
            UnavailableReason::OperationMissing { .. } => "operation_missing",
            UnavailableReason::Error { .. } => "error",
        }
    }
}

impl fmt::Display for UnavailableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnavailableReason::NotThisSystem => f.write_str("not available on this system"),
            UnavailableReason::LeftOut => f.write_str("left out of this build"),
            UnavailableReason::KernelTooOld => f.write_str("the kernel is too old"),
            UnavailableReason::Disabled { sysctl } => {
                write!(f, "disabled by the administrator (kernel.io_uring_disabled={sysctl})")
            }
            UnavailableReason::Seccomp => f.write_str("blocked by a seccomp filter"),
            UnavailableReason::Denied => f.write_str("permission denied"),
            UnavailableReason::MemlockLimit { limit_bytes } => {
                write!(
                    f,
                    "needs more locked memory than RLIMIT_MEMLOCK allows ({limit_bytes} bytes)"
                )
            }
            UnavailableReason::Limit => f.write_str("too many open files or asynchronous requests"),
            UnavailableReason::OperationMissing { operation } => {
                write!(f, "the kernel does not support the operation {operation}")
            }
            UnavailableReason::Error { number } => {
                write!(f, "{}", io::Error::from_raw_os_error(*number))
            }
        }
    }
}

impl std::error::Error for UnavailableReason {}

/// A reason why this machine allows no verdict on asynchronous I/O, or only some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unjudged {
    /// The program runs under Wine, not under Windows.
    Imitation,
    /// This system's kernel has no asynchronous file I/O.
    NoKernelIo,
}

impl Unjudged {
    /// Returns the reason on this machine. `None` if verdicts are possible.
    #[must_use]
    pub fn here() -> Option<Unjudged> {
        if cfg!(target_os = "macos") {
            return Some(Unjudged::NoKernelIo);
        }
        crate::host::host_info::look().imitation.then_some(Unjudged::Imitation)
    }

    /// Returns a stable, machine-readable name such as `imitation`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unjudged::Imitation => "imitation",
            Unjudged::NoKernelIo => "no_kernel_io",
        }
    }
}

impl fmt::Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unjudged::Imitation => {
                "this is Wine, which performs every operation inside the call, reports it as pending, and always uses \
                 the cache: the results say nothing about Windows"
            }
            Unjudged::NoKernelIo => {
                "this system's kernel has no asynchronous file I/O: threads wait for every operation, and cached reads \
                 cannot be distinguished from others"
            }
        })
    }
}

/// The circumstances of a refusal, besides its error.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RefusalContext {
    /// The value of `kernel.io_uring_disabled`, if the setting exists.
    pub(crate) disabled: Option<u32>,
    /// True if a seccomp filter applies to this thread.
    pub(crate) filtered: bool,
    /// The value of `RLIMIT_MEMLOCK`, unless it is infinite.
    pub(crate) memlock_bytes: Option<u64>,
}

#[cfg(target_os = "linux")]
impl RefusalContext {
    pub(crate) fn now() -> RefusalContext {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        RefusalContext {
            disabled: setting.and_then(|text| disabled_by(&text)),
            filtered: is_filtered(&status),
            memlock_bytes: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
        }
    }

    pub(crate) fn judge(self, error: &io::Error) -> UnavailableReason {
        let number = error.raw_os_error().unwrap_or_default();
        match (number, self.disabled) {
            (libc::EPERM, Some(sysctl @ 1..)) => UnavailableReason::Disabled { sysctl },
            // Docker's filter returns EPERM; others return ENOSYS, so that programs assume an old kernel.
            (libc::EPERM | libc::EACCES | libc::ENOSYS, _) if self.filtered => {
                UnavailableReason::Seccomp
            }
            (libc::ENOSYS, _) => UnavailableReason::KernelTooOld,
            (libc::EPERM | libc::EACCES, _) => UnavailableReason::Denied,
            (libc::ENOMEM, _) => match self.memlock_bytes {
                Some(limit_bytes) => UnavailableReason::MemlockLimit { limit_bytes },
                None => UnavailableReason::Error { number },
            },
            (libc::EMFILE | libc::ENFILE | libc::EAGAIN, _) => UnavailableReason::Limit,
            _ => UnavailableReason::Error { number },
        }
    }
}

/// Parses the setting.
#[cfg(target_os = "linux")]
fn disabled_by(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Parses `/proc/PID/status`: mode 2 is a filter (proc_pid_status(5)).
#[cfg(target_os = "linux")]
fn is_filtered(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{RefusalContext, UnavailableReason, disabled_by, is_filtered};

    fn judge(
        disabled: Option<u32>,
        filtered: bool,
        memlock: Option<u64>,
        number: i32,
    ) -> UnavailableReason {
        let circumstances = RefusalContext { disabled, filtered, memlock_bytes: memlock };
        circumstances.judge(&std::io::Error::from_raw_os_error(number))
    }

    #[test]
    fn every_refusal_has_its_reason() {
        let limit_bytes = 65_536;
        for (reason, expected) in [
            (judge(Some(2), true, None, libc::EPERM), UnavailableReason::Disabled { sysctl: 2 }),
            (judge(Some(1), false, None, libc::EPERM), UnavailableReason::Disabled { sysctl: 1 }),
            (judge(Some(0), true, None, libc::EPERM), UnavailableReason::Seccomp),
            (judge(None, true, None, libc::ENOSYS), UnavailableReason::Seccomp),
            (judge(None, true, None, libc::EACCES), UnavailableReason::Seccomp),
            (judge(None, false, None, libc::ENOSYS), UnavailableReason::KernelTooOld),
            (judge(Some(0), false, None, libc::EPERM), UnavailableReason::Denied),
            (
                judge(None, false, Some(limit_bytes), libc::ENOMEM),
                UnavailableReason::MemlockLimit { limit_bytes },
            ),
            (
                judge(None, false, None, libc::ENOMEM),
                UnavailableReason::Error { number: libc::ENOMEM },
            ),
            (judge(None, false, None, libc::EMFILE), UnavailableReason::Limit),
            (
                judge(None, false, None, libc::EINVAL),
                UnavailableReason::Error { number: libc::EINVAL },
            ),
        ] {
            assert_eq!(reason, expected);
        }
    }

    #[test]
    fn kernel_settings_are_parsed() {
        assert_eq!(
            (disabled_by("2\n"), disabled_by("0\n"), disabled_by("")),
            (Some(2), Some(0), None)
        );
        assert!(is_filtered("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!is_filtered("Seccomp:\t0\nSeccomp_filters:\t2\n"));
    }
}

/// A queue that cannot be created: it stands in for the asynchronous I/O that this system lacks, and no value of it can
/// exist.
#[derive(Debug)]
pub(crate) enum Absent {}

/// Stands in for io_uring.
#[cfg(not(target_os = "linux"))]
pub(crate) type Uring = Absent;

/// Stands in for Linux AIO.
#[cfg(not(target_os = "linux"))]
pub(crate) type Aio = Absent;

/// Stands in for a completion port.
#[cfg(not(windows))]
pub(crate) type CompletionPort = Absent;

impl Absent {
    /// Fails, whatever the options are.
    pub(crate) fn new<Options>(
        _: Options,
        _: Option<Arc<Wake>>,
    ) -> Result<Absent, UnavailableReason> {
        Err(UnavailableReason::NotThisSystem)
    }

    pub(crate) fn push(&mut self, _: usize, _: FileRequest) -> Result<(), FileRequest> {
        match *self {}
    }

    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn take(&mut self) -> Option<FinishedRequest> {
        match *self {}
    }

    pub(crate) fn cancel(&mut self, _: usize) {
        match *self {}
    }

    #[cfg(not(windows))]
    pub(crate) fn call_status(&self, _: usize) -> ! {
        match *self {}
    }

    #[cfg(not(windows))]
    pub(crate) fn waker(&self) -> fn() {
        match *self {}
    }
}
