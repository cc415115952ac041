//! Tests of all reports, fed by one driver, and events for the tests of each.

use std::io::Cursor;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::*;
use crate::job::{Job, JobId};
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome, Halt, JobOutcome};

#[test]
fn every_report_takes_every_event() {
    let start = Instant::now();
    let mut shown = Vec::new();
    let screen = Screen { columns: || 80, is_ansi: true, colors: true };
    let mut progress = Progress::new(&mut shown, ProgressKind::Bar, screen, start);
    let (mut events, mut trace) = (
        EventWriter::new(Vec::new(), &facts()),
        TraceWriter::new(Cursor::new(Vec::new()), &facts()),
    );
    let mut page = PageModel::new(facts());
    let mut now = start;
    for event in every_event() {
        now += Duration::from_secs(1);
        progress.event(&event, now);
        events.event(&event, at(1.0));
        trace.event(&event);
        page.event(&event, at(1.0));
        progress.tick(now);
    }
    progress.finish();
    events.finish(&totals(), at(1.0)).unwrap();
    trace.finish().unwrap();
    assert!(String::from_utf8(shown).unwrap().ends_with("\x1b[J"), "the bar is erased");
    assert!(page.html().ends_with("</html>\n"));
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

// Events for the tests of all reports.

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

pub(super) fn totals() -> Totals {
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

pub(super) fn started(job: u64, slot: u32, command: &str) -> Event {
    Event::Started { key: key(job), slot, command: command.to_owned(), name: None }
}

pub(super) fn ended(end: AttemptEnd, command: &str, last_lines: &str) -> Event {
    let (command, last_lines) = (command.to_owned(), last_lines.to_owned());
    Event::Ended { end: Box::new(end), command, last_lines, name: None }
}

pub(super) fn settled(job: u64, outcome: JobOutcome, reason: Option<&str>) -> Event {
    let id = JobId::new(&Job::new("true"), 0);
    let reason = reason.map(str::to_owned);
    Event::Settled { job, id, name: None, command: None, outcome, reason, before: false }
}

/// Returns one event of each kind.
pub(super) fn every_event() -> Vec<Event> {
    let end = end(2, AttemptOutcome::Exited(7), 0.5, 2.0);
    let mut before = settled(1, JobOutcome::Succeeded, None);
    if let Event::Settled { before, .. } = &mut before {
        *before = true;
    }
    vec![
        before,
        started(2, 1, "./convert b"),
        ended(end, "./convert b", "no such file"),
        Event::Retrying { job: 2, delay: Duration::from_secs(1) },
        settled(2, JobOutcome::Failed, Some("exit 7")),
        Event::Held { reason: Some("the load is 9, and has to be below 4".to_owned()) },
        Event::Halted(Halt::Drain),
        Event::Capacity { slots: 8 },
        Event::InputEnded { jobs: 10 },
        Event::Note("the log is on a network filesystem".to_owned()),
    ]
}
