//! When to stop a child, when to kill it, when to give up reading: times and phases, no system call.

use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::rules::{Linger, Rules, earlier};

/// After a kill nothing new is coming: what was in flight arrives within this, or something that
/// is out of reach holds the stream.
const AFTER_KILL: Linger =
    Linger::Settle { quiet: Duration::from_millis(10), cap: Duration::from_millis(40) };

/// The same where our own stream has not taken yet what is to be passed on to it: from then on it
/// has to go on taking, or the rest is given up.
const AFTER_KILL_HELD_UP: Linger =
    Linger::Settle { quiet: Duration::from_millis(250), cap: Duration::from_secs(5) };

/// How long killed descendants are waited for. A kill takes microseconds; one that takes longer is
/// stuck in the kernel (a dead network disk), and we do not hang with it.
const KILLED_WAIT: Duration = Duration::from_secs(1);

/// How long the killed child itself is waited for: to give back a very large memory takes its time.
pub(super) const KILLED_CHILD_WAIT: Duration = Duration::from_secs(30);

/// The phase and the times of a run.
#[derive(Debug)]
pub(super) struct StopPolicy {
    deadline: Option<Instant>,
    idle_timeout: Option<Duration>,
    last_output: Instant,
    grace: Duration,
    linger: Linger,
    phase: Phase,
    ended_at: Option<Instant>,
    /// Streams that are open after the end are not waited for any longer than this.
    give_up_at: Option<Instant>,
    /// Since when nobody whom a stop reaches is left.
    all_gone_at: Option<Instant>,
    /// Our own stream holds us up: silence is not the child's.
    held_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The stop signal was sent.
    Stopping {
        why: Outcome,
        kill_at: Option<Instant>,
    },
    Killed {
        why: Outcome,
        at: Instant,
    },
}

/// The action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    SendStopSignal,
    Kill,
    /// The streams that are still open are given up.
    StopReading,
}

