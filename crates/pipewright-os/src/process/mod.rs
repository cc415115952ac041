//! Processes: starting a child, waiting for it, and containing its descendants.

pub mod capabilities;
pub mod child;
#[cfg(any(target_os = "linux", windows))]
pub(crate) mod contain;
pub mod environ;
pub mod first;
pub mod kill_timer;
#[cfg(target_os = "macos")]
pub(crate) mod kqueue;
#[cfg(target_os = "macos")]
pub(crate) mod libproc;
pub mod limits;
pub mod member;
#[cfg(unix)]
#[path = "../../nolibc/mod.rs"]
#[cfg_attr(
    all(target_os = "linux", not(test)),
    expect(dead_code, reason = "the supervisor uses the rest")
)]
pub(crate) mod nolibc;
pub mod open;
#[cfg(target_os = "linux")]
pub(crate) mod pidfd;
#[cfg(windows)]
pub(crate) mod process_object;
#[cfg(target_os = "linux")]
pub(crate) mod procfs;
pub mod pty;
#[cfg(feature = "serde")]
mod serialized;
pub mod start;
pub mod status;
pub mod std_process;
pub mod terminal;
pub mod tree;
pub mod usage;
