//! The number of attempts that run at once, where handles or processes are short: as many as find room, and one more
//! from time to time. What finds none waits for the end of another one.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::open_limit;

/// The time after which one attempt more is tried. Other programs may have left room.
const GROWS_AFTER: Duration = Duration::from_secs(1);

/// The time after which an attempt is tried again that found no room although no other one runs.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The time for which it is tried again if only this process can leave the room: another thread may be about to.
const OWN_PATIENCE: Duration = Duration::from_millis(250);

/// Handles that a start takes, and that are kept for the log, the outputs and the reports.
// A margin, not a count: the pipes and the pidfd of a start, the files of the log with that of its lock, those of a few
// reports.
const SPARE: usize = 24;

/// The room for attempts.
#[derive(Debug)]
pub(super) struct Room {
    /// The most attempts at once that are known to find room.
    most: usize,
    /// The most that there have been at once.
    seen: usize,
    /// The time at which one more is tried. `None`: there was always room.
    grows_at: Option<Instant>,
    /// The time since which nothing can be started, although nothing runs.
    empty_since: Option<Instant>,
    /// The time of the next start then.
    retry_at: Option<Instant>,
    /// The reason for the number, until it is reported.
    reason: Option<String>,
}

/// The decision about an attempt that found no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It waits for the end of another one.
    Waits,
    /// It is tried again after a pause. True: it is the first one that nothing runs beside.
    Retries { is_first: bool },
    /// Nothing helps.
    Fails,
}

impl Room {
    pub(super) fn new() -> Room {
        Room {
            most: usize::MAX,
            seen: 0,
            grows_at: None,
            empty_since: None,
            retry_at: None,
            reason: None,
        }
    }

    /// Returns true if room was short some time.
    pub(super) fn is_short(&self) -> bool {
        self.grows_at.is_some()
    }

    /// Returns true if another attempt may start beside those. Each one opens that many files later.
    pub(super) fn has_place(&mut self, running: usize, files: usize) -> bool {
        if let Some(at) = self.retry_at {
            if Instant::now() < at {
                return false;
            }
            self.retry_at = None;
        }
        if running >= self.most {
            return false;
        }
        if running >= self.seen {
            // A job that has run must not find the room for its output gone. The first one is tried in any case.
            let needed = SPARE + files.saturating_mul(running + 1);
            if running > 0 && open_limit::left().is_some_and(|left| left < needed) {
                let limit = open_limit::of_this_process().unwrap_or(0);
                self.shrink(running, format!("`ulimit -n` allows {limit} open files: raise it"));
                return false;
            }
            self.seen = running + 1;
        }
        true
    }

    /// Lets one more attempt start after a while, if no other one may start.
    pub(super) fn grow(&mut self, running: usize) {
        let now = Instant::now();
        if running >= self.most && self.grows_at.is_some_and(|at| now >= at) {
            self.most += 1;
            self.grows_at = Some(now + GROWS_AFTER);
        }
    }

    /// Notes that an attempt found no room beside those that run. `patience`: for room that other processes may leave.
    pub(super) fn refuse(
        &mut self,
        running: usize,
        error: &io::Error,
        message: &str,
        patience: Duration,
    ) -> Refused {
        if running > 0 {
            self.empty_since = None;
            self.shrink(running, message.to_owned());
            return Refused::Waits;
        }
        let is_first = self.empty_since.is_none();
        let now = Instant::now();
        let since = *self.empty_since.get_or_insert(now);
        let patience = if open_limit::is_reached(error) { OWN_PATIENCE } else { patience };
        if now.saturating_duration_since(since) >= patience {
            return Refused::Fails;
        }
        self.retry_at = Some(now + PAUSE);
        self.grows_at.get_or_insert(now + GROWS_AFTER);
        Refused::Retries { is_first }
    }

    /// Notes that an attempt has run.
    pub(super) fn has_run(&mut self) {
        self.empty_since = None;
    }

    fn shrink(&mut self, running: usize, reason: String) {
        if self.most == usize::MAX {
            self.reason = Some(reason);
        }
        self.most = running.max(1);
        self.seen = self.seen.min(self.most);
        self.grows_at = Some(Instant::now() + GROWS_AFTER);
    }

    /// Returns the line that says that fewer attempts run at once, the first time.
    pub(super) fn take_note(&mut self) -> Option<String> {
        let reason = self.reason.take().filter(|_| self.empty_since.is_none())?;
        Some(match self.most {
            1 => format!("only 1 job runs at once: {reason}"),
            most => format!("only {most} jobs run at once: {reason}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> io::Error {
        io::ErrorKind::OutOfMemory.into()
    }

    #[test]
    fn as_many_run_as_found_room_and_one_more_after_a_while() {
        let mut room = Room::new();
        assert!(room.has_place(0, 0) && room.has_place(1, 0) && room.has_place(2, 0));
        assert!(!room.is_short());
        assert_eq!(room.refuse(2, &error(), "no room", Duration::MAX), Refused::Waits);
        assert!(room.is_short());
        assert_eq!(room.take_note().as_deref(), Some("only 2 jobs run at once: no room"));
        assert!(room.has_place(1, 0) && !room.has_place(2, 0));
        // Too early.
        room.grow(2);
        assert!(!room.has_place(2, 0));
        room.grows_at = Some(Instant::now());
        room.grow(1);
        assert!(!room.has_place(2, 0), "there is room that nobody uses");
        room.grow(2);
        assert!(room.has_place(2, 0));
        assert_eq!(room.refuse(2, &error(), "no room", Duration::MAX), Refused::Waits);
        assert_eq!(room.take_note(), None, "it is told once");
    }

    #[test]
    fn what_finds_no_room_although_nothing_runs_fails_after_one_time_for_all() {
        let mut room = Room::new();
        let refuse = |room: &mut Room, patience| room.refuse(0, &error(), "no room", patience);
        let long = Duration::from_secs(600);
        assert_eq!(refuse(&mut room, long), Refused::Retries { is_first: true });
        assert!(!room.has_place(0, 0), "not before the pause is over");
        assert_eq!(refuse(&mut room, long), Refused::Retries { is_first: false });
        for _ in 0..3 {
            assert_eq!(refuse(&mut room, Duration::ZERO), Refused::Fails);
        }
        room.has_run();
        assert_eq!(refuse(&mut room, long), Refused::Retries { is_first: true });
    }
}
