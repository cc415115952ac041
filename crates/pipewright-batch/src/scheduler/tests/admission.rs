//! Tests of admission: slots, resources, order, memory; and of large graphs: no recursion, no work that is done again
//! and again.

use super::*;
use crate::vocabulary::Failure;

#[test]
fn the_lowest_free_slot_is_given_out() {
    let mut told = Told::new(3);
    let slot = |decisions: &[Decision]| match decisions.last() {
        Some(Decision::Start { slot, .. }) => *slot,
        other => panic!("{other:?}"),
    };
    let slots: Vec<u32> = (1..=3).map(|number| slot(&told.add(number, job()))).collect();
    assert_eq!(slots, [1, 2, 3]);
    told.end(3, Ok(()));
    told.end(1, Ok(()));
    told.end(2, Ok(()));
    let slots: Vec<u32> = (4..=6).map(|number| slot(&told.add(number, job()))).collect();
    assert_eq!(slots, [1, 2, 3]);
}

#[test]
fn an_intent_comes_right_before_its_start() {
    let mut told = Told::new(1);
    let job_number = JobNumber(1);
    let expected = [
        Decision::Intend { job: job_number, attempt: 1, durable: false },
        Decision::Start { job: job_number, slot: 1, attempt: 1 },
    ];
    assert_eq!(told.add(1, job()), expected);
}

#[test]
fn once_jobs_start_after_their_durable_intent() {
    let mut told = Told::new(1);
    let job_number = JobNumber(1);
    let intend = Decision::Intend { job: job_number, attempt: 1, durable: true };
    assert_eq!(told.add(1, once()), [intend]);
    // Its slot is taken, although it does not run.
    told.add_waiting(2, job());
    assert_eq!(told.tell(Event::Intended { job: job_number, attempt: 2 }), []);
    let start = Decision::Start { job: job_number, slot: 1, attempt: 1 };
    assert_eq!(told.tell(Event::Intended { job: job_number, attempt: 1 }), [start]);
    assert_eq!(told.tell(Event::Intended { job: job_number, attempt: 1 }), []);
}

#[test]
fn nothing_starts_while_the_log_fails() {
    let mut told = Told::new(3);
    told.add(1, once());
    told.add_started(2, job());
    assert_eq!(told.tell(Event::LogFailed), []);
    assert!(!told.0.wants_input());
    told.add_waiting(3, job());
    // Its intent was durable just before.
    assert_eq!(told.tell(Event::Intended { job: JobNumber(1), attempt: 1 }), []);
    assert_eq!(settled(&told.end(2, Ok(()))), [(2, SUCCEEDED)]);
    assert_eq!(started(&told.tell(Event::LogWorks)), [1, 3]);
    assert!(told.0.wants_input());
}

#[test]
fn a_job_that_was_ready_late_starts_before_later_ones() {
    let mut told = Told::new(1);
    told.add_started(1, named("first"));
    told.add_waiting(2, after(&["first"]));
    told.add_waiting(3, job());
    assert_eq!(started(&told.end(1, Ok(()))), [2]);
}

#[test]
fn jobs_share_slots_by_their_cpus() {
    let mut told = Told::new(4);
    told.add_started(1, cpus(3));
    told.add_waiting(2, cpus(2));
    told.add_started(3, job());
    assert_eq!(started(&told.end(1, Ok(()))), [2]);
}

#[test]
fn needs_that_nobody_has_are_refused() {
    let mut told = Told::with(2, |config| {
        config.limits.memory_bytes = Some(1000);
        config.limits.named = vec![resource_kind("link", 2)];
    });
    let twice = vec![ResourceNeed { kind: 0, count: 2 }, ResourceNeed { kind: 0, count: 1 }];
    let too_many = Spec { needs: Needs { named: twice, ..one_cpu() }, ..job() };
    let mut refused = |spec| match told.try_add(1, spec) {
        Err(error @ AddError::Needs(_)) => std::error::Error::source(&error).unwrap().to_string(),
        other => panic!("{other:?}"),
    };
    let cases = [
        (cpus(3), "needs 3 CPUs, and the batch has 2: allow more jobs at once"),
        (memory(1001), "needs 1001 bytes of memory, and the batch may use 1000"),
        (taking(1, 1), "needs the resource 1, which the batch does not have"),
        (taking(0, 3), "needs 3 of the resource \"link\", and the batch has 2"),
        (too_many, "needs 3 of the resource \"link\", and the batch has 2"),
    ];
    for (spec, message) in cases {
        assert_eq!(refused(spec), message);
    }
    // The number is still free, and so is everything else.
    told.add_started(1, Spec { needs: Needs { cpus: count(2), ..taking(0, 2).needs }, ..job() });
}

