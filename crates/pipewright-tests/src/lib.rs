//! Helpers of the suites: a watchdog, facts about processes, and isolation.
//!
//! A test is `#[watched_test]` or `#[isolated_test]`, of `pipewright-test-macros`: these call [`watchdog`] and
//! [`isolate`].
//!
//! | module | purpose |
//! |---|---|
//! | [`watchdog`] | ends a test that hangs, and waits for facts |
//! | [`bodies`] | messages whose every byte is known to both sides |
//! | `hold` | a system call that waits until the test lets go (Linux) |
//! | [`hostile`] | a worker that breaks the protocol |
//! | [`isolate`] | runs one test in a separate process |
//! | [`count`] | handles, zombies, threads and memory of this process |
//! | [`alive`] | the state of other processes |
//! | `refuse` | a filter of system calls (Linux) |
//! | `encrypt` | folders that the filesystem encrypts, for root (Linux) |
//! | `forked` | a fork of this process (Unix) |
//! | `failing` | a filesystem that fails, for root (Linux) |
//! | `mapped_disk` | disks with bad sectors, or with a log of every write, for root (Linux) |
//! | `mounts` | filesystems of a test's own, for root (Linux) |
//! | `oracle` | the kernel's trace of io_uring (Linux) |
//! | [`pace`] | the times of a slow machine |
//! | [`said`] | streams whose every byte is known |
//! | [`traced`] | events of `tracing`, as lines |
//! | [`skip`] | reports skipped tests |

/// The program that does nothing and succeeds.
#[cfg(unix)]
pub const TRUE: &str = if cfg!(target_os = "macos") { "/usr/bin/true" } else { "/bin/true" };

pub mod alive;
pub mod bodies;
pub mod cgroups;
pub mod count;
#[cfg(target_os = "linux")]
pub mod encrypt;
#[cfg(target_os = "linux")]
pub mod failing;
#[cfg(unix)]
pub mod forked;
#[cfg(target_os = "linux")]
pub mod hold;
pub mod hostile;
pub mod isolate;
#[cfg(target_os = "linux")]
pub mod mapped_disk;
#[cfg(target_os = "linux")]
pub mod mounts;
#[cfg(target_os = "linux")]
pub mod oracle;
pub mod pace;
#[cfg(target_os = "linux")]
pub mod refuse;
pub mod said;
pub mod service;
pub mod skip;
pub mod traced;
pub mod watchdog;

/// Runs the examples of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/stopping.md")]
mod stopping {}
