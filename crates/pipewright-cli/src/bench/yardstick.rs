//! Yardsticks: how fast the machine itself is at this moment, by code that is not what is judged.
//!
//! A machine has moods: for seconds or minutes all its starts of processes, wake-ups or copies take half
//! as long again, whatever the build. What is judged is only what differs by more than its yardstick.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::cpu;
use pipewright_os::host::test_pipe::{self, Kind};

use super::cell::{alone, pin};
use super::peer::Act;
use super::pipes::{OneThread, usual_place};
use super::report::Machine;
use super::rounds;
use super::stats::median;
use super::trips;

/// For each yardstick, before each cell.
const TIME: Duration = Duration::from_millis(3);

/// Those of the machine, in one series.
#[derive(Debug, Default)]
pub(super) struct Yardsticks {
    copies: Vec<f64>,
    wakes: Vec<f64>,
}

impl Yardsticks {
    /// Measures each for a moment.
    pub(super) fn look(&mut self) {
        self.copies.extend(copying(TIME));
        self.wakes.extend(waking(TIME));
    }

    /// The series has ended: its medians belong to the machine.
    pub(super) fn end_series(&mut self, machine: &mut Machine) {
        machine.yardstick_bytes_per_second.extend(median(&self.copies));
        machine.yardstick_wake_seconds.extend(median(&self.wakes));
        *self = Yardsticks::default();
    }
}

/// System calls and copies, with one thread and a small pipe: bytes a second.
fn copying(time: Duration) -> Option<f64> {
    const BLOCK_BYTES: usize = 4096;
    let processor = cpu::allowed().ok().and_then(|allowed| allowed.first().copied());
    let sample = alone(|| {
        // Where it may not be pinned it is a yardstick all the same.
        let _ = pin(processor);
        let conduit = test_pipe::open(Kind::Pipe, None)?;
        let mut rounds = OneThread::new(conduit, BLOCK_BYTES, false);
        rounds::timed(&mut rounds, BLOCK_BYTES as u64, time, None, &mut None)
    });
    sample.ok().map(|sample| sample.value)
}

/// A byte to another thread and back, which both wait for: seconds.
fn waking(time: Duration) -> Option<f64> {
    let place = usual_place();
    let there = test_pipe::open(Kind::Pipe, None).ok()?;
    let back = test_pipe::open(Kind::Pipe, None).ok()?;
    let (mut theirs, mut ours) = ((there.reader, back.writer), (there.writer, back.reader));
    thread::scope(|scope| {
        let echo = move || {
            // As above.
            let _ = pin(place.writer);
            trips::echo(&mut theirs.0, &mut theirs.1, 1)
        };
        // It ends with its input, which ends with the other one.
        thread::Builder::new().spawn_scoped(scope, echo).ok()?;
        let trips = move || {
            let _ = pin(place.reader);
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

/// A start of what ends at once, and the wait for its end, by std: none of the code that is judged.
pub(super) fn bare_start() -> Option<Duration> {
    let mut command = match system_true() {
        Some(program) => Command::new(program),
        None => Act::Exit.bare_command().ok()?,
    };
    let begin = Instant::now();
    let status = command.status().ok()?;
    status.success().then(|| begin.elapsed())
}

/// What bare starts start.
pub(super) fn bare_program() -> &'static str {
    system_true().unwrap_or("this program")
}

/// The system's own: with this program a build that takes longer to get going would be a mood of the machine.
/// `None`: it has none, as Windows, where such a path is not absolute.
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
    fn a_bare_start_takes_its_time_and_says_what_it_starts() {
        assert!(bare_start().unwrap() > Duration::ZERO);
        let is_found = bare_program().ends_with("/true") || bare_program() == "this program";
        assert!(is_found, "{}", bare_program());
    }

    #[test]
    fn every_series_has_its_medians() {
        let (mut machine, mut yardsticks) = (Machine::default(), Yardsticks::default());
        for series in 1..=2 {
            yardsticks.look();
            yardsticks.look();
            yardsticks.end_series(&mut machine);
            assert_eq!(machine.yardstick_bytes_per_second.len(), series);
            assert_eq!(machine.yardstick_wake_seconds.len(), series);
        }
        // A series of which nothing was measured has none.
        yardsticks.end_series(&mut machine);
        assert_eq!(machine.yardstick_wake_seconds.len(), 2);
        assert!(machine.yardstick_wake_seconds.iter().all(|seconds| *seconds > 0.0));
    }
}
