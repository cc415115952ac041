//! The async runner: it behaves as the sync one.

use std::time::Duration;

use pipewright::{AsyncRunner, CancelToken, Command, ErrorKind, Outcome, Runner};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::async_verbs::one_thread;
use super::puppet;

const MARK: &str = "PIPEWRIGHT_ASYNC_RUNNER_TEST";
const IDLE: [&str; 1] = ["wait=600"];

fn a_while() -> Duration {
    pace::millis(50)
}

fn marked(mark: &str) -> Command {
    puppet(IDLE).env(MARK, alive::mark(mark)).owned()
}

#[watched_test]
fn async_runner_takes_retries_and_pipelines_in_its_loop() {
    one_thread().block_on(async {
        let attempt = |number: i32| puppet([format!("exit={}", 3 - number)]) | puppet(["cat"]);
        let mut runner = AsyncRunner::new(2);
        runner.push(1, attempt(1));
        let mut codes = Vec::new();
        while let Some((number, result)) = runner.next().await {
            let capture = result.unwrap();
            codes.push(capture.status.code());
            if !capture.success() {
                runner.push(number + 1, attempt(number + 1));
            }
        }
        assert_eq!(codes, [Some(2), Some(1), Some(0)]);
        runner.push(9, puppet(["exit=0"]));
        assert_eq!(runner.next().await.unwrap().0, 9);
        assert!(runner.next().await.is_none() && runner.is_empty());
    });
}

#[watched_test]
fn a_dropped_next_of_an_async_runner_loses_nothing() {
    one_thread().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let go = dir.path().join("go");
        let mut runner = AsyncRunner::new(2);
        for number in 0..3 {
            runner.push(number, puppet([format!("wait-for-file={}", go.display())]));
        }
        for _ in 0..3 {
            assert!(tokio::time::timeout(a_while(), runner.next()).await.is_err());
        }
        assert_eq!((runner.len(), runner.running(), runner.queued()), (3, 2, 1));
        std::fs::write(&go, b"").unwrap();
        let mut keys = Vec::new();
        while keys.len() < 3 {
            if let Ok(end) = tokio::time::timeout(a_while(), runner.next()).await {
                let (key, result) = end.unwrap();
                assert!(result.unwrap().success());
                keys.push(key);
            }
        }
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2]);
    });
}

#[watched_test]
fn async_cancel_by_key_stops_one_and_never_starts_another() {
    one_thread().block_on(async {
        let mut runner = AsyncRunner::new(1);
        runner.push("runs", marked("key"));
        runner.push("waits", marked("key"));
        assert!(tokio::time::timeout(a_while(), runner.next()).await.is_err());
        assert!(runner.cancel(&"waits") && runner.cancel(&"runs"));
        let (key, result) = runner.next().await.unwrap();
        assert_eq!((key, result.unwrap_err().kind()), ("waits", &ErrorKind::Cancelled));
        let (key, result) = runner.next().await.unwrap();
        assert_eq!((key, result.unwrap().outcome), ("runs", Outcome::Cancelled));
        assert!(runner.next().await.is_none());
        assert!(alive::marked(MARK, "key").is_empty());
    });
}

#[watched_test]
fn a_token_wakes_an_async_runner_and_a_drain_starts_no_more() {
    one_thread().block_on(async {
        let (token, drain) = (CancelToken::new(), CancelToken::new());
        let mut runner = AsyncRunner::new(2).with_cancel(&token).with_drain(&drain);
        for number in 0..4 {
            runner.push(number, puppet(IDLE));
        }
        assert!(tokio::time::timeout(a_while(), runner.next()).await.is_err());
        assert_eq!(runner.running(), 2);
        drain.cancel();
        for number in [2, 3] {
            let (key, result) = runner.next().await.unwrap();
            assert_eq!((key, result.unwrap_err().kind()), (number, &ErrorKind::Cancelled));
        }
        let canceller = std::thread::spawn(move || token.cancel());
        for _ in 0..2 {
            assert_eq!(runner.next().await.unwrap().1.unwrap().outcome, Outcome::Cancelled);
        }
        assert!(runner.next().await.is_none());
        canceller.join().unwrap();
    });
}

#[isolated_test]
fn a_dropped_async_runner_leaves_no_process() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let runtime = one_thread();
    runtime.block_on(async {
        let mut runner = AsyncRunner::new(3);
        runner.push(0, marked("drop"));
        runner.push(1, marked("drop") | marked("drop"));
        assert!(tokio::time::timeout(a_while(), runner.next()).await.is_err());
        drop(runner);
        watchdog::until("no process is left", || alive::marked(MARK, "drop").is_empty());
    });
    drop(runtime);
    watchdog::until("every child is reaped", || count::children().is_empty());
}

#[watched_test]
fn runners_can_be_sent_to_other_threads_and_tasks() {
    fn is_sent<T: Send + Unpin>() {}
    is_sent::<Runner<String>>();
    is_sent::<AsyncRunner<String>>();
    fn future_is_sent<F: Future + Send>(_: F) {}
    future_is_sent(async { AsyncRunner::<u8>::new(1).next().await.is_none() });
}