impl StopPolicy {
    pub(super) fn new(rules: &Rules, started: Instant) -> StopPolicy {
        // A timeout so long that the clock cannot hold its end is no timeout.
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
            phase: Phase::Running,
            ended_at: None,
            give_up_at: deadline,
            all_gone_at: None,
            held_up: false,
        }
    }

    /// When its time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long it may say nothing.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    pub(super) fn note_output(&mut self, now: Instant) {
        self.last_output = now;
    }

    /// Whether our own stream has yet to take what came. Who holds up is waited for until the
    /// command's time is over, and nothing counts as quiet meanwhile.
    pub(super) fn note_held_up(&mut self, held_up: bool) {
        self.held_up = held_up;
    }

    pub(super) fn is_held_up(&self) -> bool {
        self.held_up
    }

    pub(super) fn note_end(&mut self, now: Instant) {
        self.ended_at = Some(now);
    }

    /// Nobody can be asked here, so nobody needs time to answer.
    pub(super) fn note_unsignalable(&mut self) {
        if let Phase::Stopping { kill_at, .. } = &mut self.phase {
            *kill_at = Some(self.last_output);
        }
    }

    /// Nobody whom the stop could reach is left.
    pub(super) fn note_all_gone(&mut self, now: Instant) {
        self.all_gone_at.get_or_insert(now);
    }

    /// How long whoever is asked to stop has for it, from now on; where that has been asked already, if it is less than
    /// what is left.
    pub(super) fn set_grace(&mut self, grace: Duration, now: Instant) {
        self.grace = grace;
        if let Phase::Stopping { kill_at, .. } = &mut self.phase {
            *kill_at = earlier(*kill_at, now.checked_add(grace));
        }
    }

    /// Starts stopping, unless it has been started. Says what to do.
    pub(super) fn stop(&mut self, why: Outcome, now: Instant) -> Due {
        if self.phase != Phase::Running {
            return Due::Nothing;
        }
        if self.ended_at.is_some() {
            // There is nobody to stop, and nothing more that is worth waiting for.
            self.give_up_at = Some(now);
            return Due::Nothing;
        }
        if self.grace.is_zero() {
            self.phase = Phase::Killed { why, at: now };
            return Due::Kill;
        }
        // A grace so long that the clock cannot hold its end has none.
        let kill_at = now.checked_add(self.grace);
        self.phase = Phase::Stopping { why, kill_at };
        Due::SendStopSignal
    }

    /// True where the children are to be stopped now, unless they have ended.
    pub(super) fn is_time_up(&self, now: Instant) -> bool {
        let is_over = |end: Option<Instant>| end.is_some_and(|end| now >= end);
        let runs = self.phase == Phase::Running && self.ended_at.is_none();
        runs && (is_over(self.deadline) || is_over(self.idle_end()))
    }

    /// What the passing of time has made necessary. Asked again until it says nothing.
    ///
    /// `reading`: whether a stream is still open.
    pub(super) fn due(&mut self, now: Instant, reading: bool) -> Due {
        match self.phase {
            Phase::Stopping { why, kill_at: Some(kill_at) }
                if now >= kill_at && self.all_gone_at.is_none() =>
            {
                self.phase = Phase::Killed { why, at: now };
                return Due::Kill;
            }
            Phase::Running if self.ended_at.is_none() => {
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

    /// When [`due`](Self::due) is to be asked next.
    pub(super) fn next(&self, reading: bool) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running if self.ended_at.is_none() => earlier(self.deadline, self.idle_end()),
            Phase::Stopping { kill_at, .. } if self.all_gone_at.is_none() => kill_at,
            _ => None,
        };
        earlier(phase, self.reading_ends().filter(|_| reading))
    }

    /// When killed descendants are waited for no longer.
    pub(super) fn killed_wait_ends(&self) -> Option<Instant> {
        match self.phase {
            Phase::Killed { at, .. } => at.checked_add(KILLED_WAIT),
            _ => None,
        }
    }

    /// When the killed child itself is waited for no longer.
    pub(super) fn killed_child_wait_ends(&self) -> Option<Instant> {
        match self.phase {
            Phase::Killed { at, .. } if self.ended_at.is_none() => {
                at.checked_add(KILLED_CHILD_WAIT)
            }
            _ => None,
        }
    }

    /// Why we stopped it, if we did.
    pub(super) fn stopped(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Running => None,
            Phase::Stopping { why, .. } | Phase::Killed { why, .. } => Some(why),
        }
    }

    fn idle_end(&self) -> Option<Instant> {
        let timeout = self.idle_timeout.filter(|_| !self.held_up);
        timeout.and_then(|timeout| self.last_output.checked_add(timeout))
    }

    /// When streams that are still open are given up; `None`: not as things stand.
    fn reading_ends(&self) -> Option<Instant> {
        let ended_at = self.ended_at?;
        let linger = match self.phase {
            // Descendants that were asked to stop may have last words.
            Phase::Stopping { .. } if self.all_gone_at.is_none() => return None,
            Phase::Stopping { .. } | Phase::Killed { .. } if self.held_up => AFTER_KILL_HELD_UP,
            Phase::Stopping { .. } | Phase::Killed { .. } => AFTER_KILL,
            Phase::Running if self.held_up => Linger::UntilEof,
            Phase::Running => self.linger,
        };
        let lingers_until = match linger {
            Linger::UntilEof => None,
            Linger::StopAtExit => Some(ended_at),
            Linger::Settle { quiet, cap } => {
                let from = self.lingers_from(ended_at);
                let quiet_since = self.last_output.max(from);
                earlier(quiet_since.checked_add(quiet), from.checked_add(cap))
            }
        };
        match self.phase {
            // The timeout is the time of the child, and its last words come after the stop.
            Phase::Stopping { .. } | Phase::Killed { .. } => lingers_until,
            Phase::Running => earlier(lingers_until, self.give_up_at.map(|at| at.max(ended_at))),
        }
    }
}

impl StopPolicy {
    /// From when a stream that is still open counts as held.
    fn lingers_from(&self, ended_at: Instant) -> Instant {
        match self.phase {
            Phase::Running => ended_at,
            Phase::Stopping { .. } => self.all_gone_at.map_or(ended_at, |at| at.max(ended_at)),
            Phase::Killed { at, .. } => at.max(ended_at),
        }
    }
}

#[cfg(test)]
mod tests;
