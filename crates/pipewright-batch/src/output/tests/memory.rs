//! Memory and descriptors stay bounded, whatever the number of jobs and the speed of our readers; large outputs go to
//! one temporary file, whose blocks are used again.

#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::output::content::{BLOCK_BYTES, SpoolFile, open_temporary_file};
use crate::output::options::MEMORY_BYTES;
use crate::output::{OutputErrorKind, Unprinted};

/// Returns the number of descriptors that are open on files in the directory, also on deleted ones.
#[cfg(target_os = "linux")]
fn open_files(dir: &std::path::Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(dir)).count()
}

#[test]
fn waiting_outputs_stay_within_the_limit() {
    let ordered = OutputOptions { keep_order: true, ..options(OutputMode::Group) };
    for (count, bytes) in [(200_u64, 1 << 20), (5000, 10_000), (50_000, 300)] {
        let mut batch = Batch::new(ordered.clone());
        let one = flood(bytes);
        batch.begin(1);
        for job in 2..=count {
            batch.run(job, &one);
        }
        let peak = batch.output.peak_memory_bytes();
        assert!(peak <= MEMORY_BYTES, "{peak}");
        batch.end(1);
        let (out, _) = batch.close();
        assert_eq!(out.len(), (count - 1) as usize * bytes);
        assert!(out.chunks(bytes).all(|part| part == one), "{count} jobs");
    }
}

#[test]
fn running_attempts_stay_within_the_limit() {
    let mut batch = Batch::new(options(OutputMode::Group));
    let one = flood(15_000);
    for job in 1..=3000 {
        batch.begin(job);
        batch.out(job, &one);
        batch.err(job, &one);
    }
    let peak = batch.output.peak_memory_bytes();
    assert!(peak <= MEMORY_BYTES && peak > MEMORY_BYTES / 2, "{peak}");
    for job in 1..=3000 {
        batch.end(job);
    }
    let (out, err) = batch.close();
    for all in [out, err] {
        assert!(all.len() == 3000 * 15_000 && all.chunks(15_000).all(|part| part == one));
    }
}

#[test]
fn a_reader_that_takes_nothing_costs_no_more_memory() {
    for mode in [OutputMode::Group, OutputMode::LineBuffer] {
        let gate = Gate::default();
        let mut batch = Batch::behind(&gate, options(mode));
        let line = [flood(1000).repeat(10), b"\n".to_vec()].concat();
        for job in 1..=10_000 {
            batch.run(job, &line);
        }
        let peak = batch.output.peak_memory_bytes();
        assert!(peak <= MEMORY_BYTES, "{peak}");
        let queued = batch.output.shared.queue.memory_bytes();
        assert!(queued <= MEMORY_BYTES / 3, "{queued}");
        gate.open();
        let (out, _) = batch.close();
        assert!(out == line.repeat(10_000));
    }
}

/// Runs jobs that wait for the first one, with little memory, and checks the open files.
#[cfg(target_os = "linux")]
fn wait_for_the_first(jobs: u64, folders: bool) {
    let dir = tempfile::tempdir().unwrap();
    let temporary = dir.path().to_owned();
    let open_spool: crate::output::content::OpenSpool =
        Arc::new(move || Ok(Arc::new(tempfile::tempfile_in(&temporary)?)));
    let mut batch = Batch::new(OutputOptions {
        keep_order: true,
        memory_bytes: 1000,
        dir: folders.then(|| dir.path().join("out")),
        open_spool,
        ..options(OutputMode::Group)
    });
    let one = flood(30_000);
    batch.begin(1);
    batch.out(1, &one);
    for job in 2..=jobs {
        batch.begin(job);
        batch.out(job, &one[..500]);
        batch.err(job, &one);
        if job % 50 == 0 {
            // The temporary file, one file of the first job, and two of this one.
            assert_eq!(open_files(dir.path()), if folders { 4 } else { 1 });
        }
        batch.end(job);
    }
    batch.end(1);
    let (out, err) = batch.close();
    let others = jobs as usize - 1;
    assert_eq!((out.len(), err.len()), (30_000 + others * 500, others * 30_000));
    // The thread that printed may be the last to drop the file.
    until(|| open_files(dir.path()) == 0);
}

