//! The number of threads that this process has during an operation.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::outcome::PeerOutcome;
use crate::{OperationFn, Result};

const PAUSE: Duration = Duration::from_millis(1);

/// Runs the operation once while another thread counts the threads, and returns the maximum without that one.
pub(crate) fn most_during(work: &mut OperationFn) -> Result<(PeerOutcome, usize)> {
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
