//! Runners: commands that are pushed while others run; the same in a task, and many commands at once.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{
    AsyncRunner, CancelToken, Capture, Command, Error, ErrorKind, Next, Outcome, Runner, Signal,
    Stdio, run_all,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_async, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use crate::async_verbs::one_thread;
use crate::{alternating, ended_by, flood, puppet, short};

const MARK: &str = "PIPEWRIGHT_RUNNER_TEST";
const IDLE: [&str; 1] = ["wait=600"];

fn marked(acts: &[&str], mark: &str) -> Command {
    puppet(acts).env(MARK, alive::mark(mark)).owned()
}

/// Returns a command that creates the file `NAME.started`, and exits when the file `NAME` exists.
pub(super) fn until_file(dir: &Path, name: &str) -> Command {
    let path = |name: &str| dir.join(name).display().to_string();
    let touch = format!("touch={}", path(&format!("{name}.started")));
    puppet([touch, format!("wait-for-file={}", path(name))])
}

fn is_cancelled(result: &Result<Capture, Error>) -> bool {
    matches!(result, Err(error) if error.kind() == &ErrorKind::Cancelled)
}

fn was_stopped(result: Result<Capture, Error>) {
    let capture = result.unwrap();
    assert_eq!(capture.outcome, Outcome::Cancelled);
    ended_by(capture.status, Signal::TERM);
}

#[watched_test]
fn a_command_with_a_delay_starts_after_it_and_others_meanwhile() {
    let mut runner = Runner::new(1);
    runner.push_after(Duration::MAX, "never", puppet(["out=x"]));
    runner.push("now", puppet(["out=x"]));
    assert_eq!((runner.len(), runner.queued()), (2, 2));
    // It is something to wait for, and nothing is late: a wait with a limit is pending.
    assert_eq!(runner.next().map(|(key, _)| key), Some("now"));
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    let (begin, delay) = (Instant::now(), Duration::from_millis(50));
    runner.push_after(delay, "later", puppet(["out=x"]));
    assert_eq!(runner.next().map(|(key, _)| key), Some("later"));
    assert!(begin.elapsed() >= delay);
    assert!(runner.cancel(&"never"));
    assert_eq!(runner.next().map(|(key, _)| key), Some("never"));
    assert!(runner.next().is_none());
}

#[watched_test]
fn a_delay_ends_with_a_cancel_or_a_drain() {
    let century = Duration::MAX;
    let mut runner = Runner::new(1);
    runner.push_after(century, "one", puppet(["out=x"]));
    runner.push_after(century, "other", puppet(["out=x"]));
    assert!(runner.cancel(&"one") && !runner.cancel(&"nobody"));
    let (key, result) = runner.next().unwrap();
    assert!(key == "one" && is_cancelled(&result));
    runner.cancel_queued();
    assert!(runner.next().is_some_and(|(key, result)| key == "other" && is_cancelled(&result)));

    let drain = CancelToken::new();
    let mut runner = runner.with_drain(&drain);
    runner.push_after(century, "drained", puppet(["out=x"]));
    drain.cancel();
    assert!(runner.next().is_some_and(|(_, result)| is_cancelled(&result)));
}

#[watched_test]
fn a_delay_that_is_over_while_the_runner_is_full_waits_for_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = Runner::new(1);
    runner.push("first", until_file(dir.path(), "go"));
    runner.next_within(Duration::ZERO);
    runner.push_after(Duration::ZERO, "second", puppet(["out=x"]));
    assert!(matches!(runner.next_within(Duration::from_millis(20)), Next::Pending));
    std::fs::write(dir.path().join("go"), "").unwrap();
    let keys: Vec<_> = runner.map(|(key, _)| key).collect();
    assert_eq!(keys, ["first", "second"]);
}

