//! The times and phases of stopping and killing the children and of giving up their streams. No system call.

use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::rules::{Linger, Rules, earlier};

/// The linger rule after a kill. No new output is written then: output in flight arrives within this time, or a process
/// out of reach holds the stream.
const AFTER_KILL: Linger =
    Linger::Settle { quiet: Duration::from_millis(10), cap: Duration::from_millis(40) };

/// The time for which a stream that seems to be held is looked at again: a child that another thread is starting has a copy of
/// it until its exec.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// The time for which the reader of a tee may take nothing, once the run is to end, and all the time that it has. Then the
/// unwritten bytes are given up.
const TEE_QUIET: Duration = Duration::from_millis(250);
const TEE_CAP: Duration = Duration::from_secs(5);

/// The linger rule after a kill while a tee has unwritten bytes.
const AFTER_KILL_TEE_BLOCKED: Linger = Linger::Settle { quiet: TEE_QUIET, cap: TEE_CAP };

/// The longest wait for killed descendants. A kill takes microseconds. A process that takes longer is stuck in the
/// kernel (a dead network disk), and the run must not hang with it.
const KILLED_WAIT: Duration = Duration::from_secs(1);

/// The longest wait for the killed child itself: the kernel needs time to free a very large address space. An error in
/// `state/act.rs` names it.
pub(super) const KILLED_CHILD_WAIT: Duration = Duration::from_secs(30);

/// The phase and the times of a run.
#[derive(Debug)]
pub(super) struct StopPolicy {
    deadline: Option<Instant>,
    idle_timeout: Option<Duration>,
    last_output: Instant,
    grace: Duration,
    linger: Linger,
    phase: StopPhase,
    ended_at: Option<Instant>,
    /// The time at which streams that are open after the end are given up.
    give_up_at: Option<Instant>,
    /// The time at which no process that the stop reaches was left.
    all_gone_at: Option<Instant>,
    /// True while a tee has unwritten bytes. Silence does not count then.
    tee_blocked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopPhase {
    Running,
    /// The stop signal was sent.
    Stopping {
        outcome: Outcome,
        kill_at: Option<Instant>,
    },
    Killed {
        outcome: Outcome,
        at: Instant,
    },
}

/// The action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    SendStopSignal,
    Kill,
    /// Give up the streams that are still open.
    StopReading,
}

