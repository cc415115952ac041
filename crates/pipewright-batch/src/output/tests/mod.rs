//! Tests of output as the driver uses it: line by line, in order, with tags.

mod folders;
#[cfg(unix)]
mod kept;
#[cfg(unix)]
mod measure;
mod memory;
mod output_is_whole;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pipewright::Source;

use super::content::{Memory, Spool};
use super::queue::Queue;
use super::{
    JobInfo, Output, OutputError, OutputMode, OutputOptions, OutputSummary, Unprinted, Waker,
};
use crate::executor::OutputSink;
use crate::job::{Job, JobId};
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

impl Memory {
    /// Returns the number of bytes in use.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bytes in use so far.
    pub(super) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Spool {
    /// Returns the number of blocks that the file has had.
    pub(super) fn blocks(&self) -> usize {
        self.lock().used.len()
    }

    /// Returns the number of blocks in use, without the one that small outputs share.
    pub(super) fn used_blocks(&self) -> usize {
        let state = self.lock();
        let shared = u32::try_from(state.shared.bytes).unwrap();
        let unused = |used: &&u32| **used > 0 && !(shared > 0 && **used == shared);
        state.used.iter().filter(unused).count()
    }
}

impl Queue {
    /// Returns true if the thread has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.ended || state.is_idle && state.items.is_empty()
    }

    /// Returns the number of bytes of memory that the queue occupies.
    pub(super) fn memory_bytes(&self) -> usize {
        self.lock().memory_bytes
    }
}

impl Output {
    /// Returns the largest number of bytes that outputs occupied in memory so far.
    pub(crate) fn peak_memory_bytes(&self) -> usize {
        self.shared.memory.peak()
    }

    /// Returns true if the thread that prints has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.queue.is_idle()
    }

    /// Closes the output, and waits for its readers.
    pub(crate) fn close(self) -> Result<Unprinted, OutputError> {
        self.close_by(None)
    }
}

/// A writer into a buffer that the test keeps.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    #[track_caller]
    fn text(&self) -> String {
        String::from_utf8(self.take()).unwrap()
    }
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader that takes nothing until the gate is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn before<W: Write>(&self, writer: W) -> Gated<W> {
        Gated { gate: self.clone(), writer }
    }
}

struct Gated<W> {
    gate: Gate,
    writer: W,
}

impl<W: Write> Write for Gated<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (open, changed) = &*self.gate.0;
        drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// An output with its printed streams, and the sinks of the running attempts.
struct Batch {
    output: Output,
    stdout: Printed,
    stderr: Printed,
    sinks: BTreeMap<u64, (AttemptKey, Box<dyn OutputSink>)>,
}

fn options(mode: OutputMode) -> OutputOptions {
    OutputOptions { mode, ..OutputOptions::default() }
}

fn no_waker() -> Waker {
    Box::new(|| {})
}

fn info(number: u64) -> JobInfo {
    let job = Job::new("job").arg(number.to_string());
    JobInfo {
        id: JobId::new(&job, 0),
        name: None,
        command: format!("job {number}"),
        tag: format!("t{number}"),
        folder: None,
    }
}

fn key(job: u64, attempt: u32) -> AttemptKey {
    AttemptKey { job, attempt }
}

fn end_of(key: AttemptKey) -> AttemptEnd {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
    AttemptEnd::new(key, AttemptOutcome::Exited(3), started, Duration::from_millis(250))
}

impl Batch {
    fn new(options: OutputOptions) -> Batch {
        let (stdout, stderr) = (Printed::default(), Printed::default());
        let output = Output::new(options, stdout.clone(), stderr.clone(), no_waker()).unwrap();
        Batch { output, stdout, stderr, sinks: BTreeMap::new() }
    }

    /// Creates an output with a reader behind a gate.
    fn behind(gate: &Gate, options: OutputOptions) -> Batch {
        let (stdout, stderr) = (Printed::default(), Printed::default());
        let (out, err) = (gate.before(stdout.clone()), gate.before(stderr.clone()));
        let output = Output::new(options, out, err, no_waker()).unwrap();
        Batch { output, stdout, stderr, sinks: BTreeMap::new() }
    }

    fn begin(&mut self, job: u64) {
        self.begin_as(key(job, 1), info(job));
    }

    fn begin_as(&mut self, key: AttemptKey, info: JobInfo) {
        let sink = self.output.begin(key, info);
        self.sinks.insert(key.job, (key, sink));
    }

    fn write(&mut self, job: u64, stream: Source, bytes: impl AsRef<[u8]>) {
        self.sinks.get_mut(&job).unwrap().1.write(stream, bytes.as_ref());
    }

