//! Logs of all versions, as programs of those versions have written them: each is opened, listed and resumed.
//!
//! The three runs of each had the jobs of `jobs.jsonl`, with a `LONG` of 600: the first one ended at the timeout of the
//! batch, the others were killed. A new version of the log adds a file here, and changes none.

use super::*;
use crate::batch::Run;
use crate::journal::LogErrorKind;

const INPUT: &str = include_str!("old_logs/jobs.jsonl");

const LOGS: [&str; 5] = [
    include_str!("old_logs/version-1.sql"),
    include_str!("old_logs/version-2.sql"),
    include_str!("old_logs/version-3.sql"),
    include_str!("old_logs/version-4.sql"),
    include_str!("old_logs/version-5.sql"),
];

/// The ends of the jobs in each log, by number. Version 1 had no row for a job that waits.
const LISTED: [(u64, &str, Option<&str>); 13] = [
    (1, "succeeded", None),
    (2, "failed", None),
    (3, "failed", None),
    (4, "failed", None),
    (5, "failed", Some("cannot start \"./missing\": no such file")),
    (6, "skipped", Some("job 2 did not succeed")),
    (7, "refused", Some("no job is named \"nobody\", which is in its \"after\"")),
    (8, "running", None),
    (9, "unknown", None),
    (10, "interrupted", None),
    (11, "stopped", None),
    (12, "not_run", None),
    (13, "waiting", None),
];

/// Calls the function with a copy of each log, and with its version and the number of its jobs.
fn each_log(mut each: impl FnMut(u64, usize, &Path)) {
    for (version, dump) in (1..).zip(LOGS) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("run.db");
        let connection = rusqlite::Connection::open(&log).unwrap();
        connection.execute_batch(dump).unwrap();
        // A batch of its own: one that is resumed ends what runs for an earlier run of the same batch, and the tests of
        // this file run side by side.
        connection.execute("UPDATE batch SET id = lower(hex(randomblob(16)))", []).unwrap();
        connection.close().unwrap();
        let jobs = if version == 1 { LISTED.len() - 1 } else { LISTED.len() };
        each(version, jobs, &log);
    }
}

/// Returns the last end of each job that the run tells, once it is over.
fn ends(mut run: Run) -> BTreeMap<u64, Said> {
    let mut ends = BTreeMap::new();
    for event in &mut run {
        if let Event::Settled { job, outcome, reason, before, .. } = event.unwrap() {
            ends.insert(job, Said { outcome, reason, before });
        }
    }
    run.finish().unwrap();
    ends
}

/// The ends of all jobs in a run that resumes the log.
fn expected() -> BTreeMap<u64, Said> {
    let before = |outcome| Said { before: true, ..said(outcome) };
    let refused = "no job is named \"nobody\", which is in its \"after\"";
    let end = |number| match number {
        1 => before(JobOutcome::Succeeded),
        2..=5 => before(JobOutcome::Failed),
        6 => said_with(JobOutcome::Skipped, "job 2 [bad] did not succeed"),
        7 => said_with(JobOutcome::Refused, refused),
        9 => said(JobOutcome::Unknown),
        _ => said(JobOutcome::Succeeded),
    };
    (1..=13).map(|number| (number, end(number))).collect()
}

#[test]
fn a_log_of_each_version_is_listed_and_not_changed() {
    each_log(|version, jobs, log| {
        let before = std::fs::read(log).unwrap();
        let view = LogView::open(log).unwrap();
        let mut lines = Vec::new();
        view.write_json(&crate::JobFilter::default(), &mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let mut listed: Vec<(u64, String, Option<String>)> = lines
            .lines()
            .map(|line| {
                let row: serde_json::Value = serde_json::from_str(line).unwrap();
                let text = |name: &str| row[name].as_str().map(ToOwned::to_owned);
                (row["job"].as_u64().unwrap(), text("state").unwrap(), text("reason"))
            })
            .collect();
        listed.sort();
        let listed = listed.iter().map(|(job, state, why)| (*job, &**state, why.as_deref()));
        assert_eq!(listed.collect::<Vec<_>>(), LISTED[..jobs], "version {version}");
        let counts = "1 succeeded, 4 failed, 1 skipped, 1 stopped, 1 not run, 1 interrupted, 1 unknown, 1 refused, 1 \
            started";
        let waiting = if version == 1 { "" } else { ", 1 waiting" };
        let summary = view.summary().unwrap();
        assert!(summary.starts_with(&format!("{jobs} jobs: {counts}{waiting}\n")), "{summary}");
        assert!(view.page().unwrap().contains("<h1>1 ok, 4 failed, "));
        drop(view);
        assert_eq!(std::fs::read(log).unwrap(), before, "version {version}");
    });
}

#[test]
fn a_log_of_each_version_is_resumed_with_its_input() {
    each_log(|version, _, log| {
        let jobs = Source::new(INPUT.as_bytes()).json_lines();
        let run = Batch::new().jobs(2).log(log).resume(true).start(jobs).unwrap();
        assert_eq!(ends(run), expected(), "version {version}");
        // The jobs are those of the log: none has a new row.
        let connection = rusqlite::Connection::open(log).unwrap();
        let count = "SELECT count(*), (SELECT count(*) FROM running) FROM jobs";
        let count = connection.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(count, Ok((13_u32, 0_u32)), "version {version}");
    });
}

#[test]
fn a_log_that_has_its_jobs_is_resumed_without_its_input() {
    each_log(|version, _, log| {
        // Jobs run in the folder of the runs before.
        let here = std::env::current_dir().unwrap();
        let connection = rusqlite::Connection::open(log).unwrap();
        connection.execute("UPDATE runs SET cwd = ?1", [here.to_str().unwrap()]).unwrap();
        connection.close().unwrap();
        let run = Batch::new().jobs(2).resume_log(log);
        match version {
            // It does not have the settings of its jobs.
            1 => {
                let error = run.unwrap_err();
                let crate::BatchError::Log(error) = error else { panic!("{error}") };
                let is_unknown = matches!(error.kind(), LogErrorKind::LacksSettings { .. });
                assert!(is_unknown, "{error}");
            }
            _ => assert_eq!(ends(run.unwrap()), expected(), "version {version}"),
        }
    });
}