#[watched_test]
fn a_task_waits_for_a_delay() {
    one_thread().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut runner = AsyncRunner::new(2);
        let begin = Instant::now();
        runner.push_after(Duration::from_millis(50), "later", until_file(dir.path(), "go"));
        runner.push("now", puppet(["out=x"]));
        assert_eq!(runner.next().await.map(|(key, _)| key), Some("now"));
        std::fs::write(dir.path().join("go"), "").unwrap();
        assert_eq!(runner.next().await.map(|(key, _)| key), Some("later"));
        assert!(begin.elapsed() >= Duration::from_millis(50));
        assert!(runner.next().await.is_none());
    });
}

#[watched_test]
fn runner_takes_a_retry_in_its_loop() {
    let attempt = |number: i32| puppet([format!("exit={}", 3 - number)]);
    let mut runner = Runner::new(1);
    runner.push(1, attempt(1));
    let mut codes = Vec::new();
    while let Some((number, result)) = runner.next() {
        let capture = result.unwrap();
        codes.push(capture.status.code());
        if !capture.success() {
            runner.push(number + 1, attempt(number + 1));
        }
    }
    assert_eq!(codes, [Some(2), Some(1), Some(0)]);
    assert!(runner.is_empty());

    // The iteration has ended, and continues with the next push.
    runner.push(9, attempt(3));
    assert_eq!(runner.next().unwrap().0, 9);
    assert!(runner.next().is_none());
}

