//! Memory and descriptors stay bounded, whatever the number of jobs.

#[cfg(target_os = "linux")]
use std::sync::Arc;

use super::super::options::MEMORY_BYTES;
use super::*;

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
    let open_spool: super::super::spool::OpenSpool =
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
