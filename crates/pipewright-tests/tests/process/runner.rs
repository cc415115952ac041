//! A runner: commands that are pushed while others run.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Capture, Command, Error, ErrorKind, Next, Outcome, Runner, Signal, run_all,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};

use super::{ended_by, flood, puppet, short};

const MARK: &str = "PIPEWRIGHT_RUNNER_TEST";
const IDLE: [&str; 1] = ["wait=600"];

fn marked(acts: &[&str], mark: &str) -> Command {
    puppet(acts).env(MARK, alive::mark(mark)).owned()
}

/// Returns a command that creates the file `NAME.started`, and exits when the file `NAME` exists.
fn until_file(dir: &Path, name: &str) -> Command {
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
    let mut runner = Runner::new(3);
    runner.push("sum", puppet(["out=b\na\n", "err=oh"]) | puppet(["sort"]));
    runner.push("fails", puppet(["exit=3"]) | puppet(["cat"]));
    runner.push("quiet", (puppet(["exit=3"]) | puppet(["cat"])).pipefail(false).owned());
    runner.push("late", (puppet(IDLE) | puppet(["cat"])).timeout(short()).owned());
    runner.push("missing", puppet(IDLE) | Command::new("no-such-program"));
    assert_eq!(runner.next_within(Duration::ZERO).map_to(), Next::Pending);
    assert_eq!(runner.running(), 3);
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
