//! Facts about this machine, for `pipewright doctor`, for benchmarks and for logs.

pub mod host_info;
pub mod network;
pub mod test_pipe;
