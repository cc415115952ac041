//! The memory of jobs: what they may reserve, what they get, and what happens when none is left.

use super::fake::Gate;
use super::*;
use crate::batch::Run;

/// Runs a batch to its end, and returns its events in short words.
fn events(batch: Batch, fake: Fake, jobs: Vec<Job>) -> Vec<String> {
    let mut run = batch.start_on(fake, jobs).unwrap();
    let mut words = Vec::new();
    for event in &mut run {
        match event.unwrap() {
            Event::Started { key, .. } => words.push(format!("start {}", key.job)),
            Event::Ended { end, .. } => words.push(format!("end {}", end.key.job)),
            Event::Note(note) => words.push(note),
            Event::Settled { job, outcome, .. } => words.push(format!("{job}: {outcome:?}")),
            _ => {}
        }
    }
    words
}

/// Runs three jobs to their ends, and checks that two of them run at once, and the third one after that.
fn two_of_three_fit(mut run: Run<Fake>, gate: &Gate) {
    let (mut has_started, mut has_ended) = (0, 0);
    for event in &mut run {
        match event.unwrap() {
            Event::Started { .. } => {
                has_started += 1;
                if has_started == 2 {
                    // Both run, and none ends before this.
                    assert_eq!(has_ended, 0);
                    gate.release();
                }
                assert!(has_started < 3 || has_ended > 0, "only two of them fit");
            }
            Event::Ended { .. } => has_ended += 1,
            _ => {}
        }
    }
    assert_eq!((has_started, has_ended), (3, 3));
}

#[test]
fn jobs_reserve_no_more_than_was_free_at_the_start() {
    let (fake, gate) = Fake::held();
    let job = || exits(0).mem_bytes(400);
    let batch = Batch::new().jobs(4);
    let run = batch.start_on(fake.with_memory([1000]), vec![job(), job(), job()]).unwrap();
    two_of_three_fit(run, &gate);
}

#[test]
fn an_attempt_gets_the_memory_that_its_job_states_and_more_after_a_lack_of_it() {
    let (fake, seen) = Fake::seeing();
    let script = [AttemptOutcome::OutOfMemory, AttemptOutcome::OutOfMemory];
    let fake = fake.scripted(Script::new(script));
    let found = events(Batch::new(), fake, vec![exits(0).mem_bytes(100).most_mem_bytes(300)]);
    let given: Vec<_> = seen.lock().unwrap().iter().map(|seen| seen.memory_max_bytes).collect();
    assert_eq!(given, [Some(100), Some(200), Some(300)]);
    assert!(found.contains(&"job 1: out of memory; again with 200 bytes".to_owned()), "{found:?}");
    assert!(found.contains(&"1: Succeeded".to_owned()), "{found:?}");
}

#[test]
fn the_youngest_job_is_stopped_and_queued_again_when_no_memory_is_left() {
    let (fake, gate) = Fake::held();
    // Free at the start, gone at the second look, and free again from the third one on.
    let fake = fake.with_memory([16_000, 16_000, 100, 15_000]);
    let job = || exits(0).mem_bytes(1000);
    let mut run = Batch::new().jobs(2).start_on(fake, vec![job(), job()]).unwrap();
    let note = "job 2: stopped because memory is short; it is queued again";
    let mut has_started = 0;
    let mut is_noted = false;
    for event in &mut run {
        match event.unwrap() {
            Event::Started { key, .. } => {
                has_started += 1;
                if key.job == 2 && key.attempt == 2 {
                    assert!(is_noted);
                    gate.release();
                }
            }
            Event::Note(text) => is_noted |= text == note,
            Event::Settled { outcome, .. } => assert_eq!(outcome, JobOutcome::Succeeded),
            _ => {}
        }
    }
    assert_eq!((has_started, is_noted), (3, true));
}

#[test]
fn a_job_reserves_what_it_has_used_in_an_earlier_log_and_is_not_limited_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("earlier.db");
    // The fake executor says that each attempt has used 1,000 bytes.
    let jobs = || (0..3).map(|number| exits(0).env("N", number.to_string())).collect::<Vec<_>>();
    let earlier = states(Batch::new().log(&log), Fake::new().with_peak(1000), jobs());
    assert_eq!(earlier.len(), 3);
    let (fake, gate) = Fake::held();
    let fake = fake.with_memory([2400]);
    let batch = Batch::new().jobs(4).learn(&LogView::open(&log).unwrap()).unwrap();
    let run = batch.start_on(fake, jobs()).unwrap();
    // 1,125 each.
    two_of_three_fit(run, &gate);
    let (fake, seen) = Fake::seeing();
    // Less than one job has used: it is no reason to refuse it.
    let batch = Batch::new().memory_bytes(10).learn(&LogView::open(&log).unwrap()).unwrap();
    let states = states(batch, fake, jobs());
    assert!(states.values().all(|state| *state == said(JobOutcome::Succeeded)), "{states:?}");
    assert!(seen.lock().unwrap().iter().all(|seen| seen.memory_max_bytes.is_none()));
}
