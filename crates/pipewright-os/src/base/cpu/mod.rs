//! Processors: the ones that this process may use, and pinning a thread to one.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

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