#[test]
fn needs_that_are_nothing_are_no_needs() {
    let mut told = Told::with(2, |config| {
        config.limits.memory_bytes = Some(0);
        config.limits.named = vec![resource_kind("link", 0)];
    });
    told.add_started(1, memory(0));
    told.add_started(2, taking(0, 0));
}

#[test]
fn a_large_job_is_overtaken_only_so_often() {
    let mut told = Told::new(4);
    for number in 1..=4 {
        told.add_started(number, job());
    }
    told.add_waiting(5, cpus(4));
    let mut running: std::collections::VecDeque<u64> = (1..=4).collect();
    for number in 6.. {
        told.add(number, job());
        let ended = running.pop_front().unwrap();
        let started = started(&told.end(ended, Ok(())));
        if started.is_empty() {
            // From here on, CPUs are kept for it.
            assert_eq!(number, 6 + u64::from(PATIENCE));
            break;
        }
        running.extend(started);
    }
    let last = running.pop_back().unwrap();
    for number in running {
        assert_eq!(started(&told.end(number, Ok(()))), [] as [u64; 0]);
    }
    assert_eq!(started(&told.end(last, Ok(()))), [5]);
}

#[test]
fn a_job_that_needs_two_resources_does_not_starve_between_them() {
    // Each token alone is never free for long, and both together never, unless one is kept.
    let kinds = vec![resource_kind("left", 1), resource_kind("right", 1)];
    let mut told = Told::with(8, |config| config.limits.named = kinds);
    let both = vec![ResourceNeed { kind: 0, count: 1 }, ResourceNeed { kind: 1, count: 1 }];
    told.add_started(1, taking(0, 1));
    told.add_started(2, taking(1, 1));
    told.add_waiting(3, Spec { needs: Needs { named: both, ..one_cpu() }, ..job() });
    let mut running = [1, 2];
    for number in 4..100 {
        let side = (number % 2) as usize;
        told.add_waiting(number, taking(side, 1));
        let started = started(&told.end(running[side], Ok(())));
        if started == [3] {
            return;
        }
        running[side] = started.first().copied().unwrap_or(running[side]);
    }
    panic!("the job starves");
}

#[test]
fn jobs_that_wait_for_a_token_leave_all_cpus_to_others() {
    let mut told = Told::with(2, |config| config.limits.named = vec![resource_kind("link", 1)]);
    told.add_started(1, taking(0, 1));
    told.add_waiting(2, taking(0, 1));
    for number in 3..3 + 10 * u64::from(PATIENCE) {
        told.add_started(number, job());
        told.end(number, Ok(()));
    }
    assert_eq!(started(&told.end(1, Ok(()))), [2]);
}

#[test]
fn a_search_passes_over_a_bounded_number_of_queues() {
    let most = crate::scheduler::admission::MOST_PASSED_OVER as u64;
    let mut told = Told::with(1_000, |config| config.limits.memory_bytes = Some(10_000));
    told.add_started(1, memory(10_000));
    for number in 2..=most {
        told.add_waiting(number, memory(number));
    }
    told.add_started(most + 1, job());
    told.add_waiting(most + 2, memory(most + 2));
    told.add_waiting(most + 3, job());
    let all: Vec<u64> = (2..=most).chain([most + 2, most + 3]).collect();
    assert_eq!(started(&told.end(1, Ok(()))), all);
}

#[test]
fn one_job_runs_whatever_the_memory() {
    let mut told = Told::with(4, |config| config.limits.memory_bytes = Some(100));
    told.tell(Event::MemoryAvailable { bytes: 0 });
    told.add_started(1, memory(60));
    told.add_waiting(2, memory(60));
    told.add_started(3, job());
    assert_eq!(started(&told.tell(Event::MemoryAvailable { bytes: 119 })), [] as [u64; 0]);
    assert_eq!(started(&told.tell(Event::MemoryAvailable { bytes: 120 })), [2]);
    told.add_waiting(4, memory(60));
    told.tell(Event::Pressure(Pressure::Hold));
    told.add_waiting(5, job());
    told.end(1, Ok(()));
    told.end(2, Ok(()));
    assert_eq!(started(&told.end(3, Ok(()))), [4]);
    assert_eq!(started(&told.tell(Event::Pressure(Pressure::None))), [5]);
}

