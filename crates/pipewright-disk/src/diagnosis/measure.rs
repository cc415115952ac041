//! One test: submits all requests, collects all completions, and gathers the evidence.

use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::memory::AlignedBuf;
use pipewright_os::disk::file::Facts;
use pipewright_os::disk::thread_usage;

use super::scratch::{DiagnosisTarget, TestFile, noise};
use super::{DiagnoseOptions, Evidence, Measured, Pattern, Test, Verdict, Work, reasons};
use crate::{BackendKind, Class, Engine, EngineOptions, Error, ErrorKind, Operation, Unjudged};

/// Runs a test. The calling thread must not have run another one.
pub(super) fn run(
    target: &DiagnosisTarget,
    test: Test,
    options: &DiagnoseOptions,
) -> Result<Measured, Error> {
    let test_file = target.open(test)?;
    let backend = if test.asynchronous { options.backend } else { BackendKind::Caller };
    let engine = Engine::new(EngineOptions {
        backend,
        depth: options.requests,
        classes: true,
        times: true,
        // Measure the system's own behaviour.
        cached_first: false,
        ..EngineOptions::default()
    })?;
    let mut run = MeasuredRun::new(engine, &test_file, test, options)?;
    if matches!(test.work, Work::Overwrite | Work::Preallocated) {
        // The first write to a file is waited for (it may have to remove the setuid bits). It isn't part of
        // the measurement.
        let mut first = test_file.file.buffer(options.block_bytes)?;
        if test_file.is_existing_file {
            first = read(&mut run.engine, &test_file, first, 0)?;
        }
        run.engine.write_all_at(&test_file.file, first, 0).result?;
    }
    run.submit()?;
    run.collect()?;
    run.try_nowait_reads()?;
    run.try_nowait_writes()?;
    Ok(run.judge())
}

/// The maximum size of the trial reads and writes. A multiple of every disk's alignment.
const MAX_TRIED: usize = 1 << 20;

struct MeasuredRun<'a> {
    engine: Engine,
    test_file: &'a TestFile,
    block_bytes: usize,
    /// The offset of each request.
    offsets: Vec<u64>,
    buffers: Vec<AlignedBuf>,
    /// Filled step by step.
    evidence: Evidence,
    out_of_order: usize,
    bytes: u64,
    queued: Duration,
    completed: Duration,
}

impl MeasuredRun<'_> {
    fn new<'a>(
        mut engine: Engine,
        test_file: &'a TestFile,
        test: Test,
        options: &DiagnoseOptions,
    ) -> Result<MeasuredRun<'a>, Error> {
        let TestFile { file, bytes, is_existing_file, .. } = test_file;
        let offsets = offsets(*bytes, options, test);
        // Before the clock starts, because the first access to memory costs time too.
        let content = noise(options.block_bytes);
        let fill = |offset: &u64| {
            let mut buffer = file.buffer(options.block_bytes)?;
            if *is_existing_file && test.work.is_write() {
                return read(&mut engine, test_file, buffer, *offset);
            }
            buffer.copy_from_slice(&content);
            Ok(buffer)
        };
        let buffers = offsets.iter().map(fill).collect::<Result<Vec<_>, Error>>()?;
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let requests = offsets.len();
        let split = split(test_file, test, options, &offsets);
        let evidence = Evidence {
            test,
            requests,
            counts: [0; Class::ALL.len()],
            facts: Facts::default(),
            bypasses_cache: file.alignment().direct.filter(|_| test.direct),
            cached_before: file.cached_bytes(0, *bytes),
            unwritten_before: file.os().unwritten_bytes(0, *bytes),
            cached_after: None,
            has_hole: file.os().next_hole(0).map(|place| place < *bytes),
            split,
            write_room: file.os().write_room(),
            kernel_workers: None,
            worker_limit: requests.next_power_of_two().min(4 * processors),
            nowait_reads: None,
            nowait_writes: None,
            submit_time: Duration::ZERO,
            backend: engine.backend(),
            unavailable_backends: engine.unavailable_backends().to_vec(),
            unjudged: Unjudged::here(),
            misaligned: None,
        };
        Ok(MeasuredRun {
            engine,
            test_file,
            block_bytes: options.block_bytes,
            offsets,
            buffers,
            evidence,
            out_of_order: 0,
            bytes: 0,
            queued: Duration::ZERO,
            completed: Duration::ZERO,
        })
    }

    fn submit(&mut self) -> Result<(), Error> {
        let file = &self.test_file.file;
        for (offset, buffer) in self.offsets.iter().zip(self.buffers.drain(..)) {
            let operation = match self.evidence.test.work {
                Work::Read => Operation::read_at(file, buffer, *offset),
                Work::Sync => Operation::sync_data(file),
                _ => Operation::write_all_at(file, buffer, *offset),
            };
            // There is room for all of them.
            drop(self.engine.queue(operation));
        }
        let began = Instant::now();
        self.engine.submit()?;
        self.queued = began.elapsed();
        self.evidence.submit_time = self.queued;
        self.evidence.kernel_workers = thread_usage::kernel_workers();
        Ok(())
    }

    fn collect(&mut self) -> Result<(), Error> {
        let (mut latest, mut in_calls) = (0, Some(Duration::ZERO));
        let (mut first, mut last): (Option<Instant>, Option<Instant>) = (None, None);
        while let Some(done) = self.engine.next()? {
            let number = done.id.number();
            self.out_of_order += usize::from(number < latest);
            latest = latest.max(number);
            let completion = match done.result {
                Ok(completion) => completion,
                Err(error) => match error.kind() {
                    ErrorKind::Misaligned(misaligned) => {
                        self.evidence.misaligned.get_or_insert(*misaligned);
                        continue;
                    }
                    _ => return Err(error),
                },
            };
            self.bytes += completion.bytes as u64;
            let place = Class::ALL.iter().position(|class| Some(*class) == completion.class);
            if let Some(count) = place.and_then(|place| self.evidence.counts.get_mut(place)) {
                *count += 1;
            }
            if let Some(times) = completion.times {
                let submitted = times.submitted_at;
                first = Some(first.map_or(submitted, |first| first.min(submitted)));
                last = Some(last.map_or(times.completed_at, |last| last.max(times.completed_at)));
                in_calls = in_calls.zip(times.in_call).map(|(sum, one)| sum + one);
            }
        }
        let elapsed = last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first);
        // The snapshots of the thread between the calls are overhead of the measurement.
        let queued = in_calls.filter(|sum| !sum.is_zero()).unwrap_or(self.queued);
        let looks = self.queued.saturating_sub(queued);
        self.completed = elapsed.saturating_sub(looks).max(queued);
        self.queued = queued;
        Ok(())
    }

    /// Determines the result of reads that must not wait, if threads performed some of the reads.
    fn try_nowait_reads(&mut self) -> Result<(), Error> {
        let Evidence { test, backend, .. } = self.evidence;
        let by_threads = self.evidence.count(Class::Worker) > 0;
        let is_asked = test.work == Work::Read && test.direct && by_threads;
        if is_asked && backend == BackendKind::IoUring {
            let file = &self.test_file.file;
            let mut block = file.buffer(self.block_bytes.min(MAX_TRIED))?;
            self.evidence.nowait_reads = file.os().nowait_reads(&mut block, 0);
        }
        Ok(())
    }

    /// Determines the result of writes that must not wait, as io_uring first issues each write.
    fn try_nowait_writes(&mut self) -> Result<(), Error> {
        let Evidence { test, backend, misaligned, .. } = self.evidence;
        let is_asked = test.work.is_write() && test.work != Work::Sync;
        if !is_asked || backend != BackendKind::IoUring || misaligned.is_some() {
            return Ok(());
        }
        let TestFile { file, is_existing_file, .. } = self.test_file;
        // The longest write that is known to be accepted in one piece by every filesystem.
        let mut block = file.buffer(self.block_bytes.min(MAX_TRIED))?;
        if *is_existing_file {
            block = read(&mut self.engine, self.test_file, block, 0)?;
        }
        self.evidence.nowait_writes = file.os().nowait_writes(&block, 0);
        Ok(())
    }

    fn judge(self) -> Measured {
        let MeasuredRun {
            test_file: TestFile { file, bytes: file_bytes, .. }, mut evidence, ..
        } = self;
        evidence.facts = *file.facts();
        evidence.cached_after = file.cached_bytes(0, *file_bytes);
        evidence.kernel_workers = evidence.kernel_workers.max(thread_usage::kernel_workers());
        Measured {
            queued: self.queued,
            completed: self.completed,
            bytes: self.bytes,
            out_of_order: self.out_of_order,
            verdict: Verdict::of(&evidence),
            findings: reasons(&evidence),
            evidence,
        }
    }
}

