//! Runs one test in a process of its own, for tests that change what a process has only one of:
//! its standard handles, its signals, its limits, its children.

use std::env;
use std::panic::Location;
use std::path::PathBuf;
use std::process::Command;

use crate::skip;

const MARK: &str = "PIPEWRIGHT_ISOLATED";

/// Runs `body` in a new process that runs nothing but the calling test.
///
/// `test` is the full name of the test. A name that is none would run nothing and pass, so the new
/// process has to say that exactly one test passed.
#[track_caller]
pub fn isolated(test: &str, body: impl FnOnce()) {
    if is_isolated(test) {
        return body();
    }
    let again = Command::new(own_program());
    #[cfg(unix)]
    let again = in_a_group(again);
    run(again, test);
}

/// In a process group of its own: a signal to the group is nobody else's.
#[cfg(unix)]
fn in_a_group(mut again: Command) -> Command {
    std::os::unix::process::CommandExt::process_group(&mut again, 0);
    again
}

/// The same, in a session of its own too: nobody waits for its process group, as with a service's.
#[cfg(unix)]
#[track_caller]
pub fn isolated_in_a_session(test: &str, body: impl FnOnce()) {
    if is_isolated(test) {
        return body();
    }
    let mut again = Command::new("setsid");
    again.arg(own_program());
    run(again, test);
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
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    skip::pass_on(&complained);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test} at {here} failed in its own process: {}\n{said}\n{complained}",
        output.status
    );
}
