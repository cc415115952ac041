//! The net under pools and channels: workers that do anything, by scripts that a seed makes.
//!
//! Bounds that hold whatever a worker does (docs/workers.md, "A worker that does anything"): bytes, descriptors,
//! processes and the time of calls are bounded; no call runs twice, none is lost whose answer was sent, none is
//! answered with another's reply.
//!
//! `PIPEWRIGHT_NET_SEED` repeats a run, `PIPEWRIGHT_NET_CASE=FAMILY` limits it to the families whose name contains
//! that, and `PIPEWRIGHT_NET=all` makes it a long one.

#![cfg(target_os = "linux")]

mod plan;
mod run;
