//! Benchmarks of pipes, processes, messages and files on this machine: the library behind `pipewright bench`.
//!
//! A benchmark is a set of charts. A chart has curves, a curve has cells (its points), and each cell measures itself.
//! Everything else is shared: the order of the cells, the time for each, the statistics, the reports and the
//! comparison with an older report. To add a benchmark, add a module in `cases/` that makes charts and writes a
//! verdict.
//!
//! Benchmarks start the running program again as a child process, so a program that uses this crate calls
//! [`run_if_child`] first in `main`.
//!
//! The statistics ([`stats`]), the interleaved rounds ([`interleaved`]) and the description of the machine
//! ([`host`]) are public, for benchmarks that compare this library with others.
//!
//! # Drawing and progress
//!
//! The crate draws its charts and its progress line itself:
//!
//! * The charts (SVG, and braille characters for terminals) are pure functions of a report, so the tests compare
//!   them byte for byte with stored files. A plotting library changes its output between versions.
//! * Progress bars of the crate `indicatif` would link the C library's `libm`, which every command of the tool would
//!   load at startup. A test of the tool asserts that it loads no such library.
//!
//! # Example
//!
//! ```no_run
//! use pipewright_bench::options::{BenchmarkOptions, CasesOptions};
//! use pipewright_bench::{Benchmark, run_if_child};
//!
//! fn main() -> Result<(), pipewright_bench::Error> {
//!     if let Some(done) = run_if_child() {
//!         return done;
//!     }
//!     // The closure returns true to stop early.
//!     let results = Benchmark::new(BenchmarkOptions::Spawn(CasesOptions::default()))?.run(&|| false)?;
//!     print!("{}", results.text()?);
//!     results.save()
//! }
//! ```

#![forbid(unsafe_code)]

mod baseline;
mod benchmark;
mod cases;
mod child;
mod draw;
mod error;
pub mod host;
mod interleave;
pub mod options;
mod parts;
mod plan;
mod progress;
mod report;
#[cfg(test)]
mod sample;
mod show;
pub mod stats;
mod transfer;
mod units;

pub use benchmark::{Benchmark, Results};
pub use child::run_if_child;
pub use error::Error;
pub use interleave::interleaved;

/// Returns the style of the pages, for other pages of the tool.
#[doc(hidden)]
#[must_use]
pub fn page_style() -> String {
    show::page_style()
}
