//! Baselines: the speed of the machine at this moment, measured with code that is not under test.
//!
//! The speed of a machine drifts: for seconds or minutes all process starts, wake-ups or copies take half as long
//! again, whatever the build. A comparison therefore ignores changes that are not larger than those of the baseline.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::cpu;
use pipewright_os::host::test_pipe::{self, TestPipeKind};

use crate::child::{ChildTask, echo};
use crate::host::{HostReport, default_processors, pin};
use crate::stats::median;
use crate::transfer::{self, OneThread, on_own_thread};

/// The time for each baseline, before each cell.
const TIME: Duration = Duration::from_millis(3);

/// The baselines of copies and wake-ups in one series.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    copies: Vec<f64>,
    wakes: Vec<f64>,
}

impl Baselines {
    /// Measures each of them once.
    pub(crate) fn measure(&mut self) {
        self.copies.extend(copying(TIME));
        self.wakes.extend(waking(TIME));
    }

    /// Ends the series: adds its medians to the description of the machine.
    pub(crate) fn end_series(&mut self, machine: &mut HostReport) {
        machine.yardstick_bytes_per_second.extend(median(&self.copies));
        machine.yardstick_wake_seconds.extend(median(&self.wakes));
        *self = Baselines::default();
    }
}

/// Measures system calls and copies, with one thread and small blocks through a pipe: bytes per second.
fn copying(time: Duration) -> Option<f64> {
    const BLOCK_BYTES: usize = 4096;
    let processor = cpu::allowed().ok().and_then(|allowed| allowed.first().copied());
    let sample = on_own_thread(|| {
        // Ignored: without pinning it is still a baseline.
        let _ = pin(processor);
        let conduit = test_pipe::open(TestPipeKind::Pipe, None)?;
        let mut rounds = OneThread::new(conduit, BLOCK_BYTES, false);
        transfer::timed(&mut rounds, BLOCK_BYTES as u64, time, None, &mut None)
    });
    sample.ok().map(|sample| sample.value)
}

/// Measures a byte to another thread and back, for which both threads sleep: seconds.
fn waking(time: Duration) -> Option<f64> {
    let processors = default_processors();
    let there = test_pipe::open(TestPipeKind::Pipe, None).ok()?;
    let back = test_pipe::open(TestPipeKind::Pipe, None).ok()?;
    let (mut theirs, mut ours) = ((there.reader, back.writer), (there.writer, back.reader));
    thread::scope(|scope| {
        let answer = move || {
            // Ignored, as above.
            let _ = pin(processors.writer);
            echo(&mut theirs.0, &mut theirs.1, 1)
        };
        // It returns at the end of its input, when the other thread has returned.
        thread::Builder::new().spawn_scoped(scope, answer).ok()?;
        let trips = move || {
            let _ = pin(processors.reader);
            let (start, mut times) = (Instant::now(), Vec::new());
            while times.is_empty() || start.elapsed() < time {
                let begin = Instant::now();
                ours.0.write_all(&[1]).ok()?;
                ours.1.read_exact(&mut [0]).ok()?;
                times.push(begin.elapsed().as_secs_f64());
            }
            median(&times)
        };
        thread::Builder::new().spawn_scoped(scope, trips).ok()?.join().ok()?
    })
}

/// Measures a bare start: std starts a program that exits at once, and waits for it.
pub(crate) fn bare_start() -> Option<Duration> {
    let mut command = match system_true() {
        Some(program) => Command::new(program),
        None => ChildTask::Exit.bare_command().ok()?,
    };
    let begin = Instant::now();
    let status = command.status().ok()?;
    status.success().then(|| begin.elapsed())
}

/// Returns the program that bare starts run.
pub(crate) fn bare_program() -> &'static str {
    system_true().unwrap_or("this program")
}

/// Returns the system's `true`. A slow startup of this program would otherwise count as drift of the machine.
/// `None`: there is none, as on Windows, where such a path is not absolute.
fn system_true() -> Option<&'static str> {
    const PLACES: [&str; 2] = ["/bin/true", "/usr/bin/true"];
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    let is_there = |place: &&str| Path::new(place).is_absolute() && Path::new(place).is_file();
    *FOUND.get_or_init(|| PLACES.into_iter().find(is_there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_start_takes_time_and_its_program_is_known() {
        assert!(bare_start().unwrap() > Duration::ZERO);
        let is_found = bare_program().ends_with("/true") || bare_program() == "this program";
        assert!(is_found, "{}", bare_program());
    }

    #[test]
    fn every_series_adds_a_median() {
        let (mut machine, mut baselines) = (HostReport::default(), Baselines::default());
        for series in 1..=2 {
            baselines.measure();
            baselines.measure();
            baselines.end_series(&mut machine);
            assert_eq!(machine.yardstick_bytes_per_second.len(), series);
            assert_eq!(machine.yardstick_wake_seconds.len(), series);
        }
        // A series in which nothing was measured adds none.
        baselines.end_series(&mut machine);
        assert_eq!(machine.yardstick_wake_seconds.len(), 2);
        assert!(machine.yardstick_wake_seconds.iter().all(|seconds| *seconds > 0.0));
    }
}
