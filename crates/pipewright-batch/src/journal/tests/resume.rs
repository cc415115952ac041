//! A resumed log: the ends of all jobs, interrupted ones, and jobs that the input no longer has.

use super::*;
use crate::scheduler::{Cause, JobEnd};
use crate::vocabulary::Failure;

fn id(number: u64) -> JobId {
    JobId::new(&job(number), 0)
}

#[test]
fn each_job_has_its_end() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    for (number, state) in (1..).zip(JobState::ALL) {
        if state != JobState::ended(JobOutcome::Skipped) {
            journal.intend(&intent(logged(number, &job(number)), 1));
            journal.ended(&end(number, 1, AttemptOutcome::TimedOut), LoggedOutput::default());
        }
        journal.settled(&logged(number, &job(number)), state, None);
    }
    journal.close(Some(123), "finished").unwrap();
    let (_journal, mut past) = resume(&folder.log());
    assert_eq!(past.len(), JobState::ALL.len());
    for (number, state) in (1..).zip(JobState::ALL) {
        let job = past.look_up(id(number)).unwrap();
        assert_eq!((job.id, job.state), (id(number), state));
        let end = match state {
            JobState::SUCCEEDED => Some(JobEnd::from(JobOutcome::Succeeded)),
            JobState::UNKNOWN => Some(JobEnd::from(JobOutcome::Unknown)),
            JobState::Ended(JobOutcome::Failed, Some(failure)) => {
                Some(JobEnd::from(Cause::Failure(failure)))
            }
            _ => None,
        };
        assert_eq!(job.end(), end);
    }
    assert_eq!(past.look_up(id(99)), None);
}

#[test]
fn a_started_job_without_an_end_is_interrupted_or_unknown() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    for (number, once) in [(1, false), (2, true)] {
        let job = job(number);
        let logged = LoggedJob { once, ..logged(number, &job) };
        journal.intend(&Intent { job: logged, attempt: 1, slot: Some(2), durable: once });
    }
    succeed(&mut journal, 3);
    journal.flush().unwrap();
    drop(journal);

    let interrupted = [JobState::Interrupted, JobState::UNKNOWN];
    // The next resumption finds them too, until they have run again.
    for run in 2..4 {
        let (journal, mut past) = resume(&folder.log());
        assert_eq!(journal.run(), run);
        let found = [1, 2].map(|number| past.look_up(id(number)).unwrap().state);
        assert_eq!(found, interrupted);
        let listed = past.interrupted().map(|job| (job.row, job.id, job.state, job.is_removed));
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by_key(|job| job.0);
        let expected = [(1, interrupted[0]), (2, interrupted[1])];
        assert_eq!(listed, expected.map(|(row, state)| (row, id(row.into()), state, false)));
    }
    let log = Log::open(&folder.log()).unwrap();
    let found = attempts(&log, &AttemptFilter::default());
    let words: Vec<_> =
        found.iter().map(|it| (it.job.number, it.run, it.end.outcome.name())).collect();
    assert_eq!(words, [(3, 1, "exited"), (1, 1, "interrupted"), (2, 1, "interrupted")]);
    assert_eq!(found[1].end.elapsed, Duration::ZERO);
    let counts = log.counts().unwrap();
    assert_eq!(
        (counts.of(JobState::Interrupted), counts.of(JobState::UNKNOWN), counts.running),
        (1, 1, 0)
    );
    assert_eq!(log.runs().unwrap()[0].how.as_deref(), Some("interrupted"));
    check_whole(&folder.log());
}

#[test]
fn an_interrupted_job_that_runs_again_keeps_its_row() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.intend(&intent(logged(2, &job(2)), 1));
    journal.flush().unwrap();
    drop(journal);

    // A job was added before it, so its number is another one.
    let (mut journal, _) = resume(&folder.log());
    let job = job(2);
    let again = LoggedJob { number: 3, ..logged(2, &job) };
    journal.intend(&intent(again, 1));
    journal.ended(&end(3, 1, AttemptOutcome::Exited(4)), LoggedOutput::default());
    journal.settled(&again, JobState::failed(Failure::ExitCode), None);
    succeed(&mut journal, 2000);
    journal.close(Some(123), "finished").unwrap();

    let log = Log::open(&folder.log()).unwrap();
    let jobs: Vec<_> = all_jobs(&log).into_iter().map(|it| (it.row, it.number, it.state)).collect();
    let failed = JobState::failed(Failure::ExitCode);
    assert_eq!(jobs, [(1, 1, JobState::SUCCEEDED), (2, 3, failed), (3, 2000, JobState::SUCCEEDED)]);
    let runs: Vec<_> =
        log.attempts_of(2).unwrap().iter().map(|it| (it.run, it.end.key.attempt)).collect();
    assert_eq!(runs, [(1, 1), (2, 1)]);
    check_whole(&folder.log());
}

