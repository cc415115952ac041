//! Tests of attempts: retries, delays, lost jobs, stops under pressure; and of the early end: drain, stop, limits of
//! failures.

use std::num::NonZeroU64;

use super::*;
use crate::scheduler::attempts::FailureSet;
use crate::vocabulary::{Failure, Halt, HaltAt, HaltRule};

#[test]
fn a_job_that_waits_for_its_retry_takes_no_slot() {
    let mut told = Told::new(1);
    told.add_started(1, Spec { retries: 1, ..named("flaky") });
    told.add_waiting(2, after(&["flaky"]));
    told.add_waiting(3, job());
    let decisions = told.end(1, FAILED);
    let retry = Decision::Retry { job: JobNumber(1), delay: Duration::from_secs(1) };
    assert_eq!(decisions[0], retry);
    assert_eq!(started(&decisions), [3]);
    assert_eq!(told.tell(Event::RetryDue { job: JobNumber(1) }), []);
    // A report of the first attempt comes late.
    assert_eq!(told.end(1, Ok(())), []);
    let start = Decision::Start { job: JobNumber(1), slot: 1, attempt: 2 };
    assert_eq!(told.end(3, Ok(())).last(), Some(&start));
    let decisions = told.end_attempt(1, 2, FAILED);
    let expected = [(1, failed(Failure::ExitCode)), (2, skipped(1))];
    assert_eq!(settled(&decisions), expected);
}

#[test]
fn only_chosen_classes_are_retried() {
    let mut told = Told::with(1, |config| {
        config.retry.on = [Failure::TimedOut, Failure::Lost].into_iter().collect();
    });
    for (number, failure) in (1..).zip(Failure::ALL) {
        told.add(number, Spec { retries: 1, ..job() });
        let decisions = told.end(number, Err(failure));
        let is_retried = matches!(decisions[0], Decision::Retry { .. });
        assert_eq!(is_retried, [Failure::TimedOut, Failure::Lost].contains(&failure));
    }
}

#[test]
fn a_failure_that_was_not_chosen_is_not_retried_and_a_loss_is_queued_all_the_same() {
    let mut told = Told::with(1, |config| config.max_lost = 2);
    let mut fail = |number: u64, failure| {
        told.add(number, Spec { retries: 1, ..job() });
        told.tell(Event::Failed { job: JobNumber(number), attempt: 1, failure })
    };
    assert_eq!(settled(&fail(1, Failure::ExitCode)), [(1, failed(Failure::ExitCode))]);
    let queued = Decision::Requeue { job: JobNumber(2), cause: Requeued::Lost };
    assert_eq!(fail(2, Failure::Lost)[0], queued);
}

#[test]
fn a_lost_once_job_is_unknown_and_never_runs_again() {
    let mut told = Told::new(1);
    told.add(1, Spec { retries: 5, name: Some("payment".into()), ..once() });
    told.add(2, after(&["payment"]));
    told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
    let decisions = told.end(1, Err(Failure::Lost));
    assert_eq!(settled(&decisions), [(1, UNKNOWN), (2, skipped(1))]);
}

#[test]
fn each_attempt_of_a_once_job_needs_its_own_intent() {
    let mut told = Told::new(1);
    told.add(1, Spec { retries: 1, ..once() });
    told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
    told.end(1, Err(Failure::StartFailed));
    let intend = Decision::Intend { job: JobNumber(1), attempt: 2, durable: true };
    assert_eq!(told.tell(Event::RetryDue { job: JobNumber(1) }), [intend]);
    assert_eq!(told.tell(Event::Intended { job: JobNumber(1), attempt: 1 }), []);
    assert_eq!(started(&told.tell(Event::Intended { job: JobNumber(1), attempt: 2 })), [1]);
}

#[test]
fn delays_double_up_to_the_longest() {
    let policy = RetryPolicy { delay: Duration::from_millis(1500), ..config(1).retry };
    let seconds = |retry| policy.delay(7, JobNumber(1), retry).as_secs_f64();
    let delays: Vec<f64> = (1..=8).map(seconds).collect();
    assert_eq!(delays, [1.5, 3.0, 6.0, 12.0, 24.0, 48.0, 60.0, 60.0]);
    assert_eq!(seconds(u32::MAX), 60.0);
    let endless = RetryPolicy { delay: Duration::MAX, max_delay: Duration::MAX, ..policy };
    for jitter_percent in [0, 50, 100] {
        RetryPolicy { jitter_percent, ..endless }.delay(7, JobNumber(1), u32::MAX);
    }
}

