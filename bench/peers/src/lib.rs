//! One case with one process library in one process: the part that is measured.

mod heap;
mod peer;
mod request;
mod seen;
mod threads;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use request::{Operation, Request};
use seen::Seen;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs one operation, from making the command to having all that it brought.
type Work = Box<dyn FnMut() -> Result<Seen>>;

/// What has been allocated since the process started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocated {
    /// How many calls to the allocator asked for memory.
    pub allocations: u64,
    /// How many bytes they asked for; a reallocation counts with what it adds.
    pub bytes: u64,
}

/// Runs what the command line asks for and prints the samples.
#[must_use]
pub fn run(allocated: Option<fn() -> Allocated>) -> ExitCode {
    match Request::from_arguments().and_then(|request| measure(request, allocated)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(request: Request, allocated: Option<fn() -> Allocated>) -> Result<()> {
    let Request { operation, count, warm_up, expected_bytes, .. } = request;
    let heap = heap::touched(request.heap_bytes);
    if matches!(operation, Operation::Many { .. }) {
        allow_many_files()?;
    }
    let mut work = peer::prepare(&request.peer, operation, request.child)?;
    for _ in 0..warm_up {
        work()?.verify(operation, expected_bytes)?;
    }
    if matches!(operation, Operation::Many { .. }) {
        // Once more, as the looking takes time.
        let (seen, threads) = threads::most_during(&mut work)?;
        seen.verify(operation, expected_bytes)?;
        println!("threads={threads}");
    }
    let mut samples = Vec::with_capacity(count);
    let mut total = Allocated::default();
    for _ in 0..count {
        let before = allocated.map(|allocated| allocated());
        let started = Instant::now();
        let seen = work()?;
        let elapsed = started.elapsed();
        if let (Some(allocated), Some(before)) = (allocated, before) {
            let after = allocated();
            total.allocations += after.allocations - before.allocations;
            total.bytes += after.bytes - before.bytes;
        }
        seen.verify(operation, expected_bytes)?;
        samples.push(seen.own_nanoseconds().unwrap_or(elapsed.as_nanos()));
    }
    // Alive to here, so that every start saw a large parent.
    std::hint::black_box(heap);
    print(&samples, allocated.is_some().then_some(total))?;
    Ok(())
}

/// A thousand children have more pipes than a process may have files unless it asks for it.
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
    writeln!(out, "peak_rss_bytes={}", heap::peak_rss_bytes()?)?;
    if let Some(total) = total {
        let operations = samples.len().max(1) as f64;
        writeln!(out, "allocations={:.2}", total.allocations as f64 / operations)?;
        writeln!(out, "allocated_bytes={:.1}", total.bytes as f64 / operations)?;
    }
    Ok(())
}
