//! Ends a test that hangs, and waits for facts.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::pace;

/// A guard that ends the whole test program with a message if it is not dropped in time.
#[must_use = "the watch ends when this is dropped"]
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

/// Watches the test that calls it: 120 s, or `PIPEWRIGHT_TEST_SECONDS`, at this machine's [`pace`].
pub fn watch() -> Watchdog {
    let seconds = std::env::var("PIPEWRIGHT_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    watch_for(Duration::from_secs(seconds.unwrap_or(120)))
}

/// Watches the test that calls it for that long, at this machine's [`pace`].
pub fn watch_for(limit: Duration) -> Watchdog {
    let limit = pace::scaled(limit);
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let (alive, watched) = channel::<()>();
    let (ready, is_ready) = channel::<()>();
    thread::spawn(move || {
        // The thread allocates nothing from here on: a test may limit memory.
        drop(ready);
        if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // Not by `eprintln!`: the harness captures that, and the output is lost with it.
            let _ = writeln!(std::io::stderr(), "watchdog: {name} has not ended within {limit:?}");
            std::process::abort();
        }
    });
    // Returns once the thread has dropped its end.
    let _ = is_ready.recv();
    Watchdog { _alive: alive }
}

/// Waits until a fact is true. Panics after 30 s, at this machine's [`pace`].
#[track_caller]
pub fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let (start, limit) = (Instant::now(), pace::seconds(30));
    while !fact() {
        assert!(start.elapsed() < limit, "waited in vain until {what}{}", threads());
        // Facts about other processes can only be polled.
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Returns the names of this process's threads, for a failure; nothing on systems that do not tell them.
fn threads() -> String {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return String::new() };
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let names: Vec<String> = tasks.flatten().filter_map(name).collect();
    format!("; the threads here: {}", names.join(" ").replace('\n', ""))
}