#[watched_test]
fn runner_starts_dependents_when_what_they_need_has_ended() {
    let needs: [(&str, &[&str]); 4] =
        [("a", &[]), ("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])];
    let mut runner = Runner::new(4);
    let (mut done, mut pushed) = (Vec::new(), Vec::new());
    loop {
        for (name, needs) in needs {
            if !pushed.contains(&name) && needs.iter().all(|need| done.contains(need)) {
                pushed.push(name);
                runner.push(name, puppet([format!("out={name}")]));
            }
        }
        let Some((name, result)) = runner.next() else { break };
        assert_eq!(result.unwrap().stdout, name);
        done.push(name);
    }
    assert_eq!((done.len(), done[0], done[3]), (4, "a", "d"));
}

#[watched_test]
fn runner_counts_what_is_queued_and_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let started = |name: &str| dir.path().join(format!("{name}.started")).exists();
    let mut runner = Runner::new(2);
    for name in ["0", "1", "2", "3"] {
        runner.push(name, until_file(dir.path(), name));
    }
    let counts = |runner: &Runner<_>| (runner.len(), runner.running(), runner.queued());
    assert_eq!(counts(&runner), (4, 0, 4), "nothing is started by a push");
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    assert_eq!(counts(&runner), (4, 2, 2));
    watchdog::until("two have started", || started("0") && started("1"));

    // From here on three run at once, and then one.
    runner.set_concurrency(3);
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    assert_eq!(counts(&runner), (4, 3, 1));
    runner.set_concurrency(0);
    std::fs::write(dir.path().join("0"), b"").unwrap();
    assert_eq!(runner.next().unwrap().0, "0");
    assert_eq!(counts(&runner), (3, 2, 1), "more than one run already");
    for name in ["1", "2", "3"] {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    assert_eq!(runner.by_ref().count(), 3);
    assert_eq!(counts(&runner), (0, 0, 0));
}

/// An item that can be reduced to its key.
trait Keyed<K> {
    fn map_to(self) -> Next<K>;
}

impl<K> Keyed<K> for Next<(K, Result<Capture, Error>)> {
    fn map_to(self) -> Next<K> {
        match self {
            Next::Item((key, _)) => Next::Item(key),
            Next::Pending => Next::Pending,
            Next::Done => Next::Done,
        }
    }
}

#[watched_test]
fn next_within_waits_for_its_limit_and_not_for_the_child() {
    let mut runner = Runner::new(1);
    assert_eq!(runner.next_within(short()).map_to(), Next::Done);
    runner.push('x', puppet(IDLE));
    let start = Instant::now();
    assert_eq!(runner.next_within(short()).map_to(), Next::Pending);
    assert!(start.elapsed() >= short());
    runner.cancel_all();
    assert_eq!(runner.next_within(Duration::MAX).map_to(), Next::Item('x'));
    assert_eq!(runner.next_within(Duration::MAX).map_to(), Next::Done);
}

#[watched_test]
fn next_within_zero_still_reads_what_a_child_writes() {
    let mut runner = Runner::new(1);
    runner.push((), puppet(["out-bytes=3000000"]));
    // It could not exit if nothing was read.
    let capture = loop {
        match runner.next_within(Duration::ZERO) {
            Next::Item(((), result)) => break result.unwrap(),
            Next::Pending => {}
            Next::Done => panic!("it has not been returned"),
        }
    };
    assert!(capture.stdout == String::from_utf8_lossy(&flood(3_000_000)));
}

#[watched_test]
fn cancel_by_key_stops_one_that_runs_and_never_starts_one_that_is_queued() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = Runner::new(2);
    for name in ["stopped", "goes on", "queued"] {
        runner.push(name, until_file(dir.path(), name));
    }
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    let started = |name: &str| dir.path().join(format!("{name}.started")).exists();
    watchdog::until("both have started", || started("stopped") && started("goes on"));

    assert!(runner.cancel(&"queued") && runner.cancel(&"stopped"));
    assert!(!runner.cancel(&"unknown"));
    assert!(!runner.cancel(&"queued"), "it is over, and its result waits");
    assert_eq!((runner.len(), runner.queued()), (3, 0));
    let (key, result) = runner.next().unwrap();
    assert!(key == "queued" && is_cancelled(&result));
    let error = result.unwrap_err().to_string();
    assert!(error.ends_with(": cancelled before it started"), "{error}");
    assert!(!started("queued"));
    let (key, result) = runner.next().unwrap();
    assert_eq!(key, "stopped");
    was_stopped(result);

    std::fs::write(dir.path().join("goes on"), b"").unwrap();
    let (key, result) = runner.next().unwrap();
    assert!(key == "goes on" && result.unwrap().success());
    assert!(!runner.cancel(&"goes on") && runner.next().is_none());
}

#[watched_test]
fn a_cancel_applies_to_all_commands_of_a_key() {
    let mut runner = Runner::new(1);
    for key in ["same", "other", "same"] {
        runner.push(key, puppet(if key == "same" { ["wait=600"] } else { ["exit=0"] }));
    }
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    assert!(runner.cancel(&"same"));
    let mut ends: Vec<_> = runner.by_ref().map(|(key, result)| (key, result.is_ok())).collect();
    ends.sort();
    assert_eq!(ends, [("other", true), ("same", false), ("same", true)]);
}

#[watched_test]
fn a_key_needs_no_traits() {
    struct Plain(u8);
    let mut runner = Runner::new(1);
    runner.push(Plain(7), puppet(["exit=0"]));
    assert_eq!(runner.next().unwrap().0.0, 7);
}

#[watched_test]
fn cancel_all_does_not_cancel_later_pushes() {
    let mut runner = Runner::new(1);
    runner.push(0, puppet(IDLE));
    runner.push(1, puppet(IDLE));
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    runner.cancel_all();
    runner.push(2, puppet(["exit=0"]));
    for _ in 0..3 {
        let (key, result) = runner.next().unwrap();
        match key {
            0 => was_stopped(result),
            1 => assert!(is_cancelled(&result)),
            _ => assert!(result.unwrap().success()),
        }
    }
}

#[watched_test]
fn cancel_queued_keeps_running_commands() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = Runner::new(1);
    runner.push("runs", until_file(dir.path(), "runs"));
    runner.push("waits", puppet(IDLE));
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    runner.cancel_queued();
    let (key, result) = runner.next().unwrap();
    assert!(key == "waits" && is_cancelled(&result));
    std::fs::write(dir.path().join("runs"), b"").unwrap();
    assert!(runner.next().unwrap().1.unwrap().success());
}

