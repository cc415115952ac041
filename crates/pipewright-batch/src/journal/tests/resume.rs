//! A batch that goes on: after a kill at any time, with and without its input.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;

use rusqlite::Connection;

use super::act::say;
use super::*;
use crate::journal::read::check_input;
use crate::journal::sqlite::{STEPS, migrate};
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
            journal.ledger.intend(&intent(logged(number, &job(number)), 1));
            journal
                .ledger
                .ended(&end(number, 1, AttemptOutcome::TimedOut), LoggedOutput::default());
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
        journal.ledger.intend(&Intent { job: logged, attempt: 1, slot: Some(2), durable: once });
    }
    succeed(&mut journal, 3);
    journal.flush().unwrap();
    drop(journal);

    let interrupted = [JobState::Interrupted, JobState::UNKNOWN];
    // The next resumption finds them too, until they have run again.
    for run in 2..4 {
        let (journal, mut past) = resume(&folder.log());
        assert_eq!(journal.run, run);
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
    journal.ledger.intend(&intent(logged(2, &job(2)), 1));
    journal.flush().unwrap();
    drop(journal);

    // A job was added before it, so its number is another one.
    let (mut journal, _) = resume(&folder.log());
    let job = job(2);
    let again = LoggedJob { number: 3, ..logged(2, &job) };
    journal.ledger.intend(&intent(again, 1));
    journal.ledger.ended(&end(3, 1, AttemptOutcome::Exited(4)), LoggedOutput::default());
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

#[test]
fn a_killed_local_run_leaves_the_nodes_of_the_run_before_to_the_next_one() {
    let folder = Folder::new();
    let remote = RunFacts { remote: true, ..facts() };
    let first = Journal::create(&folder.log(), &remote, no_waker()).unwrap();
    assert!(!first.left_nodes, "a new log waits for no nodes");
    drop(first);
    for _ in 0..2 {
        // It ends without an end in the log, as one that is killed.
        assert!(resume(&folder.log()).0.left_nodes);
    }
    resume(&folder.log()).0.close(Some(0), "finished").unwrap();
    assert!(!resume(&folder.log()).0.left_nodes);
}

/// A job that has failed, and a `once` job that may have run, are to run again, and their starts fail.
#[test]
fn an_earlier_end_stands_until_another_attempt_has_begun() {
    for is_decided in [false, true] {
        let folder = Folder::new();
        let mut journal = create(&folder.log());
        let (one, two) = (job(1), job(2));
        let jobs = [logged(1, &one), LoggedJob { once: true, ..logged(2, &two) }];
        jobs.iter().for_each(|job| journal.ledger.intend(&intent(*job, 1)));
        journal.ledger.ended(&end(1, 1, AttemptOutcome::Exited(4)), LoggedOutput::default());
        journal.settled(&jobs[0], JobState::failed(Failure::ExitCode), None);
        journal.flush().unwrap();
        drop(journal);

        let (mut journal, mut past) = resume(&folder.log());
        assert_eq!(past.look_up(id(2)).unwrap().state, JobState::UNKNOWN);
        for job in &jobs {
            journal.ledger.intend(&intent(*job, 1));
            let outcome = AttemptOutcome::NotStarted("no such file".into());
            journal.ledger.ended(&end(job.number, 1, outcome), LoggedOutput::default());
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
        let changes = journal.ledger.changes.described.iter();
        changes.map(|it| (it.row, it.number, it.name.as_deref())).collect()
    }
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=4).for_each(|number| succeed(&mut journal, number));
    journal.input_ended(4, std::iter::empty());
    journal.close(Some(0), "finished").unwrap();

    // The first job is as before, the second one has another number, the third one has a name, and the fourth one is
    // gone.
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

#[test]
fn a_page_says_that_a_run_was_killed_only_if_its_process_is_surely_gone() {
    let folder = Folder::new();
    // This process runs it.
    let journal = create(&folder.log());
    let page = || crate::view::LogView::open(folder.log()).unwrap().page().unwrap();
    assert!(page().contains("<h1>Running: "), "{}", page());
    drop(journal);
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    let (gone, unknown) = ("the last run was killed", "the last run runs, or was killed");
    let known = pipewright_os::process::open::start_time(std::process::id()).is_some();
    for (change, words) in [
        ("pid_start = pid_start + 1", if known { gone } else { unknown }),
        ("pid_start = NULL", unknown),
        ("pid_start = 1, boot_id = 'another boot'", unknown),
        ("boot_id = NULL, host = 'elsewhere'", unknown),
    ] {
        connection.execute(&format!("UPDATE runs SET {change}"), []).unwrap();
        assert!(page().contains(words) && !page().contains("Running: "), "{change}: {}", page());
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
        journal.ledger.intend(&intent(logged(number, &job), 1));
        let mut end = end(number, 1, AttemptOutcome::Exited(0));
        end.stdout_bytes = 5;
        let output = LoggedOutput { path: Some(&path), ..LoggedOutput::default() };
        journal.ledger.ended(&end, output);
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
    let [third, second, first] = &*journal.lost_outputs else {
        panic!("{:?}", journal.lost_outputs)
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

// SIGKILL of a runner at any moment: everything that was reported durable is in the log.

/// Runs jobs without an end, and says what is durable.
pub(super) fn run_until_killed(log: &Path) {
    let (wake, woken) = mpsc::channel();
    let waker: Waker = Box::new(move || {
        // Ignored: the test is about to end.
        let _ = wake.send(());
    });
    let (mut journal, mut past) = if log.exists() {
        Journal::resume(log, &facts(), waker).unwrap()
    } else {
        (Journal::create(log, &facts(), waker).unwrap(), Past::default())
    };
    for number in 1.. {
        let job = job(number);
        let id = JobId::new(&job, 0);
        if past.look_up(id).is_some_and(|past| past.end().is_some()) {
            continue;
        }
        let logged = LoggedJob { number, id, job: &job, once: number % 2 == 0 };
        journal.ledger.intend(&Intent {
            job: logged,
            attempt: 1,
            slot: None,
            durable: logged.once,
        });
        journal.submit();
        if logged.once {
            // The intent of a job that must not run twice is durable before it starts.
            loop {
                match journal.next_report() {
                    Some(Report::Durable(key)) if key.job == number => break,
                    Some(other) => panic!("{other:?}"),
                    None => woken.recv().unwrap(),
                }
            }
            say(format_args!("intended {number}"));
        }
        let mut end = end(number, 1, AttemptOutcome::Exited((number % 3) as i32));
        end.stdout_bytes = number;
        journal.ledger.ended(&end, LoggedOutput::default());
        let state = match number % 3 {
            0 => JobState::SUCCEEDED,
            _ => JobState::failed(crate::vocabulary::Failure::ExitCode),
        };
        journal.settled(&logged, state, None);
        journal.submit();
        if number % 5 == 0 {
            journal.flush().unwrap();
            say(format_args!("durable {number}"));
        }
    }
}

/// Kills a runner after its `lines`-th line. Returns the last number of each word.
fn kill_after(lines: usize, log: &Path) -> HashMap<String, u64> {
    let mut runner = act::start(&[], "crash", log);
    let mut said = HashMap::new();
    let mut hear = |line: String| {
        let (word, number) = line.split_once(' ').unwrap();
        said.insert(word.to_owned(), number.parse().unwrap());
    };
    for _ in 0..lines {
        hear(runner.line().unwrap());
    }
    runner.child.kill().unwrap();
    // What it had said before it was killed counts too.
    while let Some(line) = runner.line() {
        hear(line);
    }
    runner.kill();
    said
}

#[test]
fn whatever_was_reported_durable_survives_sigkill() {
    let folder = Folder::new();
    let path = folder.log();
    let mut done = HashSet::new();
    for round in 0..15 {
        let said = kill_after(1 + round * 7 % 30, &path);
        let whole = by_others(&path);
        assert!(whole.iter().all(|answer| answer == "ok"), "{whole:?}");
        let log = Log::open(&path).unwrap();
        let jobs = all_jobs(&log);
        let find = |number| jobs.iter().find(|job| job.number == number);
        if let Some(durable) = said.get("durable") {
            for number in 1..=*durable {
                let job = find(number).unwrap_or_else(|| panic!("job {number} is missing"));
                assert!(job.state.past().is_some(), "job {number} is {:?}", job.state);
            }
        }
        if let Some(intended) = said.get("intended") {
            assert!(find(*intended).is_some(), "the intent of job {intended} is missing");
        }
        let ended = attempts(&log, &AttemptFilter::default());
        for attempt in ended.iter().filter(|it| it.end.outcome.name() == "exited") {
            let number = attempt.job.number;
            let written = (attempt.end.outcome.code(), attempt.end.stdout_bytes);
            assert_eq!(written, (Some((number % 3) as i32), number));
        }
        // A job whose end was in the log is never run again.
        let now: HashSet<_> =
            ended.iter().filter(|it| it.end.outcome.name() == "exited").map(|it| it.row).collect();
        assert!(now.is_superset(&done), "an end has gone");
        let mut seen = HashSet::new();
        assert!(
            ended
                .iter()
                .filter(|it| it.end.outcome.name() == "exited")
                .all(|it| seen.insert(it.job.row)),
            "a job ended twice"
        );
        done = now;
    }
    assert!(done.len() > 50, "only {} jobs", done.len());
    let (journal, _) = resume(&path);
    journal.close(None, "finished").unwrap();
    check_whole(&path);
}

/// Returns the answers of the programs that are installed here to a check of the file.
fn by_others(log: &Path) -> Vec<String> {
    const PYTHON: &str = "import sqlite3, sys; \
        print(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchone()[0])";
    let commands: [&[&str]; 2] = [
        &["sqlite3", "-readonly", "LOG", "PRAGMA integrity_check"],
        &["python3", "-c", PYTHON, "LOG"],
    ];
    let answers = commands.iter().filter_map(|words| {
        let words =
            words.iter().map(|word| if *word == "LOG" { log.as_os_str() } else { word.as_ref() });
        let words: Vec<_> = words.collect();
        let output = installed(Command::new(words[0]).args(&words[1..]))?;
        let answer = [output.stdout, output.stderr].concat();
        Some(String::from_utf8_lossy(&answer).trim().to_owned())
    });
    answers.collect()
}

// A log that is resumed without its input: it has all jobs, or the batch does not go on.

/// Makes a log of three jobs, whose input ended after that many. `None`: it did not end.
fn sample(input: Option<u64>) -> Folder {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=3).for_each(|number| succeed(&mut journal, number));
    if let Some(jobs) = input {
        journal.input_ended(jobs, std::iter::empty());
    }
    journal.close(Some(0), "finished").unwrap();
    folder
}

fn resume_alone(folder: &Folder) -> Result<(Journal, Past), LogErrorKind> {
    let facts = RunFacts { from_log: true, ..facts() };
    Journal::resume(&folder.log(), &facts, no_waker()).map_err(|error| error.kind().clone())
}

#[test]
fn a_whole_log_is_its_own_input_in_each_later_run() {
    let folder = sample(Some(3));
    for _ in 0..2 {
        let (journal, past) = resume_alone(&folder).unwrap();
        assert_eq!(past.len(), 3);
        journal.close(Some(0), "finished").unwrap();
    }
    let log = Connection::open(folder.log()).unwrap();
    let mut query = log.prepare("SELECT jobs FROM runs ORDER BY number").unwrap();
    let jobs: Vec<Option<u32>> =
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(jobs, [Some(3); 3]);
}

#[test]
fn a_log_without_the_end_of_its_input_or_without_a_job_is_refused() {
    for input in [None, Some(2), Some(4)] {
        let description = "true {}".to_owned();
        let error = resume_alone(&sample(input)).unwrap_err();
        assert_eq!(error, LogErrorKind::LacksInput { description }, "{input:?}");
    }
}

#[test]
fn a_log_whose_jobs_ran_in_another_directory_is_refused() {
    // That comes first: the input, too, may be a file with a relative path.
    for input in [None, Some(3)] {
        let folder = sample(input);
        let log = Connection::open(folder.log()).unwrap();
        log.execute("UPDATE runs SET cwd = '/elsewhere'", []).unwrap();
        drop(log);
        let error = resume_alone(&folder).unwrap_err();
        assert_eq!(error, LogErrorKind::OtherDirectory { dir: "/elsewhere".into() });
    }
}

#[test]
fn a_log_of_the_first_version_lacks_the_settings_of_its_jobs() {
    let mut log = Connection::open_in_memory().unwrap();
    migrate(&mut log, &STEPS[..1]).unwrap();
    log.execute("INSERT INTO batch VALUES ('1', 0, '0.1', 'convert {}')", []).unwrap();
    let error = check_input(&log, Path::new("run.db")).unwrap_err();
    let description = "convert {}".to_owned();
    assert_eq!(*error.kind(), LogErrorKind::LacksSettings { description });
}