#[test]
fn input_is_read_ahead_for_two_jobs_a_slot_and_at_least_64() {
    for (slots, ahead) in [(1, 64), (32, 64), (40, 80)] {
        let mut told = Told::new(slots);
        let mut number = 0;
        while told.0.wants_input() {
            number += 1;
            assert!(number <= u64::from(slots) + ahead);
            told.add(number, job());
        }
        assert_eq!(number, u64::from(slots) + ahead);
        told.end(1, Ok(()));
        assert!(told.0.wants_input());
    }
}

#[test]
fn a_job_that_no_node_can_ever_run_is_started_to_be_refused() {
    let mut told = Told::with(8, |config| config.capacity = Some(2));
    told.add_waiting(1, cpus(4));
    assert_eq!(told.tell(Event::Largest { cpus: None }), []);
    // Its executor knows the reason, and the others do not wait for it.
    assert_eq!(started(&told.tell(Event::Largest { cpus: Some(2) })), [1]);
    told.add_waiting(2, job());
    let decisions = told.end(1, Err(Failure::StartFailed));
    assert_eq!(settled(&decisions), [(1, failed(Failure::StartFailed))]);
    assert_eq!(started(&decisions), [2]);
}

#[test]
fn a_job_that_waits_for_its_place_is_withdrawn_when_the_batch_is_drained() {
    let mut told = Told::new(2);
    told.add(1, once());
    told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
    told.tell(Event::Drain);
    told.tell(Event::Withdrawn { job: JobNumber(1) });
    // It has surely not run.
    assert_eq!(settled(&told.end(1, Err(Failure::StartFailed))), [(1, STOPPED)]);
}

#[test]
fn cpus_are_in_use_from_a_jobs_intent_to_its_end() {
    let mut told = Told::new(4);
    let intend = Decision::Intend { job: JobNumber(1), attempt: 1, durable: true };
    assert_eq!(told.add(1, once()), [intend]);
    assert_eq!(told.0.cpus_in_use(), 1);
    told.add_started(2, cpus(3));
    assert_eq!(told.0.cpus_in_use(), 4);
    told.end(2, Ok(()));
    assert_eq!(told.0.cpus_in_use(), 1);
    told.tell(Event::Intended { job: JobNumber(1), attempt: 1 });
    told.end(1, Ok(()));
    assert_eq!(told.0.cpus_in_use(), 0);
}

#[test]
fn needs_of_nothing_are_no_needs_and_doubled_resources_are_added() {
    let limits = Limits {
        memory_bytes: Some(8),
        named: vec![resource_kind("a", 3), resource_kind("b", 3)],
        ..config(1).limits
    };
    let needs = |memory_bytes, named: &[(usize, u32)]| {
        let named = named.iter().map(|&(kind, count)| ResourceNeed { kind, count }).collect();
        limits.check(Needs { memory_bytes, named, ..one_cpu() })
    };
    let none = needs(None, &[]).unwrap();
    assert_eq!((&none.memory_bytes, none.named.len()), (&None, 0));
    assert_eq!(needs(Some(0), &[(1, 0), (0, 0)]).unwrap(), none);
    let both = needs(Some(1), &[(1, 1), (0, 1), (1, 2)]).unwrap();
    assert_eq!(both.memory_bytes, Some(1));
    let counts: Vec<_> = both.named.iter().map(|it| (it.kind, it.count)).collect();
    assert_eq!(counts, [(0, 1), (1, 3)]);
    assert!(needs(Some(9), &[]).is_err() && needs(None, &[(1, 2), (1, 2)]).is_err());
}

#[test]
fn a_job_that_could_have_its_cpus_waits_for_them() {
    let mut told = Told::new(4);
    told.tell(Event::Largest { cpus: Some(2) });
    told.add_started(1, cpus(3));
    told.add_waiting(2, cpus(2));
    assert_eq!(started(&told.end(1, Ok(()))), [2]);
}

// Tests of large graphs: no recursion, no work that is done again and again.