/// A job that has failed, and a `once` job that may have run, are to run again, and their starts fail.
#[test]
fn a_killed_local_run_leaves_the_nodes_of_the_run_before_to_the_next_one() {
    let folder = Folder::new();
    let remote = RunFacts { remote: true, ..facts() };
    drop(Journal::create(&folder.log(), &remote, no_waker()).unwrap());
    for _ in 0..2 {
        // It ends without an end in the log, as one that is killed.
        assert!(resume(&folder.log()).0.left_nodes());
    }
    resume(&folder.log()).0.close(Some(0), "finished").unwrap();
    assert!(!resume(&folder.log()).0.left_nodes());
}

#[test]
fn an_earlier_end_stands_until_another_attempt_has_begun() {
    for is_decided in [false, true] {
        let folder = Folder::new();
        let mut journal = create(&folder.log());
        let (one, two) = (job(1), job(2));
        let jobs = [logged(1, &one), LoggedJob { once: true, ..logged(2, &two) }];
        jobs.iter().for_each(|job| journal.intend(&intent(*job, 1)));
        journal.ended(&end(1, 1, AttemptOutcome::Exited(4)), LoggedOutput::default());
        journal.settled(&jobs[0], JobState::failed(Failure::ExitCode), None);
        journal.flush().unwrap();
        drop(journal);

        let (mut journal, mut past) = resume(&folder.log());
        assert_eq!(past.look_up(id(2)).unwrap().state, JobState::UNKNOWN);
        for job in &jobs {
            journal.intend(&intent(*job, 1));
            let outcome = AttemptOutcome::NotStarted("no such file".into());
            journal.ended(&end(job.number, 1, outcome), LoggedOutput::default());
            if is_decided {
                journal.settled(job, JobState::failed(Failure::StartFailed), None);
            }
        }
        journal.flush().unwrap();
        // A kill: without a decision, another attempt of both was due.
        drop(journal);
        let (_journal, mut past) = resume(&folder.log());
        let failure = if is_decided { Failure::StartFailed } else { Failure::ExitCode };
        assert_eq!(past.look_up(id(1)).unwrap().state, JobState::failed(failure));
        assert_eq!(past.look_up(id(2)).unwrap().state, JobState::UNKNOWN);
        check_whole(&folder.log());
    }
}

#[test]
fn jobs_that_the_input_no_longer_has_are_listed() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=100).for_each(|number| succeed(&mut journal, number));
    journal.close(Some(0), "finished").unwrap();
    let (_journal, mut past) = resume(&folder.log());
    for number in (1..=120).filter(|number| number % 10 != 0) {
        assert_eq!(past.look_up(id(number)).is_some(), number <= 100);
    }
    let mut removed: Vec<_> = past.removed().map(|job| job.row).collect();
    removed.sort_unstable();
    assert_eq!(removed, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
}

#[test]
fn a_job_of_an_earlier_run_is_described_again_when_the_input_has_changed() {
    fn described(journal: &Journal) -> Vec<(u32, u64, Option<&str>)> {
        let changes = journal.ledger.changes().described().iter();
        changes.map(|it| (it.row, it.number, it.name.as_deref())).collect()
    }
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=4).for_each(|number| succeed(&mut journal, number));
    journal.input_ended(4, std::iter::empty());
    journal.close(Some(0), "finished").unwrap();

    // The first job is as before, the second one has another number, the third one has a name, and the fourth one is gone.
    let jobs = [job(1), job(2), job(3).name("third")];
    let input = [logged(1, &jobs[0]), logged(7, &jobs[1]), logged(3, &jobs[2])];
    let (mut journal, mut past) = resume(&folder.log());
    for job in &input {
        journal.is_in_input(&past.look_up(job.id).unwrap(), job);
    }
    assert_eq!(described(&journal), [(2, 7, None), (3, 3, Some("third"))]);
    journal.input_ended(3, past.removed());
    journal.close(Some(0), "finished").unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let mut rows: Vec<_> =
        all_jobs(&log).into_iter().map(|it| (it.row, it.number, it.name)).collect();
    rows.sort_by_key(|row| row.0);
    assert_eq!(rows[..3], [(1, 1, None), (2, 7, None), (3, 3, Some("third".into()))]);

    // The fourth one is back, as it was.
    let (mut journal, mut past) = resume(&folder.log());
    let fourth = job(4);
    for job in input.iter().chain([&logged(4, &fourth)]) {
        let found = past.look_up(job.id).unwrap();
        assert_eq!(found.is_removed, job.number == 4);
        journal.is_in_input(&found, job);
    }
    assert_eq!(described(&journal), [(4, 4, None)]);
}

