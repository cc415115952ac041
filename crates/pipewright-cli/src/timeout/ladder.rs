//! The signals that a command gets, and when: a decision without a clock and without a system call.

use std::time::{Duration, Instant};

use pipewright::Signal;

/// The signals of one command.
#[derive(Debug)]
pub(super) struct Ladder {
    /// The time of the next signal. `None`: no time.
    next: Option<Instant>,
    /// The signal that is sent then; `None`: the number 0, which is not sent.
    signal: Option<Signal>,
    /// The time between the first signal and KILL.
    kill_after: Option<Duration>,
    is_timed_out: bool,
}

impl Ladder {
    pub(super) fn new(
        end: Option<Instant>,
        signal: Option<Signal>,
        kill_after: Option<Duration>,
    ) -> Ladder {
        Ladder { next: end, signal, kill_after, is_timed_out: false }
    }

    /// Returns the time of the next signal.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns true if the time was over before the command was.
    pub(super) fn is_timed_out(&self) -> bool {
        self.is_timed_out
    }

    /// Returns the signal to send when the time is over; `None`: the number 0.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Signal> {
        self.is_timed_out = true;
        let signal = self.signal;
        self.next = None;
        self.begin_grace(now);
        signal
    }

    /// Returns the signal to send after this process has got one. ALRM is the end of the time.
    pub(super) fn arrive(
        &mut self,
        arrived: Signal,
        alarm: Option<Signal>,
        now: Instant,
    ) -> Option<Signal> {
        if Some(arrived) == alarm {
            return self.expire(now);
        }
        self.begin_grace(now);
        Some(arrived)
    }

    /// Sends KILL some time after the first signal, whatever it was.
    fn begin_grace(&mut self, now: Instant) {
        if let Some(grace) = self.kill_after.take() {
            self.signal = Some(Signal::KILL);
            self.next = now.checked_add(grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_time_ends_with_the_signal_and_later_with_kill() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Some(now), Some(Signal::TERM), Some(SECOND));
        assert_eq!(ladder.expire(now), Some(Signal::TERM));
        assert_eq!(ladder.next(), Some(now + SECOND));
        assert_eq!(ladder.expire(now + SECOND), Some(Signal::KILL));
        assert_eq!((ladder.next(), ladder.is_timed_out()), (None, true));
    }

    #[test]
    fn signal_zero_is_followed_by_kill() {
        let now = Instant::now();
        let mut ladder = Ladder::new(Some(now), None, Some(SECOND));
        assert_eq!(ladder.expire(now), None);
        assert_eq!(ladder.expire(now), Some(Signal::KILL));
    }

    #[test]
    fn a_signal_that_arrives_is_forwarded_and_begins_the_grace() {
        let now = Instant::now();
        let alarm = Some(Signal::USR1);
        let mut ladder = Ladder::new(Some(now + SECOND), Some(Signal::TERM), Some(SECOND / 2));
        assert_eq!(ladder.arrive(Signal::HUP, alarm, now), Some(Signal::HUP));
        assert!(!ladder.is_timed_out());
        assert_eq!(ladder.next(), Some(now + SECOND / 2));
        // Without a grace the time goes on.
        let mut ladder = Ladder::new(Some(now + SECOND), Some(Signal::TERM), None);
        ladder.arrive(Signal::HUP, alarm, now);
        assert_eq!(ladder.next(), Some(now + SECOND));
        assert_eq!(ladder.arrive(Signal::USR1, alarm, now), Some(Signal::TERM));
        assert!(ladder.is_timed_out());
    }
}
