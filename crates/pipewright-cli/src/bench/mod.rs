//! `pipewright bench`: measures what the machine at hand makes of pipes, processes, messages and files.
//!
//! A benchmark is a function that makes a [`plan`]: charts of curves of points, each of which can
//! measure itself. All the rest is the same for each of them: [`measure`] runs the plan, [`report`]
//! is what comes of it, [`advice`] and [`compare`] judge it, [`show`] and [`save`] give it away.
//! Another benchmark is a module with its charts and its verdict, and a constructor of [`Job`].

mod advice;
mod capture;
mod cases;
mod cell;
mod change;
mod compare;
mod disk;
mod draw;
mod histogram;
mod ipc;
mod job;
mod machine;
mod math;
mod measure;
mod mood;
mod pattern;
mod peer;
mod pipes;
mod place;
mod plan;
mod progress;
mod report;
mod rounds;
#[cfg(test)]
mod sample;
mod save;
mod show;
mod shuffle;
mod spawn;
mod stats;
mod stop;
mod trips;
mod units;
mod yardstick;

pub(crate) use peer::play;
pub(crate) use place::Placement;

use crate::Failure;
use crate::args::{Bench, BenchOptions};
use job::Job;

/// Measures, and gives the exit code.
pub(crate) fn run(options: &BenchOptions) -> Result<i32, Failure> {
    match &options.what {
        Bench::Pipes(options) => Job::pipes(options)?.run(),
        Bench::Ipc(options) => Job::ipc(options)?.run(),
        Bench::Disk(options) => Job::disk(options)?.run(),
        Bench::Spawn(options) => Job::spawn(options).run(),
        Bench::Capture(options) => Job::capture(options).run(),
        Bench::All(options) => Job::all(options)?.run(),
    }
}
