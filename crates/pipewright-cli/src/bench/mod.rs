//! `pipewright bench`: the command line of the library `pipewright-bench`.

mod stop;

use std::time::Duration;

use pipewright_bench::Benchmark;

use crate::args::BenchOptions;
use crate::{Failure, exit_code, print, print_error};
use stop::Stop;

/// Does the task of a child process of a benchmark and returns the exit code; `None`: this process is not one.
pub(crate) fn run_if_child() -> Option<i32> {
    let done = pipewright_bench::run_if_child()?;
    let failed = |error| Failure::from_error(error).report();
    Some(done.map_or_else(failed, |()| exit_code::SUCCESS))
}

/// Measures, prints and saves, and returns the exit code.
pub(crate) fn run(options: &BenchOptions) -> Result<i32, Failure> {
    let benchmark = Benchmark::new(options.plain()).map_err(Failure::from_error)?;
    if let Some(limit) = benchmark.time_limit().filter(|_| !benchmark.is_quiet()) {
        print_error(&format!("this takes at most {}", words(limit)));
    }
    // Before any other thread starts, because the signals would go to that one.
    let stop =
        Stop::catch().map_err(|error| Failure(format!("cannot watch for signals: {error}")))?;
    let results = benchmark.run(&|| stop.is_requested()).map_err(Failure::from_error)?;
    // Printed first: a full disk must not hide what was measured.
    print::print(results.text().map_err(Failure::from_error)?)?;
    results.save().map_err(Failure::from_error)?;
    match stop.end() {
        Some(code) => Ok(code),
        None => results.check().map_err(Failure::from_error).map(|()| exit_code::SUCCESS),
    }
}

/// Returns a time in words, in whole seconds.
fn words(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}
