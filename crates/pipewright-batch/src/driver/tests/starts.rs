//! Starts that are held back by the load, by the free memory, and by a pause.

use super::*;

/// Runs a batch to its end, and returns its events in short words.
fn words(batch: Batch, fake: Fake, jobs: u32) -> Vec<String> {
    let mut run = batch.start_on(fake, (0..jobs).map(|_| exits(0))).unwrap();
    let mut words = Vec::new();
    for event in &mut run {
        match event.unwrap() {
            Event::Started { key, .. } => words.push(format!("start {}", key.job)),
            Event::Held { reason } => words.push(reason.unwrap_or("go on".to_owned())),
            Event::Note(note) => words.push(note),
            _ => {}
        }
    }
    words
}

#[test]
fn no_job_starts_while_the_load_is_too_high_and_the_reason_is_told() {
    let batch = Batch::new().jobs(4).max_load(3.0);
    let found = words(batch, Fake::new().with_load([9.0, 4.0, 3.0, 0.0]), 2);
    let reasons = ["the load is 4, and has to be below 3", "the load is 3, and has to be below 3"];
    assert_eq!(found, [reasons[0], reasons[1], "go on", "start 1", "start 2"]);
}

#[test]
fn between_two_looks_no_more_jobs_run_than_the_load_leaves_room_for() {
    let (fake, gate) = Fake::held();
    let batch = Batch::new().jobs(8).max_load(3.0);
    let mut run =
        batch.start_on(fake.with_load([1.5, 2.5, 9.0]), (0..8).map(|_| exits(0))).unwrap();
    let mut started = 0;
    for event in &mut run {
        match event.unwrap() {
            Event::Started { .. } => started += 1,
            // Two fit at the first look, and one at the second.
            Event::Held { reason: Some(_) } => break,
            _ => {}
        }
    }
    assert_eq!(started, 3);
    run.control().stop();
    gate.release();
    assert_eq!(run.finish().unwrap().not_run, 5);
}

#[test]
fn no_job_starts_while_too_little_memory_is_free() {
    let batch = Batch::new().jobs(4).min_free_memory(2 << 30);
    let found = words(batch, Fake::new().with_memory([1 << 20, 1 << 30, 3 << 30]), 1);
    let reason = "1024 MiB of memory are free, and 2048 have to be";
    assert_eq!(found, [reason, "go on", "start 1"]);
}

#[test]
fn what_is_not_known_is_told_once_and_holds_nothing_back() {
    let found = words(Batch::new().jobs(1).max_load(1.0).min_free_memory(1), Fake::new(), 2);
    let note = "the load is not known here: jobs start whatever it is";
    assert_eq!(found, [note, "start 1", "start 2"]);
}

#[test]
fn each_start_is_followed_by_a_pause_also_if_slots_are_free() {
    let pause = Duration::from_millis(50);
    let began = Instant::now();
    let found = words(Batch::new().jobs(8).start_delay(pause), Fake::new(), 4);
    assert_eq!(found, ["start 1", "start 2", "start 3", "start 4"]);
    assert!(began.elapsed() >= pause * 3);
}
