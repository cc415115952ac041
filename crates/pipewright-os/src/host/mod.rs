//! Facts about this machine, for `pipewright doctor` and for benchmarks.

pub mod host_info;
pub mod test_pipe;
