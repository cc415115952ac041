//! Processors: which of them this process may use, and on which a thread runs.

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

use std::io;

/// The numbers of the processors that this thread may use, in order. In a container, or below
/// `taskset`, they are fewer than the machine has, and need not begin with 0.
///
/// # Platform
/// Linux: `sched_getaffinity`. Windows: `GetProcessAffinityMask`, so those of one group of 64. macOS:
/// always an error, `Unsupported`: there is no such call.
///
/// # Errors
/// The platform cannot tell.
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

/// Lets this thread, and what it starts from now on, run on that processor and no other.
///
/// # Platform
/// Linux: `sched_setaffinity`. Windows: `SetThreadAffinityMask`, which a child does not inherit. macOS:
/// always an error, `Unsupported`: its affinity tags are hints, and none on Apple's own processors.
///
/// # Errors
/// The processor is not among the [`allowed`] ones, or may not be chosen.
#[doc(alias = "sched_setaffinity")]
pub fn pin_this_thread(processor: usize) -> io::Result<()> {
    imp::pin_this_thread(processor)
}

/// The processors that are threads of the same core as that one, itself included. `None`: unknown.
///
/// # Platform
/// Linux: `topology/thread_siblings_list` in `/sys`. Elsewhere always `None`.
#[must_use]
pub fn same_core(processor: usize) -> Option<Vec<usize>> {
    imp::same_core(processor)
}

/// How many processors the machine has on-line, whichever of them this process may use: another process may
/// run on the others.
///
/// # Platform
/// Unix: `sysconf(_SC_NPROCESSORS_ONLN)`. Windows: what std tells of this process.
#[must_use]
pub fn online() -> usize {
    imp::online()
}

/// A list of numbers and ranges, as Linux writes it: `0-2,5`.
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
            eprintln!("SKIPPED: this system does not pin threads");
            return;
        };
        for processor in allowed {
            let pinned = std::thread::spawn(move || {
                pin_this_thread(processor).unwrap();
                super::allowed().unwrap()
            });
            let pinned = pinned.join().unwrap();
            // Windows answers for the process.
            assert!(cfg!(windows) || pinned == [processor], "{pinned:?}");
            if let Some(core) = same_core(processor) {
                assert!(core.contains(&processor), "{core:?}");
            }
        }
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        assert!(pin_this_thread(usize::MAX).is_err());
        assert!(pin_this_thread(1023).is_err());
    }
}
