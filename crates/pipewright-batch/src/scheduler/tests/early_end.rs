//! Tests of the early end: drain, stop, limits of failures.

use std::num::NonZeroU64;

use super::*;
use crate::vocabulary::Failure;

fn limited(slots: u32, limit: HaltLimit, then: OnLimit) -> Told {
    Told::with(slots, |config| config.halt = HaltPolicy { limit, then })
}

#[test]
fn drain_lets_running_jobs_end_and_settles_the_rest() {
    let mut told = Told::new(2);
    told.add_waiting(0, after(&["one", "unread"]));
    told.add_started(1, Spec { retries: 1, ..named("one") });
    told.end(1, FAILED);
    told.add_started(2, Spec { retries: 1, ..named("two") });
    told.add(3, once());
    told.add_waiting(4, after(&["two"]));
    told.add_waiting(5, job());
    let decisions = told.tell(Event::Drain);
    let not_run = |job| (job, NOT_RUN);
    // A resumed batch goes on with its attempts.
    let stopped = |job| (job, STOPPED);
    let expected = [stopped(1), (0, skipped(1)), not_run(3), not_run(4), not_run(5)];
    assert_eq!(settled(&decisions), expected);
    assert_eq!(decisions.len(), expected.len(), "nothing is stopped");
    assert!(!told.0.wants_input() && !told.0.is_finished());
    // The once job has not started, and its late intent does not start it.
    assert_eq!(told.tell(Event::Intended { job: JobNumber(3), attempt: 1 }), []);
    assert_eq!(settled(&told.add(6, job())), [not_run(6)]);
    assert_eq!(settled(&told.end(2, FAILED)), [stopped(2)], "without a retry");
    assert!(told.0.is_finished());
}

#[test]
fn stop_stops_running_jobs_once() {
    let mut told = Told::new(3);
    for number in 1..=3 {
        told.add_started(number, Spec { retries: 1, ..job() });
    }
    told.tell(Event::Drain);
    assert_eq!(told.tell(Event::Stop), [stop(1), stop(2), stop(3)]);
    assert_eq!(told.tell(Event::Stop), []);
    assert_eq!(told.tell(Event::Pressure(Pressure::Shed)), []);
    assert_eq!(settled(&told.end(1, Err(Failure::Signalled))), [(1, STOPPED)]);
    assert_eq!(settled(&told.end(2, Ok(()))), [(2, SUCCEEDED)]);
    told.end(3, Err(Failure::TimedOut));
    assert!(told.0.is_finished());
    assert_eq!(told.0.halted(), Some(HaltCause::Drain));
}

#[test]
fn a_job_that_was_shed_before_the_end_is_stopped() {
    let mut told = Told::new(3);
    for number in 1..=3 {
        told.add_started(number, job());
    }
    told.tell(Event::Pressure(Pressure::Shed));
    told.end(3, Err(Failure::Signalled));
    told.tell(Event::Pressure(Pressure::Shed));
    let decisions = told.tell(Event::Stop);
    let expected = Decision::Settle { job: JobNumber(3), end: STOPPED };
    assert_eq!(decisions, [expected, stop(1)], "job 2 is stopped already");
    assert_eq!(settled(&told.end(2, Err(Failure::Signalled))), [(2, STOPPED)]);
}

#[test]
fn fail_fast_drains_or_stops() {
    for (then, stops) in [(OnLimit::Drain, vec![]), (OnLimit::Stop, vec![stop(1)])] {
        let mut told = limited(2, HaltLimit::Failures(NonZeroU64::MIN), then);
        told.add_started(1, job());
        told.add_started(2, Spec { retries: 1, ..job() });
        told.add_waiting(3, job());
        assert_eq!(started(&told.end(2, FAILED)), [3], "a failure is final after its retries");
        told.add_waiting(4, job());
        let decisions = told.end(3, FAILED);
        let failed = |job| (job, failed(Failure::ExitCode));
        let stopped = (2, STOPPED);
        assert_eq!(settled(&decisions), [failed(3), stopped, (4, NOT_RUN)]);
        assert_eq!(decisions[3..], stops);
        assert_eq!(told.0.halted(), Some(HaltCause::Failures));
    }
}

#[test]
fn a_number_of_failures_is_counted_without_skipped_jobs_and_earlier_runs() {
    let mut told = limited(1, HaltLimit::Failures(NonZeroU64::new(2).unwrap()), OnLimit::Drain);
    told.add(1, Spec { past: Some(failed(Failure::ExitCode)), ..job() });
    told.add(2, Spec { past: Some(UNKNOWN), ..job() });
    told.add_started(3, named("three"));
    told.add(4, after(&["three"]));
    told.end(3, FAILED);
    assert_eq!(told.0.halted(), None);
    told.add_started(5, job());
    told.end(5, FAILED);
    assert_eq!(told.0.halted(), Some(HaltCause::Failures));
}

#[test]
fn a_percentage_of_an_unknown_number_needs_three_failures() {
    let mut told = limited(1, HaltLimit::FailedPercent(50), OnLimit::Drain);
    for (number, result) in (1..).zip([FAILED, FAILED, Ok(()), Ok(()), Ok(()), FAILED]) {
        assert_eq!(told.0.halted(), None);
        told.add_started(number, job());
        told.end(number, result);
    }
    assert_eq!(told.0.halted(), Some(HaltCause::Failures), "3 of 6");
}

#[test]
fn a_percentage_of_a_known_number_counts_from_the_first_failure() {
    let mut told = Told::with(1, |config| {
        config.halt.limit = HaltLimit::FailedPercent(10);
        config.total = Some(20);
    });
    for number in 1..=2 {
        assert_eq!(told.0.halted(), None);
        told.add_started(number, job());
        told.end(number, FAILED);
    }
    assert_eq!(told.0.halted(), Some(HaltCause::Failures), "2 of 20");
    let mut told = limited(1, HaltLimit::FailedPercent(50), OnLimit::Drain);
    told.add_started(1, job());
    told.end(1, FAILED);
    told.add_started(2, job());
    assert_eq!(told.0.halted(), None);
    told.tell(Event::InputEnded);
    assert_eq!(told.0.halted(), Some(HaltCause::Failures), "1 of 2");
}

#[test]
fn enough_successes_end_a_batch() {
    for (then, stops) in [(OnLimit::Drain, vec![]), (OnLimit::Stop, vec![stop(4)])] {
        let mut told = limited(2, HaltLimit::Successes(NonZeroU64::new(2).unwrap()), then);
        told.add(1, Spec { past: Some(SUCCEEDED), ..job() });
        told.add_started(2, job());
        told.add_started(3, job());
        told.end(2, Ok(()));
        told.add_started(4, job());
        told.add_waiting(5, job());
        assert_eq!(told.0.halted(), None, "an earlier run does not count");
        let decisions = told.end(3, Ok(()));
        assert_eq!(settled(&decisions), [(3, SUCCEEDED), (5, NOT_RUN)]);
        assert_eq!(decisions[2..], stops);
        assert_eq!(told.0.halted(), Some(HaltCause::Successes));
    }
}

#[test]
fn a_batch_without_failures_never_reaches_a_limit() {
    let mut told = limited(1, HaltLimit::FailedPercent(0), OnLimit::Stop);
    told.tell(Event::InputEnded);
    assert!(told.0.is_finished());
    assert_eq!(told.0.halted(), None);
}