#[test]
fn jitter_spreads_delays_over_its_range() {
    let longest = Duration::from_secs(8);
    for (jitter_percent, shortest) in [(100, 0.0), (50, 4.0)] {
        let policy =
            RetryPolicy { jitter_percent, delay: longest, max_delay: longest, ..config(1).retry };
        let delay = |job| policy.delay(7, JobNumber(job), 1);
        let seconds: Vec<f64> = (0..1000).map(|job| delay(job).as_secs_f64()).collect();
        let (least, most) = seconds
            .iter()
            .fold((9.0_f64, 0.0_f64), |(least, most), it| (least.min(*it), most.max(*it)));
        let mean = seconds.iter().sum::<f64>() / 1000.0;
        assert!(least >= shortest && least < shortest + 0.1, "{jitter_percent} %: from {least}");
        assert!(most <= 8.0 && most > 7.9, "{jitter_percent} %: to {most}");
        let middle = (shortest + 8.0) / 2.0;
        assert!((mean - middle).abs() < 0.3, "{jitter_percent} %: mean {mean}");
        // It depends on the seed, the job and the retry, and on nothing else.
        assert_eq!(delay(1), policy.delay(7, JobNumber(1), 1));
        assert_ne!(delay(1), policy.delay(8, JobNumber(1), 1));
        assert_ne!(delay(1), policy.delay(7, JobNumber(1), 2));
        assert_ne!(delay(1), delay(2));
    }
    // No two jobs or retries share a delay by the shape of their numbers.
    let equal =
        RetryPolicy { jitter_percent: 50, delay: longest, max_delay: longest, ..config(1).retry };
    let delays = |job| (0..64).map(move |retry| equal.delay(0, JobNumber(job), retry));
    assert_eq!((0..64).flat_map(delays).collect::<std::collections::HashSet<_>>().len(), 64 * 64);
    // The range has both of its ends.
    let shortest = RetryPolicy { delay: Duration::from_nanos(2), ..equal };
    let delays: Vec<_> =
        (0..64).map(|job| shortest.delay(0, JobNumber(job), 1).as_nanos()).collect();
    assert!(delays.contains(&1) && delays.contains(&2), "{delays:?}");
}

#[test]
fn the_numbers_behind_the_jitter_are_those_of_splitmix64() {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let first = [0, STEP, STEP.wrapping_mul(2)].map(crate::scheduler::attempts::mixed);
    assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
}

#[test]
fn a_failure_that_is_named_twice_is_retried() {
    let set: FailureSet = [Failure::TimedOut, Failure::TimedOut].into_iter().collect();
    assert!(set.contains(Failure::TimedOut) && !set.contains(Failure::Lost));
}

#[test]
fn the_youngest_job_is_shed_and_runs_again_without_a_retry() {
    let mut told = Told::new(3);
    let shed = Event::Pressure(Pressure::Shed);
    for number in 1..=3 {
        told.add_started(number, job());
    }
    assert_eq!(told.tell(shed.clone()), [stop(3)]);
    assert_eq!(told.tell(shed.clone()), [stop(2)]);
    assert_eq!(told.tell(shed.clone()), [], "the last one goes on");
    let requeue = Decision::Requeue { job: JobNumber(3), cause: Requeued::Pressure };
    assert_eq!(told.end(3, Err(Failure::Signalled)), [requeue]);
    assert_eq!(told.end(2, Ok(())), [Decision::Settle { job: JobNumber(2), end: SUCCEEDED }]);
    let decisions = told.tell(Event::Pressure(Pressure::None));
    assert_eq!(decisions.last(), Some(&Decision::Start { job: JobNumber(3), slot: 2, attempt: 2 }));
}

#[test]
fn once_jobs_are_not_shed() {
    let mut told = Told::new(3);
    told.add_started(1, job());
    told.add(2, once());
    told.tell(Event::Intended { job: JobNumber(2), attempt: 1 });
    assert_eq!(told.tell(Event::Pressure(Pressure::Shed)), [stop(1)]);
    assert_eq!(told.tell(Event::Pressure(Pressure::Shed)), []);
}

#[test]
fn a_job_that_ran_out_of_memory_gets_twice_as_much_and_keeps_its_retries() {
    let mut told = Told::with(2, |config| config.limits.memory_bytes = Some(1000));
    let most = Spec { most_memory_bytes: Some(700), retries: 1, ..memory(200) };
    told.add_started(1, most);
    let job = JobNumber(1);
    for (attempt, bytes) in [(1, 400), (2, 700)] {
        assert_eq!(told.0.memory_bytes(job), Some(if attempt == 1 { 200 } else { 400 }));
        let decisions = told.end_attempt(1, attempt, Err(Failure::OutOfMemory));
        assert_eq!(decisions[0], Decision::Requeue { job, cause: Requeued::MoreMemory });
        assert_eq!(started(&decisions), [1]);
        assert_eq!(told.0.memory_bytes(job), Some(bytes));
    }
    // It has all that it may have: this is a failure like any other, and its retry is left.
    let decisions = told.end_attempt(1, 3, Err(Failure::OutOfMemory));
    assert!(matches!(decisions[..], [Decision::Retry { .. }]), "{decisions:?}");
}

