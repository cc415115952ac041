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
pub mod options;
mod plan;
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
#[doc(hidden)]
pub use show::page_style;
pub use units::three_digits;

/// Measures every competitor once in each round, in order, and returns the figures of each round.
///
/// A machine that becomes slower for a while then slows all competitors of a round alike, so compare the figures
/// of one round with each other: see [`stats::ratios`].
///
/// # Errors
///
/// The first error of `measure`, which ends the run.
///
/// # Example
///
/// ```
/// let rounds = pipewright_bench::interleaved(3, &["a", "bc"], |round, name| {
///     Ok::<_, std::io::Error>((name.len() * 10 + round) as f64)
/// })?;
/// assert_eq!(rounds, [[10.0, 20.0], [11.0, 21.0], [12.0, 22.0]]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn interleaved<C, T, E>(
    rounds: usize,
    competitors: &[C],
    mut measure: impl FnMut(usize, &C) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    (0..rounds)
        .map(|round| competitors.iter().map(|competitor| measure(round, competitor)).collect())
        .collect()
}

/// The examples of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
