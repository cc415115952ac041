//! Consoles for children on Windows. Under Wine no byte passes through them: these are the start, the end and the stop.

use pipewright::{Linger, Outcome, PtySize};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, watchdog};

use super::{puppet, short};

const SIZE: PtySize = PtySize { rows: 30, cols: 100 };

#[watched_test]
fn the_output_ends_after_the_child() {
    // Waits for the end itself: Wine's console takes longer to close than the usual rule waits.
    let mut command = puppet(["exit=7"]);
    let capture = command.pty(SIZE).linger(Linger::UntilEof).capture().unwrap();
    assert_eq!((capture.status.code(), capture.held_open), (Some(7), false));
}

#[watched_test]
fn a_timeout_ends_a_child_on_a_console() {
    let capture = puppet(["wait=600"]).pty(SIZE).timeout(short()).capture().unwrap();
    assert_eq!((&capture.outcome, capture.held_open), (&Outcome::TimedOut, false));
    assert!(!alive::is_running(capture.pid));
}

#[watched_test]
fn a_spawned_child_has_its_console() {
    let child = puppet(["exit=3"]).pty(SIZE).spawn().unwrap();
    assert_eq!(child.pty().unwrap().window_size().unwrap(), SIZE);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let child = puppet(["exit=4"]).pty(SIZE).spawn().unwrap();
    assert_eq!(child.read_all_bytes().unwrap().status.code(), Some(4));
}

#[isolated_test]
fn a_console_leaves_no_handle() {
    let one = || {
        assert!(puppet(["exit=0"]).pty(SIZE).capture().unwrap().success());
        assert!(puppet(["exit=0"]).pty(SIZE).spawn().unwrap().wait().unwrap().success());
    };
    one();
    let before = count::handles_at_rest();
    for _ in 0..5 {
        one();
    }
    // Consoles are closed in the background.
    watchdog::until("all handles are closed", || count::handles_at_rest() <= before);
}