const JOBS: u64 = 10_000;

/// Runs all that starts, and returns the number of each outcome.
fn run_out(told: &mut Told, mut decisions: Vec<Decision>, result: Result<(), Failure>) -> Vec<u64> {
    let mut order = Vec::new();
    while !decisions.is_empty() {
        let running = started(&decisions);
        order.extend(&running);
        decisions = running.iter().flat_map(|number| told.end(*number, result)).collect();
    }
    order
}

#[test]
fn a_deep_chain_runs_in_order() {
    let mut told = Told::new(4);
    let mut first = Vec::new();
    // The last link comes first: each one waits for a job that was not read yet.
    for number in 0..JOBS {
        let link = JOBS - number;
        let name = link.to_string();
        let spec =
            if link == 1 { named(&name) } else { named_after(&name, &[&(link - 1).to_string()]) };
        first = told.add(number, spec);
    }
    assert_eq!(told.tell(Event::InputEnded), []);
    let expected: Vec<u64> = (0..JOBS).rev().collect();
    assert_eq!(run_out(&mut told, first, Ok(())), expected);
    assert!(told.0.is_finished());
}

#[test]
fn a_deep_chain_is_skipped_without_recursion() {
    let mut told = Told::new(4);
    told.add_started(0, named("0"));
    for number in 1..10 * JOBS {
        told.add_waiting(number, named_after(&number.to_string(), &[&(number - 1).to_string()]));
    }
    let settled = settled(&told.end(0, FAILED));
    assert_eq!(settled.len() as u64, 10 * JOBS);
    assert_eq!(settled[9_999], (9_999, skipped(9_998)));
    told.tell(Event::InputEnded);
    assert!(told.0.is_finished());
}

#[test]
fn a_long_cycle_is_found_without_recursion() {
    let mut told = Told::new(4);
    for number in 0..10 * JOBS {
        let next = (number + 1) % (10 * JOBS);
        told.add_waiting(number, named_after(&number.to_string(), &[&next.to_string()]));
    }
    let settled = settled(&told.tell(Event::InputEnded));
    assert_eq!(settled.len() as u64, 10 * JOBS);
    let Some(Cause::Refusal(Refusal::Cycle { names })) = &settled[5].1.cause else { panic!() };
    assert_eq!(names.len() as u64, 10 * JOBS);
    assert_eq!(&*names[5], "5");
    assert!(told.0.is_finished());
}

#[test]
fn a_wide_graph_fans_out_and_in() {
    let mut told = Told::new(8);
    let names: Vec<String> = (1..=JOBS).map(|number| number.to_string()).collect();
    told.add_started(0, named("root"));
    for (number, name) in (1..).zip(&names) {
        told.add_waiting(number, named_after(name, &["root"]));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    told.add_waiting(JOBS + 1, after(&names));
    told.tell(Event::InputEnded);
    let first = told.end(0, Ok(()));
    let order = run_out(&mut told, first, Ok(()));
    let expected: Vec<u64> = (1..=JOBS + 1).collect();
    assert_eq!(order, expected);
    assert!(told.0.is_finished());
}

#[test]
fn no_more_jobs_run_than_the_machine_has_room_for() {
    let mut told = Told::new(4);
    told.tell(Event::MostJobs { jobs: 1 });
    told.add_started(1, job());
    told.add_waiting(2, job());
    assert_eq!(started(&told.end(1, Ok(()))), [2], "an end makes room");
    assert_eq!(told.tell(Event::MostJobs { jobs: 0 }), []);
    told.add_waiting(3, job());
    assert_eq!(started(&told.end(2, Ok(()))), [0; 0]);
    assert_eq!(started(&told.tell(Event::MostJobs { jobs: usize::MAX })), [3]);
}

#[test]
fn a_pause_follows_each_start_and_not_the_end_of_a_job() {
    let mut told = Told::with(4, |config| config.spaced = true);
    told.add_started(1, job());
    told.add_waiting(2, job());
    told.add_waiting(3, job());
    assert_eq!(started(&told.end(1, Ok(()))), [0; 0]);
    assert_eq!(started(&told.tell(Event::PauseOver)), [2]);
    assert_eq!(started(&told.tell(Event::PauseOver)), [3]);
    assert_eq!(told.tell(Event::PauseOver), []);
    told.add_started(4, job());
}
