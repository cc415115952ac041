//! Large outputs go to one temporary file, whose blocks are used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::spool::{BLOCK_BYTES, SpoolFile, open_temporary_file};
use super::*;

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
    let open_spool: super::super::spool::OpenSpool = Arc::new(move || {
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
