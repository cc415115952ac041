//! Tests of the times and phases, without a child.

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
    let (mut policy, start) = policy(limits);
    let is_up = |policy: &StopPolicy| [29, 30].map(|ms| policy.is_time_up(start + ms * MS));
    assert_eq!(is_up(&policy), [false, true]);
    policy.note_output(start + 90 * MS);
    let is_up = |policy: &StopPolicy| [99, 100, 101].map(|ms| policy.is_time_up(start + ms * MS));
    assert_eq!(is_up(&policy), [false, true, true]);
    policy.note_end(start + 95 * MS);
    assert_eq!(is_up(&policy), [false; 3]);
    // Nor once a stop has begun.
    let (mut policy, start) = super::tests::policy(limits);
    assert_eq!(policy.stop(Outcome::Cancelled, start), Due::SendStopSignal);
    assert!(!policy.is_time_up(start + 100 * MS));
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
