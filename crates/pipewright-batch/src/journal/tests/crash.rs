//! SIGKILL of a runner at any moment: everything that was reported durable is in the log.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;

use super::*;
use crate::journal::tests::act::{self, say};

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
        journal.intend(&Intent { job: logged, attempt: 1, slot: None, durable: logged.once });
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
        journal.ended(&end, LoggedOutput::default());
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
