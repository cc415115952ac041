//! A report for CI systems: JUnit XML, with a test case for each job.
//!
//! Our own writer: quick-junit needs all test cases in memory until the end, so a killed batch would have no file. The
//! escapes are those of html-escape.

use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::time::Duration;

use super::queued::Pieces;
use super::text::{cut, outcome as words};
use super::{BatchFacts, named, numbered};
use crate::vocabulary::{Event, JobOutcome};

/// Bytes of a command that a test case has.
const MOST_TEXT_BYTES: usize = 1024;

/// The end of a file that is complete.
const CLOSING: &[u8] = b"</testsuite>\n</testsuites>\n";

/// The columns of the counts, which are written again while the batch runs.
const COUNTS_COLUMNS: usize = 120;

/// A writer of the report.
///
/// The tags are closed after each flush ([`Pieces::flush_closed`]), and the counts are written again in their place. A
/// file that cannot seek (a pipe) has no counts.
#[derive(Debug)]
pub(crate) struct JunitWriter<W> {
    pieces: Pieces<W>,
    /// The last attempt of each job that is not settled.
    last: HashMap<u64, Attempt>,
    counts: Counts,
    /// The place of the counts, if the file can seek.
    counts_at: Option<u64>,
}

#[derive(Debug)]
struct Attempt {
    command: String,
    elapsed: Duration,
    words: String,
    /// The command did not run, or nobody knows whether it did.
    is_error: bool,
    kind: &'static str,
    last_lines: String,
}

#[derive(Debug, Default)]
struct Counts {
    tests: u64,
    failures: u64,
    errors: u64,
    skipped: u64,
    time: Duration,
}

impl Counts {
    /// Returns the attributes, with blanks behind them.
    fn text(&self) -> String {
        let Counts { tests, failures, errors, skipped, time } = self;
        let seconds = time.as_secs_f64();
        let text = format!(
            "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\""
        );
        format!("{text:COUNTS_COLUMNS$}")
    }
}

impl<W: Write + Seek> JunitWriter<W> {
    /// Returns a writer of a report to that file, which is empty.
    pub(crate) fn new(writer: W, facts: &BatchFacts) -> JunitWriter<W> {
        let (mut pieces, counts) = (Pieces::new(writer), Counts::default());
        let name = escaped(&cut(&facts.command, MOST_TEXT_BYTES));
        let mut head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        head.push_str("<testsuites name=\"pipewright batch\">\n<testsuite name=\"");
        head.extend([&name, "\" "]);
        let mut counts_at = None;
        if pieces.writer.stream_position().is_ok() {
            counts_at = Some(head.len() as u64);
            head.push_str(&counts.text());
        }
        pieces.add(format!("{head}>\n").as_bytes());
        JunitWriter { pieces, last: HashMap::new(), counts, counts_at }
    }

    /// Adds the test case of an event, if it has one.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Ended { end, command, last_lines, name } => {
                let attempt = Attempt {
                    command: cut(&named(command, name.as_deref()), MOST_TEXT_BYTES),
                    elapsed: end.elapsed,
                    words: words(&end.outcome),
                    is_error: end.outcome.reason().is_some(),
                    kind: end.outcome.name(),
                    last_lines: last_lines.clone(),
                };
                self.last.insert(end.key.job, attempt);
            }
            Event::Settled { job, name, command, outcome, reason, before: false, .. } => {
                let text = match command {
                    Some(command) => named(command, name.as_deref()).into_owned(),
                    None => numbered(*job, name.as_deref()),
                };
                self.settled(*job, &text, *outcome, reason.as_deref());
            }
            _ => {}
        }
    }

    /// Adds the test case of a job. `text` is the name of one that has not run.
    fn settled(&mut self, job: u64, text: &str, outcome: JobOutcome, reason: Option<&str>) {
        let last = self.last.remove(&job);
        let name =
            last.as_ref().map_or_else(|| cut(text, MOST_TEXT_BYTES), |last| last.command.clone());
        let elapsed = last.as_ref().map_or(Duration::ZERO, |last| last.elapsed);
        let lines = last.as_ref().map_or("", |last| last.last_lines.as_str());
        let found = last.as_ref().map(|last| last.words.as_str());
        let message = escaped(reason.or(found).unwrap_or(outcome.word()));
        let kind = last.as_ref().map_or(outcome.name(), |last| last.kind);
        let is_error = last.as_ref().is_none_or(|last| last.is_error);
        let result = match outcome {
            JobOutcome::Succeeded => None,
            JobOutcome::Skipped | JobOutcome::NotRun => Some(("skipped", &mut self.counts.skipped)),
            JobOutcome::Failed if !is_error => Some(("failure", &mut self.counts.failures)),
            _ => Some(("error", &mut self.counts.errors)),
        };
        let case = format!(
            "<testcase classname=\"batch\" name=\"{}\" time=\"{:.3}\"",
            escaped(&name),
            elapsed.as_secs_f64()
        );
        let case = match result {
            None => format!("{case}/>\n"),
            Some((tag, count)) => {
                *count += 1;
                let kind =
                    if tag == "skipped" { String::new() } else { format!(" type=\"{kind}\"") };
                let lines = escaped(lines);
                format!("{case}><{tag} message=\"{message}\"{kind}>{lines}</{tag}></testcase>\n")
            }
        };
        self.counts.tests += 1;
        self.counts.time = self.counts.time.saturating_add(elapsed);
        self.pieces.reopen();
        self.pieces.add(case.as_bytes());
    }

    /// Writes all test cases so far, and the closing tags.
    pub(crate) fn flush(&mut self) {
        self.pieces.flush_closed(|file| close(file, &self.counts, self.counts_at));
    }

    /// Writes the last test cases.
    ///
    /// # Errors
    /// Test cases are missing: the first error of a write.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.pieces.finish_closed(|file| close(file, &self.counts, self.counts_at))
    }
}

