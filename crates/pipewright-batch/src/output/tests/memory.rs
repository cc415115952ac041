//! Memory and descriptors stay bounded, whatever the number of jobs.

use super::super::options::MEMORY_BYTES;
use super::*;

/// Returns the number of descriptors that are open on deleted files of the directory for temporary files.
#[cfg(target_os = "linux")]
fn deleted_files() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().ends_with(" (deleted)")).count()
}

#[test]
fn waiting_outputs_stay_within_the_limit() {
    let ordered = OutputOptions { keep_order: true, ..options(OutputMode::Group) };
    for (count, bytes) in [(200_u64, 1 << 20), (5000, 10_000), (100_000, 300)] {
        let mut batch = Batch::new(ordered.clone());
        batch.begin(1);
        for job in 2..=count {
            batch.run(job, flood(bytes));
        }
        let peak = batch.output.peak_memory_bytes();
        assert!(peak <= MEMORY_BYTES, "{peak}");
        batch.end(1);
        let (out, _) = batch.close();
        assert_eq!(out.len(), (count - 1) as usize * bytes);
        assert!(out.chunks(bytes).all(|one| one == flood(bytes)), "{count} jobs");
    }
}

#[test]
fn running_attempts_stay_within_the_limit() {
    let mut batch = Batch::new(options(OutputMode::Group));
    for job in 1..=3000 {
        batch.begin(job);
        batch.out(job, flood(15_000));
        batch.err(job, flood(15_000));
    }
    let peak = batch.output.peak_memory_bytes();
    assert!(peak <= MEMORY_BYTES && peak > MEMORY_BYTES / 2, "{peak}");
    for job in 1..=3000 {
        batch.end(job);
    }
    let (out, err) = batch.close();
    for all in [out, err] {
        assert!(all.len() == 3000 * 15_000 && all.chunks(15_000).all(|one| one == flood(15_000)));
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

#[cfg(target_os = "linux")]
#[test]
fn descriptors_stay_bounded_with_5000_waiting_outputs() {
    let ordered =
        OutputOptions { keep_order: true, memory_bytes: 1000, ..options(OutputMode::Group) };
    // Other tests of this process have files as well, which come and go.
    let before = deleted_files();
    let mut batch = Batch::new(ordered);
    batch.begin(1);
    let mut most = 0;
    for job in 2..=5001 {
        batch.begin(job);
        batch.out(job, flood(500));
        batch.err(job, flood(30_000));
        batch.end(job);
        if job % 100 == 0 {
            most = most.max(deleted_files());
        }
    }
    assert!(most <= before + 200, "{before}, then {most}");
    batch.end(1);
    let (out, err) = batch.close();
    assert_eq!((out.len(), err.len()), (5000 * 500, 5000 * 30_000));
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
