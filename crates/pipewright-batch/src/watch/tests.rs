//! Tests of all reports, fed by one driver, and updates for the tests of each.

use std::io::Cursor;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::*;
use crate::vocabulary::JobOutcome;
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

#[test]
fn every_report_takes_every_update() {
    every_update(|updates| {
        let start = Instant::now();
        let mut shown = Vec::new();
        let screen = Screen { columns: || 80, is_ansi: true, colors: true };
        let mut progress = Progress::new(&mut shown, ProgressKind::Bar, screen, start);
        let (mut events, mut trace) =
            (EventWriter::new(Vec::new()), TraceWriter::new(Cursor::new(Vec::new())));
        let mut page = PageModel::new(facts());
        let mut now = start;
        for update in updates {
            now += Duration::from_secs(1);
            progress.update(update, now);
            events.update(update, None, at(1.0));
            trace.update(update);
            page.update(update, at(1.0));
            progress.tick(now);
        }
        progress.finish();
        events.finish().unwrap();
        trace.finish().unwrap();
        assert!(String::from_utf8(shown).unwrap().ends_with("\x1b[J"), "the bar is erased");
        assert!(page.html().ends_with("</html>\n"));
    });
}

#[test]
fn an_event_of_jobs_that_were_read_counts_all_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let settings = WatchSettings { events: Some(path.clone()), ..WatchSettings::default() };
    let mut watchers = Watchers::open(&settings, facts()).unwrap();
    for (added, total) in [(0, None), (3, None), (3, None), (10, Some(10))] {
        watchers.tick(added, total);
    }
    watchers.finish(&totals(), None).unwrap();
    let events = std::fs::read_to_string(path).unwrap();
    let events =
        events.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let added = events.filter(|event| event["event"] == "added");
    let counts: Vec<_> = added.map(|it| (it["jobs"].as_u64(), it["total"].as_u64())).collect();
    assert_eq!(counts, [(Some(3), None), (Some(10), Some(10))]);
}

#[test]
fn stderr_has_a_width_and_a_kind_of_progress() {
    use std::io::IsTerminal;
    assert!((Screen::stderr().columns)() > 0);
    let is_bar = ProgressKind::for_stderr() == ProgressKind::Bar;
    assert_eq!(is_bar, std::io::stderr().is_terminal());
}

// Updates for the tests of all reports.

/// Returns the time that many seconds after the start of the batch.
pub(super) fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000) + Duration::from_secs_f64(seconds)
}

pub(super) fn facts() -> BatchFacts {
    BatchFacts {
        command: "pipewright batch -j 4 --log run.db ./convert {}".to_owned(),
        slots: 4,
        started: at(0.0),
        log: Some("run.db".to_owned()),
    }
}

fn totals() -> Totals {
    Totals {
        exit_code: Some(123),
        how: "finished",
        succeeded: 9,
        failed: 1,
        skipped: 0,
        stopped: 0,
        not_run: 0,
        unknown: 0,
    }
}

pub(super) fn key(job: u64) -> AttemptKey {
    AttemptKey { job, attempt: 1 }
}

pub(super) fn end(job: u64, outcome: AttemptOutcome, start: f64, seconds: f64) -> AttemptEnd {
    AttemptEnd::new(key(job), outcome, at(start), Duration::from_secs_f64(seconds))
}

/// Calls `work` with one update of each kind.
pub(super) fn every_update(work: impl FnOnce(&[Update<'_>])) {
    let facts = facts();
    let totals = totals();
    let end = end(2, AttemptOutcome::Exited(7), 0.5, 2.0);
    work(&[
        Update::Began(&facts),
        Update::Resumed { jobs: 3 },
        Update::Added { jobs: 10, total: Some(10) },
        Update::Started { key: key(2), slot: 1, text: "./convert b" },
        Update::Ended { end: &end, text: "./convert b", last_lines: "no such file" },
        Update::Retried { job: 2 },
        Update::Settled { job: 2, outcome: JobOutcome::Failed, reason: Some("exit 7") },
        Update::Held { reason: Some("the load is 9, and has to be below 4") },
        Update::Halted { cause: "drain" },
        Update::Capacity { slots: 8 },
        Update::InputEnded { total: 10 },
        Update::Note("the log is on a network filesystem"),
        Update::Finished(&totals),
    ]);
}
