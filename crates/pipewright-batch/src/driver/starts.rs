//! Starts that are held back: while the machine is busy or short of memory, and for a pause after each start.
//!
//! The machine is looked at once a second, and not at each start. Between two looks, so many more jobs may run as the
//! load leaves room for: a job that was started just now is not in the load yet.

use std::time::{Duration, Instant};

use super::{Driver, Event, Executor, Timer};
use crate::scheduler;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Rules for starts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct StartRules {
    /// The pause after each start.
    pub(crate) pause: Option<Duration>,
    /// No job starts unless the load is less.
    pub(crate) max_load: Option<f64>,
    /// No job starts unless so much memory is free.
    pub(crate) min_free_bytes: Option<u64>,
}

/// The known facts about the machine.
#[derive(Debug, Default)]
pub(super) struct StartWatch {
    /// The reason for which no job starts, if it was told.
    told: Option<String>,
    /// A fact that is not known here was told.
    is_unknown_told: bool,
}

impl<E: Executor> Driver<E> {
    /// Begins the pause after a start, if there is one.
    pub(super) fn pause_after_start(&mut self) {
        if let Some(pause) = self.config.starts.pause {
            // A pause beyond the range of the clock never ends.
            self.timers.extend(Instant::now().checked_add(pause).map(|at| (at, Timer::PauseOver)));
        }
    }

    /// Looks at the machine, and again after a second, if there is a rule about it.
    pub(super) fn look_at_machine(&mut self) {
        let StartRules { max_load, min_free_bytes, .. } = self.config.starts;
        if max_load.is_none() && min_free_bytes.is_none() {
            return;
        }
        let load = max_load.and_then(|_| self.executor.load());
        let free = min_free_bytes.and_then(|_| Some(self.executor.memory()?.free_bytes));
        let is_unknown =
            max_load.is_some() && load.is_none() || min_free_bytes.is_some() && free.is_none();
        if is_unknown && !std::mem::replace(&mut self.starts.is_unknown_told, true) {
            let what = if max_load.is_some() && load.is_none() { "load" } else { "free memory" };
            let note = format!("the {what} is not known here: jobs start whatever it is");
            self.events.push_back(Event::Note(note));
        }
        let busy = max_load.zip(load).filter(|(most, load)| load >= most);
        let short = min_free_bytes.zip(free).filter(|(least, free)| free < least);
        let reason = match (busy, short) {
            (Some((most, load)), _) => {
                Some(format!("the load is {load}, and has to be below {most}"))
            }
            (None, Some((least, free))) => Some(format!(
                "{} MiB of memory are free, and {} have to be",
                free >> 20,
                least >> 20
            )),
            (None, None) => None,
        };
        let jobs = match (&reason, max_load.zip(load)) {
            (Some(_), _) => 0,
            (None, Some((most, load))) => {
                // As many as would bring the load to its limit.
                self.scheduler.jobs().saturating_add((most - load).ceil() as usize)
            }
            (None, None) => usize::MAX,
        };
        self.report(scheduler::Event::MostJobs { jobs });
        self.tell_why_nothing_starts(reason);
        self.timers.extend(Instant::now().checked_add(INTERVAL).map(|at| (at, Timer::Machine)));
    }

    /// Tells the reason once a job waits for its end, and that it is over.
    fn tell_why_nothing_starts(&mut self, reason: Option<String>) {
        let is_told = self.starts.told.is_some();
        let is_change = match reason.is_some() {
            true => self.scheduler.ready() > 0 && self.starts.told != reason,
            false => is_told,
        };
        if is_change {
            self.starts.told.clone_from(&reason);
            self.events.push_back(Event::Held { reason });
        }
    }
}
