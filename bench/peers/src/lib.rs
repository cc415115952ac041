//! The measured process: runs one case with one process library.

mod outcome;
mod peer;
mod request;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use outcome::PeerOutcome;
use request::{ChildOperation, PeerRequest};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A function that runs one operation, from making the command until all of its output is there.
type OperationFn = Box<dyn FnMut() -> Result<PeerOutcome>>;

/// The allocations since the process started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocated {
    /// The number of calls that asked the allocator for memory.
    pub allocations: u64,
    /// The number of bytes that they asked for. A reallocation counts the bytes that it adds.
    pub bytes: u64,
}

/// Runs the case that the command line asks for and prints the samples.
#[must_use]
pub fn run(allocated: Option<fn() -> Allocated>) -> ExitCode {
    match PeerRequest::from_arguments().and_then(|request| measure(request, allocated)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(request: PeerRequest, allocated: Option<fn() -> Allocated>) -> Result<()> {
    let PeerRequest { operation, count, warm_up, expected_bytes, .. } = request;
    let heap = resident(request.heap_bytes);
    if matches!(operation, ChildOperation::Many { .. }) {
        allow_many_files()?;
    }
    let mut work = peer::prepare(&request.peer, operation, request.child)?;
    for _ in 0..warm_up {
        work()?.verify(operation, expected_bytes)?;
    }
    if matches!(operation, ChildOperation::Many { .. }) {
        // Counts threads in an extra run, because counting takes time.
        let (outcome, threads) = most_during(&mut work)?;
        outcome.verify(operation, expected_bytes)?;
        println!("threads={threads}");
    }
    let mut samples = Vec::with_capacity(count);
    let mut total = Allocated::default();
    for _ in 0..count {
        let before = allocated.map(|allocated| allocated());
        let started = Instant::now();
        let outcome = work()?;
        let elapsed = started.elapsed();
        if let (Some(allocated), Some(before)) = (allocated, before) {
            let after = allocated();
            total.allocations += after.allocations - before.allocations;
            total.bytes += after.bytes - before.bytes;
        }
        outcome.verify(operation, expected_bytes)?;
        samples.push(outcome.own_nanoseconds().unwrap_or(elapsed.as_nanos()));
    }
    // Keeps the heap until here, so that every start had a large parent.
    std::hint::black_box(heap);
    print(&samples, allocated.is_some().then_some(total))?;
    Ok(())
}

/// Raises the limit of open files, because a thousand children have more pipes than the default allows.
fn allow_many_files() -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}

fn print(samples: &[u128], total: Option<Allocated>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for sample in samples {
        writeln!(out, "{sample}")?;
    }
    writeln!(out, "peak_rss_bytes={}", peak_rss_bytes()?)?;
    if let Some(total) = total {
        let operations = samples.len().max(1) as f64;
        writeln!(out, "allocations={:.2}", total.allocations as f64 / operations)?;
        writeln!(out, "allocated_bytes={:.1}", total.bytes as f64 / operations)?;
    }
    Ok(())
}

/// The smallest page size. A write of one byte per page makes all pages resident.
const PAGE_BYTES: usize = 4 << 10;

/// Allocates that many bytes and makes them resident.
fn resident(bytes: usize) -> Vec<u8> {
    let mut heap = vec![0; bytes];
    for page in heap.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    heap
}

/// Returns the peak memory of this process.
fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("/proc/self/status has no VmHWM")?;
    Ok(kib.parse::<u64>()? << 10)
}

const PAUSE: Duration = Duration::from_millis(1);

/// Runs the operation once while another thread counts the threads, and returns the maximum without that one.
fn most_during(work: &mut OperationFn) -> Result<(PeerOutcome, usize)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(current().unwrap_or(0));
                thread::park_timeout(PAUSE);
            }
            most
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        let most = watcher.join().map_err(|_| "the counting thread panicked")?;
        Ok((outcome?, most.saturating_sub(1)))
    })
}

fn current() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}
