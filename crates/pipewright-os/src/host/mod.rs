//! Facts about this machine, for `doctor` and for benchmarks.

pub mod host_info;
pub mod test_pipe;
