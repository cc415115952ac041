//! Events as JSON lines: `pipewright.batch/1`.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::queued::Pieces;
use super::text::cut;
use super::{BatchFacts, Totals};
use crate::vocabulary::{AttemptEnd, AttemptKey, Event, JobOutcome};

/// The name and the version of the schema.
const SCHEMA: &str = "pipewright.batch/1";

/// Bytes of a text of a job that an event has.
const MOST_TEXT_BYTES: usize = 4096;

/// A writer of events, one JSON object a line. docs/json.md describes them.
///
/// Lines are never written in parts by choice: a full disk can cut one, and its rest is the first that is written
/// later.
#[derive(Debug)]
pub(crate) struct EventWriter<W> {
    lines: Pieces<W>,
}

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    event: &'a str,
    unix_seconds: f64,
    /// The user's name of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(flatten)]
    fields: Fields<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Fields<'a> {
    Began { command: String, slots: u32, log: Option<String> },
    Jobs { jobs: u64 },
    Added { jobs: u64, total: Option<u64> },
    Started { job: u64, attempt: u32, slot: u32, command: String },
    Ended(Box<Ended>),
    Job { job: u64 },
    Settled { job: u64, state: JobOutcome, reason: Option<String> },
    Cause { cause: String },
    Reason { reason: Option<String> },
    Capacity { slots: u32 },
    Total { total: u64 },
    Note { message: &'a str },
    Finished(&'a Totals),
}

#[derive(Serialize)]
struct Ended {
    job: u64,
    attempt: u32,
    command: String,
    outcome: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    reason: Option<String>,
    started_unix_seconds: f64,
    elapsed_seconds: f64,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    leftovers_killed: u32,
    node: Option<String>,
}

impl<W: Write> EventWriter<W> {
    /// Returns a writer of events to that file, with the first one.
    pub(crate) fn new(writer: W, facts: &BatchFacts) -> EventWriter<W> {
        let mut events = EventWriter { lines: Pieces::new(writer) };
        let (command, log) = (short(&facts.command), facts.log.clone());
        let fields = Fields::Began { command, slots: facts.slots, log };
        events.add("began", fields, None, facts.started);
        events
    }

    /// Adds an event. It is written at the next [`flush`](Self::flush), or earlier.
    pub(crate) fn event(&mut self, event: &Event, now: SystemTime) {
        let (word, fields, name) = describe(event);
        self.add(word, fields, name.as_deref().map(short), now);
    }

    /// Adds the event of jobs that were read: `jobs` so far.
    pub(crate) fn added(&mut self, jobs: u64, total: Option<u64>, now: SystemTime) {
        self.add("added", Fields::Added { jobs, total }, None, now);
    }

    fn add(&mut self, event: &str, fields: Fields<'_>, id: Option<String>, now: SystemTime) {
        let line = Line { schema: SCHEMA, event, unix_seconds: unix_seconds(now), id, fields };
        match serde_json::to_vec(&line) {
            Ok(mut bytes) => {
                bytes.push(b'\n');
                self.lines.add(&bytes);
            }
            Err(error) => self.lines.keep(error.into()),
        }
    }

    /// Writes all events so far. The driver calls it before it waits, so that a reader sees them.
    pub(crate) fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.lines.flush();
        }
    }

    /// Writes the last event, and those before it.
    ///
    /// # Errors
    /// Events are missing: the first error of a write.
    pub(crate) fn finish(mut self, totals: &Totals, now: SystemTime) -> io::Result<()> {
        self.add("finished", Fields::Finished(totals), None, now);
        self.lines.finish()
    }
}

fn short(text: &str) -> String {
    cut(text, MOST_TEXT_BYTES)
}

/// Returns the word of an event, its fields, and the user's name of its job.
fn describe(event: &Event) -> (&'static str, Fields<'_>, &Option<String>) {
    let (word, fields) = match event {
        Event::Started { key: AttemptKey { job, attempt }, slot, command, name } => {
            let (job, attempt, slot, command) = (*job, *attempt, *slot, short(command));
            return ("started", Fields::Started { job, attempt, slot, command }, name);
        }
        Event::Ended { end, command, name, .. } => {
            return ("ended", Fields::Ended(Box::new(ended(end, command))), name);
        }
        Event::Settled { before: true, .. } => ("resumed", Fields::Jobs { jobs: 1 }),
        Event::Settled { job, outcome, reason, name, .. } => {
            let (job, state, reason) = (*job, *outcome, reason.as_deref().map(short));
            return ("settled", Fields::Settled { job, state, reason }, name);
        }
        Event::Retrying { job, .. } => ("retried", Fields::Job { job: *job }),
        Event::Held { reason } => ("held", Fields::Reason { reason: reason.as_deref().map(short) }),
        Event::Halted(halt) => ("halted", Fields::Cause { cause: halt.to_string() }),
        Event::Capacity { slots } => ("capacity", Fields::Capacity { slots: *slots }),
        Event::InputEnded { jobs } => ("input_ended", Fields::Total { total: *jobs }),
        Event::Note(message) => ("note", Fields::Note { message }),
    };
    (word, fields, &None)
}

