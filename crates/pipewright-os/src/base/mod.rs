//! The parts that every other group uses: handles, pipes, waiting and signals.

pub mod aligned;
#[cfg(feature = "tokio")]
pub mod async_pipe;
pub mod caught_signals;
pub mod cpu;
pub mod dialogs;
pub mod durable;
pub mod errno;
pub mod error;
pub mod event;
pub mod file_at;
pub mod generation;
pub mod handle;
pub mod late_open;
pub mod memory;
pub mod open_limit;
pub mod os_text;
#[cfg(windows)]
pub(crate) mod overlapped;
pub mod park;
pub mod pipe;
pub mod private_file;
pub mod pwd;
#[cfg(unix)]
pub(crate) mod raw_pipe;
#[cfg(windows)]
pub(crate) mod security;
pub mod service_thread;
pub mod signal;
pub mod skipped;
pub mod stdio;
pub mod test_hooks;
pub mod token_pipe;
pub mod undumped;
pub mod wait;
pub mod wake;
#[cfg(all(windows, any(feature = "process", feature = "host")))]
pub(crate) mod windows_version;
#[cfg(windows)]
pub(crate) mod write_starter;