impl StopPolicy {
    pub(super) fn new(rules: &Rules, started: Instant) -> StopPolicy {
        // A timeout beyond the range of the clock never expires.
        let by_timeout = rules.timeout.and_then(|timeout| started.checked_add(timeout));
        let deadline = match (by_timeout, rules.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        StopPolicy {
            deadline,
            idle_timeout: rules.idle_timeout,
            last_output: started,
            grace: rules.kill_grace,
            linger: rules.linger,
            phase: StopPhase::Running,
            ended_at: None,
            give_up_at: deadline,
            all_gone_at: None,
            tee_blocked: false,
        }
    }

    /// Returns the earlier of the timeout's end and the deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the idle timeout.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// Records output.
    pub(super) fn note_output(&mut self, now: Instant) {
        self.last_output = now;
    }

    /// Records if a tee has unwritten bytes. Its reader may take as long as the timeout allows, and that time does not
    /// count as silence.
    pub(super) fn note_tee_blocked(&mut self, tee_blocked: bool) {
        self.tee_blocked = tee_blocked;
    }

    /// Returns true while a tee has unwritten bytes.
    pub(super) fn is_tee_blocked(&self) -> bool {
        self.tee_blocked
    }

    /// Records the end of the last child.
    pub(super) fn note_end(&mut self, now: Instant) {
        self.ended_at = Some(now);
    }

    /// Records that this system does not have the stop signal. The kill then comes at once.
    pub(super) fn note_unsignalable(&mut self) {
        if let StopPhase::Stopping { kill_at, .. } = &mut self.phase {
            *kill_at = Some(self.last_output);
        }
    }

    /// Records that no process that the stop reaches is left.
    pub(super) fn note_all_gone(&mut self, now: Instant) {
        self.all_gone_at.get_or_insert(now);
    }

    /// Sets the grace from now on. After the stop signal, it counts only if it is shorter than the time that is left.
    pub(super) fn set_grace(&mut self, grace: Duration, now: Instant) {
        self.grace = grace;
        if let StopPhase::Stopping { kill_at, .. } = &mut self.phase {
            *kill_at = earlier(*kill_at, now.checked_add(grace));
        }
    }

    /// Starts a stop, unless one has begun. Returns the action that is due.
    pub(super) fn stop(&mut self, outcome: Outcome, now: Instant) -> Due {
        if self.phase != StopPhase::Running {
            return Due::Nothing;
        }
        if self.ended_at.is_some() {
            // There is nothing to stop, and no more output is worth waiting for. A tee gets what has been read.
            self.give_up_at = Some(now);
            return Due::Nothing;
        }
        if self.grace.is_zero() {
            self.phase = StopPhase::Killed { outcome, at: now };
            return Due::Kill;
        }
        // A grace beyond the range of the clock never ends.
        let kill_at = now.checked_add(self.grace);
        self.phase = StopPhase::Stopping { outcome, kill_at };
        Due::SendStopSignal
    }

    /// Returns true if a timeout has expired and no end has been recorded.
    pub(super) fn is_time_up(&self, now: Instant) -> bool {
        let is_over = |end: Option<Instant>| end.is_some_and(|end| now >= end);
        let runs = self.phase == StopPhase::Running && self.ended_at.is_none();
        runs && (is_over(self.deadline) || is_over(self.idle_end()))
    }

    /// Returns the action that is due now. Call it until it returns [`Due::Nothing`].
    ///
    /// `reading` is true if a stream is still open.
    pub(super) fn due(&mut self, now: Instant, reading: bool) -> Due {
        match self.phase {
            StopPhase::Stopping { outcome, kill_at: Some(kill_at) }
                if now >= kill_at && self.all_gone_at.is_none() =>
            {
                self.phase = StopPhase::Killed { outcome, at: now };
                return Due::Kill;
            }
            StopPhase::Running if self.ended_at.is_none() => {
                if self.deadline.is_some_and(|deadline| now >= deadline) {
                    return self.stop(Outcome::TimedOut, now);
                }
                if self.idle_end().is_some_and(|end| now >= end) {
                    return self.stop(Outcome::IdleTimedOut, now);
                }
            }
            _ => {}
        }
        match self.reading_ends() {
            Some(end) if reading && now >= end => Due::StopReading,
            _ => Due::Nothing,
        }
    }

    /// Returns the time of the next action.
    pub(super) fn next(&self, reading: bool) -> Option<Instant> {
        let phase = match self.phase {
            StopPhase::Running if self.ended_at.is_none() => {
                earlier(self.deadline, self.idle_end())
            }
            StopPhase::Stopping { kill_at, .. } if self.all_gone_at.is_none() => kill_at,
            _ => None,
        };
        earlier(phase, self.reading_ends().filter(|_| reading))
    }

    /// Returns the end of the wait for killed descendants.
    pub(super) fn killed_wait_ends(&self) -> Option<Instant> {
        match self.phase {
            StopPhase::Killed { at, .. } => at.checked_add(KILLED_WAIT),
            _ => None,
        }
    }

    /// Returns the end of the wait for the killed child itself.
    pub(super) fn killed_child_wait_ends(&self) -> Option<Instant> {
        match self.phase {
            StopPhase::Killed { at, .. } if self.ended_at.is_none() => {
                at.checked_add(KILLED_CHILD_WAIT)
            }
            _ => None,
        }
    }

    /// Returns the reason for the stop, if one has begun.
    pub(super) fn stopped(&self) -> Option<Outcome> {
        match self.phase {
            StopPhase::Running => None,
            StopPhase::Stopping { outcome, .. } | StopPhase::Killed { outcome, .. } => {
                Some(outcome)
            }
        }
    }

    fn idle_end(&self) -> Option<Instant> {
        let timeout = self.idle_timeout.filter(|_| !self.tee_blocked);
        timeout.and_then(|timeout| self.last_output.checked_add(timeout))
    }

    /// Returns the time at which open streams are given up; `None` if nothing limits it yet.
    fn reading_ends(&self) -> Option<Instant> {
        let ended_at = self.ended_at?;
        let linger = match self.phase {
            // Descendants that got the stop signal may still write.
            StopPhase::Stopping { .. } if self.all_gone_at.is_none() => return None,
            StopPhase::Stopping { .. } | StopPhase::Killed { .. } if self.tee_blocked => {
                AFTER_KILL_TEE_BLOCKED
            }
            StopPhase::Stopping { .. } | StopPhase::Killed { .. } => AFTER_KILL,
            StopPhase::Running if self.tee_blocked => Linger::UntilEof,
            StopPhase::Running => self.linger,
        };
        let lingers_until = match linger {
            Linger::UntilEof => None,
            Linger::StopAtExit => ended_at.checked_add(SECOND_LOOK),
            Linger::Settle { quiet, cap } => {
                let from = self.lingers_from(ended_at);
                let quiet_since = self.last_output.max(from);
                earlier(quiet_since.checked_add(quiet), from.checked_add(cap))
            }
        };
        match self.phase {
            // Not `give_up_at`: it may have passed, and the last output comes after the stop.
            StopPhase::Stopping { .. } | StopPhase::Killed { .. } => lingers_until,
            StopPhase::Running => {
                let give_up_at = self.give_up_at.map(|at| at.max(ended_at));
                earlier(lingers_until, give_up_at.and_then(|at| self.tee_ends(at)))
            }
        }
    }

    /// Returns the time at which streams that are to be given up at that time are given up: later, while a tee passes on what
    /// has been read.
    fn tee_ends(&self, at: Instant) -> Option<Instant> {
        if !self.tee_blocked {
            return Some(at);
        }
        let quiet_ends = self.last_output.checked_add(TEE_QUIET)?;
        Some(quiet_ends.max(at).min(at.checked_add(TEE_CAP)?))
    }
}

impl StopPolicy {
    /// Returns the time from which an open stream counts as held.
    fn lingers_from(&self, ended_at: Instant) -> Instant {
        match self.phase {
            StopPhase::Running => ended_at,
            StopPhase::Stopping { .. } => self.all_gone_at.map_or(ended_at, |at| at.max(ended_at)),
            StopPhase::Killed { at, .. } => at.max(ended_at),
        }
    }
}

#[cfg(test)]
mod tests;