    fn out(&mut self, job: u64, bytes: impl AsRef<[u8]>) {
        self.write(job, Source::Stdout, bytes);
    }

    fn err(&mut self, job: u64, bytes: impl AsRef<[u8]>) {
        self.write(job, Source::Stderr, bytes);
    }

    fn finish(&mut self, job: u64, keep: bool) -> OutputSummary {
        let (key, sink) = self.sinks.remove(&job).unwrap();
        drop(sink);
        self.output.finish(&end_of(key), keep)
    }

    /// Finishes and settles a job.
    fn end(&mut self, job: u64) -> OutputSummary {
        let summary = self.finish(job, true);
        self.output.settle(job);
        summary
    }

    /// Runs a job with this stdout.
    fn run(&mut self, job: u64, bytes: impl AsRef<[u8]>) -> OutputSummary {
        self.begin(job);
        self.out(job, bytes);
        self.end(job)
    }

    /// Closes the output, and returns everything that was printed.
    fn close(self) -> (Vec<u8>, Vec<u8>) {
        self.output.close().unwrap();
        (self.stdout.take(), self.stderr.take())
    }

    #[track_caller]
    fn close_to_text(self) -> (String, String) {
        let (out, err) = self.close();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }
}

/// Waits until a fact holds. A watchdog ends a test that waits in vain.
#[track_caller]
fn until(fact: impl Fn() -> bool) {
    let watchdog = Instant::now() + Duration::from_secs(120);
    while !fact() {
        assert!(Instant::now() < watchdog, "the fact never held");
        std::thread::yield_now();
    }
}

/// Returns bytes that differ at every position nearby.
fn flood(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

// Line by line: lines are printed as they arrive, and never mixed.

#[test]
fn lines_of_jobs_are_never_mixed() {
    // Long lines are in the temporary file before they end.
    for memory_bytes in [0, 100_000, 24 << 20] {
        let lines = OutputOptions { memory_bytes, ..options(OutputMode::LineBuffer) };
        let mut batch = Batch::new(lines);
        let jobs = 5_u64;
        let mut expected: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        (1..=jobs).for_each(|job| batch.begin(job));
        for round in 0..40_u64 {
            for job in 1..=jobs {
                let letter = b'a' + job as u8;
                let length = (round * 997 * job % 50_000) as usize;
                let line = vec![letter; length];
                // In pieces that end in the middle of a line of this and of every other job.
                batch.out(job, &line[..length / 3]);
                expected.entry(job).or_default().push(line);
            }
            for job in 1..=jobs {
                let line = expected[&job].last().unwrap().clone();
                batch.out(job, &line[line.len() / 3..]);
                batch.out(job, "\n");
            }
        }
        (1..=jobs).for_each(|job| drop(batch.end(job)));
        let (out, _) = batch.close();
        let mut seen: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let empty = expected.values().flatten().filter(|line| line.is_empty()).count();
        let lines: Vec<&[u8]> =
            out.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n').collect();
        assert_eq!(lines.iter().filter(|line| line.is_empty()).count(), empty);
        for line in lines.into_iter().filter(|line| !line.is_empty()) {
            assert!(line.iter().all(|byte| *byte == line[0]), "one job a line");
            seen.entry(u64::from(line[0] - b'a')).or_default().push(line.to_vec());
        }
        expected.values_mut().for_each(|lines| lines.retain(|line| !line.is_empty()));
        assert!(seen == expected, "memory of {memory_bytes} bytes");
    }
}

#[test]
fn a_line_is_printed_when_it_ends() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    let printed = batch.stdout.clone();
    batch.begin(1);
    batch.out(1, "one\ntw");
    until(|| printed.0.lock().unwrap().as_slice() == b"one\n");
    batch.out(1, "o\n");
    until(|| printed.0.lock().unwrap().as_slice() == b"one\ntwo\n");
    batch.close();
}

#[test]
fn a_last_line_without_an_end_gets_one() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    batch.begin(1);
    batch.out(1, "out");
    batch.err(1, "err");
    batch.end(1);
    batch.run(2, "ended\n");
    batch.run(3, "");
    assert_eq!(batch.close_to_text(), ("out\nended\n".to_owned(), "err\n".to_owned()));
}

#[test]
fn an_attempt_that_is_retried_stays_printed_line_by_line() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    batch.begin(1);
    batch.out(1, "first\nun");
    batch.finish(1, false);
    batch.begin_as(key(1, 2), info(1));
    batch.out(1, "second\n");
    batch.end(1);
    assert_eq!(batch.close_to_text().0, "first\nun\nsecond\n");
}

// With `keep_order`, jobs are printed in the order of the input.

fn ordered(mode: OutputMode) -> Batch {
    Batch::new(OutputOptions { keep_order: true, ..options(mode) })
}

