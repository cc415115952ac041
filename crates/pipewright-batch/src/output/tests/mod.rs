//! Tests of output as the driver uses it. Each file has one promise.

mod folders;
mod full_disk;
#[cfg(unix)]
mod kept;
mod lines;
#[cfg(unix)]
mod measure;
mod memory;
mod order;
mod output_is_whole;
mod readers;
mod spill;
mod tags;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use pipewright::Source;

use super::{JobInfo, Output, OutputMode, OutputOptions, OutputSummary, Waker};
use crate::executor::{AttemptEnd, AttemptKey, AttemptOutcome, OutputSink};
use crate::job::{Job, JobId};

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
