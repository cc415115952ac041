//! Tests of the input: names and `after`, cycles, the end of a stream, jobs of an earlier run.

use std::collections::HashMap;

use super::*;
use crate::scheduler::names::{Holder, Waiters, cycles};
use crate::vocabulary::Failure;

fn unknown(name: &str) -> JobEnd {
    refused(Refusal::UnknownAfter { name: name.into() })
}

fn cycle(names: &[&str]) -> JobEnd {
    refused(Refusal::Cycle { names: names.iter().map(|name| (*name).into()).collect() })
}

#[test]
fn a_job_may_be_after_later_jobs() {
    let mut told = Told::new(2);
    told.add_waiting(1, after(&["b", "a", "b"]));
    told.add_started(2, named("a"));
    assert_eq!(started(&told.end(2, Ok(()))), [] as [u64; 0]);
    told.add_started(3, named("b"));
    assert_eq!(started(&told.end(3, Ok(()))), [1]);
    told.add_started(4, after(&["a", "b"]));
}

#[test]
fn dependents_of_a_failed_job_are_skipped_with_their_cause() {
    let mut told = Told::new(2);
    told.add_started(1, named("a"));
    told.add_started(2, named("other"));
    told.add_waiting(3, named_after("b", &["other", "a"]));
    told.add_waiting(4, after(&["b", "c"]));
    told.add_waiting(5, named_after("c", &["a"]));
    let failed = (1, failed(Failure::ExitCode));
    assert_eq!(
        settled(&told.end(1, FAILED)),
        [failed, (3, skipped(1)), (5, skipped(1)), (4, skipped(3))]
    );
    assert_eq!(settled(&told.add(6, after(&["unread", "c"]))), [(6, skipped(5))]);
    assert_eq!(settled(&told.end(2, Ok(()))), [(2, SUCCEEDED)], "3 is gone");
}

#[test]
fn a_name_belongs_to_one_job() {
    let mut told = Told::new(2);
    told.add_started(1, named("a"));
    let first = JobNumber(1);
    let error = AddError::DuplicateName { name: "a".into(), first };
    assert_eq!(told.try_add(2, named("a")), Err(error.clone()));
    told.end(1, Ok(()));
    assert_eq!(told.try_add(2, named("a")), Err(error.clone()));
    assert_eq!(error.to_string(), "job 1 is named \"a\", too: give each job a name of its own");
}

#[test]
fn jobs_are_added_in_order_and_before_the_end() {
    let mut told = Told::new(2);
    told.add(2, job());
    let order = AddError::Order { job: JobNumber(2), last: JobNumber(2) };
    assert_eq!(told.try_add(2, job()), Err(order));
    told.tell(Event::InputEnded);
    assert_eq!(told.try_add(3, job()), Err(AddError::InputEnded));
    assert_eq!(told.tell(Event::InputEnded), []);
}

#[test]
fn a_name_that_nobody_has_is_refused_at_the_end() {
    let mut told = Told::new(1);
    told.add_started(1, job());
    told.add_waiting(2, after(&["nobody"]));
    told.add_waiting(3, named_after("b", &["nothing"]));
    told.add_waiting(4, after(&["b", "none"]));
    told.add_waiting(5, after(&["b"]));
    let expected =
        [(2, unknown("nobody")), (3, unknown("nothing")), (4, unknown("none")), (5, skipped(3))];
    assert_eq!(settled(&told.tell(Event::InputEnded)), expected);
    told.end(1, Ok(()));
    assert!(told.0.is_finished());
}