#[watched_test]
fn a_token_stops_running_commands_and_returns_every_key() {
    let token = CancelToken::new();
    let mut runner = Runner::new(2).with_cancel(&token);
    for number in 0..5 {
        runner.push(number, marked(&IDLE, "token"));
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("two run", || alive::marked(MARK, "token").len() == 2);
            token.cancel();
        });
        let ends: Vec<_> = runner.by_ref().collect();
        assert_eq!(ends.len(), 5);
        for (number, result) in ends {
            if number < 2 { was_stopped(result) } else { assert!(is_cancelled(&result)) }
        }
    });
    // Cancelled stays cancelled.
    runner.push(5, puppet(["exit=0"]));
    assert!(is_cancelled(&runner.next().unwrap().1));
}

#[watched_test]
fn a_drain_starts_no_more_and_keeps_running_commands() {
    let dir = tempfile::tempdir().unwrap();
    let drain = CancelToken::new();
    let mut runner = Runner::new(1).with_drain(&drain);
    runner.push("runs", until_file(dir.path(), "runs"));
    runner.push("waits", puppet(IDLE));
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    drain.cancel();
    std::fs::write(dir.path().join("runs"), b"").unwrap();
    runner.push("late", puppet(IDLE));
    let ends: Vec<_> = runner.map(|(key, result)| (key, is_cancelled(&result))).collect();
    assert_eq!(ends.iter().filter(|end| **end == ("runs", false)).count(), 1);
    assert_eq!(ends.iter().filter(|(_, is_cancelled)| *is_cancelled).count(), 2);
}

#[watched_test]
fn a_start_error_comes_back_with_its_key() {
    let mut runner = Runner::new(2);
    runner.push("missing", Command::new("no-such-program"));
    runner.push("there", puppet(["exit=0"]));
    let mut ends: Vec<_> = runner.map(|(key, result)| (key, result.is_ok())).collect();
    ends.sort();
    assert_eq!(ends, [("missing", false), ("there", true)]);
}

#[watched_test]
fn a_pipeline_counts_as_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    // None of the first three ends while the others are started.
    let wait = &*format!("wait-for-file={}", go.display());
    let mut runner = Runner::new(3);
    runner.push("sum", puppet([wait, "out=b\na\n", "err=oh"]) | puppet(["sort"]));
    runner.push("fails", puppet([wait, "exit=3"]) | puppet(["cat"]));
    runner.push("quiet", (puppet([wait, "exit=3"]) | puppet(["cat"])).pipefail(false).owned());
    runner.push("late", (puppet(IDLE) | puppet(["cat"])).timeout(short()).owned());
    runner.push("missing", puppet(IDLE) | Command::new("no-such-program"));
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    assert_eq!(runner.running(), 3);
    std::fs::write(&go, b"").unwrap();
    for (key, result) in runner {
        match key {
            "sum" => {
                let capture = result.unwrap();
                assert_eq!((capture.stdout.as_str(), capture.stderr.as_str()), ("a\nb\n", "oh"));
            }
            "fails" => assert_eq!(result.unwrap().status.code(), Some(3)),
            "quiet" => assert!(result.unwrap().success()),
            "late" => assert_eq!(result.unwrap().outcome, Outcome::TimedOut),
            _ => assert_eq!(result.unwrap_err().program(), "no-such-program"),
        }
    }
}

#[watched_test]
fn a_cancel_reaches_every_stage_of_a_pipeline() {
    let mut runner = Runner::new(1);
    runner.push(0, marked(&IDLE, "stages") | marked(&IDLE, "stages"));
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    watchdog::until("both run", || alive::marked(MARK, "stages").len() == 2);
    runner.cancel(&0);
    was_stopped(runner.next().unwrap().1);
    assert!(alive::marked(MARK, "stages").is_empty());
}

#[watched_test]
fn run_all_takes_pipelines_too() {
    let pipelines =
        (0..3).map(|at| puppet([format!("out={at}"), "exit=0".into()]) | puppet(["cat"]));
    let captures = run_all(pipelines).concurrency(2).captures();
    let texts: Vec<_> = captures.into_iter().map(|capture| capture.unwrap().stdout).collect();
    assert_eq!(texts, ["0", "1", "2"]);
}