#[cfg(target_os = "linux")]
#[test]
fn descriptors_stay_bounded_with_5000_waiting_outputs() {
    wait_for_the_first(5001, false);
}

#[cfg(target_os = "linux")]
#[test]
fn only_running_attempts_have_open_files_in_their_folders() {
    wait_for_the_first(101, true);
}

#[test]
fn memory_is_given_back() {
    let mut batch = Batch::new(options(OutputMode::LineBuffer));
    for job in 1..=100 {
        batch.run(job, flood(100_000));
    }
    let memory = batch.output.shared.memory.clone();
    batch.close();
    assert_eq!(memory.held(), 0);
}

// Large outputs go to one temporary file, whose blocks are used again.

/// Counts the opened files and the largest offset.
#[derive(Debug, Default)]
struct Counted {
    opened: AtomicUsize,
    end: AtomicUsize,
}

#[derive(Debug)]
struct CountedFile(Arc<dyn SpoolFile>, Arc<Counted>);

impl SpoolFile for CountedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.1.end.fetch_max(offset as usize + bytes.len(), Ordering::Relaxed);
        self.0.write_at(bytes, offset)
    }
}

fn counted(options: OutputOptions) -> (OutputOptions, Arc<Counted>) {
    let counted = Arc::new(Counted::default());
    let to = Arc::clone(&counted);
    let open_spool: crate::output::content::OpenSpool = Arc::new(move || {
        to.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(CountedFile(open_temporary_file()?, Arc::clone(&to))))
    });
    (OutputOptions { open_spool, ..options }, counted)
}

#[test]
fn small_outputs_open_no_file() {
    let (options, counted) = counted(options(OutputMode::Group));
    let mut batch = Batch::new(options);
    for job in 1..=1000 {
        batch.run(job, "small\n");
    }
    assert_eq!(batch.close().0, b"small\n".repeat(1000));
    assert_eq!(counted.opened.load(Ordering::Relaxed), 0);
}

#[test]
fn the_file_is_opened_once_and_does_not_grow_with_the_number_of_jobs() {
    let (options, counted) = counted(options(OutputMode::Group));
    let mut batch = Batch::new(options);
    let printed = batch.stdout.clone();
    for job in 1..=50 {
        batch.begin(job);
        for piece in flood(1 << 20).chunks(60_000) {
            batch.out(job, piece);
        }
        batch.end(job);
        // Printed, so its blocks are free.
        until(|| printed.0.lock().unwrap().len() == 1 << 20);
        assert!(printed.take() == flood(1 << 20), "job {job}");
        let spool = &batch.output.shared.spool;
        until(|| spool.used_blocks() == 0);
    }
    batch.close();
    assert_eq!(counted.opened.load(Ordering::Relaxed), 1);
    // The first block may not be free yet when the second output begins.
    assert!(counted.end.load(Ordering::Relaxed) <= 2 << 20, "{counted:?}");
}

#[test]
fn discarded_attempts_leave_no_used_block() {
    let mut batch = Batch::new(options(OutputMode::Group));
    for attempt in 1..=20 {
        batch.begin_as(key(1, attempt), info(1));
        batch.out(1, flood(1 << 20));
        batch.finish(1, false);
    }
    assert_eq!(batch.output.shared.spool.used_blocks(), 0);
    let blocks = batch.output.shared.spool.blocks() as u64;
    assert!(blocks <= (1 << 20) / BLOCK_BYTES + 1, "{blocks}");
    assert_eq!(batch.close().0, b"");
}

#[test]
fn chunks_of_any_size_are_whole_after_a_spill() {
    for size in [1000, 5000, 16 << 10, (16 << 10) + 1, 100_000, 300_000] {
        let mut batch = Batch::new(options(OutputMode::Group));
        batch.begin(1);
        for piece in flood(700_000).chunks(size) {
            batch.out(1, piece);
            batch.err(1, piece);
        }
        batch.end(1);
        let (out, err) = batch.close();
        assert!(out == flood(700_000) && err == flood(700_000), "{size}");
    }
}

// Readers of our stdout and stderr: slow ones delay nothing, and gone ones are reported.

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