#[test]
fn a_cycle_is_refused_at_the_end_with_its_names() {
    let mut told = Told::new(1);
    told.add_started(1, named("root"));
    told.add_waiting(2, named_after("a", &["root", "b"]));
    told.add_waiting(3, named_after("c", &["a", "root"]));
    told.add_waiting(4, named_after("b", &["c"]));
    told.add_waiting(5, named_after("own", &["own"]));
    told.add_waiting(6, named_after("next", &["root"]));
    told.add_waiting(7, after(&["b"]));
    told.add_waiting(8, after(&["next"]));
    let settled = settled(&told.tell(Event::InputEnded));
    let names = ["a", "b", "c"];
    let expected = [
        (2, cycle(&names)),
        (4, cycle(&names)),
        (3, cycle(&names)),
        (5, cycle(&["own"])),
        (7, skipped(4)),
    ];
    assert_eq!(settled, expected);
    assert_eq!(started(&told.end(1, Ok(()))), [6]);
}

#[test]
fn refusals_print_one_bounded_line() {
    let text = |outcome| match outcome {
        JobEnd { cause: Some(Cause::Refusal(refusal)), .. } => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let message = "waits for itself: \"a\" after \"b\" after \"a\"";
    assert_eq!(text(cycle(&["a", "b"])), message);
    assert_eq!(text(unknown("b")), "no job is named \"b\", which is in its \"after\"");
    let long = "\n".repeat(1000);
    let line = text(cycle(&[&*long; 1000]));
    assert!(line.len() < 1200 && !line.contains('\n'), "{line}");
    assert!(line.contains("\" after 994 more after \"\\n"), "{line}");
}

#[test]
fn jobs_of_an_earlier_run_are_settled_at_once() {
    let mut told = Told::new(1);
    told.add_waiting(1, after(&["done"]));
    told.add_waiting(2, after(&["failed"]));
    // This machine is smaller than that of the earlier run, and the name is still awaited.
    let needs = cpus(8).needs;
    let past = |past, name: &str| Spec {
        past: Some(past),
        needs: needs.clone(),
        ..named_after(name, &["nobody"])
    };
    let decisions = told.add(3, past(SUCCEEDED, "done"));
    assert_eq!(settled(&decisions), [(3, SUCCEEDED)]);
    assert_eq!(started(&decisions), [1]);
    let failure = Failure::TimedOut;
    let decisions = told.add(4, past(failed(failure), "failed"));
    assert_eq!(settled(&decisions), [(4, failed(failure)), (2, skipped(4))]);
    assert_eq!(settled(&told.add(5, past(UNKNOWN, "x"))), [(5, UNKNOWN)]);
    assert_eq!(settled(&told.add(6, after(&["x"]))), [(6, skipped(5))]);
    assert_eq!(told.tell(Event::InputEnded), [], "nobody waits for the unknown name");
}

#[test]
fn blocked_jobs_do_not_stop_the_reading() {
    let mut told = Told::new(1);
    for number in 0..1_000 {
        assert!(told.0.wants_input());
        told.add_waiting(number, after(&["last"]));
    }
    told.add_started(1_000, named("last"));
    assert!(told.0.wants_input());
}

#[test]
fn reading_stops_at_many_waiting_jobs_unless_it_is_the_only_way_on() {
    let mut told = Told::new(1);
    told.add_started(0, named("first"));
    let most = MOST_WAITING as u64;
    for number in 1..=most {
        assert!(told.0.wants_input());
        told.add_waiting(number, after(&["last", "first"]));
    }
    assert!(!told.0.wants_input());
    told.end(0, Ok(()));
    assert!(told.0.wants_input(), "nothing else can happen");
    told.add_started(most + 1, Spec { retries: 1, ..job() });
    assert!(!told.0.wants_input());
    told.end(most + 1, FAILED);
    assert!(!told.0.wants_input(), "a retry will come");
    told.tell(Event::RetryDue { job: JobNumber(most + 1) });
    told.end_attempt(most + 1, 2, Ok(()));
    assert!(told.0.wants_input());
}

// Tests of the data structures: names, waiters, cycles.

#[test]
fn names_that_share_text_are_different() {
    let mut names = Names::default();
    let mut expected = HashMap::new();
    // "", "1", "11", "111", … are parts of each other in the common text.
    let texts =
        (0..300).map(|length| "1".repeat(length)).chain((0..3_000).map(|it| it.to_string()));
    for (number, text) in (0..).zip(texts) {
        let job = JobNumber(number);
        match expected.get(&text) {
            Some(first) => assert_eq!(names.define(&text, job).map(|(id, _)| id), Err(*first)),
            None => {
                let (id, _) = names.define(&text, job).unwrap();
                assert_eq!(names.text(id), text);
                expected.insert(text, job);
            }
        }
    }
    assert_eq!(names.len(), expected.len());
    for (text, job) in expected {
        assert_eq!(names.look_up(&text).1, Holder::Unfinished(job));
    }
    assert_eq!(names.look_up("x").1, Holder::Awaited);
}

#[test]
fn the_table_of_names_is_between_three_eighths_and_three_quarters_full() {
    let mut names = Names::default();
    for number in 0..10_000 {
        names.look_up(&number.to_string());
        let (used, size) = (names.len(), names.table.len());
        assert!(used * 4 <= size * 3, "{used} of {size}");
        assert!(size <= 16 || used * 8 > size * 3, "{used} of {size}");
    }
}

#[test]
fn waiters_that_were_skipped_are_forgotten() {
    let mut waiters = Waiters::default();
    let is_alive = |job: JobNumber| job.0 % 1_000 == 0;
    for number in 0..100_000 {
        waiters.push(JobNumber(number), is_alive);
    }
    let alive = waiters.iter().filter(|job| is_alive(*job)).count();
    assert_eq!(alive, 100, "none is lost");
    assert!(waiters.iter().count() < 1_000, "{}", waiters.iter().count());
}

#[test]
fn finished_jobs_without_a_name_leave_nothing() {
    let mut told = Told::with(1, |config| config.limits.memory_bytes = Some(u64::MAX));
    for number in 0..10_000 {
        // Each has needs of its own.
        told.add_started(number, memory(number));
        told.end(number, Ok(()));
    }
    assert_eq!(told.0.jobs.len(), 0);
    assert!(told.0.jobs.capacity() < 10);
    assert_eq!(told.0.ready.shapes.len(), 1);
    told.add_started(10_000, named("a"));
    told.add_waiting(10_001, after(&["b"]));
    told.tell(Event::InputEnded);
    assert!(told.0.names.is_none());
}

#[test]
fn every_job_that_cannot_start_is_in_a_found_cycle_or_waits_for_one() {
    let mut seed: u64 = 1;
    let mut random = |end: usize| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) as usize % end
    };
    let mut found_some = 0;
    for round in 0..3_000 {
        let jobs = 1 + random(9);
        let edges: Vec<_> = (0..random(14)).map(|_| (random(jobs), random(jobs))).collect();
        let waits_for = |job, other| edges.contains(&(job, other));
        // The slow way: which job reaches which.
        let mut reaches = vec![vec![false; jobs]; jobs];
        for _ in 0..jobs {
            for (from, to) in edges.iter().copied() {
                let through = reaches[to].clone();
                for (end, reached) in reaches[from].iter_mut().enumerate() {
                    *reached |= to == end || through[end];
                }
            }
        }
        let found = cycles(jobs, &edges);
        found_some += usize::from(!found.is_empty());
        let mut members: Vec<usize> = found.concat();
        for cycle in &found {
            assert_eq!(cycle.first(), cycle.iter().min(), "round {round}");
            for (at, job) in cycle.iter().enumerate() {
                assert!(waits_for(*job, cycle[(at + 1) % cycle.len()]), "round {round}");
            }
        }
        for job in 0..jobs {
            let is_stuck = (0..jobs).any(|it| reaches[it][it] && (it == job || reaches[job][it]));
            let is_found = members.iter().any(|it| *it == job || reaches[job][*it]);
            assert_eq!(is_stuck, is_found, "round {round}");
        }
        members.sort_unstable();
        members.dedup();
        assert_eq!(members.len(), found.concat().len(), "round {round}: cycles share a job");
    }
    assert!((500..2_900).contains(&found_some), "{found_some}");
}
