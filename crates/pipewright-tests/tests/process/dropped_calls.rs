//! Async calls that are dropped at any await point: each kills or keeps its child, as documented, and nothing
//! is lost or left behind.

use std::collections::BTreeSet;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use pipewright::{AsyncRunner, CancelToken, Command, Event, Pipeline, Stdio, run_all};
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip::{Need, is_forced_off, is_wine, skipped};
use pipewright_tests::{alive, count, watchdog};

use super::async_verbs::one_thread;
use super::{flood, puppet};

const MARK: &str = "PIPEWRIGHT_CANCEL_TEST";
/// The number of polls that a call gets at most before it is dropped.
const POINTS: usize = 10;
const LONG: Duration = Duration::from_secs(600);

/// Drops a future after that many polls, each for a wake-up of its own, or once nothing happens for a while.
async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
    const A_WHILE: Duration = Duration::from_millis(30);
    let mut future = std::pin::pin!(future);
    let mut polls = 0;
    let counted = std::future::poll_fn(|cx| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(A_WHILE, counted).await.ok().flatten()
}

/// Drops a call at each of its await points.
async fn at_every_point<F: Future>(mut call: impl FnMut() -> F) {
    for times in 0..POINTS {
        poll_times(times, call()).await;
    }
}

/// Checks that no process and no handle of these calls is left.
fn leaves_nothing(calls: impl AsyncFn(&str)) {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let runtime = one_thread();
    let before = runtime.block_on(async {
        puppet(["exit=0"]).output_async().await.unwrap();
        count::handles()
    });
    runtime.block_on(calls("left"));
    watchdog::until("no process is left", || alive::marked(MARK, "left").is_empty());
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before);
}

fn marked(acts: &[&str], mark: &str) -> Command {
    puppet(acts).env(MARK, alive::mark(mark)).stderr(Stdio::null()).owned()
}

/// The acts of a puppet that writes much, has a child of its own, and does not exit.
const BUSY: [&str; 3] = ["out-bytes=200000", "spawn=wait=600", "wait=600"];

/// The verbs that a command and a pipeline have under the same names.
macro_rules! drop_every_verb {
    ($busy:ident) => {
        at_every_point(|| async { $busy().status_async().await.map(drop) }).await;
        at_every_point(|| async { $busy().output_async().await.map(drop) }).await;
        at_every_point(|| async { $busy().capture_async().await.map(drop) }).await;
        at_every_point(|| async { $busy().run_async().await }).await;
        at_every_point(|| async { $busy().read_async().await.map(drop) }).await;
    };
}

#[isolated_test(limit = Duration::from_secs(300))]
fn a_dropped_verb_kills_its_child() {
    leaves_nothing(async |mark| {
        let busy = || {
            let mut command = marked(&BUSY, mark);
            command.stdin(Stdio::bytes(flood(300_000))).stdout(Stdio::piped());
            command.owned()
        };
        drop_every_verb!(busy);
    });
}

#[isolated_test(limit = Duration::from_secs(300))]
fn a_pipeline_that_is_dropped_kills_every_stage() {
    leaves_nothing(async |mark| {
        let busy = || -> Pipeline<'static> {
            let mut last = marked(&["cat"], mark);
            last.stdout(Stdio::piped());
            marked(&BUSY, mark) | last
        };
        drop_every_verb!(busy);
    });
}

#[isolated_test(limit = Duration::from_secs(300))]
fn dropping_many_commands_kills_all() {
    if is_wine() {
        return skipped(
            Need::Windows,
            "Wine 8's own server crashes in most runs of it, see ci/under-wine.sh",
        );
    }
    leaves_nothing(async |mark| {
        let token = CancelToken::new();
        let busy = || {
            let commands = [marked(&BUSY, mark), marked(&["exit=0"], mark), marked(&BUSY, mark)];
            run_all(commands).concurrency(2).cancel(&token)
        };
        at_every_point(|| async { busy().captures_async().await.len() }).await;
        at_every_point(|| async { busy().as_they_end_async().next().await.is_some() }).await;
        let runner = || {
            let mut runner = AsyncRunner::new(2).with_cancel(&token);
            runner.push(0, marked(&BUSY, mark) | marked(&BUSY, mark));
            runner.push(1, marked(&BUSY, mark));
            runner
        };
        at_every_point(|| async { runner().next().await.is_some() }).await;
    });
}