#[test]
fn more_memory_is_reserved_before_the_next_attempt() {
    let mut told = Told::with(2, |config| config.limits.memory_bytes = Some(1000));
    told.add_started(1, memory(600));
    told.add_started(2, Spec { most_memory_bytes: Some(5000), ..memory(300) });
    let decisions = told.end(2, Err(Failure::OutOfMemory));
    let cause = Requeued::MoreMemory;
    assert_eq!(decisions, [Decision::Requeue { job: JobNumber(2), cause }], "600 of 1000 are used");
    let decisions = told.end(1, Ok(()));
    assert_eq!(started(&decisions), [2]);
    assert_eq!(told.0.memory_bytes(JobNumber(2)), Some(600));
    let decisions = told.end_attempt(2, 2, Err(Failure::OutOfMemory));
    assert_eq!(started(&decisions), [2]);
    assert_eq!(told.0.memory_bytes(JobNumber(2)), Some(1000), "all that the batch has");
}

#[test]
fn only_a_job_that_ran_out_of_memory_and_may_run_again_gets_more() {
    let mut told = Told::new(4);
    let most = || Spec { most_memory_bytes: Some(700), ..memory(200) };
    told.add_started(1, most());
    assert_eq!(settled(&told.end(1, FAILED)), [(1, failed(Failure::ExitCode))]);
    told.add_started(2, memory(200));
    let out_of_memory = Err(Failure::OutOfMemory);
    assert_eq!(settled(&told.end(2, out_of_memory)), [(2, failed(Failure::OutOfMemory))]);
    told.add(3, Spec { once: true, ..most() });
    let decisions = told.tell(Event::Intended { job: JobNumber(3), attempt: 1 });
    assert_eq!(started(&decisions), [3]);
    assert_eq!(settled(&told.end(3, out_of_memory)), [(3, failed(Failure::OutOfMemory))]);
}

#[test]
fn a_once_job_that_was_stopped_is_unknown_unless_it_could_not_be_started() {
    let outcomes = [
        (Err(Failure::Signalled), UNKNOWN),
        (FAILED, UNKNOWN),
        (Err(Failure::Lost), UNKNOWN),
        (Err(Failure::StartFailed), STOPPED),
        (Ok(()), SUCCEEDED),
    ];
    for (result, outcome) in outcomes {
        let mut told = Told::new(1);
        told.add(1, once());
        told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
        assert_eq!(told.tell(Event::Stop), [stop(1)]);
        assert_eq!(settled(&told.end(1, result)), [(1, outcome)]);
    }
    // It has run before: as stopped, it would run again in a resumed batch.
    let mut told = Told::new(1);
    told.add(1, Spec { retries: 1, ..once() });
    told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
    told.end(1, FAILED);
    told.tell(Event::RetryDue { job: JobNumber(1) });
    told.tell(Event::Intended { job: JobNumber(1), attempt: 2 });
    assert_eq!(told.tell(Event::Stop), [stop(1)]);
    let end = told.end_attempt(1, 2, Err(Failure::StartFailed));
    assert_eq!(settled(&end), [(1, failed(Failure::StartFailed))]);
}

#[test]
fn a_job_whose_next_attempt_is_due_at_the_end_is_stopped() {
    for event in [Event::Stop, Event::Drain] {
        // It waits for its retry.
        let mut told = Told::new(2);
        told.add_started(1, Spec { retries: 3, ..job() });
        told.end(1, FAILED);
        assert_eq!(settled(&told.tell(event.clone())), [(1, STOPPED)]);
        // It has failed by itself, which a resumed run would not repeat.
        let mut told = Told::new(2);
        told.add(1, Spec { retries: 3, ..once() });
        told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
        told.end(1, FAILED);
        assert_eq!(settled(&told.tell(event)), [(1, failed(Failure::ExitCode))]);
    }
    // Its attempt ends while the batch is drained.
    for failure in [Failure::ExitCode, Failure::Lost] {
        let mut told = Told::with(2, |config| config.max_lost = 2);
        told.add_started(1, Spec { retries: 3, ..job() });
        told.tell(Event::Drain);
        assert_eq!(settled(&told.end(1, Err(failure))), [(1, STOPPED)]);
    }
}

