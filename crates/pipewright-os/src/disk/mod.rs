//! Files, and the asynchronous file I/O of each system.

mod absent;
pub mod aio;
pub mod file;
#[cfg(any(target_os = "linux", windows))]
mod in_flight;
pub mod io_uring;
pub mod iocp;
pub mod thread_usage;
pub mod unavailable;
