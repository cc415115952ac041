//! The reading of a log: each job as it was written, filters and counts, and all that its document promises.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::*;
use crate::journal::read::JobQuery;
use crate::journal::rows::{BatchRow, Counts, RunRow, RunningRow};
use crate::vocabulary::Failure;

#[test]
fn a_reader_sees_whole_commits_while_a_runner_writes() {
    const JOBS: u64 = 3000;
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let has_ended = &AtomicBool::new(false);
    let (read, is_read) = mpsc::channel();
    std::thread::scope(|scope| {
        let path = folder.log();
        let reader = scope.spawn(move || {
            let log = Log::open(&path).unwrap();
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
                // Ignored: the runner waits for the first one only.
                let _ = read.send(());
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
        // On a busy machine the reader may not have begun. An error is its panic.
        let _ = is_read.recv();
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
        journal.ledger.intend(&intent(logged(number, &job(number)), 1));
        if number == 3 {
            journal
                .ledger
                .ended(&end(number, 1, AttemptOutcome::Exited(1)), LoggedOutput::default());
            journal.ledger.intend(&intent(logged(number, &job(number)), 2));
        }
        let attempt = if number == 3 { 2 } else { 1 };
        journal.ledger.ended(&end(number, attempt, outcome), LoggedOutput::default());
        journal.settled(&logged(number, &job(number)), state, None);
    }
    journal.ledger.intend(&Intent { slot: Some(2), ..intent(logged(5, &job(5)), 1) });
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
    journal.ledger.intend(&intent(new, 1));
    journal.ledger.ended(&end(1, 1, AttemptOutcome::Exited(0)), LoggedOutput::default());
    journal.input_ended(1, past.removed());
    journal.close(Some(0), "finished").unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let found = log.find(JobQuery::Number(1), 2).unwrap();
    assert_eq!(found.iter().map(|job| &*job.command).collect::<Vec<_>>(), ["job 7"]);
}

// Jobs and attempts as they are written and read back.

#[test]
fn a_job_is_read_back_as_it_was_written() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let job = Job::new("convert")
        .args(["it's.png", "out.png"])
        .name("picture")
        .current_dir("/tmp/pictures");
    let logged = LoggedJob { number: 7, id: JobId::new(&job, 2), job: &job, once: false };
    journal.ledger.intend(&Intent { job: logged, attempt: 1, slot: Some(3), durable: false });
    let mut end = end(7, 1, AttemptOutcome::Exited(3));
    end.user = Some(Duration::from_millis(1500));
    end.system = Some(Duration::from_micros(250));
    end.peak_rss_bytes = Some(1 << 33);
    end.stdout_bytes = 12;
    end.stderr_bytes = 1 << 40;
    end.leftovers_killed = 2;
    let path = Path::new("out/7");
    journal
        .ledger
        .ended(&end, LoggedOutput { path: Some(path), stderr_tail: b"one\ntwo\n", is_lost: false });
    journal.settled(&logged, JobState::failed(Failure::ExitCode), Some("exited with 3"));
    journal.close(Some(123), "finished").unwrap();

    let log = Log::open(&folder.log()).unwrap();
    let found = attempts(&log, &AttemptFilter::default());
    let [attempt] = &found[..] else { panic!("{found:?}") };
    let expected_job = JobRow {
        row: 1,
        id: JobId::new(&job, 2),
        number: 7,
        line: None,
        name: Some("picture".into()),
        command: r"convert 'it'\''s.png' out.png".into(),
        current_dir: Some("/tmp/pictures".into()),
        state: JobState::failed(Failure::ExitCode),
        reason: Some("exited with 3".into()),
        last_attempt: Some(1),
    };
    let started = system_time(1_700_000_000.507);
    let key = AttemptKey { job: 7, attempt: 1 };
    let mut expected_end =
        AttemptEnd::new(key, AttemptOutcome::Exited(3), started, Duration::from_millis(7));
    expected_end.user = Some(Duration::from_millis(1500));
    expected_end.system = Some(Duration::from_micros(250));
    expected_end.peak_rss_bytes = Some(1 << 33);
    (expected_end.stdout_bytes, expected_end.stderr_bytes) = (12, 1 << 40);
    expected_end.leftovers_killed = 2;
    let expected = AttemptRow {
        row: 1,
        job: expected_job.clone(),
        run: 1,
        slot: Some(3),
        end: expected_end,
        output_path: Some("out/7".into()),
        stderr_tail: Some("one\ntwo\n".into()),
    };
    assert_eq!(*attempt, expected);
    assert_eq!(all_jobs(&log), [expected_job]);
    check_whole(&folder.log());
}

#[test]
fn batch_and_runs_are_read_back() {
    let folder = Folder::new();
    let journal = create(&folder.log());
    let (batch_id, run) = (journal.batch_id.clone(), journal.run);
    assert_eq!(run, 1);
    journal.close(Some(0), "finished").unwrap();
    let (journal, _) = resume(&folder.log());
    assert_eq!((&journal.batch_id, journal.run), (&batch_id, 2));
    let log = Log::open(&folder.log()).unwrap();
    let batch: BatchRow = log.batch().unwrap();
    assert_eq!((&*batch.id, batch.id.len()), (&*batch_id, 32));
    assert_eq!((&*batch.description, &*batch.tool_version), ("true {}", "1.2.3"));
    let runs: Vec<RunRow> = log.runs().unwrap();
    let [first, second] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((first.exit_code, first.how.as_deref()), (Some(0), Some("finished")));
    assert!(first.ended.is_some_and(|ended| ended >= first.started && first.started > 1.7e9));
    assert_eq!((second.ended, second.slots, second.pid), (None, 4, std::process::id()));
    let current = std::env::current_dir().unwrap();
    assert_eq!(second.current_dir.as_deref().map(Path::new), Some(&*current));
}

#[test]
fn a_run_has_the_largest_number_of_slots() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let slots = || Log::open(&folder.log()).unwrap().runs().unwrap()[0].slots;
    // Within a commit, and from one to the next. A machine that went away counts too.
    for (noted, largest) in [(vec![2], 4), (vec![7, 5], 7), (vec![6], 7)] {
        noted.iter().for_each(|slots| journal.ledger.set_slots(*slots));
        journal.flush().unwrap();
        assert_eq!(slots(), largest, "{noted:?}");
    }
}

#[test]
fn each_outcome_has_its_word_and_its_numbers() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let outcomes = [
        AttemptOutcome::Exited(0),
        AttemptOutcome::Signaled(11),
        AttemptOutcome::TimedOut,
        AttemptOutcome::IdleTimedOut,
        AttemptOutcome::LimitExceeded,
        AttemptOutcome::Cancelled,
        AttemptOutcome::OutOfMemory,
        AttemptOutcome::NotStarted("no such program".into()),
        AttemptOutcome::Lost("the worker is gone".into()),
    ];
    for (number, outcome) in (1..).zip(&outcomes) {
        journal.ledger.intend(&intent(logged(number, &job(number)), 1));
        journal.ledger.ended(&end(number, 1, outcome.clone()), LoggedOutput::default());
    }
    journal.flush().unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let found = attempts(&log, &AttemptFilter::default());
    assert_eq!(found.len(), outcomes.len());
    for (found, outcome) in found.iter().zip(&outcomes) {
        assert_eq!(found.end.outcome, *outcome);
    }
}

