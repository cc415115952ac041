//! Async verbs that are polled outside of a tokio runtime: each is an error, and nothing is started, killed or
//! lost.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pipewright::{CancelToken, Command, Error, ErrorKind, Event, ProcessHandle, Stdio, run_all};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, watchdog};

use super::async_verbs::one_thread;
use super::puppet;

const MARK: &str = "PIPEWRIGHT_NO_RUNTIME_TEST";
const LONG: Duration = Duration::from_secs(600);

/// Polls a future once, outside of any runtime.
#[track_caller]
fn outside<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits for a runtime that is not there"),
    }
}

#[track_caller]
fn refused<T>(result: Result<T, Error>) {
    let Err(error) = result else { panic!("it works without a runtime") };
    assert_eq!(error.kind(), &ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().ends_with("there is no tokio runtime here"), "{error}");
}

#[isolated_test]
fn a_verb_without_a_runtime_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let touch = || puppet([format!("touch={}", ran.display())]);
    refused(outside(touch().status_async()));
    refused(outside(touch().output_async()));
    refused(outside(touch().capture_async()));
    refused(outside(touch().run_async()));
    refused(outside(touch().read_async()));
    let both = || touch() | touch();
    refused(outside(both().status_async()));
    refused(outside(both().output_async()));
    refused(outside(both().capture_async()));
    refused(outside(both().run_async()));
    refused(outside(both().read_async()));
    for capture in outside(run_all([touch(), touch()]).captures_async()) {
        refused(capture);
    }
    // If one had run, its drop would have waited for it.
    watchdog::until("no process is left", || count::children().is_empty());
    assert!(!ran.exists(), "something was started");
}

#[watched_test]
fn a_single_use_input_is_not_consumed() {
    let mut command = puppet(["cat"]);
    command.stdin(Stdio::reader(std::io::Cursor::new("kept")));
    refused(outside(command.read_async()));
    assert_eq!(one_thread().block_on(command.read_async()).unwrap(), "kept");
}

#[watched_test]
fn a_wait_leaves_the_child_running_and_the_handle_usable() {
    let runtime = one_thread();
    let mut command = puppet(["cat", "wait=600"]);
    let child = command.stdin(Stdio::piped()).timeout(LONG).spawn().unwrap();
    refused(outside(child.wait_async()));
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(alive::is_running(child.id()));
    // Its input is still open, too.
    std::io::Write::write_all(&mut child.stdin.as_ref().unwrap(), b"x").unwrap();
    child.kill().unwrap();
    assert!(!runtime.block_on(child.wait_async()).unwrap().success());

    let pipeline = (puppet(["wait=600"]) | puppet(["wait=600"])).timeout(LONG).spawn().unwrap();
    refused(outside(pipeline.wait_async()));
    assert_eq!(pipeline.try_wait().unwrap(), None);
    assert!(pipeline.ids().into_iter().all(alive::is_running));
    pipeline.kill().unwrap();
    assert!(!runtime.block_on(pipeline.wait_async()).unwrap().success());
}

#[watched_test]
fn a_process_handle_stays_usable() {
    let token = CancelToken::new();
    let process = puppet(["wait=600"]).start().unwrap();
    let opened = ProcessHandle::open(process.pid());
    for process in [Some(&process), opened.as_ref().ok()].into_iter().flatten() {
        refused(outside(process.wait_async()));
        refused(outside(process.try_wait_for_async(Duration::ZERO)));
        refused(outside(process.wait_or_kill_on_timeout_async(Duration::ZERO)));
        refused(outside(process.wait_or_kill_on_cancel_async(&token)));
        assert_eq!(process.try_wait().unwrap(), None);
    }
    token.cancel();
    refused(outside(process.wait_or_kill_on_cancel_async(&token)));
    assert!(alive::is_running(process.pid()));
    process.kill().unwrap();
    one_thread().block_on(process.wait_async()).unwrap();
    // Also if it has exited: a wait for the status of another process's child needs a timer.
    refused(outside(process.wait_async()));
}

