//! The share of the machine that jobs may take: memory, and below a jobserver CPUs.
//!
//! Memory is watched from the first job on that states its memory. The memory that was free while no job ran is what
//! all jobs together may reserve, unless the batch has a limit of its own. When little of it is left, no job starts;
//! when next to nothing is left and processes wait for memory, the job that was started last is stopped and queued
//! again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::Handle;

use super::{Driver, Event, Executor, Timer};
use crate::executor::MachineMemory;
use crate::jobserver::{Part, Token};
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

// Permits: the CPUs that the jobs may use below a jobserver, a token for each.
//
// The scheduler says how many it wants. Tokens that are there are taken, and kept until a job needs no more of them: a
// job on four CPUs gets them one by one. If no job runs, the next one starts with what there is, so that a batch which
// waits for tokens always has a job whose end it can wait for.

/// The tokens of a batch.
#[derive(Debug)]
pub(super) struct Permits {
    part: Part,
    tokens: Vec<Token>,
    /// There was no token. A message comes when there may be one.
    is_waiting: bool,
    has_failed: bool,
    /// The handles that each job inherits.
    handles: Arc<[(Handle, i32)]>,
}

impl Permits {
    pub(super) fn new(part: Part) -> io::Result<Permits> {
        let handles = part.inherited()?.into();
        Ok(Permits { part, tokens: Vec::new(), is_waiting: false, has_failed: false, handles })
    }

    pub(super) fn part(&self) -> &Part {
        &self.part
    }

    pub(super) fn handles(&self) -> Arc<[(Handle, i32)]> {
        Arc::clone(&self.handles)
    }

    /// Records that there may be a token again.
    pub(super) fn look(&mut self) {
        self.is_waiting = false;
    }

    /// Takes tokens until there are `count`. Returns false if there are fewer now.
    fn acquire(&mut self, count: u32) -> io::Result<bool> {
        while self.tokens.len() < count as usize {
            if self.is_waiting {
                return Ok(false);
            }
            match self.part.try_acquire()? {
                Some(token) => self.tokens.push(token),
                None => self.is_waiting = true,
            }
        }
        Ok(true)
    }

    /// Returns all tokens but `kept`.
    fn release(&mut self, kept: u32) {
        self.tokens.truncate(kept as usize);
    }

    /// Makes up for tokens that were lost with killed jobs. No job runs.
    fn refill(&mut self) -> io::Result<()> {
        if !self.part.can_refill() {
            return Ok(());
        }
        self.tokens.clear();
        self.is_waiting = false;
        self.part.refill()
    }
}

impl<E: Executor> Driver<E> {
    /// Lets no job start before the one that has just ended is accounted for, if it was the last one that ran: only
    /// while nothing runs can lost tokens be told from used ones.
    pub(super) fn pause_after_last_job(&mut self) {
        if self.permits.part.can_refill() && self.live.running() == 0 {
            self.report(scheduler::Event::Permits { cpus: 0 });
        }
    }

    /// Takes the tokens that the next jobs need, starts these, and returns what no job needs.
    pub(super) fn balance_permits(&mut self) {
        if !self.permits.part.has_tokens() {
            return;
        }
        loop {
            let in_use = self.scheduler.cpus_in_use();
            if in_use == 0 {
                let refilled = self.permits.refill();
                self.note_failed_jobserver(refilled);
            }
            let Some(wanted) = self.scheduler.wanted_permits() else {
                self.permits.release(in_use);
                return self.report(scheduler::Event::Permits { cpus: in_use });
            };
            let acquired = self.permits.acquire(wanted);
            let has_all = self.note_failed_jobserver(acquired).unwrap_or(false);
            if !has_all && in_use > 0 {
                return;
            }
            self.report(scheduler::Event::Permits { cpus: wanted });
            self.carry_out_decisions();
        }
    }

    /// Tells once of a jobserver that fails. Jobs run one at a time then.
    fn note_failed_jobserver<T>(&mut self, result: io::Result<T>) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if !std::mem::replace(&mut self.permits.has_failed, true) {
            let note = format!("the jobserver fails, so one job runs at a time: {error}");
            self.events.push_back(Event::Note(note));
        }
        None
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