#[test]
fn a_success_is_final_before_its_job_is_settled() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    journal.ledger.intend(&intent(logged(1, &job(1)), 1));
    journal.ledger.intend(&intent(logged(2, &job(2)), 1));
    journal.ledger.ended(&end(1, 1, AttemptOutcome::Exited(0)), LoggedOutput::default());
    journal.ledger.ended(&end(2, 1, AttemptOutcome::Exited(1)), LoggedOutput::default());
    journal.flush().unwrap();
    drop(journal);
    let (_journal, mut past) = resume(&folder.log());
    let state = |past: &mut Past, number| past.look_up(JobId::new(&job(number), 0)).unwrap().state;
    assert_eq!(state(&mut past, 1), JobState::SUCCEEDED);
    assert_eq!(state(&mut past, 2), JobState::Started);
    assert_eq!(past.interrupted().count(), 0);
}

#[test]
fn attempts_of_one_job_are_kept_in_order() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    for attempt in 1..=3 {
        journal.ledger.intend(&intent(logged(1, &job(1)), attempt));
        if attempt == 2 {
            journal.flush().unwrap();
        }
        let code = 3 - attempt as i32;
        journal
            .ledger
            .ended(&end(1, attempt, AttemptOutcome::Exited(code)), LoggedOutput::default());
    }
    journal.settled(&logged(1, &job(1)), JobState::SUCCEEDED, None);
    journal.close(Some(0), "finished").unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let found = log.attempts_of(1).unwrap();
    let numbers: Vec<_> =
        found.iter().map(|it| (it.end.key.attempt, it.end.outcome.code())).collect();
    assert_eq!(numbers, [(1, Some(2)), (2, Some(1)), (3, Some(0))]);
    assert_eq!(found[0].job.last_attempt, Some(found[2].row));
    assert_eq!(log.counts().unwrap().running, 0);
}

