//! `pipewright bench`: the command line of the library `pipewright-bench`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use std::{io, thread};

use pipewright::{ArrivedSignal, CaughtSignals, Signal};
use pipewright_bench::Benchmark;

use crate::args::BenchOptions;
use crate::{Failure, exit_code, print, print_error};

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

/// The signals that mean "stop".
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// A request to stop, from a signal.
#[derive(Debug, Clone)]
struct Stop(Arc<Requested>);

#[derive(Debug, Default)]
struct Requested {
    /// The number of the signal; 0: none has arrived.
    signal: AtomicI32,
    /// The signal was Ctrl-C.
    ctrl_c: AtomicBool,
}

impl Stop {
    /// Starts to catch the signals that mean "stop".
    fn catch() -> io::Result<Stop> {
        let caught = CaughtSignals::new(&STOPPING)?;
        let stop = Stop(Arc::default());
        let recording = stop.clone();
        thread::Builder::new().name("signals".to_owned()).stack_size(64 << 10).spawn(
            move || {
                while let Ok(arrived) = caught.wait_for_arrival() {
                    recording.record(arrived);
                }
            },
        )?;
        Ok(stop)
    }

    fn record(&self, arrived: ArrivedSignal) {
        let is_second = self.is_requested();
        let ArrivedSignal { signal, from_terminal, .. } = arrived;
        self.0.ctrl_c.store(from_terminal && signal == Signal::INT, Ordering::SeqCst);
        self.0.signal.store(signal.number(), Ordering::SeqCst);
        if is_second {
            std::process::exit(self.end().unwrap_or(exit_code::OWN_FAILURE));
        }
    }

    /// Returns true once a signal has arrived.
    fn is_requested(&self) -> bool {
        self.0.signal.load(Ordering::SeqCst) != 0
    }

    /// Raises SIGINT if the signal was Ctrl-C, so that a shell ends its loop as well; otherwise returns the exit code
    /// for the signal. `None`: no signal has arrived.
    fn end(&self) -> Option<i32> {
        if self.0.ctrl_c.load(Ordering::SeqCst) {
            Signal::INT.raise();
        }
        match self.0.signal.load(Ordering::SeqCst) {
            0 => None,
            number => Some(exit_code::of_signal(number)),
        }
    }
}