#[test]
fn jobs_are_printed_in_order_and_those_that_did_not_run_are_passed_over() {
    let mut batch = ordered(OutputMode::Group);
    // 3 and 6 never run, 5 prints nothing.
    batch.run(4, "4\n");
    batch.output.settle(6);
    batch.run(7, "7\n");
    batch.run(2, "2\n");
    batch.output.settle(3);
    batch.run(5, "");
    batch.begin(1);
    batch.out(1, "1\n");
    assert_eq!(batch.stdout.text(), "", "the first job still runs");
    batch.end(1);
    let printed = batch.stdout.clone();
    until(|| printed.0.lock().unwrap().as_slice() == b"1\n2\n4\n7\n");
    batch.close();
}

#[test]
fn a_job_is_printed_as_soon_as_it_is_its_turn() {
    let mut batch = ordered(OutputMode::Group);
    batch.run(1, "1\n");
    let printed = batch.stdout.clone();
    until(|| printed.0.lock().unwrap().as_slice() == b"1\n");
    batch.close();
}

#[test]
fn a_job_that_was_settled_twice_or_before_is_printed_once() {
    let mut batch = ordered(OutputMode::Group);
    batch.run(1, "1");
    batch.run(2, "2");
    for job in [1, 2, 2, 1] {
        batch.output.settle(job);
    }
    assert_eq!(batch.close_to_text().0, "12");
}

#[test]
fn the_first_unfinished_job_prints_its_lines_as_they_arrive() {
    let mut batch = ordered(OutputMode::LineBuffer);
    let printed = batch.stdout.clone();
    let is = |text: &str| until(|| printed.0.lock().unwrap().as_slice() == text.as_bytes());
    batch.begin(1);
    batch.begin(2);
    batch.out(2, "2a\n2b");
    batch.out(1, "1a\n1");
    is("1a\n");
    batch.out(1, "b");
    batch.end(1);
    // Its last line got an end, and the lines that waited came.
    is("1a\n1b\n2a\n");
    batch.out(2, "\n2c\n");
    is("1a\n1b\n2a\n2b\n2c\n");
    batch.end(2);
    batch.begin(3);
    batch.out(3, "3a\n");
    is("1a\n1b\n2a\n2b\n2c\n3a\n");
    batch.close();
}

// Tags stand before each line of a job.

fn tagged(mode: OutputMode) -> Batch {
    Batch::new(OutputOptions { tag: true, ..options(mode) })
}

#[test]
fn each_line_has_its_tag() {
    for mode in [OutputMode::Group, OutputMode::LineBuffer] {
        let mut batch = tagged(mode);
        batch.begin(1);
        for piece in ["a", "b\n", "\nc\nd", "\n"] {
            batch.out(1, piece);
        }
        batch.err(1, "e");
        batch.end(1);
        batch.run(2, "f\n");
        let expected = "t1\tab\nt1\t\nt1\tc\nt1\td\nt2\tf\n".to_owned();
        assert_eq!(batch.close_to_text(), (expected, "t1\te\n".to_owned()));
    }
}

#[test]
fn a_tag_is_one_line_and_bounded() {
    let mut batch = tagged(OutputMode::Group);
    batch.begin_as(key(1, 1), JobInfo { tag: "a\tb\nc d\u{9b}31m\x1b[31m".to_owned(), ..info(1) });
    batch.out(1, "x\n");
    batch.end(1);
    let long = JobInfo { tag: "é".repeat(9000), ..info(2) };
    batch.begin_as(key(2, 1), long);
    batch.out(2, "y\n");
    batch.end(2);
    let (out, _) = batch.close_to_text();
    let (first, second) = out.split_once('\n').unwrap();
    // Terminals take U+009B as ESC and a bracket.
    assert_eq!(first, "a b c d 31m [31m\tx");
    assert_eq!(second, format!("{}…\ty\n", "é".repeat(510)));
}

#[test]
fn a_tag_without_output_is_not_printed() {
    let mut batch = tagged(OutputMode::Group);
    batch.run(1, "");
    assert_eq!(batch.close_to_text().0, "");
}

#[test]
fn the_limit_counts_the_bytes_of_the_job_alone() {
    let limited = OutputOptions { tag: true, max_bytes: Some(3), ..options(OutputMode::Group) };
    let mut batch = Batch::new(limited);
    let summary = batch.run(1, "a\nbcd\n");
    assert_eq!((summary.stdout_bytes, summary.truncated), (6, true));
    // The tail is that of everything.
    assert_eq!(summary.tail, "a\nbcd");
    assert_eq!(batch.close_to_text().0, "t1\ta\nt1\tb\n");
}