#[test]
fn a_page_has_the_command_of_the_last_run_that_had_one() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    journal.input_ended(0, std::iter::empty());
    journal.close(Some(0), "finished").unwrap();
    let page = || crate::view::LogView::open(folder.log()).unwrap().page().unwrap();
    assert!(page().contains("true {}"));
    for (description, from_log) in [("false {}", false), ("--resume run.db", true), ("", false)] {
        let facts = RunFacts { description: description.to_owned(), from_log, ..facts() };
        let (mut journal, _) = Journal::resume(&folder.log(), &facts, no_waker()).unwrap();
        journal.input_ended(0, std::iter::empty());
        journal.close(Some(0), "finished").unwrap();
        assert!(page().contains("false {}"), "{description}");
    }
}

/// Stores an output as `--output-dir` does. Returns its folder.
fn stored(folder: &Folder, number: u64, stdout: &str, facts: &str) -> PathBuf {
    let path = folder.0.path().join(number.to_string());
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("stdout"), stdout).unwrap();
    std::fs::write(path.join("stderr"), "").unwrap();
    std::fs::write(path.join("job.json"), facts).unwrap();
    path
}

#[test]
fn an_output_that_a_power_cut_has_taken_is_told_by_name() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let whole = r#"{"truncated":false}"#;
    let outputs = [
        ("12345", whole),
        ("", whole),
        ("123", whole),
        ("12345", ""),
        ("123", r#"{"truncated":true}"#),
    ];
    for (number, (stdout, facts)) in (1..).zip(outputs) {
        let path = stored(&folder, number, stdout, facts);
        // Any bytes are a name on Linux.
        #[cfg(target_os = "linux")]
        let path = if number == 1 {
            use std::os::unix::ffi::OsStrExt as _;
            let odd = folder.0.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
            std::fs::rename(&path, &odd).unwrap();
            odd
        } else {
            path
        };
        let job = job(number);
        journal.intend(&intent(logged(number, &job), 1));
        let mut end = end(number, 1, AttemptOutcome::Exited(0));
        end.stdout_bytes = 5;
        let output = LoggedOutput { path: Some(&path), ..LoggedOutput::default() };
        journal.ended(&end, output);
        journal.settled(&logged(number, &job), JobState::SUCCEEDED, None);
    }
    journal.flush().unwrap();
    drop(journal);
    let view = || crate::view::LogView::open(folder.log()).unwrap().summary().unwrap();
    assert!(!view().contains("lost"), "the machine has run on: {}", view());
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    connection.execute("UPDATE runs SET boot_id = 'another boot'", []).unwrap();
    drop(connection);
    let (journal, _) = resume(&folder.log());
    let [third, second, first] = journal.lost_outputs() else {
        panic!("{:?}", journal.lost_outputs())
    };
    for (line, number, words) in [
        (first, 2, "has 0 of 5 bytes"),
        (second, 3, "has 3 of 5 bytes"),
        (third, 4, "is not there, or has no facts"),
    ] {
        assert!(line.starts_with(&format!("the output of job {number}, which is ok, is lost: ")));
        assert!(line.contains(words), "{line}");
        assert!(view().contains(line.as_str()), "{}", view());
    }
    // An error of the look says nothing about the output.
    #[cfg(unix)]
    {
        let facts = folder.0.path().join("3").join("job.json");
        std::fs::remove_file(&facts).unwrap();
        std::os::unix::fs::symlink("job.json", &facts).unwrap();
        let shown = view();
        assert!(
            shown.contains("the output of job 3, which is ok, cannot be looked at: "),
            "{shown}"
        );
    }
}
