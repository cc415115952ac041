//! Events as JSON lines: `pipewright.batch/1`.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::queued::Pieces;
use super::text::{cut, signal_name};
use super::{Totals, Update};
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome, JobOutcome};

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
    event: &'static str,
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
    /// Returns a writer of events to that file.
    pub(crate) fn new(writer: W) -> EventWriter<W> {
        EventWriter { lines: Pieces::new(writer) }
    }

    /// Adds the event of an update. It is written at the next [`flush`](Self::flush), or earlier.
    /// `name` is the user's name of its job.
    pub(crate) fn update(&mut self, update: &Update<'_>, name: Option<&str>, now: SystemTime) {
        let (event, fields) = describe(update);
        let (unix_seconds, id) = (unix_seconds(now), name.map(|name| cut(name, MOST_TEXT_BYTES)));
        let line = Line { schema: SCHEMA, event, unix_seconds, id, fields };
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

    /// Writes the last events.
    ///
    /// # Errors
    /// Events are missing: the first error of a write.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.lines.finish()
    }
}

fn describe<'a>(update: &Update<'a>) -> (&'static str, Fields<'a>) {
    let short = |text: &str| cut(text, MOST_TEXT_BYTES);
    match *update {
        Update::Began(facts) => (
            "began",
            Fields::Began {
                command: short(&facts.command),
                slots: facts.slots,
                log: facts.log.clone(),
            },
        ),
        Update::Resumed { jobs } => ("resumed", Fields::Jobs { jobs }),
        Update::Added { jobs, total } => ("added", Fields::Added { jobs, total }),
        Update::Started { key: AttemptKey { job, attempt }, slot, text } => {
            ("started", Fields::Started { job, attempt, slot, command: short(text) })
        }
        Update::Ended { end, text, .. } => ("ended", Fields::Ended(Box::new(ended(end, text)))),
        Update::Retried { job } => ("retried", Fields::Job { job }),
        Update::Settled { job, outcome: state, reason } => {
            ("settled", Fields::Settled { job, state, reason: reason.map(short) })
        }
        Update::Held { reason } => ("held", Fields::Reason { reason: reason.map(short) }),
        Update::Halted { cause } => ("halted", Fields::Cause { cause: short(cause) }),
        Update::Capacity { slots } => ("capacity", Fields::Capacity { slots }),
        Update::InputEnded { total } => ("input_ended", Fields::Total { total }),
        Update::Note(message) => ("note", Fields::Note { message }),
        Update::Finished(totals) => ("finished", Fields::Finished(totals)),
    }
}

fn ended(end: &AttemptEnd, text: &str) -> Ended {
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    let (mut exit_code, mut signal, mut reason) = (None, None, None);
    match &end.outcome {
        AttemptOutcome::Exited(code) => exit_code = Some(*code),
        AttemptOutcome::Signaled(number) => signal = Some(signal_name(*number)),
        AttemptOutcome::NotStarted(text) | AttemptOutcome::Lost(text) => {
            reason = Some(cut(text, MOST_TEXT_BYTES));
        }
        _ => {}
    }
    Ended {
        job: end.key.job,
        attempt: end.key.attempt,
        command: cut(text, MOST_TEXT_BYTES),
        outcome: end.outcome.name(),
        exit_code,
        signal,
        reason,
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
    use super::*;
    use crate::watch::tests::{at, every_update};

    fn lines(updates: &[Update<'_>]) -> Vec<serde_json::Value> {
        let mut file = Vec::new();
        let mut events = EventWriter::new(&mut file);
        updates.iter().for_each(|update| events.update(update, None, at(1.5)));
        events.finish().unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(text.ends_with('\n'));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_event_of_a_job_with_a_name_has_it_as_id() {
        let mut events = EventWriter::new(Vec::new());
        for name in [None, Some("build")] {
            let settled = Update::Settled { job: 1, outcome: JobOutcome::Succeeded, reason: None };
            events.update(&settled, name, UNIX_EPOCH);
        }
        events.flush();
        let text = String::from_utf8(events.lines.writer().clone()).unwrap();
        let ids: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone())
            .collect();
        assert_eq!(ids, [serde_json::Value::Null, "build".into()]);
    }

    #[test]
    fn each_update_is_one_object_on_one_line() {
        every_update(|updates| {
            let lines = lines(updates);
            assert_eq!(lines.len(), updates.len());
            for line in &lines {
                assert_eq!(line["schema"], SCHEMA);
                assert_eq!(line["unix_seconds"], 1_800_000_001.5);
            }
            let ended = lines.iter().find(|line| line["event"] == "ended").unwrap();
            assert_eq!(ended["job"], 2);
            assert_eq!(ended["outcome"], "exited");
            assert_eq!(ended["exit_code"], 7);
            assert!(ended["signal"].is_null());
            let settled = lines.iter().find(|line| line["event"] == "settled").unwrap();
            assert_eq!(settled["state"], "failed");
        });
    }

    #[test]
    fn a_reader_sees_whole_events_after_a_flush() {
        let mut events = EventWriter::new(Vec::new());
        for job in 1..=3 {
            events.update(&Update::Retried { job }, None, at(0.0));
            events.flush();
            let text = events.lines.writer();
            assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), job as usize);
            assert!(text.ends_with(b"}\n"));
        }
    }

    #[test]
    fn every_event_and_field_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let docs = std::fs::read_to_string(path).unwrap();
        let section = docs.split("## ").find(|it| it.contains("pipewright.batch/1`\n")).unwrap();
        every_update(|updates| {
            for line in lines(updates) {
                let fields = line.as_object().unwrap().keys().cloned();
                for word in fields.chain([line["event"].as_str().unwrap().to_owned()]) {
                    assert!(section.contains(&format!("`{word}`")), "{word} is not documented");
                }
            }
        });
    }

    #[test]
    fn a_hostile_command_stays_on_its_line_and_is_cut() {
        let text = format!("a\n\u{1}\"\\</script>{}", "x".repeat(1 << 20));
        let key = AttemptKey { job: 1, attempt: 1 };
        let lines = lines(&[Update::Started { key, slot: 1, text: &text }]);
        let command = lines[0]["command"].as_str().unwrap();
        assert!(command.len() <= MOST_TEXT_BYTES + '…'.len_utf8());
        assert!(command.starts_with("a\n\u{1}\"\\</script>xx") && command.ends_with("x…"));
    }
}
