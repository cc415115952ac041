//! Processors: the ones that this process may use, and pinning a thread to one.

use std::io;

/// Returns the numbers of the processors that this thread may use, in order. In a container or
/// under `taskset` they are fewer than the machine has, and need not start at 0.
///
/// # Platform
/// Linux: `sched_getaffinity`. Windows: `GetProcessAffinityMask`, so the processors of one group of
/// 64. macOS: always an error, `Unsupported`: there is no such call.
///
/// # Errors
/// The platform cannot report them.
///
/// ```
/// # if cfg!(target_os = "macos") { return Ok(()) }
/// # use pipewright_os::base::cpu;
/// assert!(!cpu::allowed()?.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "sched_getaffinity")]
pub fn allowed() -> io::Result<Vec<usize>> {
    imp::allowed()
}

/// Pins this thread, and all threads and processes that it starts from now on, to one processor.
///
/// # Platform
/// Linux: `sched_setaffinity`. Windows: `SetThreadAffinityMask`, which children do not inherit.
/// macOS: always an error, `Unsupported`: its affinity tags are hints, and have no effect on
/// Apple's own processors.
///
/// # Errors
/// The processor is not among the [`allowed`] ones, or the system refuses the choice.
#[doc(alias = "sched_setaffinity")]
pub fn pin_this_thread(processor: usize) -> io::Result<()> {
    imp::pin_this_thread(processor)
}

/// Returns the hardware threads of the core of that processor, itself included. `None`: unknown.
///
/// # Platform
/// Linux: `topology/thread_siblings_list` in `/sys`. Elsewhere: always `None`.
#[must_use]
pub fn same_core(processor: usize) -> Option<Vec<usize>> {
    imp::same_core(processor)
}

/// Returns the number of processors that are online, including those that this process may not use:
/// another process may run on them.
///
/// # Platform
/// Unix: `sysconf(_SC_NPROCESSORS_ONLN)`. Windows: std's count for this process.
#[must_use]
pub fn online() -> usize {
    imp::online()
}

/// Parses a list of numbers and ranges in the format of Linux: `0-2,5`.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only Linux has such lists"))]
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

// `sched_setaffinity`, and the core topology in `/sys`.
#[cfg(target_os = "linux")]
mod imp {
    use std::{fs, io};

    pub(super) use super::unix::online;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) fn allowed() -> io::Result<Vec<usize>> {
        let set = sched_getaffinity(None)?;
        Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
    }

    pub(super) fn pin_this_thread(processor: usize) -> io::Result<()> {
        if processor >= CpuSet::MAX_CPU {
            // The set has no bit for it, and would panic.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut set = CpuSet::new();
        set.set(processor);
        Ok(sched_setaffinity(None, &set)?)
    }

    pub(super) fn same_core(processor: usize) -> Option<Vec<usize>> {
        let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
        super::parse_list(&fs::read_to_string(path).ok()?)
    }
}

// Errors: macOS does not pin threads.
#[cfg(target_os = "macos")]
mod imp {
    use std::io;

    pub(super) use super::unix::online;

    pub(super) fn allowed() -> io::Result<Vec<usize>> {
        Err(unsupported())
    }

    pub(super) fn pin_this_thread(_: usize) -> io::Result<()> {
        Err(unsupported())
    }

    pub(super) fn same_core(_: usize) -> Option<Vec<usize>> {
        None
    }

    fn unsupported() -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, "macOS does not pin threads to processors")
    }
}

// The count of processors, which every Unix reports in the same way.
#[cfg(unix)]
mod unix {
    pub(super) fn online() -> usize {
        // SAFETY: a name that sysconf knows.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(count).unwrap_or(1)
    }
}

// Affinity masks of the processor group of this process.
#[cfg(windows)]
mod imp {
    use std::io;

    use windows_sys::Win32::System::Threading::{
        GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask, SetThreadAffinityMask,
    };

    pub(super) fn allowed() -> io::Result<Vec<usize>> {
        let (mut own, mut system) = (0, 0);
        // SAFETY: no arguments; a pseudo handle, which is never closed.
        let process = unsafe { GetCurrentProcess() };
        // SAFETY: two live integers.
        if unsafe { GetProcessAffinityMask(process, &raw mut own, &raw mut system) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((0..usize::BITS as usize).filter(|processor| own >> processor & 1 == 1).collect())
    }

    pub(super) fn pin_this_thread(processor: usize) -> io::Result<()> {
        let shift = u32::try_from(processor).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mask = 1_usize.checked_shl(shift).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: no arguments; a pseudo handle, which is never closed.
        let thread = unsafe { GetCurrentThread() };
        // SAFETY: an open handle and an integer.
        match unsafe { SetThreadAffinityMask(thread, mask) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    pub(super) fn same_core(_: usize) -> Option<Vec<usize>> {
        // GetLogicalProcessorInformation could report it; no caller has needed it so far.
        None
    }

    pub(super) fn online() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn lists_of_processors_are_read() {
        for (text, numbers) in [
            ("0\n", Some(vec![0])),
            ("0-2,5", Some(vec![0, 1, 2, 5])),
            ("1,3", Some(vec![1, 3])),
            ("", None),
            ("a-b", None),
        ] {
            assert_eq!(parse_list(text), numbers, "{text:?}");
        }
    }

    #[test]
    fn a_thread_runs_where_it_is_pinned_and_nowhere_else() {
        let Ok(allowed) = allowed() else {
            crate::base::skipped::skipped(
                crate::base::skipped::Need::Linux,
                "this system does not pin threads",
            );
            return;
        };
        for processor in allowed {
            let pinned = std::thread::spawn(move || {
                pin_this_thread(processor).unwrap();
                super::allowed().unwrap()
            });
            let pinned = pinned.join().unwrap();
            // Windows reports the affinity of the process.
            assert!(cfg!(windows) || pinned == [processor], "{pinned:?}");
            if let Some(core) = same_core(processor) {
                assert!(core.contains(&processor), "{core:?}");
            }
        }
    }

    #[test]
    fn a_missing_processor_is_an_error() {
        assert!(pin_this_thread(usize::MAX).is_err());
        assert!(pin_this_thread(1023).is_err());
    }
}