/// Writes the closing tags, and the counts in their place.
fn close(
    file: &mut (impl Write + Seek),
    counts: &Counts,
    counts_at: Option<u64>,
) -> io::Result<()> {
    file.write_all(CLOSING)?;
    if let Some(at) = counts_at {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(counts.text().as_bytes())?;
        file.seek(SeekFrom::End(0))?;
    }
    file.flush()
}

/// Returns a text for an attribute or an element. XML has no control characters but three, not even as numbers.
fn escaped(text: &str) -> String {
    let is_allowed = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text: String = text
        .chars()
        .map(|c| if is_allowed(c) || matches!(c, '\t' | '\n' | '\r') { c } else { '\u{fffd}' })
        .collect();
    html_escape::encode_quoted_attribute(&text)
        .replace('\n', "&#10;")
        .replace('\t', "&#9;")
        .replace('\r', "&#13;")
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::tests::{end, ended, facts, settled};
    use super::*;
    use crate::vocabulary::AttemptOutcome;

    fn text(report: &mut JunitWriter<Cursor<Vec<u8>>>) -> String {
        String::from_utf8(report.pieces.writer.get_ref().clone()).unwrap()
    }

    fn ran(
        report: &mut JunitWriter<Cursor<Vec<u8>>>,
        job: u64,
        outcome: AttemptOutcome,
        name: &str,
    ) {
        let state = if outcome.is_success() { JobOutcome::Succeeded } else { JobOutcome::Failed };
        let end = end(job, outcome, 0.0, 1.5);
        report.event(&ended(end, name, "a & b\n]]>\u{1b}[31m"));
        report.event(&settled(job, state, None));
    }

    #[test]
    fn the_file_is_whole_after_each_flush_and_counts_its_cases() {
        let mut report = JunitWriter::new(Cursor::default(), &facts());
        report.flush();
        assert!(
            text(&mut report).contains("tests=\"0\" ")
                && text(&mut report).ends_with("</testsuites>\n")
        );
        ran(&mut report, 1, AttemptOutcome::Exited(0), "true");
        report.flush();
        ran(&mut report, 2, AttemptOutcome::Exited(3), "sh -c '<\"&\u{1}>\n'");
        ran(&mut report, 3, AttemptOutcome::NotStarted("no such file".into()), "x");
        report.event(&settled(4, JobOutcome::Skipped, Some("job 2 did not succeed")));
        report.flush();
        let found = text(&mut report);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines[0], "<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
        let counts = "tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"4.500\"";
        assert!(lines[2].contains(counts) && lines[2].ends_with(">"), "{}", lines[2]);
        let lines_of_job = "a &amp; b&#10;]]&gt;\u{fffd}[31m";
        let case = |name: &str, time: &str| {
            format!("<testcase classname=\"batch\" name=\"{name}\" time=\"{time}\"")
        };
        let result = |tag: &str, attributes: &str, text: &str| {
            format!("><{tag} message={attributes}>{text}</{tag}></testcase>")
        };
        let failure = result("failure", "\"exit 3\" type=\"exited\"", lines_of_job);
        let attributes = "\"not started: no such file\" type=\"not_started\"";
        let error = result("error", attributes, lines_of_job);
        let skipped = result("skipped", "\"job 2 did not succeed\"", "");
        let hostile = "sh -c &#x27;&lt;&quot;&amp;\u{fffd}&gt;&#10;&#x27;";
        let expected = [
            case("true", "1.500") + "/>",
            case(hostile, "1.500") + &failure,
            case("x", "1.500") + &error,
            case("job 4", "0.000") + &skipped,
            "</testsuite>".to_owned(),
            "</testsuites>".to_owned(),
        ];
        assert_eq!(lines[3..], expected);
        report.finish().unwrap();
    }
}
