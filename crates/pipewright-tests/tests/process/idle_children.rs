//! A crowd of idle children takes no thread of the tasks that wait for them.

use std::time::Duration;

use pipewright::{CancelToken, Outcome};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, counted, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::async_verbs::{one_thread, until};
use super::puppet;

const MARK: &str = "PIPEWRIGHT_CROWD_TEST";

#[isolated_test(limit = Duration::from_secs(300))]
fn idle_children_take_no_thread() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "without pidfds a child takes a thread");
    }
    let crowd = pace::rounds(256, 48);
    let token = CancelToken::new();
    let idle = || {
        let token = token.clone();
        tokio::spawn(async move {
            let mut command = puppet(["wait=600"]);
            command.env(MARK, alive::mark("idle")).cancel(&token).capture_async().await
        })
    };
    let are_there = |count| move || alive::marked(MARK, "idle").len() == count;
    let with_one = one_thread().block_on(async {
        // On Windows there is one thread for the whole process, from the first child on.
        let first = idle();
        until(are_there(1)).await;
        let (threads, handles) = (count::threads(), count::handles());
        let mut captures: Vec<_> = (0..crowd).map(|_| idle()).collect();
        until(are_there(crowd + 1)).await;
        assert_eq!(count::threads(), threads);
        assert!(count::handles() > handles + crowd);
        counted(&format!("{crowd} idle children: {threads} threads, as with one"));
        #[cfg(feature = "peers")]
        a_peer_with_idle_children(if cfg!(windows) { crowd / 4 } else { crowd }).await;
        captures.push(first);
        token.cancel();
        for capture in captures {
            assert_eq!(capture.await.unwrap().unwrap().outcome, Outcome::Cancelled);
        }
        handles
    });
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() < with_one);
}

/// Prints the number of threads that tokio's own children take.
#[cfg(feature = "peers")]
async fn a_peer_with_idle_children(children: usize) {
    let before = count::threads();
    let program = env!("CARGO_BIN_EXE_puppet");
    let captures: Vec<_> = (0..children)
        .map(|_| {
            let mut command = tokio::process::Command::new(program);
            command.arg("wait=600").env(MARK, alive::mark("peer")).kill_on_drop(true);
            tokio::spawn(async move { command.output().await })
        })
        .collect();
    // A task that has started its child has begun to read too, in the same poll.
    until(|| alive::marked(MARK, "peer").len() == children).await;
    let taken = count::threads() - before;
    counted(&format!("{children} idle children of tokio::process: {taken} threads more"));
    captures.iter().for_each(|capture| capture.abort());
}
