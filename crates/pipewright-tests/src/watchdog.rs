//! Ends a test that hangs, waits for facts, and runs a test in a process of its own.

use std::io::Write as _;
use std::panic::Location;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::{pace, skip};

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

const MARK: &str = "PIPEWRIGHT_ISOLATED";

/// Runs `body` in a new process that runs nothing but the calling test.
///
/// `#[isolated_test]` calls this. `path` is the path of the test's function, from the name of its crate on.
/// The new process has to report that exactly one test passed, because a wrong path would run no test.
#[track_caller]
pub fn isolated(path: &str, body: impl FnOnce()) {
    let test = name_of(path);
    if is_isolated(test) {
        return body();
    }
    let again = Command::new(own_program());
    #[cfg(unix)]
    let again = in_a_group(again);
    run(again, test);
}

/// Runs it in its own process group, so that a signal to the group reaches no other process.
#[cfg(unix)]
fn in_a_group(mut again: Command) -> Command {
    std::os::unix::process::CommandExt::process_group(&mut again, 0);
    again
}

/// Does the same in its own session: as with a service, the process group has no parent in the session.
#[cfg(unix)]
#[track_caller]
pub fn isolated_in_a_session(path: &str, body: impl FnOnce()) {
    let test = name_of(path);
    if is_isolated(test) {
        return body();
    }
    let mut again = Command::new(own_program());
    let begin = || rustix::process::setsid().map(drop).map_err(std::io::Error::from);
    // SAFETY: one system call, which allocates nothing. Not the program `setsid`, which macOS lacks.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut again, begin) };
    run(again, test);
}

/// Returns the name of the test that this process was started for.
pub fn current_test() -> String {
    env::var(MARK).expect("only an isolated test asks")
}

/// Returns the name by which the harness knows a test: its path without the crate.
fn name_of(path: &str) -> &str {
    path.split_once("::").map_or(path, |(_, name)| name)
}

fn is_isolated(test: &str) -> bool {
    env::var(MARK).is_ok_and(|isolated| isolated == test)
}

fn own_program() -> PathBuf {
    env::current_exe().expect("a test program knows its path")
}

#[track_caller]
fn run(mut again: Command, test: &str) {
    let here = Location::caller();
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(MARK, test);
    let output = again.output().expect("a test program can be started again");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    skip::pass_on(&stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test} at {here} failed in its own process: {}\n{stdout}\n{stderr}",
        output.status
    );
}

/// Runs it in a fork of this process, and waits for the end of the fork. Returns true if it did not panic.
///
/// # Panics
/// No process can be made.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "forks are the point")]
pub fn in_a_fork(work: impl FnOnce()) -> bool {
    // SAFETY: the fork only drops copies and starts processes, and ends without returning.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a number. The default ends a fork that hangs.
            unsafe { libc::alarm(crate::pace::seconds(30).as_secs() as u32) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: a number.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        fork => {
            let mut status = 0;
            // SAFETY: a child of this process, and a live integer.
            assert_eq!(unsafe { libc::waitpid(fork, &raw mut status, 0) }, fork);
            status == 0
        }
    }
}
