//! Signal mask, SIGPIPE and handlers are the default in the child; colliding handles 0 to 2 and a parent with
//! closed stdio work.

use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use pipewright::{Command, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{count, watchdog};

use super::puppet;

/// Returns a line of the child's own `/proc/self/status`, as a mask.
fn child_mask(field: &str) -> u64 {
    // Not the puppet: the start of a Rust program changes some of these itself, and grep catches
    // SIGSEGV.
    let status = Command::new("cat").arg("/proc/self/status").read().unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

extern "C" fn handler(_: i32) {}

#[isolated_test]
fn mask_sigpipe_and_handlers_are_the_default() {
    // SAFETY: the handler does nothing, and this process runs nothing but this test.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGTERM, handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
        libc::sigaddset(&raw mut blocked, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
    }
    assert_eq!(child_mask("SigBlk"), 0, "blocked");
    assert_eq!(child_mask("SigCgt"), 0, "caught");
    let ignored = child_mask("SigIgn");
    assert_eq!(ignored & bit(libc::SIGPIPE), 0, "SIGPIPE, which Rust ignores");
    assert_ne!(ignored & bit(libc::SIGHUP), 0, "nohup works through us");
}

#[watched_test]
fn our_own_signal_mask_is_unchanged() {
    let mask = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
    };
    let before = mask();
    Command::new("true").status().unwrap();
    Command::new("no-such-program").status().unwrap_err();
    assert_eq!(mask(), before);
}

#[watched_test]
fn a_child_that_writes_to_a_closed_pipe_dies_of_sigpipe() {
    let mut child = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGPIPE));
}

/// Runs `body` with 0, 1 and 2 closed, and puts them back for the test harness.
fn with_closed_stdio(body: impl FnOnce() -> Result<(), String>) {
    let save = |fd| {
        // SAFETY: this process runs nothing but this test, and all three are open again afterwards.
        unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 100) }
    };
    let saved: Vec<i32> = (0..3).map(save).collect();
    let before = count::handles_at_rest();
    for fd in 0..3 {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
    let result = body();
    // One of our threads may have a handle of these numbers for a moment longer.
    watchdog::until("every handle is closed", || count::handles() <= before - 3);
    for (fd, saved) in saved.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { libc::dup2(saved, fd as i32) };
    }
    assert_eq!(result, Ok(()));
}

#[isolated_test]
fn a_parent_with_closed_stdio_works() {
    with_closed_stdio(|| {
        let capture = puppet(["cat", "err=oops"])
            .stdin(Stdio::bytes("through"))
            .capture()
            .map_err(|error| error.to_string())?;
        let output = (capture.stdout.as_str(), capture.stderr.as_str());
        if output != ("through", "oops") {
            return Err(format!("{output:?}"));
        }
        let status = puppet(["exit=7"]).status().map_err(|error| error.to_string())?;
        if status.code() != Some(7) {
            return Err(status.to_string());
        }
        Ok(())
    });
}

#[isolated_test]
fn handles_numbered_0_to_2_can_be_given_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("in"), "input").unwrap();
    with_closed_stdio(|| {
        // Opened in this order they get 0, 1 and 2, and each is given another place.
        let out = std::fs::File::create(path("out")).unwrap();
        let err = std::fs::File::create(path("err")).unwrap();
        let input = std::fs::File::open(path("in")).unwrap();
        let numbers = [out.as_raw_fd(), err.as_raw_fd(), input.as_raw_fd()];
        if numbers != [0, 1, 2] {
            return Err(format!("{numbers:?}"));
        }
        let mut command = puppet(["cat", "err=oops"]);
        command.stdin(input).stdout(out).stderr(err);
        let status = command.status().map_err(|error| error.to_string())?;
        // Closes 0 to 2 again before they are put back.
        drop(command);
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(std::fs::read_to_string(path("out")).unwrap(), "input");
    assert_eq!(std::fs::read_to_string(path("err")).unwrap(), "oops");
}

#[watched_test]
fn inherited_handles_can_swap_numbers() {
    let dir = tempfile::tempdir().unwrap();
    // Two files at numbers of our choice, each to appear under the other's number.
    let place = |name: &str, number: i32| {
        let mut file = std::fs::File::create_new(dir.path().join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        // SAFETY: a number that was free, and is ours from here on.
        let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
        // SAFETY: just made.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let (a, b) = (place("a", 200), place("b", 300));
    let (at_a, at_b) = (a.as_raw_fd(), b.as_raw_fd());
    let mut command = Command::new("sh");
    command.args(["-c", &format!("readlink /proc/self/fd/{at_a} /proc/self/fd/{at_b}")]);
    // The shell's child has them too, because they are not close-on-exec there.
    let text = command.inherit_fd_as(a, at_b).inherit_fd_as(b, at_a).read().unwrap();
    let names: Vec<&str> = text.lines().map(|line| &line[line.len() - 1..]).collect();
    assert_eq!(names, ["b", "a"]);
}