#[isolated_test]
fn a_dropped_runner_leaves_no_process() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let before = count::handles();
    let token = CancelToken::new();
    let mut runner = Runner::new(4).with_cancel(&token);
    for number in 0..6 {
        runner.push(number, marked(&["spawn=wait=600", "wait=600"], "drop"));
    }
    runner.push(6, marked(&IDLE, "drop") | marked(&IDLE, "drop"));
    runner.cancel(&0);
    assert_eq!(runner.next().unwrap().0, 0);
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    drop((runner, token));
    watchdog::until("no process is left", || alive::marked(MARK, "drop").is_empty());
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before + 1);
}

#[watched_test]
fn a_waker_ends_the_wait_once_and_a_result_comes_first() {
    let mut runner = Runner::new(2);
    runner.push("slow", puppet(["wait=600"]));
    let waker = runner.waker().unwrap();
    // Before the wait, and twice: one wait returns.
    waker.wake();
    waker.wake();
    assert!(matches!(runner.next_within(pace::seconds(600)), Next::Pending));
    let other = waker.clone();
    let thread = std::thread::spawn(move || other.wake());
    assert!(matches!(runner.next_within(pace::seconds(600)), Next::Pending));
    thread.join().unwrap();
    runner.push("quick", puppet(["exit=3"]));
    let end = std::iter::repeat_with(|| runner.next_within(pace::seconds(600)));
    let mut items = end.filter_map(Next::item);
    assert_eq!(items.next().unwrap().0, "quick");
    drop(items);
    waker.wake();
    runner.cancel_all();
    // `next` is not ended by a wake.
    assert_eq!(runner.next().unwrap().0, "slow");
    assert!(runner.next().is_none());
}

fn a_while() -> Duration {
    pace::millis(50)
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
        runner.push("runs", marked(&IDLE, "key"));
        runner.push("waits", marked(&IDLE, "key"));
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
        runner.push(0, marked(&IDLE, "task"));
        runner.push(1, marked(&IDLE, "task") | marked(&IDLE, "task"));
        assert!(tokio::time::timeout(a_while(), runner.next()).await.is_err());
        drop(runner);
        watchdog::until("no process is left", || alive::marked(MARK, "task").is_empty());
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

#[watched_test]
fn results_come_in_the_order_of_the_commands() {
    let commands = (0..40).map(|code| puppet([format!("out={code}"), format!("exit={code}")]));
    let captures = run_all(commands).concurrency(7).captures();
    assert_eq!(captures.len(), 40);
    for (code, capture) in captures.into_iter().enumerate() {
        let capture = capture.unwrap();
        assert_eq!(
            (capture.stdout, capture.stderr, capture.status.code()),
            (code.to_string(), String::new(), Some(code as i32))
        );
    }
}

#[watched_test]
fn results_come_in_the_order_of_exits() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: usize| dir.path().join(name.to_string());
    // Each continues when the result of the one after it was returned.
    let commands = (0..4).map(|index| puppet([format!("wait-for-file={}", path(index).display())]));
    let mut ends = run_all(commands).concurrency(4).as_they_end();
    for index in (0..4).rev() {
        std::fs::write(path(index), b"").unwrap();
        let (ended, result) = ends.next().unwrap();
        assert_eq!((ended, result.unwrap().success()), (index, true));
    }
    assert!(ends.next().is_none());
}

#[watched_test]
fn no_more_than_the_concurrency_limit_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let started = || std::fs::read_dir(dir.path()).unwrap().count();
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("three have started", || started() == 3);
            std::fs::write(&go, b"").unwrap();
        });
        let commands = (0..10).map(|index| {
            let mark = dir.path().join(index.to_string());
            let acts = ["touch=", "wait-for-file="];
            puppet([
                format!("{}{}", acts[0], mark.display()),
                format!("{}{}", acts[1], go.display()),
            ])
        });
        // A fourth would be counted, and the others would wait forever.
        let captures = run_all(commands).concurrency(3).captures();
        assert!(captures.into_iter().all(|capture| capture.unwrap().success()));
    });
    assert_eq!(started(), 11);
}

