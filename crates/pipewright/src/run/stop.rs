//! The times and phases of stopping and killing the children and of giving up their streams. No system call. The
//! processes that a stop reaches are the held tree, or each child, the group that it leads, and the descendants that
//! can be found.

use std::io;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::member::Member;
use pipewright_os::process::tree::{CAN_STOP, Descendants};

use super::options::{Linger, Rules};
use crate::outcome::Outcome;

/// The linger rule after a kill. No new output is written then: output in flight arrives within this time, or a process
/// out of reach holds the stream.
const AFTER_KILL: Linger =
    Linger::Settle { quiet: Duration::from_millis(10), cap: Duration::from_millis(40) };

/// The time after which a stream that seems to be held is looked at again: a child that other code of this process is
/// starting has a copy of it until its exec.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// All the time for such looks while a start of ours is under way: one can hang, and then the stream is held. A start
/// of a tree can take more than a second on a machine with ten busy processes a processor.
const LOOKS_CAP: Duration = Duration::from_secs(5);

/// The time for which the reader of a tee may take nothing, once the run is to end, and all the time that it has. Then
/// the unwritten bytes are given up.
const TEE_QUIET: Duration = Duration::from_millis(250);
const TEE_CAP: Duration = Duration::from_secs(5);

/// The linger rule after a kill while a tee has unwritten bytes.
const AFTER_KILL_TEE_BLOCKED: Linger = Linger::Settle { quiet: TEE_QUIET, cap: TEE_CAP };

/// The rule for a terminal that closes after the end: its last frame comes with the close, however long it is silent
/// before.
const TERMINAL_CLOSES: Linger =
    Linger::Settle { quiet: Duration::from_secs(2), cap: Duration::from_secs(2) };

/// The longest wait for killed descendants. A kill takes microseconds. A process that takes longer is stuck in the
/// kernel (a dead network disk), and the run must not hang with it.
const KILLED_WAIT: Duration = Duration::from_secs(1);

