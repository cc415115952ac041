//! Reading while a runner writes, and the questions of `pipewright jobs`.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::journal::read::{Counts, RunningRow};
use crate::vocabulary::Failure;

#[test]
fn a_reader_sees_whole_commits_while_a_runner_writes() {
    const JOBS: u64 = 3000;
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let log = Log::open(&folder.log()).unwrap();
            let (mut reads, mut after, mut followed) = (0_u64, None, Vec::new());
            loop {
                let is_last = has_ended.load(Ordering::Acquire);
                let counts = log.counts().unwrap();
                let started = counts.of(JobState::Started);
                assert_eq!(counts.jobs, started + counts.of(JobState::SUCCEEDED));
                assert!(counts.running <= started);
                let filter = AttemptFilter { after, ..AttemptFilter::default() };
                let new = attempts(&log, &filter);
                after = new.last().map(|attempt| attempt.row).or(after);
                followed.extend(new.into_iter().map(|attempt| attempt.job.number));
                reads += 1;
                if is_last {
                    return (reads, followed);
                }
            }
        });
        for number in 1..=JOBS {
            succeed(&mut journal, number);
            journal.submit();
            if number % 100 == 0 {
                journal.flush().unwrap();
            }
        }
        journal.flush().unwrap();
        has_ended.store(true, Ordering::Release);
        let (reads, followed) = reader.join().unwrap();
        assert!(reads > 1);
        // Following the log gives each end once, in order.
        assert_eq!(followed, (1..=JOBS).collect::<Vec<_>>());
    });
}

/// Makes a log with jobs in several states; job 5 runs.
fn sample(folder: &Folder) -> Journal {
    let mut journal = create(&folder.log());
    let outcomes = [
        (1, AttemptOutcome::Exited(0), JobState::SUCCEEDED),
        (2, AttemptOutcome::Exited(9), JobState::failed(Failure::ExitCode)),
        (3, AttemptOutcome::TimedOut, JobState::failed(Failure::TimedOut)),
        (4, AttemptOutcome::Cancelled, JobState::ended(JobOutcome::Stopped)),
    ];
    for (number, outcome, state) in outcomes {
        journal.intend(&intent(logged(number, &job(number)), 1));
        if number == 3 {
            journal.ended(&end(number, 1, AttemptOutcome::Exited(1)), LoggedOutput::default());
            journal.intend(&intent(logged(number, &job(number)), 2));
        }
        let attempt = if number == 3 { 2 } else { 1 };
        journal.ended(&end(number, attempt, outcome), LoggedOutput::default());
        journal.settled(&logged(number, &job(number)), state, None);
    }
    journal.intend(&Intent { slot: Some(2), ..intent(logged(5, &job(5)), 1) });
    journal.settled(
        &logged(6, &job(6)),
        JobState::ended(JobOutcome::Skipped),
        Some("job 2 failed"),
    );
    journal.flush().unwrap();
    journal
}

#[test]
fn jobs_are_counted_by_state() {
    let folder = Folder::new();
    let _journal = sample(&folder);
    let counts = Log::open(&folder.log()).unwrap().counts().unwrap();
    assert_eq!((counts.jobs, counts.running), (6, 1));
    let states = [("succeeded", 1), ("failed", 2), ("skipped", 1), ("stopped", 1), ("started", 1)];
    assert_eq!(counts.by_state().collect::<Vec<_>>(), states);
    // Each word of a log has its place.
    let mut counts = Counts::default();
    JobState::ALL.into_iter().for_each(|state| counts.add(state.name(), 1));
    let counted: u64 = counts.by_state().map(|(_, count)| count).sum();
    assert_eq!(counted, counts.jobs);
}

#[test]
fn attempts_are_filtered() {
    let folder = Folder::new();
    let _journal = sample(&folder);
    let log = Log::open(&folder.log()).unwrap();
    let numbers = |filter| {
        let found: Vec<_> =
            attempts(&log, &filter).iter().map(|it| (it.job.number, it.end.key.attempt)).collect();
        found
    };
    let all = AttemptFilter::default();
    assert_eq!(numbers(all), [(1, 1), (2, 1), (3, 1), (3, 2), (4, 1)]);
    let failed = AttemptFilter { failed: true, ..all };
    assert_eq!(numbers(failed), [(2, 1), (3, 1), (3, 2), (4, 1)]);
    let state = |state| AttemptFilter { state: Some(state), ..all };
    // The class does not matter, and only the last attempt counts.
    assert_eq!(numbers(state(JobState::failed(Failure::Lost))), [(2, 1), (3, 2)]);
    assert_eq!(numbers(state(JobState::Started)), []);
    assert_eq!(numbers(AttemptFilter { slowest: Some(2), ..all }), [(4, 1), (3, 1)]);
    assert_eq!(numbers(AttemptFilter { after: Some(3), ..all }), [(3, 2), (4, 1)]);
    assert_eq!(numbers(AttemptFilter { after: log.last_attempt().unwrap(), ..all }), []);
}

#[test]
fn jobs_are_listed_by_state_until_the_caller_stops() {
    let folder = Folder::new();
    let _journal = sample(&folder);
    let log = Log::open(&folder.log()).unwrap();
    let list = |state, most: usize| {
        let mut found = Vec::new();
        log.for_each_job(state, |job| {
            found.push(job.number);
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        found
    };
    assert_eq!(list(None, 9), [1, 2, 3, 4, 5, 6]);
    assert_eq!(list(None, 2), [1, 2]);
    assert_eq!(list(Some(JobState::failed(Failure::ExitCode)), 9), [2, 3]);
    assert_eq!(list(Some(JobState::ended(JobOutcome::Skipped)), 9), [6]);
}

#[test]
fn running_attempts_are_listed() {
    let folder = Folder::new();
    let _journal = sample(&folder);
    let log = Log::open(&folder.log()).unwrap();
    let running: Vec<RunningRow> = log.running().unwrap();
    let [only] = &running[..] else { panic!("{running:?}") };
    assert_eq!((only.job.number, only.run, only.attempt, only.slot), (5, 1, 1, Some(2)));
    assert!(only.since > 1.7e9);
}

#[test]
fn a_state_of_a_newer_version_is_named() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.close(Some(0), "finished").unwrap();
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    connection.execute_batch("DROP TRIGGER jobs_end; UPDATE jobs SET state = 'happy'").unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let error = log.for_each_job(None, |_| std::ops::ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("state \"happy\""), "{error}");
}

#[test]
fn a_number_means_the_job_of_the_last_input() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.input_ended(1, std::iter::empty());
    journal.close(Some(0), "finished").unwrap();
    let (mut journal, past) = resume(&folder.log());
    let other = job(7);
    let new = LoggedJob { number: 1, ..logged(7, &other) };
    journal.intend(&intent(new, 1));
    journal.ended(&end(1, 1, AttemptOutcome::Exited(0)), LoggedOutput::default());
    journal.input_ended(1, past.removed());
    journal.close(Some(0), "finished").unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let found = log.find(crate::journal::read::JobQuery::Number(1), 2).unwrap();
    assert_eq!(found.iter().map(|job| &*job.command).collect::<Vec<_>>(), ["job 7"]);
}