#[watched_test]
fn large_output_of_many_children_arrives_whole() {
    let commands = (0..12).map(|index| match index % 3 {
        0 => puppet(["out-bytes=3000000", "err-bytes=10"]),
        1 => puppet(["alternate=2000000"]),
        _ => puppet(["cat"]).stdin(Stdio::bytes(flood(1_000_000))).owned(),
    });
    for (index, result) in run_all(commands).concurrency(12).as_they_end() {
        let capture = result.unwrap();
        let expected = match index % 3 {
            0 => flood(3_000_000),
            1 => alternating(2_000_000),
            _ => flood(1_000_000),
        };
        assert!(capture.stdout == String::from_utf8_lossy(&expected), "command {index}");
        assert_eq!((capture.outcome, capture.stdin_unread), (Outcome::Exited, 0));
    }
}

#[watched_test]
fn each_command_keeps_its_options_and_errors_stop_no_other() {
    let commands = [
        puppet(["out=x", "wait=600"]).timeout(Duration::from_millis(1)).owned(),
        Command::new("no-such-program"),
        puppet(["out=hello"]).limit(pipewright::Limit::fail(1)).owned(),
        puppet(["exit=3"]),
        puppet(["out-hex=ff"]).strict_utf8().owned(),
        puppet(["out=last"]),
    ];
    let mut captures = run_all(commands).concurrency(2).captures().into_iter();
    let mut next = || captures.next().unwrap();
    assert_eq!(next().unwrap().outcome, Outcome::TimedOut);
    assert!(matches!(next().unwrap_err().kind(), ErrorKind::NotFound { .. }));
    assert_eq!(next().unwrap().outcome, Outcome::LimitExceeded);
    assert_eq!(next().unwrap().status.code(), Some(3));
    assert!(matches!(next().unwrap_err().kind(), ErrorKind::InvalidUtf8 { .. }));
    assert_eq!(next().unwrap().stdout, "last");
    assert!(captures.next().is_none());
    assert!(run_all(Vec::<Command>::new()).captures().is_empty());
}

#[watched_test]
fn a_start_error_is_returned_before_the_next_start() {
    let endless = std::iter::repeat_with(|| Command::new("no-such-program"));
    let ends: Vec<_> = run_all(endless).concurrency(2).as_they_end().take(3).collect();
    assert_eq!(ends.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(ends.iter().all(|(_, end)| end.is_err()));
}

#[watched_test]
fn stop_on_failure_stops_the_others() {
    let first = |failing: Command| {
        let mut waits = puppet(["out=so far", "wait=600"]);
        waits.env(MARK, alive::mark("fast"));
        [waits, failing, puppet(["exit=9"])]
    };
    for failing in [puppet(["exit=3"]), Command::new("no-such-program")] {
        let captures = run_all(first(failing)).concurrency(2).fail_fast().captures();
        assert_eq!(captures.len(), 2, "the third was not started");
        let stopped = captures.into_iter().next().unwrap().unwrap();
        assert_eq!(stopped.outcome, Outcome::Cancelled);
        ended_by(stopped.status, pipewright::Signal::TERM);
        assert!(alive::marked(MARK, "fast").is_empty());
    }
}

#[watched_test]
fn a_cancel_stops_all_and_starts_no_more() {
    let token = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("three run", || alive::marked(MARK, "cancel").len() == 3);
            token.cancel();
        });
        let commands =
            (0..9).map(|_| puppet(["wait=600"]).env(MARK, alive::mark("cancel")).owned());
        let captures = run_all(commands).concurrency(3).cancel(&token).captures();
        assert_eq!(captures.len(), 3);
        assert!(captures.into_iter().all(|it| it.unwrap().outcome == Outcome::Cancelled));
    });
    // Cancelled stays cancelled: nothing is started.
    assert!(run_all([puppet(["exit=0"])]).cancel(&token).captures().is_empty());
}

#[cfg(unix)]
#[watched_test]
fn a_signal_is_passed_on_to_all() {
    let token = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            watchdog::until("both run", || alive::marked(MARK, "signal").len() == 2);
            token.pass_on(pipewright::Signal::USR1);
        });
        let commands =
            (0..2).map(|_| puppet(["wait=600"]).env(MARK, alive::mark("signal")).owned());
        for capture in run_all(commands).concurrency(2).cancel(&token).captures() {
            ended_by(capture.unwrap().status, pipewright::Signal::USR1);
        }
    });
}