fn ended(end: &AttemptEnd, text: &str) -> Ended {
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    Ended {
        job: end.key.job,
        attempt: end.key.attempt,
        command: short(text),
        outcome: end.outcome.name(),
        exit_code: end.outcome.code(),
        signal: end.outcome.signal_name(),
        reason: end.outcome.reason().map(short),
        started_unix_seconds: unix_seconds(end.started),
        elapsed_seconds: end.elapsed.as_secs_f64(),
        user_seconds: seconds(end.user),
        system_seconds: seconds(end.system),
        peak_rss_bytes: end.peak_rss_bytes,
        stdout_bytes: end.stdout_bytes,
        stderr_bytes: end.stderr_bytes,
        leftovers_killed: end.leftovers_killed,
        node: end.node.clone(),
    }
}

/// Returns the seconds since 1970. A clock before that is at 0.
pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::watch::tests::{at, every_event, facts, settled, started, totals};

    fn lines(all: &[Event]) -> Vec<serde_json::Value> {
        let mut file = Vec::new();
        let mut events = EventWriter::new(&mut file, &facts());
        events.added(10, Some(10), at(1.5));
        all.iter().for_each(|event| events.event(event, at(1.5)));
        events.finish(&totals(), at(1.5)).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_event_of_a_job_with_a_name_has_it_as_id() {
        let mut events = EventWriter::new(Vec::new(), &facts());
        for named in [None, Some("build")] {
            let mut settled = settled(1, JobOutcome::Succeeded, None);
            if let Event::Settled { name, .. } = &mut settled {
                *name = named.map(str::to_owned);
            }
            events.event(&settled, UNIX_EPOCH);
        }
        events.flush();
        let text = String::from_utf8(events.lines.writer.clone()).unwrap();
        let ids: Vec<_> = text
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone())
            .collect();
        assert_eq!(ids, [serde_json::Value::Null, "build".into()]);
    }

    #[test]
    fn each_event_is_one_object_on_one_line() {
        let events = every_event();
        let lines = lines(&events);
        assert_eq!(lines.len(), 3 + events.len());
        assert!(lines.iter().all(|line| line["schema"] == SCHEMA));
        assert!(lines.iter().skip(1).all(|line| line["unix_seconds"] == 1_800_000_001.5));
        let ended = lines.iter().find(|line| line["event"] == "ended").unwrap();
        assert_eq!(ended["job"], 2);
        assert_eq!(ended["outcome"], "exited");
        assert_eq!(ended["exit_code"], 7);
        assert!(ended["signal"].is_null());
        let settled = lines.iter().find(|line| line["event"] == "settled").unwrap();
        assert_eq!(settled["state"], "failed");
    }

    #[test]
    fn a_reader_sees_whole_events_after_a_flush() {
        let mut events = EventWriter::new(Vec::new(), &facts());
        for job in 1..=3 {
            events.event(&Event::Retrying { job, delay: Duration::ZERO }, at(0.0));
            events.flush();
            let text = &events.lines.writer;
            assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1 + job as usize);
            assert!(text.ends_with(b"}\n"));
        }
    }

    #[test]
    fn every_event_and_field_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let docs = std::fs::read_to_string(path).unwrap();
        let section = docs.split("## ").find(|it| it.contains("pipewright.batch/1`\n")).unwrap();
        for line in lines(&every_event()) {
            let fields = line.as_object().unwrap().keys().cloned();
            for word in fields.chain([line["event"].as_str().unwrap().to_owned()]) {
                assert!(section.contains(&format!("`{word}`")), "{word} is not documented");
            }
        }
    }

    #[test]
    fn a_hostile_command_stays_on_its_line_and_is_cut() {
        let text = format!("a\n\u{1}\"\\</script>{}", "x".repeat(1 << 20));
        let lines = lines(&[started(1, 1, &text)]);
        let command = lines[2]["command"].as_str().unwrap();
        assert!(command.len() <= MOST_TEXT_BYTES + '…'.len_utf8());
        assert!(command.starts_with("a\n\u{1}\"\\</script>xx") && command.ends_with("x…"));
    }
}
