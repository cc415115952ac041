//! The memory of the machine: how much the jobs may reserve, and when none is left.
//!
//! It is watched from the first job on that states its memory. The memory that was free while no job ran is what all
//! jobs together may reserve, unless the batch has a limit of its own. When little of it is left, no job starts; when
//! next to nothing is left and processes wait for memory, the job that was started last is stopped and queued again.

use std::time::{Duration, Instant};

use super::{Driver, Executor, Timer};
use crate::executor::MachineMemory;
use crate::scheduler::{self, Pressure};

/// The time between two looks while jobs run.
const INTERVAL: Duration = Duration::from_millis(500);

/// The known facts about the memory.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    /// The free memory when no job ran; `None` until a job states its memory.
    free_at_rest: Option<u64>,
    last: Option<(Instant, MachineMemory)>,
    is_armed: bool,
}

impl<E: Executor> Driver<E> {
    /// Begins to watch the memory. Does nothing if it is watched, or if the executor knows nothing of it.
    pub(super) fn watch_memory(&mut self) {
        if self.memory.free_at_rest.is_none() {
            self.look_at_rest();
        }
    }

    /// Looks at the memory again after a while, if it is watched.
    pub(super) fn look_later(&mut self) {
        if self.memory.free_at_rest.is_some() && !self.memory.is_armed {
            self.memory.is_armed = true;
            self.timers.extend(Instant::now().checked_add(INTERVAL).map(|at| (at, Timer::Memory)));
        }
    }

    /// Looks at the memory, and reports it to the scheduler.
    pub(super) fn look_at_memory(&mut self) {
        self.memory.is_armed = false;
        if self.live.running() == 0 {
            self.report(scheduler::Event::Pressure(Pressure::None));
            return self.look_at_rest();
        }
        let Some(memory) = self.executor.memory() else { return };
        let now = Instant::now();
        let before = self.memory.last.replace((now, memory));
        let stalled = before.and_then(|(at, before)| {
            let stalled = memory.stalled?.saturating_sub(before.stalled?);
            Some(stalled.as_secs_f64() / now.saturating_duration_since(at).as_secs_f64().max(1e-3))
        });
        let free_at_rest = self.memory.free_at_rest.unwrap_or(memory.free_bytes);
        let pressure = pressure(free_at_rest, memory.free_bytes, stalled);
        self.report(scheduler::Event::Pressure(pressure));
        self.look_later();
    }

    fn look_at_rest(&mut self) {
        let Some(memory) = self.executor.memory() else { return };
        if self.live.running() == 0 || self.memory.free_at_rest.is_none() {
            self.memory.free_at_rest = Some(memory.free_bytes);
            if self.config.scheduler.limits.memory_bytes.is_none() {
                let bytes = memory.free_bytes;
                self.report(scheduler::Event::MemoryAvailable { bytes });
            }
        }
        self.memory.last = Some((Instant::now(), memory));
    }
}

/// Returns the pressure. `stalled` is the part of the last interval in which a process waited for memory, if it is
/// known.
fn pressure(free_at_rest: u64, free: u64, stalled: Option<f64>) -> Pressure {
    const SHORT: u64 = 8;
    const OUT: u64 = 16;
    const STALLS: f64 = 0.2;
    const STALLS_LONG: f64 = 0.5;
    let is_stalled = |part| stalled.is_none_or(|stalled| stalled > part);
    if free < free_at_rest / OUT && is_stalled(STALLS) {
        Pressure::Shed
    } else if free < free_at_rest / SHORT || stalled.is_some() && is_stalled(STALLS_LONG) {
        Pressure::Hold
    } else {
        Pressure::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_as_memory_shrinks() {
        assert_eq!(pressure(16_000, 9000, Some(0.0)), Pressure::None);
        assert_eq!(pressure(16_000, 1900, Some(0.0)), Pressure::Hold);
        assert_eq!(pressure(16_000, 900, Some(0.0)), Pressure::Hold, "nobody waits for memory");
        assert_eq!(pressure(16_000, 900, Some(0.3)), Pressure::Shed);
        assert_eq!(pressure(16_000, 900, None), Pressure::Shed, "stalls are not known");
        assert_eq!(pressure(16_000, 9000, Some(0.6)), Pressure::Hold);
        assert_eq!(pressure(16_000, 9000, None), Pressure::None);
    }
}
