//! If the temporary disk is full, the output of a job is cut and reported, and the batch goes on.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::super::spool::{OpenSpool, SpoolFile, open_temporary_file};
use super::super::{OutputError, OutputErrorKind};
use super::*;

/// A disk with this many bytes left.
#[derive(Debug)]
struct Disk(Arc<dyn SpoolFile>, Arc<AtomicI64>);

impl SpoolFile for Disk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.1.load(Ordering::Relaxed)).unwrap_or(0);
        let fits = bytes.get(..left.min(bytes.len())).filter(|fits| !fits.is_empty());
        let fits = fits.ok_or(io::ErrorKind::StorageFull)?;
        let written = self.0.write_at(fits, offset)?;
        self.1.fetch_sub(written as i64, Ordering::Relaxed);
        Ok(written)
    }
}

fn with_disk(bytes: i64, options: OutputOptions) -> (OutputOptions, Arc<AtomicI64>) {
    let left = Arc::new(AtomicI64::new(bytes));
    let to = Arc::clone(&left);
    let open_spool: OpenSpool =
        Arc::new(move || Ok(Arc::new(Disk(open_temporary_file()?, Arc::clone(&to)))));
    (OutputOptions { open_spool, ..options }, left)
}

#[track_caller]
fn is_full(error: Option<OutputError>, stream: Source) {
    let error = error.expect("the loss is reported");
    assert_eq!(error.kind(), &OutputErrorKind::Spool(stream));
    let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    let text = error.to_string();
    assert!(text.contains("its rest is lost") && !text.contains('\n'), "{text}");
}

#[test]
fn the_first_part_is_printed_and_the_batch_goes_on() {
    let (options, left) = with_disk(100_000, options(OutputMode::Group));
    let mut batch = Batch::new(options);
    batch.begin(1);
    batch.begin(2);
    batch.out(2, "small, in memory\n");
    batch.out(1, flood(40_000));
    batch.out(1, &flood(400_000)[40_000..]);
    batch.out(1, "later");
    batch.err(1, "why\n");
    let summary = batch.end(1);
    assert!(summary.truncated);
    assert_eq!((summary.stdout_bytes, summary.stderr_bytes), (400_005, 4));
    assert_eq!(summary.tail, "why");
    is_full(summary.error, Source::Stdout);
    let whole = batch.end(2);
    assert!(!whole.truncated && whole.error.is_none());
    // There is room again.
    left.store(1 << 30, Ordering::Relaxed);
    let whole = batch.run(3, flood(300_000));
    assert!(!whole.truncated && whole.error.is_none());
    let (out, err) = batch.close();
    let expected = [flood(100_000), b"small, in memory\n".to_vec(), flood(300_000)].concat();
    assert!(out == expected && err == b"why\n");
}

#[test]
fn a_file_that_cannot_be_opened_is_reported_too() {
    let open_spool: OpenSpool = Arc::new(|| Err(io::ErrorKind::StorageFull.into()));
    let mut batch = Batch::new(OutputOptions { open_spool, ..options(OutputMode::Group) });
    let summary = batch.run(1, flood(100_000));
    is_full(summary.error, Source::Stdout);
    batch.run(2, "small\n");
    assert_eq!(batch.close().0, b"small\n");
}

#[test]
fn outputs_that_wait_stay_in_memory_if_the_file_cannot_take_them() {
    let (options, _) = with_disk(0, options(OutputMode::Group));
    let mut batch = Batch::new(OutputOptions { keep_order: true, ..options });
    batch.begin(1);
    let mut lost = 0;
    for job in 2..=5000 {
        let summary = batch.run(job, flood(8192));
        lost += usize::from(summary.truncated);
        assert_eq!(summary.error.is_some(), summary.truncated);
    }
    // As many as memory has, and each of them is whole.
    assert!(lost > 0 && lost < 4000, "{lost}");
    batch.end(1);
    let (out, _) = batch.close();
    assert_eq!(out.len(), (4999 - lost) * 8192);
    assert!(out.chunks(8192).all(|one| one == flood(8192)));
}

#[test]
fn lines_are_not_mixed_if_one_is_cut() {
    for keep_order in [false, true] {
        let (options, _) = with_disk(50_000, options(OutputMode::LineBuffer));
        let mut batch = Batch::new(OutputOptions { keep_order, ..options });
        batch.begin(1);
        batch.begin(2);
        batch.out(2, "two\n");
        // Longer than what the disk takes.
        batch.out(1, "one\n");
        batch.out(1, vec![b'1'; 40_000]);
        batch.out(1, vec![b'1'; 40_000]);
        batch.out(1, "\nlater\n");
        let summary = batch.end(1);
        is_full(summary.error, Source::Stdout);
        batch.out(2, "three\n");
        batch.end(2);
        let (out, _) = batch.close_to_text();
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        let cut = lines.iter().position(|line| line.starts_with('1')).unwrap();
        assert!(lines[cut].bytes().all(|byte| byte == b'1') && lines[cut].len() >= 40_000);
        lines.remove(cut);
        assert_eq!(lines, ["one", "three", "two"]);
    }
}

#[test]
fn lines_for_a_slow_reader_are_cut_at_a_line_end() {
    let (options, _) = with_disk(100_000, options(OutputMode::LineBuffer));
    let gate = Gate::default();
    let mut batch = Batch::behind(&gate, options);
    let line = [vec![b'x'; 9_999], b"\n".to_vec()].concat();
    let mut errors = 0;
    for job in 1..=2000 {
        batch.begin(job);
        batch.out(job, line.repeat(2));
        errors += usize::from(batch.end(job).error.is_some());
    }
    assert!(errors > 500, "{errors}");
    gate.open();
    let (out, _) = batch.close();
    assert!(out.ends_with(b"\n") && !out.windows(2).any(|two| two == b"\n\n"));
    for part in out.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n') {
        assert!(part.len() <= 9_999 && part.iter().all(|byte| *byte == b'x'));
    }
}

#[test]
fn a_long_line_for_a_slow_reader_ends_where_it_is_cut() {
    for first in [0, 10, 70_000] {
        let (options, left) = with_disk(100_000 + first as i64, options(OutputMode::LineBuffer));
        let gate = Gate::default();
        let mut batch = Batch::behind(&gate, OutputOptions { memory_bytes: 0, ..options });
        batch.begin(1);
        batch.out(1, vec![b'1'; first]);
        batch.out(1, [vec![b'1'; 300_000], b"\n".to_vec()].concat());
        is_full(batch.end(1).error, Source::Stdout);
        left.store(1000, Ordering::Relaxed);
        assert!(batch.run(2, "two\n").error.is_none());
        gate.open();
        let (out, _) = batch.close_to_text();
        let (cut, rest) = out.split_once('\n').unwrap();
        assert!(cut.len() > 60_000 && cut.bytes().all(|byte| byte == b'1'), "{}", cut.len());
        assert_eq!(rest, "two\n");
    }
}
