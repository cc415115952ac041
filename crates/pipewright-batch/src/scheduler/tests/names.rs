//! Tests of the data structures: names, waiters, cycles.

use std::collections::HashMap;

use super::*;
use crate::scheduler::names::{Holder, Waiters, cycles};

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
    assert!(waiters.len() < 1_000, "{}", waiters.len());
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
    assert_eq!(told.0.ready.queues(), 1);
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