/// The longest wait for the killed child itself: the kernel needs time to free a very large address space. An error in
/// `state.rs` names it.
const KILLED_CHILD_WAIT: Duration = Duration::from_secs(30);

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
    /// The time at which streams that are open after the end are given up: the deadline, or a stop after the end.
    give_up_at: Option<Instant>,
    /// The time at which no process that the stop reaches was left.
    all_gone_at: Option<Instant>,
    /// True while a tee has unwritten bytes. Silence does not count then.
    tee_blocked: bool,
    /// True if a stream is a terminal that ends by itself, a while after the last child.
    terminal_closes: bool,
    /// The times of the first and of the next look at streams that may only be held by a start.
    looks: Option<(Instant, Instant)>,
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
            terminal_closes: false,
            looks: None,
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

    /// Records that a stream is a terminal that ends by itself, a while after the last child.
    pub(super) fn note_terminal_closes(&mut self) {
        self.terminal_closes = true;
    }

    /// Puts giving up the streams off for a moment, because a start may hold them. Returns false if it has been put off
    /// for as long as it may.
    pub(super) fn look_again(&mut self, now: Instant) -> bool {
        let first = self.looks.map_or(now, |(first, _)| first);
        let next = now.checked_add(SECOND_LOOK).filter(|next| *next <= first + LOOKS_CAP);
        self.looks = next.map(|next| (first, next)).or(self.looks);
        next.is_some()
    }

    /// Records the end of the last child.
    pub(super) fn note_end(&mut self, now: Instant) {
        self.ended_at = Some(now);
    }

    /// Records that this system does not have the stop signal. The kill then comes at once.
    pub(super) fn note_unsignalable(&mut self) {
        if let StopPhase::Stopping { kill_at, .. } = &mut self.phase {
            // Any time that has passed: the kill is due at once.
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
            StopPhase::Stopping { .. } | StopPhase::Killed { .. } if self.terminal_closes => {
                TERMINAL_CLOSES
            }
            StopPhase::Stopping { .. } | StopPhase::Killed { .. } => AFTER_KILL,
            StopPhase::Running if self.tee_blocked => Linger::UntilEof,
            StopPhase::Running
                if self.terminal_closes && matches!(self.linger, Linger::Settle { .. }) =>
            {
                TERMINAL_CLOSES
            }
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
        let end = match self.phase {
            // Not `give_up_at`: it may have passed, and the last output comes after the stop.
            StopPhase::Stopping { .. } | StopPhase::Killed { .. } => lingers_until,
            StopPhase::Running => {
                let give_up_at = self.give_up_at.map(|at| at.max(ended_at));
                earlier(lingers_until, give_up_at.and_then(|at| self.tee_ends(at)))
            }
        };
        end.map(|end| self.looks.map_or(end, |(_, next)| end.max(next)))
    }

    /// Returns the time at which streams that are to be given up at that time are given up: later, while a tee passes
    /// on what has been read.
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

/// Returns the earlier of two times. `None` means never.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The most searches for new descendants: processes that fork faster than they are found must not make this endless.
const MAX_ROUNDS: usize = 64;

/// The descendants of the children of a run: of one child, or of the stages of a pipeline.
#[derive(Debug, Default)]
pub(crate) struct StopTargets {
    /// Kept from the first signal on: a descendant whose parent ends in between could not be found again.
    descendants: Descendants,
}

impl StopTargets {
    /// Sends all processes a stop signal, and continues those that are stopped so that they receive it. Returns false
    /// if the signal does not exist for any of the children, and nothing was sent.
    pub(crate) fn request_stop(&mut self, children: &[ChildHandle], signal: Signal) -> bool {
        // The search stops the processes: a child that is signalled while it forks would end, and its new child could
        // not be found any more.
        self.collect(children);
        // Errors are ignored here and below: a process that has ended needs no signal, and the kill that follows finds
        // those that may not be signalled.
        let sent = self.send(children, signal);
        if signal != Signal::CONT {
            self.send(children, Signal::CONT);
        }
        sent.unsupported < children.len()
    }

    /// Kills all processes.
    ///
    /// # Errors
    /// A child may not be signalled because it has changed its user; or there was no room to find all descendants. The
    /// others are killed.
    pub(crate) fn kill(&mut self, children: &[ChildHandle]) -> io::Result<()> {
        // The error of an earlier search stays: its parent may have ended since, and then this search does not find it
        // either.
        let mut is_held = false;
        for tree in children.iter().filter_map(ChildHandle::tree) {
            tree.kill();
            is_held = true;
        }
        if !is_held {
            self.collect(children);
        }
        let Sent { result, .. } = self.send(children, Signal::KILL);
        if !is_held && !CAN_STOP {
            self.kill_new_descendants(children);
        }
        result.and(self.take_missed(children).map_or(Ok(()), Err))
    }

    /// Takes the error of a search that may have missed a descendant, which then got no signal. A held tree needs no
    /// search: it is killed as a whole.
    pub(crate) fn take_missed(&mut self, children: &[ChildHandle]) -> Option<io::Error> {
        let is_held = children.iter().any(|child| child.tree().is_some());
        self.descendants.take_error().filter(|_| !is_held)
    }

    /// Kills the processes that were started between the search and the kill, on systems that cannot stop processes.
    /// All others are dead by now, so each round finds fewer.
    #[cold]
    fn kill_new_descendants(&mut self, children: &[ChildHandle]) {
        for _ in 0..MAX_ROUNDS {
            let from = self.descendants.members().len();
            for child in children {
                self.descendants.collect(child);
            }
            let new_members = self.descendants.members().get(from..).unwrap_or_default();
            if new_members.is_empty() {
                return;
            }
            for member in new_members {
                // Ignored: it has ended, or has changed its user.
                let _ = member.signal(Signal::KILL);
            }
        }
    }

    /// Kills all processes, and waits for the children for as long as a kill may take, or until that time. Survivors
    /// are left to the reaper.
    #[cold]
    pub(crate) fn abandon(&mut self, children: &[ChildHandle], until: Option<Instant>) {
        // Ignored: the loop below finds the children that may not be killed, and does not wait for them.
        let _ = self.kill(children);
        let until = until.or_else(|| Instant::now().checked_add(KILLED_CHILD_WAIT));
        for child in children {
            if child.signal(Signal::KILL).is_ok() {
                // Ignored: its status is not needed.
                let _ = wait::any(&mut [Slot::Event(child)], until);
                let _ = child.try_wait();
            }
        }
    }

    /// Kills the group of a child that has ended, before the reap. Afterwards it could not be signalled if the group is
    /// addressed by the pid that the reap frees.
    pub(crate) fn before_reap(&self, child: &ChildHandle) {
        if has_own_group(child) && !child.group_survives_reap() {
            let _ = child.signal_group(Signal::KILL);
        }
    }

    /// Returns true if a tree or a group is alive. No event reports their ends, so the caller has to poll.
    pub(crate) fn group_or_tree_is_alive(&self, children: &[ChildHandle]) -> bool {
        children.iter().any(|child| match child.tree() {
            Some(tree) => tree.is_alive(),
            None => has_own_group(child) && child.group_is_alive(),
        })
    }

    /// Returns a process that has not ended yet and is not one of the children.
    pub(crate) fn remaining_member(&self, children: &[ChildHandle]) -> Option<Member> {
        let mut last = children.iter().filter_map(|child| child.tree()?.last());
        last.find(|last| last.is_alive()).or_else(|| self.descendants.any_alive()).cloned()
    }

    /// Finds the descendants and stops them, the last stage of a pipeline first. A stage whose writer ends first would
    /// treat the input so far as complete: `psql` would load half a dump.
    fn collect(&mut self, children: &[ChildHandle]) {
        for child in children.iter().rev() {
            self.descendants.stop_and_collect(child, MAX_ROUNDS);
        }
    }

    /// Sends each process the signal once: programs treat a second SIGINT differently from the first.
    fn send(&self, children: &[ChildHandle], signal: Signal) -> Sent {
        // The groups that get the signal. That of a child that has been reaped may be out of reach.
        let mut groups = Vec::new();
        let leaders = children.iter().filter(|child| has_own_group(child));
        groups.extend(leaders.filter(|child| can_reach_group(child)).map(ChildHandle::pid));
        let mut sent = Sent { result: Ok(()), unsupported: 0 };
        for child in children.iter().rev() {
            let mut result = Ok(());
            if has_own_group(child) {
                // Other errors are ignored here and below: the process has ended, or has changed its user.
                result = child.signal_group(signal).map(drop).or_else(only_unsupported);
            }
            // The child may have left the group that it was started in. A later stage may be in the group of the first.
            let is_reached = match has_own_group(child) {
                true => child.is_group_leader(),
                false => groups.iter().any(|group| child.is_in_group(*group)),
            };
            if !is_reached {
                result = child.signal(signal).map(drop);
            }
            sent.unsupported += usize::from(result.as_ref().is_err_and(is_unsupported));
            sent.result = sent.result.and(result);
        }
        for member in self.descendants.members() {
            let is_reached =
                !groups.is_empty() && member.group().is_some_and(|group| groups.contains(&group));
            if !is_reached {
                let _ = member.signal(signal);
            }
        }
        sent
    }
}

/// The result of a signal to all.
struct Sent {
    /// The first error.
    result: io::Result<()>,
    /// The number of children for which the signal does not exist.
    unsupported: usize,
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

fn only_unsupported(error: io::Error) -> io::Result<()> {
    if is_unsupported(&error) { Err(error) } else { Ok(()) }
}

fn can_reach_group(child: &ChildHandle) -> bool {
    child.group_survives_reap() || child.is_group_leader()
}

fn has_own_group(child: &ChildHandle) -> bool {
    child.containment() == Containment::Group
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn policy(change: impl FnOnce(&mut Rules)) -> (StopPolicy, Instant) {
        let mut rules = Rules::default();
        change(&mut rules);
        let start = Instant::now();
        (StopPolicy::new(&rules, start), start)
    }

    #[test]
    fn a_timeout_sends_the_stop_signal_and_then_kills() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(100 * MS);
            rules.kill_grace = 50 * MS;
        });
        assert_eq!(policy.next(true), Some(start + 100 * MS));
        assert_eq!(policy.due(start + 99 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 100 * MS, true), Due::SendStopSignal);
        assert_eq!(policy.due(start + 101 * MS, true), Due::Nothing);
        assert_eq!(policy.next(true), Some(start + 150 * MS));
        assert_eq!(policy.due(start + 150 * MS, true), Due::Kill);
        assert_eq!(policy.due(start + 151 * MS, true), Due::Nothing);
        assert_eq!(policy.stopped(), Some(Outcome::TimedOut));
    }

    #[test]
    fn without_a_stop_signal_the_kill_comes_at_once() {
        let (mut policy, start) = policy(|rules| rules.timeout = Some(100 * MS));
        assert_eq!(policy.due(start + 100 * MS, true), Due::SendStopSignal);
        policy.note_unsignalable();
        assert_eq!(policy.due(start + 100 * MS, true), Due::Kill);
    }

    #[test]
    fn without_a_grace_the_kill_comes_at_once() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(Duration::ZERO);
            rules.kill_grace = Duration::ZERO;
        });
        assert_eq!(policy.due(start, true), Due::Kill);
    }

    #[test]
    fn the_earlier_of_timeout_and_deadline_counts() {
        let (policy, start) = policy(|rules| {
            rules.timeout = Some(100 * MS);
            rules.deadline = Some(Instant::now());
        });
        assert!(policy.next(true).unwrap() < start + 100 * MS);
    }

    #[test]
    fn times_beyond_the_range_of_the_clock_never_expire() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(Duration::MAX);
            rules.idle_timeout = Some(Duration::MAX);
            rules.linger = Linger::Settle { quiet: Duration::MAX, cap: Duration::MAX };
        });
        assert_eq!(policy.next(true), None);
        policy.note_end(start);
        assert_eq!(policy.next(true), None);
    }

    #[test]
    fn output_restarts_the_idle_timeout() {
        let (mut policy, start) = policy(|rules| rules.idle_timeout = Some(10 * MS));
        policy.note_output(start + 9 * MS);
        assert_eq!(policy.due(start + 18 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 19 * MS, true), Due::SendStopSignal);
        assert_eq!(policy.stopped(), Some(Outcome::IdleTimedOut));
    }

    #[test]
    fn a_held_stream_settles_and_every_chunk_restarts_the_quiet_time() {
        let settle = Linger::Settle { quiet: 10 * MS, cap: 25 * MS };
        let (mut policy, start) = policy(|rules| rules.linger = settle);
        policy.note_end(start);
        policy.note_output(start + 9 * MS);
        assert_eq!(policy.due(start + 18 * MS, true), Due::Nothing);
        policy.note_output(start + 18 * MS);
        assert_eq!(policy.next(true), Some(start + 25 * MS), "the cap");
        assert_eq!(policy.due(start + 25 * MS, true), Due::StopReading);
        assert_eq!(policy.stopped(), None);
    }

    #[test]
    fn an_end_before_the_deadline_is_not_a_timeout() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(10 * MS);
            rules.linger = Linger::UntilEof;
        });
        policy.note_end(start + 5 * MS);
        assert_eq!(policy.due(start + 9 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 10 * MS, true), Due::StopReading);
        assert_eq!(policy.stopped(), None);
        assert_eq!(policy.due(start + 10 * MS, false), Due::Nothing, "nothing is open");
    }

    #[test]
    fn a_cancel_after_the_end_gives_up_the_streams_and_is_not_the_outcome() {
        let (mut policy, start) = policy(|rules| rules.linger = Linger::UntilEof);
        policy.note_end(start);
        assert_eq!(policy.due(start + 9 * MS, true), Due::Nothing);
        assert_eq!(policy.stop(Outcome::Cancelled, start + 10 * MS), Due::Nothing);
        assert_eq!(policy.due(start + 10 * MS, true), Due::StopReading);
        assert_eq!(policy.stopped(), None);
    }

    #[test]
    fn a_blocked_tee_is_waited_for_until_the_timeout() {
        let (mut policy, start) = policy(|rules| {
            rules.idle_timeout = Some(10 * MS);
            rules.timeout = Some(9000 * MS);
        });
        policy.note_tee_blocked(true);
        assert_eq!(policy.next(true), Some(start + 9000 * MS), "silence does not count");
        policy.note_end(start);
        assert_eq!(policy.due(start + 8999 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 9000 * MS, true), Due::StopReading);
    }

    #[test]
    fn after_a_kill_a_blocked_tee_must_make_progress() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(Duration::ZERO);
            rules.kill_grace = Duration::ZERO;
        });
        assert_eq!(policy.due(start, true), Due::Kill);
        policy.note_end(start);
        policy.note_tee_blocked(true);
        policy.note_output(start + 100 * MS);
        assert_eq!(policy.due(start + 349 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 350 * MS, true), Due::StopReading);
    }

    #[test]
    fn an_unlimited_grace_never_kills() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(MS);
            rules.kill_grace = Duration::MAX;
        });
        assert_eq!(policy.due(start + MS, true), Due::SendStopSignal);
        assert_eq!(policy.due(start + 1_000_000 * MS, true), Due::Nothing);
        assert_eq!(policy.next(true), None);
    }

    #[test]
    fn after_the_end_a_cancel_leaves_a_tee_its_time() {
        let (mut policy, start) = policy(|rules| rules.linger = Linger::UntilEof);
        policy.note_end(start);
        policy.note_tee_blocked(true);
        policy.note_output(start + 900 * MS);
        assert_eq!(policy.stop(Outcome::Cancelled, start + 1000 * MS), Due::Nothing);
        assert_eq!(policy.due(start + 1149 * MS, true), Due::Nothing);
        policy.note_output(start + 1149 * MS);
        assert_eq!(policy.due(start + 1398 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 1399 * MS, true), Due::StopReading, "nothing was taken");
        policy.note_output(start + 5999 * MS);
        assert_eq!(policy.due(start + 5999 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 6000 * MS, true), Due::StopReading, "in all");
        policy.note_tee_blocked(false);
        assert_eq!(policy.due(start + 1000 * MS, true), Due::StopReading, "no tee");
        assert_eq!(policy.stopped(), None);
    }

    #[test]
    fn a_stream_that_seems_to_be_held_is_looked_at_again() {
        let (mut policy, start) = policy(|rules| rules.linger = Linger::StopAtExit);
        policy.note_end(start);
        assert_eq!(policy.due(start, true), Due::Nothing);
        assert_eq!(policy.due(start + MS, true), Due::StopReading);
        assert!(policy.look_again(start + MS), "a start is under way");
        assert_eq!(policy.next(true), Some(start + 2 * MS));
        assert_eq!(policy.due(start + MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 2 * MS, true), Due::StopReading);
        assert!(policy.look_again(start + LOOKS_CAP));
        assert_eq!(policy.due(start + LOOKS_CAP + MS, true), Due::StopReading);
        assert!(!policy.look_again(start + LOOKS_CAP + MS), "a start that hangs holds it");
        assert_eq!(policy.due(start + LOOKS_CAP + MS, true), Due::StopReading);
    }

    #[test]
    fn the_limits_are_told_as_given() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(100 * MS);
            rules.idle_timeout = Some(30 * MS);
        });
        assert_eq!(policy.deadline(), Some(start + 100 * MS));
        assert_eq!(policy.idle_timeout(), Some(30 * MS));
        assert!(!policy.is_tee_blocked());
        policy.note_tee_blocked(true);
        assert!(policy.is_tee_blocked());
    }

    #[test]
    fn the_time_is_up_at_either_limit_until_an_end_or_a_stop() {
        let limits = |rules: &mut Rules| {
            rules.timeout = Some(100 * MS);
            rules.idle_timeout = Some(30 * MS);
        };
        let (mut timed, start) = policy(limits);
        let is_up = |policy: &StopPolicy| [29, 30].map(|ms| policy.is_time_up(start + ms * MS));
        assert_eq!(is_up(&timed), [false, true]);
        timed.note_output(start + 90 * MS);
        let is_up =
            |policy: &StopPolicy| [99, 100, 101].map(|ms| policy.is_time_up(start + ms * MS));
        assert_eq!(is_up(&timed), [false, true, true]);
        timed.note_end(start + 95 * MS);
        assert_eq!(is_up(&timed), [false; 3]);
        // Nor once a stop has begun.
        let (mut stopped, start) = policy(limits);
        assert_eq!(stopped.stop(Outcome::Cancelled, start), Due::SendStopSignal);
        assert!(!stopped.is_time_up(start + 100 * MS));
    }

    #[test]
    fn nothing_is_due_after_the_end_without_open_streams() {
        let (mut policy, start) = policy(|rules| rules.timeout = Some(100 * MS));
        assert_eq!(policy.next(false), Some(start + 100 * MS));
        policy.note_end(start + 10 * MS);
        assert_eq!(policy.next(false), None);
        assert_eq!(policy.due(start + 200 * MS, false), Due::Nothing);
    }

    #[test]
    fn no_kill_follows_when_all_that_the_stop_reaches_are_gone() {
        let (mut policy, start) = policy(|rules| rules.kill_grace = 50 * MS);
        assert_eq!(policy.stop(Outcome::Cancelled, start), Due::SendStopSignal);
        policy.note_end(start + 10 * MS);
        // Descendants may still write: the streams are not given up before the kill.
        assert_eq!(policy.next(true), Some(start + 50 * MS));
        policy.note_all_gone(start + 20 * MS);
        policy.note_all_gone(start + 30 * MS);
        assert_eq!(policy.next(false), None);
        assert_eq!(policy.next(true), Some(start + 30 * MS));
        assert_eq!(policy.due(start + 29 * MS, true), Due::Nothing);
        assert_eq!(policy.due(start + 30 * MS, true), Due::StopReading);
        assert_eq!(policy.due(start + 50 * MS, false), Due::Nothing);
        // A tee gets its time then.
        policy.note_tee_blocked(true);
        assert_eq!(policy.next(true), Some(start + 20 * MS + TEE_QUIET));
    }

    #[test]
    fn a_shorter_grace_counts_after_the_stop_signal_and_a_longer_one_does_not() {
        let (mut policy, start) = policy(|rules| rules.kill_grace = 500 * MS);
        policy.set_grace(100 * MS, start);
        assert_eq!(policy.stop(Outcome::Cancelled, start), Due::SendStopSignal);
        assert_eq!(policy.next(false), Some(start + 100 * MS));
        policy.set_grace(900 * MS, start);
        assert_eq!(policy.next(false), Some(start + 100 * MS));
        policy.set_grace(20 * MS, start + 10 * MS);
        assert_eq!(policy.next(false), Some(start + 30 * MS));
        assert_eq!(policy.due(start + 30 * MS, false), Due::Kill);
    }

    #[test]
    fn the_waits_after_a_kill_are_bounded() {
        let (mut policy, start) = policy(|rules| rules.kill_grace = Duration::ZERO);
        assert_eq!((policy.killed_wait_ends(), policy.killed_child_wait_ends()), (None, None));
        assert_eq!(policy.stop(Outcome::Cancelled, start), Due::Kill);
        assert_eq!(policy.killed_wait_ends(), Some(start + KILLED_WAIT));
        assert_eq!(policy.killed_child_wait_ends(), Some(start + KILLED_CHILD_WAIT));
        policy.note_end(start + 10 * MS);
        assert_eq!(policy.killed_wait_ends(), Some(start + KILLED_WAIT));
        assert_eq!(policy.killed_child_wait_ends(), None);
    }

    /// On Windows the last frame of a killed terminal comes with the close of its console.
    #[test]
    fn a_terminal_that_closes_is_read_to_its_end() {
        let (mut policy, start) = policy(|rules| {
            rules.timeout = Some(100 * MS);
            rules.kill_grace = Duration::ZERO;
        });
        assert_eq!(policy.due(start + 100 * MS, true), Due::Kill);
        policy.note_terminal_closes();
        policy.note_end(start + 110 * MS);
        policy.note_all_gone(start + 110 * MS);
        assert_eq!(policy.due(start + 300 * MS, true), Due::Nothing);
        assert_eq!(policy.next(true), Some(start + 2_110 * MS));
        assert_eq!(policy.due(start + 2_110 * MS, true), Due::StopReading);
    }

    #[test]
    fn a_terminal_that_closes_after_a_normal_end_is_read_to_its_end() {
        let lingers = [
            (Linger::Settle { quiet: 10 * MS, cap: 40 * MS }, Some(2_000 * MS)),
            (Linger::StopAtExit, Some(MS)),
            (Linger::UntilEof, None),
        ];
        for (linger, ends_after) in lingers {
            let (mut policy, start) = policy(|rules| rules.linger = linger);
            policy.note_terminal_closes();
            policy.note_end(start);
            assert_eq!(policy.next(true), ends_after.map(|after| start + after), "{linger:?}");
        }
    }
}
