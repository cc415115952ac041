//! Helpers of the suites: a watchdog, facts about processes, and isolation.
//!
//! A test is `#[watched_test]` or `#[isolated_test]`, of `pipewright-test-macros`: these call [`watchdog`].
//!
//! | module | purpose |
//! |---|---|
//! | [`watchdog`] | ends a test that hangs, waits for facts, and runs a test in a process of its own |
//! | [`bodies`] | messages and streams whose every byte is known to both sides |
//! | [`hostile`] | a worker that breaks the protocol |
//! | [`service`] | typed services, which the puppet serves |
//! | [`count`] | handles, zombies, threads and memory of this process |
//! | [`alive`] | the state of other processes |
//! | `kernel` | system calls that are refused or wait, and the trace of io_uring (Linux) |
//! | `mounts` | filesystems of a test's own, also encrypting ones, for root (Linux) |
//! | `failing` | a filesystem that fails, for root (Linux) |
//! | `mapped_disk` | disks with bad sectors, or with a log of every write, for root (Linux) |
//! | [`pace`] | the times of a slow machine |
//! | [`random`] | numbers that a seed repeats |
//! | [`traced`] | events of `tracing`, as lines |
//! | [`skip`] | reports skipped tests |

/// The program that does nothing and succeeds.
#[cfg(unix)]
pub const TRUE: &str = if cfg!(target_os = "macos") { "/usr/bin/true" } else { "/bin/true" };

pub mod alive;
pub mod bodies;
pub mod count;
#[cfg(target_os = "linux")]
pub mod failing;
pub mod hostile;
#[cfg(target_os = "linux")]
pub mod kernel;
#[cfg(target_os = "linux")]
pub mod mapped_disk;
#[cfg(target_os = "linux")]
pub mod mounts;
pub mod pace;
pub mod random;
pub mod service;
pub mod skip;
pub mod traced;
pub mod watchdog;

/// Runs the examples of the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/coming-from.md")]
    mod coming_from {}
    #[doc = include_str!("../../../docs/std.md")]
    mod std {}
    #[doc = include_str!("../../../docs/stopping.md")]
    mod stopping {}
    #[doc = include_str!("../../../docs/tutorial-rust.md")]
    mod tutorial {}
}