#[isolated_test(limit = Duration::from_secs(300))]
fn a_dropped_wait_keeps_the_child() {
    leaves_nothing(async |mark| {
        let token = CancelToken::new();
        let idle = || marked(&["wait=600"], mark);
        let process = idle().start().unwrap();
        at_every_point(|| process.wait_async()).await;
        at_every_point(|| process.try_wait_for_async(LONG)).await;
        at_every_point(|| process.wait_or_kill_on_timeout_async(LONG)).await;
        at_every_point(|| process.wait_or_kill_on_cancel_async(&token)).await;
        assert_eq!(process.try_wait().unwrap(), None);
        // A dropped call does not undo a kill that it has sent.
        poll_times(1, process.wait_or_kill_on_timeout_async(Duration::ZERO)).await;
        process.wait_async().await.unwrap();

        let child = idle().timeout(LONG).spawn().unwrap();
        at_every_point(|| child.wait_async()).await;
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        assert!(!child.wait_async().await.unwrap().success());

        let mut pipeline = idle() | idle();
        let child = pipeline.timeout(LONG).spawn().unwrap();
        at_every_point(|| child.wait_async()).await;
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        assert!(!child.wait_async().await.unwrap().success());
    });
}

/// The child continues, as every dropped child without `kill_on_drop`.
#[isolated_test(limit = Duration::from_secs(300))]
fn a_dropped_read_all_drops_its_child() {
    leaves_nothing(async |mark| {
        let writer = || {
            let mut command = marked(&["out=text", "wait=600"], mark);
            command.stdout(Stdio::piped()).kill_on_drop();
            command.spawn().unwrap()
        };
        at_every_point(|| writer().read_all_bytes_async()).await;
        at_every_point(|| writer().read_all_text_async()).await;
        at_every_point(|| writer().wait_with_output_async()).await;
        let piped = || {
            let mut last = marked(&["cat"], mark);
            last.stdout(Stdio::piped()).kill_on_drop();
            (marked(&BUSY, mark) | last).spawn().unwrap()
        };
        at_every_point(|| piped().wait_with_output_async()).await;
        watchdog::until("they are killed", || alive::marked(MARK, mark).is_empty());
        // It writes nothing: its first write may come after the drop, and its pipe has no reader then.
        let child = marked(&["wait=600"], mark).stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        poll_times(POINTS, child.read_all_bytes_async()).await;
        assert!(alive::is_running(pid));
        alive::kill(pid);
    });
}

#[isolated_test(limit = Duration::from_secs(300))]
fn a_dropped_next_loses_nothing() {
    leaves_nothing(async |mark| {
        const LINES: usize = 500;
        let acts = ["lines=250", "wait=0.05", "lines=250", "exit=3"];
        let mut lines = marked(&acts, mark).lines_async().unwrap();
        let mut seen = 0;
        for times in (0..POINTS).cycle() {
            let line = match poll_times(times, lines.next()).await {
                // Dropped: nothing is lost.
                None if times < POINTS - 1 => continue,
                None => lines.next().await,
                Some(line) => line,
            };
            let Some(line) = line else { break };
            assert_eq!(line.unwrap().text, format!("line {}", seen % (LINES / 2)));
            seen += 1;
        }
        assert_eq!(seen, LINES);
        assert_eq!(lines.finish().await.unwrap().status.code(), Some(3));

        let acts = ["out-bytes=300000", "wait=0.05", "out-bytes=300000"];
        let mut events = marked(&acts, mark).events_async().unwrap();
        let (mut bytes, mut ended) = (Vec::new(), false);
        while !ended {
            for times in 0..POINTS {
                match poll_times(times, events.next()).await.flatten() {
                    Some(Ok(Event::Stdout(chunk))) => bytes.extend(chunk),
                    Some(Ok(Event::Exited(ending))) => ended = ending.status.success(),
                    Some(Err(error)) => panic!("{error}"),
                    _ => {}
                }
            }
        }
        assert!(bytes == [flood(300_000), flood(300_000)].concat());

        let commands = (0..5).map(|code| marked(&[&format!("exit={code}")], mark));
        let mut ends = run_all(commands).concurrency(2).as_they_end_async();
        let mut codes = BTreeSet::new();
        while codes.len() < 5 {
            for times in 0..POINTS {
                if let Some(Some((_, end))) = poll_times(times, ends.next()).await {
                    codes.insert(end.unwrap().status.code());
                }
            }
        }
        assert!(ends.next().await.is_none());
    });
}

/// A dropped `finish` counts as a dropped run.
#[isolated_test(limit = Duration::from_secs(300))]
fn a_dropped_finish_ends_its_run() {
    leaves_nothing(async |mark| {
        // They exit once their pipe has no reader.
        let endless = || marked(&["lines=100000000"], mark);
        at_every_point(|| endless().lines_async().unwrap().finish()).await;
        at_every_point(|| endless().events_async().unwrap().finish()).await;
        let spawn = || endless().stdout(Stdio::piped()).spawn().unwrap();
        at_every_point(|| spawn().read_all_lines_async().unwrap().finish()).await;
    });
}
