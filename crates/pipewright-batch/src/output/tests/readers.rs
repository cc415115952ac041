//! Readers of our stdout and stderr: slow ones delay nothing, and gone ones are reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::OutputErrorKind;
use super::super::Unprinted;
use super::*;

/// A writer that fails after some bytes.
struct Failing {
    left: usize,
    kind: io::ErrorKind,
    to: Printed,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.get(..self.left.min(bytes.len())).filter(|fits| !fits.is_empty());
        let written = self.to.write(fits.ok_or(self.kind)?)?;
        self.left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates an output whose stdout fails, and counts the calls of its waker.
fn failing(left: usize, kind: io::ErrorKind) -> (Batch, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let (stdout, stderr) = (Printed::default(), Printed::default());
    let output = Output::new(
        options(OutputMode::Group),
        Failing { left, kind, to: stdout.clone() },
        stderr.clone(),
        Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }),
    );
    let batch = Batch { output: output.unwrap(), stdout, stderr, sinks: BTreeMap::new() };
    (batch, woken)
}

#[test]
fn a_slow_reader_delays_no_call() {
    for keep_order in [false, true] {
        for mode in [OutputMode::Group, OutputMode::LineBuffer] {
            let gate = Gate::default();
            let mut batch = Batch::behind(&gate, OutputOptions { keep_order, ..options(mode) });
            // More than any pipe or queue holds. Every call returns while nothing is read.
            for job in 1..=100 {
                batch.begin(job);
                batch.out(job, "line\n".repeat(100_000));
                batch.err(job, "x\n");
                batch.end(job);
            }
            assert_eq!((batch.stdout.text(), batch.stderr.text()), (String::new(), String::new()));
            gate.open();
            let (out, err) = batch.close();
            assert!(out == b"line\n".repeat(10_000_000));
            assert_eq!(err, b"x\n".repeat(100));
        }
    }
}

#[test]
fn closing_waits_no_longer_than_allowed() {
    let gate = Gate::default();
    let mut batch = Batch::behind(&gate, options(OutputMode::Group));
    batch.run(1, "never read");
    let before = Instant::now();
    let limit = Duration::from_millis(20);
    assert_eq!(batch.output.close_by(Some(Instant::now() + limit)).unwrap(), Unprinted::Discarded);
    assert!(before.elapsed() >= limit);
    gate.open();
}

#[test]
fn a_reader_that_is_gone_is_reported_and_the_rest_is_discarded() {
    let (mut batch, woken) = failing(5, io::ErrorKind::BrokenPipe);
    batch.run(1, "12345678");
    until(|| woken.load(Ordering::Relaxed) > 0);
    assert!(batch.output.is_reader_gone(Source::Stdout));
    assert!(!batch.output.is_reader_gone(Source::Stderr));
    assert!(batch.output.failure().is_none(), "that is no failure");
    batch.begin(2);
    batch.out(2, flood(1 << 20));
    batch.err(2, "still printed\n");
    let summary = batch.end(2);
    assert_eq!((summary.stdout_bytes, summary.error.is_none()), (1 << 20, true));
    assert_eq!(batch.output.shared.spool.used_blocks(), 0, "nothing is stored for nobody");
    assert_eq!(batch.close_to_text(), ("12345".to_owned(), "still printed\n".to_owned()));
    assert_eq!(woken.load(Ordering::Relaxed), 1);
}

#[test]
fn other_failures_are_kept_and_returned_by_close() {
    let (mut batch, woken) = failing(5, io::ErrorKind::StorageFull);
    batch.run(1, "12345678");
    until(|| woken.load(Ordering::Relaxed) > 0);
    assert!(!batch.output.is_reader_gone(Source::Stdout));
    let failure = batch.output.failure().unwrap();
    assert_eq!(failure.kind(), &OutputErrorKind::Print(Source::Stdout));
    batch.run(2, "discarded");
    let error = batch.output.close().unwrap_err();
    assert!(error.to_string().starts_with("cannot write to stdout: "), "{error}");
    assert_eq!(batch.stdout.text(), "12345");
}

#[test]
fn a_writer_that_panics_is_reported_and_blocks_nothing() {
    struct Panics;
    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            std::panic::resume_unwind(Box::new("the writer's"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let output = Output::new(options(OutputMode::Group), Panics, Panics, no_waker()).unwrap();
    let (stdout, stderr) = (Printed::default(), Printed::default());
    let mut batch = Batch { output, stdout, stderr, sinks: BTreeMap::new() };
    for job in 1..=100 {
        batch.run(job, flood(100_000));
    }
    let error = batch.output.close().unwrap_err();
    assert_eq!(error.kind(), &OutputErrorKind::Thread);
}

#[test]
fn a_writer_that_would_block_or_is_interrupted_is_tried_again() {
    struct Moody(Printed, u32);
    impl Write for Moody {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            match self.1 % 3 {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => self.0.write(&bytes[..bytes.len().min(3)]),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let stdout = Printed::default();
    let moody = Moody(stdout.clone(), 0);
    let output =
        Output::new(options(OutputMode::Group), moody, Printed::default(), no_waker()).unwrap();
    let mut batch = Batch { output, stdout, stderr: Printed::default(), sinks: BTreeMap::new() };
    batch.run(1, "0123456789");
    assert_eq!(batch.close_to_text().0, "0123456789");
}

#[test]
fn the_streams_are_written_in_the_order_of_the_calls() {
    // Both are one terminal, and stdout is buffered.
    let screen = Printed::default();
    let stdout = io::BufWriter::with_capacity(1 << 20, screen.clone());
    let gate = Gate::default();
    let output = Output::new(
        options(OutputMode::LineBuffer),
        gate.before(stdout),
        screen.clone(),
        no_waker(),
    );
    let (stdout, stderr) = (screen.clone(), Printed::default());
    let mut batch = Batch { output: output.unwrap(), stdout, stderr, sinks: BTreeMap::new() };
    batch.begin(1);
    for line in 0..20 {
        batch.out(1, format!("out {line}\n"));
        batch.err(1, format!("err {line}\n"));
    }
    batch.end(1);
    gate.open();
    let expected: String = (0..20).map(|line| format!("out {line}\nerr {line}\n")).collect();
    assert_eq!(batch.close_to_text().0, expected);
}

#[test]
fn bytes_are_flushed_when_nothing_is_left_to_print() {
    let stdout = Printed::default();
    let buffered = io::BufWriter::with_capacity(1 << 20, stdout.clone());
    let stderr = Printed::default();
    let output =
        Output::new(options(OutputMode::Group), buffered, stderr.clone(), no_waker()).unwrap();
    let mut batch = Batch { output, stdout: stdout.clone(), stderr, sinks: BTreeMap::new() };
    batch.run(1, "short");
    until(|| stdout.0.lock().unwrap().as_slice() == b"short");
    batch.close();
}
