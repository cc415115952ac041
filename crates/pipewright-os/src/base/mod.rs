//! The parts that every other group uses: handles, pipes, waiting and signals.

#[cfg(feature = "tokio")]
pub mod async_pipe;
pub mod caught_signals;
pub mod cpu;
pub mod error;
pub mod files;
pub mod generation;
pub mod handle;
pub mod late_open;
pub mod memory;
pub mod open_limit;
pub mod os_text;
#[cfg(windows)]
pub(crate) mod overlapped;
pub mod pipe;
#[cfg(unix)]
pub(crate) mod poll;
pub mod private_file;
pub mod service_thread;
pub mod signal;
pub mod skipped;
pub mod stdio;
pub mod test_hooks;
pub mod this_process;
pub mod token_pipe;
pub mod wait;
pub mod wake;
