//! The benchmarks: each makes charts, and sums up their figures in a verdict.

mod block;
pub(crate) mod capture;
pub(crate) mod disk;
pub(crate) mod ipc;
pub(crate) mod pipes;
mod sizes;
pub(crate) mod spawn;
mod timed;

pub(crate) use sizes::checked;
#[cfg(test)]
pub(crate) use timed::{case, chart};