#[test]
fn an_intent_that_is_void_leaves_no_attempt() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    for is_durable_first in [true, false] {
        let number = if is_durable_first { 1 } else { 2 };
        journal.ledger.intend(&intent(logged(number, &job(number)), 1));
        if is_durable_first {
            journal.flush().unwrap();
        }
        journal.ledger.void(AttemptKey { job: number, attempt: 1 });
        journal.settled(
            &logged(number, &job(number)),
            JobState::ended(JobOutcome::NotRun),
            Some("the batch ended"),
        );
    }
    // Settled without a call of `void`.
    journal.ledger.intend(&intent(logged(3, &job(3)), 1));
    journal.flush().unwrap();
    journal.settled(&logged(3, &job(3)), JobState::ended(JobOutcome::NotRun), None);
    journal.flush().unwrap();
    drop(journal);
    let log = Log::open(&folder.log()).unwrap();
    let counts = log.counts().unwrap();
    assert_eq!(
        (counts.jobs, counts.of(JobState::ended(JobOutcome::NotRun)), counts.running),
        (3, 3, 0)
    );
    assert!(attempts(&log, &AttemptFilter::default()).is_empty());
    let (_journal, past) = resume(&folder.log());
    assert_eq!(past.interrupted().count(), 0);
}

#[test]
fn a_job_that_never_starts_is_noted_with_its_reason() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let states = [
        JobState::ended(JobOutcome::Skipped),
        JobState::ended(JobOutcome::NotRun),
        JobState::ended(JobOutcome::Refused),
    ];
    for (number, state) in (1..).zip(states) {
        journal.settled(&logged(number, &job(number)), state, Some("because\nof it"));
    }
    journal.close(None, "stopped").unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let jobs = all_jobs(&log);
    assert_eq!(jobs.iter().map(|job| job.state).collect::<Vec<_>>(), states);
    assert!(jobs.iter().all(|job| job.reason.as_deref() == Some("because\nof it")));
}

#[test]
fn late_reports_change_nothing() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let output = LoggedOutput::default();
    journal.ledger.ended(&end(1, 1, AttemptOutcome::Exited(0)), output);
    journal.ledger.void(AttemptKey { job: 1, attempt: 1 });
    journal.ledger.intend(&intent(logged(1, &job(1)), 1));
    journal.ledger.ended(&end(1, 2, AttemptOutcome::Exited(0)), output);
    journal.ledger.ended(&end(1, 1, AttemptOutcome::Exited(1)), output);
    journal.ledger.ended(&end(1, 1, AttemptOutcome::Exited(0)), output);
    journal.ledger.void(AttemptKey { job: 1, attempt: 1 });
    journal.flush().unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let found = attempts(&log, &AttemptFilter::default());
    assert_eq!(found.iter().map(|it| it.end.outcome.code()).collect::<Vec<_>>(), [Some(1)]);
}

#[cfg(unix)]
#[test]
fn any_bytes_of_a_command_are_kept() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    let job = Job::new("cat").arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
    journal.ledger.intend(&intent(logged(1, &job), 1));
    journal.close(None, "finished").unwrap();
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    let command = connection.query_row("SELECT command FROM jobs", [], |row| row.get(0));
    assert_eq!(command, Ok(b"cat '\xff\xfe'".to_vec()));
    let log = Log::open(&folder.log()).unwrap();
    assert_eq!(all_jobs(&log)[0].command, "cat '\u{fffd}\u{fffd}'");
}

#[test]
fn a_job_is_found_by_digits_number_and_name() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    for number in 1..=50 {
        let name = if number % 2 == 0 { "even" } else { "odd" };
        journal.ledger.intend(&intent(logged(number, &job(number).name(name)), 1));
    }
    journal.flush().unwrap();
    let log = Log::open(&folder.log()).unwrap();
    let find = |query: JobQuery<'_>| log.find(query, 100).unwrap();
    let id = JobId::new(&job(7), 0).to_string();
    let found = find(JobQuery::Identity(&id[..12]));
    assert_eq!(found.iter().map(|job| job.number).collect::<Vec<_>>(), [7]);
    assert_eq!(found, find(JobQuery::Number(7)));
    assert_eq!(found, find(JobQuery::Identity(&id.to_uppercase())));
    assert_eq!(find(JobQuery::Name("even")).len(), 25);
    assert_eq!(log.find(JobQuery::Name("even"), 3).unwrap().len(), 3);
    assert_eq!(find(JobQuery::Identity("")).len(), 50);
    for query in [JobQuery::Name("neither"), JobQuery::Number(51), JobQuery::Identity("%")] {
        assert!(find(query).is_empty(), "{query:?}");
    }
}

