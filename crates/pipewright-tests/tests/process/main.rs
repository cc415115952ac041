//! The suite of `pipewright`, a file a subject.

#![cfg_attr(
    windows,
    expect(unused_imports, dead_code, reason = "what only Unix has is left out, test by test")
)]
#![cfg_attr(
    target_os = "macos",
    expect(unused_imports, reason = "what only Linux shows is left out, test by test")
)]

mod async_pipes;
#[cfg(unix)]
mod async_stdio;
mod async_verbs;
#[cfg(target_os = "linux")]
mod child_state;
mod environment;
#[cfg(unix)]
mod errors;
mod held_pipes;
#[cfg(unix)]
mod hostile;
mod in_background;
#[cfg(unix)]
mod inheritance;
mod kill_on_drop;
mod lines;
mod nothing_leaks;
mod parent_exit;
mod pipelines;
mod process_handle;
#[cfg(unix)]
mod pty;
mod runner;
#[cfg(unix)]
mod samples;
#[cfg(unix)]
mod session;
#[cfg(unix)]
mod session_programs;
#[cfg(unix)]
mod signals;
#[cfg(target_os = "linux")]
mod slot_holders;
mod spawned_input;
#[cfg(unix)]
mod std_process;
mod stdio;
mod stopping;
#[cfg(unix)]
mod tee;
mod tee_with;
mod timeouts;
mod traced;
#[cfg(target_os = "linux")]
mod tree_limits;
#[cfg(target_os = "linux")]
mod tree_limits_systemd;
mod tree_slot;
mod trees;
#[cfg(target_os = "linux")]
mod trees_hostile;
#[cfg(target_os = "linux")]
mod trees_refused;
#[cfg(target_os = "linux")]
mod wait_descriptors;
#[cfg(windows)]
mod windows;

use std::time::Duration;

use pipewright::{Child, Command, ExitStatus, Signal};
use pipewright_tests::{alive, pace, watchdog};

/// Returns a time in which a child has started. Wine takes 70 ms and more for one.
fn short() -> Duration {
    pace::millis(if cfg!(windows) { 1500 } else { 800 })
}

/// Returns a time in which a few children, each started by the one before, have started on a busy machine.
fn later() -> Duration {
    pace::millis(if cfg!(windows) { 4000 } else { 2500 })
}

/// Runs something with that time, and again with twice the time, until it returns what the child has done before the
/// time was over.
///
/// No time is enough on every machine for a child to be executed and to do its part. What has to hold whenever the time
/// is over is for the closure to assert; only what the child does first may be missing in a run.
#[track_caller]
fn with_time<T>(first: Duration, mut run: impl FnMut(Duration) -> Option<T>) -> T {
    let times = (0..5).map(|doubled| first * (1 << doubled));
    let done = { times }.find_map(&mut run);
    done.unwrap_or_else(|| panic!("no child has done its part, though it had {:?}", first * 16))
}

/// Runs a command that a limit of time ends, with such a limit within which its child has done its part. Returns that
/// limit, too. `run` gets the limit, and the act that the child does after its part.
#[track_caller]
fn in_time<T>(first: Duration, run: impl Fn(Duration, &str) -> T) -> (Duration, T) {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let act = format!("touch={}", done.display());
    with_time(first, |limit| {
        let result = run(limit, &act);
        done.exists().then_some((limit, result))
    })
}

/// Returns a command that runs the puppet with these acts.
fn puppet<I: IntoIterator<Item = S>, S: AsRef<str>>(acts: I) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_puppet"));
    for act in acts {
        command.arg(act.as_ref());
    }
    command
}

/// Checks that our stop ended it: by that signal on Unix, by the code of a terminated process or that of
/// Ctrl-Break on Windows.
#[track_caller]
fn ended_by(status: ExitStatus, signal: Signal) {
    if cfg!(windows) {
        const BY_CTRL_BREAK: i32 = 0xC000_013A_u32 as i32;
        assert!(matches!(status.code(), Some(1 | BY_CTRL_BREAK)), "{status}");
    } else {
        assert_eq!(status.terminating_signal(), Some(signal), "{status}");
    }
}

/// Returns true, and reports it, if this build or machine cannot end a tree with this process.
fn cannot_supervise() -> bool {
    match puppet(["exit=0"]).kill_on_parent_exit(pipewright::Scope::Tree).status() {
        Ok(_) => false,
        Err(error) => {
            assert!(matches!(error.kind(), pipewright::ErrorKind::Unsupported), "{error}");
            pipewright_tests::skip::skipped(pipewright_tests::skip::Need::Supervisor, error);
            true
        }
    }
}

/// Returns the pid of the grandchild, which a puppet with a piped stderr writes there.
fn printed_pid(child: &mut Child) -> u32 {
    let mut text = Vec::with_capacity(64);
    let stderr = child.stderr.as_ref().expect("its stderr is piped");
    while !text.contains(&b'\n') {
        assert_ne!(stderr.read_spare(&mut text).unwrap(), 0, "it has printed nothing");
    }
    String::from_utf8(text).unwrap().trim().parse().unwrap()
}

/// Waits until no process with that mark is left.
#[track_caller]
fn no_process_is_left(variable: &str, mark: &str) {
    watchdog::until("no process is left", || alive::marked(variable, mark).is_empty());
}

/// Returns the bytes of the puppet's floods.
fn flood(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// Returns the bytes of a flood in pieces of 1, 2, 4 ... bytes: every piece starts from the first byte.
fn alternating(count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count);
    let mut piece = 1;
    while bytes.len() < count {
        let now = piece.min(count - bytes.len());
        bytes.extend((0..now).map(|at| ((at % (251 * 256)) % 251) as u8));
        piece = if piece > 200_000 { 1 } else { piece * 2 };
    }
    bytes
}
