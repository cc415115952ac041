//! Files, and operations on them that the kernel carries out in the background.

mod absent;
pub mod aio;
pub mod file;
#[cfg(any(target_os = "linux", windows))]
mod in_flight;
pub mod io_uring;
pub mod iocp;
pub mod thread_usage;
pub mod unavailable;
