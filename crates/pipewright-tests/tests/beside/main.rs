//! The net under the run core: random children, run in every way, beside what their scripts are known to write.
//!
//! What holds: every byte of both streams, or an exact part of it and a word about the rest; the true end; no hang; and
//! after each round no descriptor, child or thread is left.
//!
//! `PIPEWRIGHT_NET_SEED` repeats a run, with `PIPEWRIGHT_NET_CASE=NUMBER` one case of it. `PIPEWRIGHT_NET=all` makes
//! it a long one, and `PIPEWRIGHT_NET_CASES` one of that many cases.

#![cfg(target_os = "linux")]

mod judge;
mod net;
mod plan;
mod streams;
mod verbs;
