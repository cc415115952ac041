//! A trace of the slots, as trace events for Perfetto (ui.perfetto.dev) and chrome://tracing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek, Write};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};

use super::queued::Pieces;
use super::text::{cut, outcome};
use super::{BatchFacts, named};
use crate::vocabulary::{AttemptEnd, AttemptKey, Event};

/// Bytes of a command that an event has.
const MOST_TEXT_BYTES: usize = 1024;

/// The end of a file that is complete.
const CLOSING: &[u8] = b"\n]\n";

/// A writer of a trace: a JSON array with one complete event for each attempt, on the track of its slot.
///
/// The array is closed after each flush ([`Pieces::flush_closed`]). Viewers do without the bracket.
#[derive(Debug)]
pub(crate) struct TraceWriter<W> {
    pieces: Pieces<W>,
    started: SystemTime,
    running: BTreeMap<AttemptKey, u32>,
    named: BTreeSet<u32>,
}

#[derive(Serialize)]
struct Complete<'a> {
    name: &'a str,
    cat: &'static str,
    ph: &'static str,
    /// Microseconds, as the format has them.
    ts: f64,
    dur: f64,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cname: Option<&'static str>,
    args: Value,
}

impl<W: Write + Seek> TraceWriter<W> {
    /// Returns a writer of a trace to that file, which is empty.
    pub(crate) fn new(writer: W, facts: &BatchFacts) -> TraceWriter<W> {
        let mut pieces = Pieces::new(writer);
        let args = json!({ "name": cut(&facts.command, MOST_TEXT_BYTES) });
        let first = json!({ "name": "process_name", "ph": "M", "pid": 1, "args": args });
        pieces.add(format!("[\n{first}").as_bytes());
        TraceWriter {
            pieces,
            started: facts.started,
            running: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    /// Adds what the trace shows of an event.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Started { key, slot, .. } => {
                self.running.insert(*key, *slot);
                if self.named.insert(*slot) {
                    let args = json!({ "name": format!("slot {slot}") });
                    self.add(&json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": slot, "args": args }));
                }
            }
            Event::Ended { end, command, name, .. } => {
                self.ended(end, &named(command, name.as_deref()));
            }
            _ => {}
        }
    }

    fn ended(&mut self, end: &AttemptEnd, text: &str) {
        let slot = self.running.remove(&end.key).unwrap_or(0);
        // A clock that was set back gives no negative time.
        let since = end.started.duration_since(self.started);
        let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
        let args = json!({
            "job": end.key.job,
            "attempt": end.key.attempt,
            "end": outcome(&end.outcome),
            "user_seconds": seconds(end.user),
            "system_seconds": seconds(end.system),
            "peak_rss_bytes": end.peak_rss_bytes,
            "stdout_bytes": end.stdout_bytes,
            "stderr_bytes": end.stderr_bytes,
        });
        let event = Complete {
            name: &cut(text, MOST_TEXT_BYTES),
            cat: end.outcome.name(),
            ph: "X",
            ts: micros(since.unwrap_or_default()),
            dur: micros(end.elapsed),
            pid: 1,
            tid: slot,
            cname: (!end.outcome.is_success()).then_some("terrible"),
            args,
        };
        self.add(&event);
    }

    fn add(&mut self, event: &impl Serialize) {
        let mut piece = b",\n".to_vec();
        if let Err(error) = serde_json::to_writer(&mut piece, event) {
            self.pieces.keep(error.into());
            return;
        }
        self.pieces.reopen();
        self.pieces.add(&piece);
    }

    /// Writes all events so far, and closes the array. The driver calls it about once a second.
    pub(crate) fn flush(&mut self) {
        self.pieces.flush_closed(close);
    }

    /// Writes the last events.
    ///
    /// # Errors
    /// Events are missing: the first error of a write.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.pieces.finish_closed(close)
    }
}

fn close(file: &mut impl Write) -> io::Result<()> {
    file.write_all(CLOSING)?;
    file.flush()
}

fn micros(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::vocabulary::AttemptOutcome;
    use crate::watch::tests::{at, end, ended, every_event, facts, started};

    fn parsed(trace: &mut TraceWriter<Cursor<Vec<u8>>>) -> Vec<Value> {
        serde_json::from_slice(trace.pieces.writer.get_ref()).unwrap()
    }

    #[test]
    fn an_attempt_is_a_complete_event_on_the_track_of_its_slot() {
        let mut trace = TraceWriter::new(Cursor::default(), &facts());
        every_event().iter().for_each(|event| trace.event(event));
        trace.flush();
        let events = parsed(&mut trace);
        let event = events.last().unwrap();
        assert_eq!((&event["ph"], &event["tid"]), (&json!("X"), &json!(1)));
        assert_eq!((&event["ts"], &event["dur"]), (&json!(500_000.0), &json!(2_000_000.0)));
        assert_eq!(
            (&event["args"]["end"], &event["cname"]),
            (&json!("exit 7"), &json!("terrible"))
        );
        assert_eq!(events[1]["args"]["name"], "slot 1");
    }

    #[test]
    fn the_file_is_valid_json_after_every_flush_and_at_the_end() {
        let mut trace = TraceWriter::new(Cursor::default(), &facts());
        for job in 1..=5_u64 {
            let text = format!("job {job} </script>\n\"{}", "x".repeat(5_000));
            trace.event(&started(job, 1, &text));
            trace.event(&ended(end(job, AttemptOutcome::Exited(0), 1.0, 0.5), &text, ""));
            trace.flush();
            trace.flush();
            assert_eq!(parsed(&mut trace).len() as u64, 2 + job);
        }
        let mut file = Cursor::new(Vec::new());
        TraceWriter::new(&mut file, &facts()).finish().unwrap();
        assert_eq!(serde_json::from_slice::<Vec<Value>>(file.get_ref()).unwrap().len(), 1);
    }

    #[test]
    fn a_clock_that_was_set_back_gives_no_negative_time() {
        let facts = crate::watch::BatchFacts { started: at(100.0), ..facts() };
        let mut trace = TraceWriter::new(Cursor::default(), &facts);
        trace.event(&ended(end(1, AttemptOutcome::TimedOut, 1.0, 0.5), "x", ""));
        trace.flush();
        assert_eq!(parsed(&mut trace)[1]["ts"], 0.0);
    }
}