#[isolated_test]
fn a_dropped_iterator_leaves_no_process() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let before = count::handles();
    let others = (0..5)
        .map(|_| puppet(["spawn=wait=600", "wait=600"]).env(MARK, alive::mark("set")).owned());
    let mut ends = run_all(others.chain([puppet(["exit=0"])])).concurrency(6).as_they_end();
    assert_eq!(ends.next().unwrap().0, 5);
    drop(ends);
    watchdog::until("no process is left", || alive::marked(MARK, "set").is_empty());
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() <= before + 1);
}

#[isolated_test(limit = Duration::from_secs(300))]
fn many_idle_children_take_one_thread() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "without pidfds a child takes a thread");
    }
    let crowd_size = pace::rounds(256, 48);
    let (token, taken) = (CancelToken::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            let commands = (0..crowd_size).map(|_| {
                // Started before anything else is done.
                taken.fetch_add(1, Ordering::SeqCst);
                puppet(["wait=600"])
            });
            run_all(commands).concurrency(crowd_size).cancel(&token).captures()
        });
        let threads = count::threads();
        // Windows keeps no list of children.
        let are_there = || count::children().len() == crowd_size || cfg!(windows);
        let is_there = || taken.load(Ordering::SeqCst) == crowd_size && are_there();
        // Not `until`, which gives up after half a minute: Wine starts six a second.
        while !is_there() {
            thread::park_timeout(Duration::from_millis(20));
        }
        // Windows: one waits for the handles of all tasks (`PIPEWRIGHT_FORCE=async`), and the system has one
        // in its pool for each 63 handles: of the end and both streams of each child.
        let of_tasks = usize::from(cfg!(windows) && is_forced_async());
        let of_pool = if cfg!(windows) { (3 * crowd_size).div_ceil(63) } else { 0 };
        let more = count::threads() - threads;
        assert!(more <= of_tasks + of_pool, "{more} more: the one that runs them was there before");
        token.cancel();
        assert_eq!(crowd.join().unwrap().len(), crowd_size);
    });
    watchdog::until("every child is reaped", || count::children().is_empty());
}

#[cfg(unix)]
#[isolated_test]
fn concurrency_is_bounded_by_the_handle_limit() {
    if is_forced_async() {
        return skipped(
            Need::BlockingVerbs,
            "tasks wait by another call, and with a handle more for each",
        );
    }
    // Each has three handles, for its exit and its two streams, but up to twice as many things to wait for: also its
    // input, the shared token, and more.
    const CROWD: usize = 100;
    let token = CancelToken::new();
    let room = (count::handles() + 3 * CROWD + 32) as u64;
    let old = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let new = rustix::process::Rlimit { current: Some(room), maximum: old.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
    let commands = (0..CROWD).map(|index| puppet([format!("out={index}")]).cancel(&token).owned());
    let captures = run_all(commands).concurrency(CROWD).captures();
    for (index, capture) in captures.into_iter().enumerate() {
        assert_eq!(capture.unwrap().stdout, index.to_string());
    }
}

#[cfg(target_os = "linux")]
#[isolated_test]
fn children_that_end_while_others_are_started_keep_no_handles_until_then() {
    const CROWD: usize = 96;
    let has_ended = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    let before = count::handles();
    let most = std::cell::Cell::new(0);
    let commands = (0..CROWD).map(|index| {
        watchdog::until("all so far have ended", || count::children().iter().all(has_ended));
        most.set(most.get().max(count::handles()));
        puppet([format!("out={index}")])
    });
    let captures = run_all(commands).concurrency(CROWD).captures();
    for (index, capture) in captures.into_iter().enumerate() {
        assert_eq!(capture.unwrap().stdout, index.to_string());
    }
    // Three for each, if no exit was handled before the last start.
    let most = most.get();
    assert!(most < before + CROWD, "{most}, and {before} before");
}
