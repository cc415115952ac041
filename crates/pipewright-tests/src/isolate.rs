//! Runs one test in a separate process, for tests that change process-wide state: standard handles, signals, limits,
//! children.

use std::env;
use std::panic::Location;
use std::path::PathBuf;
use std::process::Command;

use crate::skip;

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