#[watched_test]
fn a_child_that_is_read_is_dropped_and_not_killed() {
    let spawn = || puppet(["wait=600"]).stdout(Stdio::piped()).spawn().unwrap();
    let goes_on = |pid: u32| {
        assert!(alive::is_running(pid));
        alive::kill(pid);
    };
    let child = spawn();
    let pid = child.id();
    refused(outside(child.read_all_bytes_async()));
    goes_on(pid);
    let child = spawn();
    let pid = child.id();
    refused(outside(child.read_all_text_async()));
    goes_on(pid);
    let child = spawn();
    let pid = child.id();
    refused(outside(child.wait_with_output_async()));
    goes_on(pid);
    let mut last = puppet(["wait=600"]);
    last.stdout(Stdio::piped());
    let pipeline = (puppet(["wait=600"]) | last).spawn().unwrap();
    let pids = pipeline.ids();
    refused(outside(pipeline.wait_with_output_async()));
    pids.into_iter().for_each(goes_on);
}

#[watched_test]
fn lines_and_events_continue_in_a_runtime() {
    let runtime = one_thread();
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let waits = || puppet([format!("wait-for-file={}", go.display()), "out=said\n".to_owned()]);
    let mut lines = waits().lines_async().unwrap();
    let mut events = waits().events_async().unwrap();
    let spawned = waits().stdout(Stdio::piped()).spawn().unwrap();
    let mut of_child = spawned.read_all_lines_async().unwrap();
    let mut ends = run_all([waits()]).as_they_end_async();
    assert!(matches!(outside(events.next()), Some(Ok(Event::Started(_)))));
    for _ in 0..2 {
        refused(outside(lines.next()).unwrap());
        refused(outside(of_child.next()).unwrap());
        refused(outside(events.next()).unwrap());
    }
    // It began in a runtime, so its child runs and must not be touched.
    runtime.block_on(async { assert!(super::async_pipes::poll_once(ends.next()).is_pending()) });
    let (index, end) = outside(ends.next()).unwrap();
    assert_eq!(index, 0);
    refused(end);
    std::fs::write(&go, b"").unwrap();
    runtime.block_on(async {
        assert_eq!(lines.next().await.unwrap().unwrap().text, "said");
        assert_eq!(of_child.next().await.unwrap().unwrap().text, "said");
        assert!(matches!(events.next().await, Some(Ok(Event::Stdout(_)))));
        let (index, end) = ends.next().await.unwrap();
        assert_eq!((index, end.unwrap().stdout.as_str()), (0, "said\n"));
        assert!(ends.next().await.is_none());
        assert!(lines.finish().await.unwrap().success());
        assert!(events.finish().await.unwrap().success());
        assert!(of_child.finish().await.unwrap().success());
    });
}

#[watched_test]
fn a_finish_drops_and_does_not_kill() {
    let lines = puppet(["wait=600"]).lines_async().unwrap();
    let events = puppet(["wait=600"]).events_async().unwrap();
    let pids = [lines.pid(), events.pid()];
    refused(outside(lines.finish()));
    refused(outside(events.finish()));
    for pid in pids {
        assert!(alive::is_running(pid));
        alive::kill(pid);
    }
}

#[watched_test]
fn a_future_polled_outside_its_runtime_is_an_error_and_keeps_the_child() {
    let child = puppet(["wait=600"]).env(MARK, alive::mark("moved")).spawn().unwrap();
    let mut wait = Box::pin(child.wait_async());
    let runtime = one_thread();
    runtime.block_on(async { assert!(super::async_pipes::poll_once(wait.as_mut()).is_pending()) });
    refused(outside(wait));
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
    // A call that has started its child kills it, because no one else has a handle.
    let mut command: Command = puppet(["wait=600"]);
    command.env(MARK, alive::mark("moved"));
    let mut status = Box::pin(command.status_async());
    runtime
        .block_on(async { assert!(super::async_pipes::poll_once(status.as_mut()).is_pending()) });
    refused(outside(status));
    watchdog::until("it is killed", || alive::marked(MARK, "moved").is_empty());
}