#[test]
fn a_job_whose_answer_is_lost_is_unknown_and_repeated_only_by_its_retries() {
    let unanswered = |attempt| Event::Unanswered { job: JobNumber(1), attempt };
    let may_be_lost = |config: &mut Config| config.max_lost = 9;
    let mut told = Told::with(2, may_be_lost);
    told.add_started(1, job());
    assert_eq!(settled(&told.tell(unanswered(1))), [(1, UNKNOWN)]);
    // Its retries say that it may be repeated.
    let mut told = Told::with(2, may_be_lost);
    told.add_started(1, Spec { retries: 1, ..job() });
    assert!(matches!(told.tell(unanswered(1))[..], [Decision::Retry { .. }]));
    told.tell(Event::RetryDue { job: JobNumber(1) });
    assert_eq!(settled(&told.tell(unanswered(2))), [(1, UNKNOWN)]);
    // A retry is not for what was stopped, nor for a batch that ends.
    for event in [Event::Stop, Event::Drain] {
        let mut told = Told::with(2, may_be_lost);
        told.add_started(1, Spec { retries: 1, ..job() });
        told.tell(event);
        assert_eq!(settled(&told.tell(unanswered(1))), [(1, UNKNOWN)]);
    }
}

#[test]
fn a_job_whose_output_is_lost_is_not_done() {
    let mut told = Told::new(1);
    told.add_started(1, named("one"));
    told.add(2, after(&["one"]));
    let decisions = told.tell(Event::Unstored { job: JobNumber(1), attempt: 1 });
    let unstored = JobEnd { outcome: JobOutcome::Failed, cause: Some(Cause::Unstored) };
    assert_eq!(settled(&decisions), [(1, unstored), (2, skipped(1))]);
    // One that must not run twice has run.
    let mut told = Told::new(1);
    told.add(1, Spec { once: true, ..named("one") });
    told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
    told.add(2, after(&["one"]));
    let decisions = told.tell(Event::Unstored { job: JobNumber(1), attempt: 1 });
    assert_eq!(settled(&decisions), [(1, UNKNOWN), (2, skipped(1))]);
}

// Tests of the early end: drain, stop, limits of failures.

fn limited(slots: u32, at: HaltAt, stops_running: bool) -> Told {
    Told::with(slots, |config| config.halt = Some(HaltRule { at, stops_running }))
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
    assert_eq!(told.0.halted(), Some(Halt::Drain));
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
    for (stops_running, stops) in [(false, vec![]), (true, vec![stop(1)])] {
        let mut told = limited(2, HaltAt::Failures(NonZeroU64::MIN), stops_running);
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
        assert_eq!(told.0.halted(), Some(Halt::Failures));
    }
}

#[test]
fn a_number_of_failures_is_counted_without_skipped_jobs_and_earlier_runs() {
    let mut told = limited(1, HaltAt::Failures(NonZeroU64::new(2).unwrap()), false);
    told.add(1, Spec { past: Some(failed(Failure::ExitCode)), ..job() });
    told.add(2, Spec { past: Some(UNKNOWN), ..job() });
    told.add_started(3, named("three"));
    told.add(4, after(&["three"]));
    told.end(3, FAILED);
    assert_eq!(told.0.halted(), None);
    told.add_started(5, job());
    told.end(5, FAILED);
    assert_eq!(told.0.halted(), Some(Halt::Failures));
}

#[test]
fn a_percentage_of_an_unknown_number_needs_three_failures() {
    let mut told = limited(1, HaltAt::FailedPercent(50), false);
    for (number, result) in (1..).zip([FAILED, FAILED, Ok(()), Ok(()), Ok(()), FAILED]) {
        assert_eq!(told.0.halted(), None);
        told.add_started(number, job());
        told.end(number, result);
    }
    assert_eq!(told.0.halted(), Some(Halt::Failures), "3 of 6");
}

#[test]
fn a_percentage_of_a_known_number_counts_from_the_first_failure() {
    let mut told = Told::with(1, |config| {
        config.halt = Some(HaltRule { at: HaltAt::FailedPercent(10), stops_running: false });
        config.total = Some(20);
    });
    for number in 1..=2 {
        assert_eq!(told.0.halted(), None);
        told.add_started(number, job());
        told.end(number, FAILED);
    }
    assert_eq!(told.0.halted(), Some(Halt::Failures), "2 of 20");
    let mut told = limited(1, HaltAt::FailedPercent(50), false);
    told.add_started(1, job());
    told.end(1, FAILED);
    told.add_started(2, job());
    assert_eq!(told.0.halted(), None);
    told.tell(Event::InputEnded);
    assert_eq!(told.0.halted(), Some(Halt::Failures), "1 of 2");
}

#[test]
fn enough_successes_end_a_batch() {
    for (stops_running, stops) in [(false, vec![]), (true, vec![stop(4)])] {
        let mut told = limited(2, HaltAt::Successes(NonZeroU64::new(2).unwrap()), stops_running);
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
        assert_eq!(told.0.halted(), Some(Halt::Successes));
    }
}

#[test]
fn a_batch_without_failures_never_reaches_a_limit() {
    let mut told = limited(1, HaltAt::FailedPercent(0), true);
    told.tell(Event::InputEnded);
    assert!(told.0.is_finished());
    assert_eq!(told.0.halted(), None);
}