/// Returns the number of requests that span more than one extent.
fn split(
    test_file: &TestFile,
    test: Test,
    options: &DiagnoseOptions,
    offsets: &[u64],
) -> Option<usize> {
    if !test.direct || !matches!(test.work, Work::Overwrite | Work::Preallocated) {
        return None;
    }
    let pieces = |offset: &u64| test_file.file.os().extents(*offset, options.block_bytes as u64);
    offsets.iter().map(|offset| pieces(offset).map(|count| usize::from(count > 1))).sum()
}

/// Reads the current contents of the file.
fn read(
    engine: &mut Engine,
    test_file: &TestFile,
    buffer: AlignedBuf,
    offset: u64,
) -> Result<AlignedBuf, Error> {
    let done = engine.read_exact_at(&test_file.file, buffer, offset);
    done.result.map(|_| done.buffer)
}

/// Returns an offset for each request: every block once, then again from the start if the file has fewer
/// blocks.
fn offsets(bytes: u64, options: &DiagnoseOptions, test: Test) -> Vec<u64> {
    let block = options.block_bytes as u64;
    let blocks = (bytes / block).max(1);
    let count = options.requests as u64;
    // Spread the blocks over a large file.
    let step = if test.work.is_write() { 1 } else { (blocks / count).max(1) };
    let mut numbers: Vec<u64> = (0..count).map(|number| number * step % blocks).collect();
    if options.pattern == Pattern::Random && !matches!(test.work, Work::Extend) {
        shuffle(&mut numbers);
    }
    numbers.into_iter().map(|number| number * block).collect()
}

/// Shuffles in the same order every time, so that two runs can be compared.
fn shuffle(numbers: &mut [u64]) {
    let random = noise(numbers.len() * 8);
    for (place, random) in (1..numbers.len()).rev().zip(random.chunks_exact(8)) {
        let random = random.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        numbers.swap(place, (random % (place as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn offsets_cover_each_block_once_and_sequential_ascends() {
        let test = Test { asynchronous: true, direct: false, work: Work::Read };
        let options =
            DiagnoseOptions { requests: 100, block_bytes: 10, ..DiagnoseOptions::default() };
        for bytes in [1000, 1009, 5000] {
            let random = offsets(bytes, &options, test);
            assert_eq!(random.iter().collect::<BTreeSet<_>>().len(), 100);
            assert!(random.iter().all(|offset| offset + 10 <= bytes));
            assert!(!random.is_sorted());
            let sequential = DiagnoseOptions { pattern: Pattern::Sequential, ..options };
            assert!(offsets(bytes, &sequential, test).is_sorted());
        }
        assert_eq!(offsets(5, &options, test), vec![0; 100]);
    }
}
