//! Measurements of large logs. They print numbers and assert none.
//!
//! `cargo test --release -p pipewright-batch --lib journal::tests::measure -- --ignored --nocapture --test-threads=1`
//!
//! The variable `PIPEWRIGHT_MEASURE_DIR` chooses the disk.

use std::collections::VecDeque;
use std::fs;
use std::time::Instant;

use super::*;

/// Jobs that run at one time.
const SLOTS: usize = 32;

/// Returns the CPU time of the threads of this process with that name. `None` where the system does not say it.
fn thread_time(name: &str) -> Option<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir("/proc/self/task").ok()? {
        let folder = task.ok()?.path();
        if fs::read_to_string(folder.join("comm")).ok()?.trim_end() == name {
            let text = fs::read_to_string(folder.join("schedstat")).ok()?;
            nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
        }
    }
    Some(Duration::from_nanos(nanos))
}

fn micros(time: Duration, jobs: u64) -> f64 {
    time.as_secs_f64() * 1e6 / jobs as f64
}

/// Adds jobs as a driver does: as many run as there are slots, and each event is submitted.
fn fill(journal: &mut Journal, jobs: u64, command: &str) {
    let mut running = VecDeque::new();
    let mut id = 0_u128;
    for number in 1..=jobs {
        // A hash takes a microsecond, which is not the log's.
        id = id.wrapping_add(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let job = Job::new(command).arg(number.to_string());
        let logged =
            LoggedJob { number, id: JobId::from_bytes(id.to_be_bytes()), job: &job, once: false };
        let job_id = logged.id;
        journal.ledger.intend(&intent(logged, 1));
        running.push_back((number, job, job_id));
        if running.len() >= SLOTS {
            end_first(journal, &mut running);
        }
        journal.submit();
    }
    while !running.is_empty() {
        end_first(journal, &mut running);
        journal.submit();
    }
}

fn end_first(journal: &mut Journal, running: &mut VecDeque<(u64, Job, JobId)>) {
    let Some((number, job, id)) = running.pop_front() else { return };
    let mut end = end(number, 1, AttemptOutcome::Exited(0));
    end.user = Some(Duration::from_micros(810));
    end.system = Some(Duration::from_micros(390));
    end.peak_rss_bytes = Some(2 << 20);
    journal.ledger.ended(&end, LoggedOutput::default());
    let logged = LoggedJob { number, id, job: &job, once: false };
    journal.settled(&logged, JobState::SUCCEEDED, None);
}

fn measure_log(jobs: u64) {
    let folder =
        std::env::var_os("PIPEWRIGHT_MEASURE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder).unwrap();
    let path = folder.path().join("run.db");
    let mut journal = create(&path);
    let began = Instant::now();
    fill(&mut journal, jobs, "/usr/bin/convert-a-picture --quality 80");
    journal.flush().unwrap();
    let (wall, writer) = (began.elapsed(), thread_time("pipewright-log"));
    let driver = wall;
    let closing = Instant::now();
    journal.close(Some(0), "finished").unwrap();
    let closing = closing.elapsed();
    let bytes = fs::metadata(&path).unwrap().len();
    println!(
        "{jobs} jobs: {:.1} us a job, writer {:.1} us of CPU a job, close {closing:.1?}, {} bytes a job",
        micros(driver, jobs),
        writer.map_or(f64::NAN, |time| micros(time, jobs)),
        bytes / jobs,
    );
    let began = Instant::now();
    let (journal, past) = resume(&path);
    println!("{} jobs: resumed in {:.1?}", past.len(), began.elapsed());
    drop(journal);
    let began = Instant::now();
    let log = Log::open(&path).unwrap();
    let counts = log.counts().unwrap();
    println!("{} jobs: counted in {:.1?}", counts.of(JobState::SUCCEEDED), began.elapsed());
    let began = Instant::now();
    let filter = AttemptFilter { slowest: Some(10), ..AttemptFilter::default() };
    let slowest = attempts(&log, &filter);
    println!("{jobs} jobs: the slowest {} in {:.1?}", slowest.len(), began.elapsed());
}

/// Intents that are awaited, one after the other: the time that a `once` job waits.
fn measure_durable_intents(jobs: u64) {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let began = Instant::now();
    for number in 1..=jobs {
        let job = job(number);
        journal.ledger.intend(&Intent { durable: true, ..intent(logged(number, &job), 1) });
        journal.flush().unwrap();
        journal.ledger.ended(&end(number, 1, AttemptOutcome::Exited(0)), LoggedOutput::default());
        journal.settled(&logged(number, &job), JobState::SUCCEEDED, None);
        journal.submit();
    }
    println!("{jobs} durable intents, one at a time: {:.1} us each", micros(began.elapsed(), jobs));
}

/// Groups of that many jobs, each durable before the next: the load when jobs end more slowly than the disk commits.
fn measure_groups(jobs: u64, size: u64) {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let began = Instant::now();
    for number in 1..=jobs {
        succeed(&mut journal, number);
        if number % size == 0 {
            journal.flush().unwrap();
        }
    }
    let writer = thread_time("pipewright-log").map_or(f64::NAN, |time| micros(time, jobs));
    println!(
        "{jobs} jobs in groups of {size}: {:.1} us a job, writer {writer:.1} us of CPU a job",
        micros(began.elapsed(), jobs),
    );
}

#[test]
#[ignore = "a measurement"]
fn measure() {
    measure_durable_intents(2000);
    for size in [1, 4, 16, 64, 256] {
        measure_groups(2000 * size.min(32), size);
    }
    measure_log(20_000);
    measure_log(100_000);
    measure_log(1_000_000);
}
