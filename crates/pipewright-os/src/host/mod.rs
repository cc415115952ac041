//! Facts about this machine, for `pipewright doctor`, for benchmarks and for logs.

pub mod boot;
pub mod host_info;
pub mod interfaces;
pub mod network_filesystem;
#[cfg(target_os = "macos")]
mod sysctl;
pub mod tcp;
pub mod test_pipe;
