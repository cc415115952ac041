//! How many threads this process has while it does its work.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::seen::Seen;
use crate::{Result, Work};

const PAUSE: Duration = Duration::from_millis(1);

/// Does the work once while another thread looks, which is not counted.
pub(crate) fn most_during(work: &mut Work) -> Result<(Seen, usize)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(now().unwrap_or(0));
                thread::park_timeout(PAUSE);
            }
            most
        });
        let seen = work();
        done.store(true, Ordering::Relaxed);
        let most = watcher.join().map_err(|_| "the watcher has panicked")?;
        Ok((seen?, most.saturating_sub(1)))
    })
}

fn now() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}
