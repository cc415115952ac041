//! Files, and the asynchronous file I/O of each system.

pub mod aio;
pub mod file;
pub mod io_uring;
pub mod iocp;
pub mod thread_usage;
pub mod unavailable;
