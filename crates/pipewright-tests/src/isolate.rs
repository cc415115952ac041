//! Runs one test in a process of its own, for tests that change what a process has only one of:
//! its standard handles, its signals, its limits, its children.

use std::env;
use std::panic::Location;
use std::process::Command;

const MARK: &str = "PIPEWRIGHT_ISOLATED";

/// Runs `body` in a new process that runs nothing but the calling test.
///
/// `test` is the full name of the test. A name that is none would run nothing and pass, so the new
/// process has to say that exactly one test passed.
#[track_caller]
pub fn isolated(test: &str, body: impl FnOnce()) {
    if env::var(MARK).is_ok_and(|isolated| isolated == test) {
        return body();
    }
    let here = Location::caller();
    let mut again = Command::new(env::current_exe().expect("a test program knows its path"));
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(MARK, test);
    // In a process group of its own: what comes of the group is nobody else's, see docs/gotchas.md
    // (a group that is orphaned).
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut again, 0);
    let output = again.output().expect("a test program can be started again");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    for line in complained.lines().filter(|line| line.starts_with("SKIPPED")) {
        eprintln!("{line}");
    }
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test} at {here} failed in its own process: {}\n{said}\n{complained}",
        output.status
    );
}