// docs/batch-log.md describes the log as it is, and its examples run.

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/batch-log.md");
    std::fs::read_to_string(path).unwrap()
}

/// Returns the code blocks of a language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = document.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Makes a log with a success after a failure, a failure, and a job that runs.
fn sample_of_all(path: &Path) -> Journal {
    let mut journal = create(path);
    for (number, attempt, code) in [(1, 1, 1), (1, 2, 0), (2, 1, 3)] {
        let (job, output) =
            (job(number), LoggedOutput { stderr_tail: b"no space\n", ..LoggedOutput::default() });
        journal.ledger.intend(&intent(logged(number, &job), attempt));
        journal.ledger.ended(&end(number, attempt, AttemptOutcome::Exited(code)), output);
        if number == 2 {
            let state = JobState::failed(Failure::ExitCode);
            journal.settled(&logged(number, &job), state, Some("exited with 3"));
        }
    }
    journal.ledger.intend(&intent(logged(3, &job(3)), 1));
    journal.flush().unwrap();
    journal
}

#[test]
fn every_table_and_column_is_documented_and_no_other() {
    let folder = Folder::new();
    create(&folder.log()).close(None, "finished").unwrap();
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    let query = "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c";
    let mut query = connection.prepare(query).unwrap();
    let columns = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let columns: BTreeSet<(String, String)> = columns.map(Result::unwrap).collect();

    let document = document();
    let mut documented = BTreeSet::new();
    for section in document.split("\n### ").skip(1) {
        let section = section.split("\n## ").next().unwrap();
        let (table, rest) = section.split_once('\n').unwrap();
        let rows = rest.split("| column |").nth(1).unwrap().split("\n\n").next().unwrap();
        for row in rows.lines().skip(2) {
            let names = row.split('|').nth(1).unwrap();
            let names = names.split('`').skip(1).step_by(2);
            documented.extend(names.map(|name| (table.to_owned(), name.to_owned())));
        }
    }
    assert_eq!(documented, columns);
}

#[test]
fn every_word_is_documented() {
    let document = document();
    for state in JobState::ALL {
        for word in [Some(state.name()), state.failure().map(Failure::name)].into_iter().flatten() {
            assert!(document.contains(&format!("`{word}`")), "{word}");
        }
    }
}

#[test]
fn the_documented_questions_have_answers() {
    let folder = Folder::new();
    let _journal = sample_of_all(&folder.log());
    let document = document();
    let log = rusqlite::Connection::open(folder.log()).unwrap();
    let questions: Vec<String> = blocks(&document, "sql")
        .iter()
        .flat_map(|block| block.split(';'))
        .filter(|question| !question.trim().is_empty())
        .map(str::to_owned)
        .collect();
    assert!(questions.len() >= 5, "{questions:?}");
    for question in &questions {
        let mut query = log.prepare(question).unwrap();
        assert!(query.query([]).unwrap().next().unwrap().is_some(), "no answer: {question}");
        let words: Vec<_> = question.lines().filter(|line| !line.starts_with("--")).collect();
        let mut sqlite3 = Command::new("sqlite3");
        sqlite3.args(["-readonly", "-cmd", &words.join(" ")]).arg(folder.log());
        sqlite3.stdin(std::process::Stdio::null());
        let Some(output) = installed(&mut sqlite3) else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !output.stdout.is_empty(), "{question}: {text}");
    }
}

#[test]
fn the_documented_python_runs() {
    let folder = Folder::new();
    let _journal = sample_of_all(&folder.log());
    let document = document();
    let programs = blocks(&document, "python");
    let [program] = &programs[..] else { panic!("{programs:?}") };
    let mut python = Command::new("python3");
    python.arg("-c").arg(program).current_dir(folder.0.path());
    let Some(output) = installed(&mut python) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "1: job 1 took 0.001 s\n1: job 1 took 0.001 s\n2: job 2 took 0.002 s\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
