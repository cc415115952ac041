//! Waits with a limit for lines, events and exits.

use std::time::{Duration, Instant};

use pipewright::{Command, Event, Next, Outcome, run_all};
use pipewright_test_macros::watched_test;
use pipewright_tests::alive;

use super::async_verbs::one_thread;
use super::{puppet, short};

const TICK: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(600);

/// Returns a command that writes a line, and another one when the file exists.
fn held_up(dir: &std::path::Path) -> (Command, std::path::PathBuf) {
    let go = dir.join("go");
    let wait = format!("wait-for-file={}", go.display());
    (puppet(["out=one\n", &wait, "out=two\n", "exit=3"]), go)
}

#[watched_test]
fn next_within_tells_a_line_from_a_timeout_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, go) = held_up(dir.path());
    let mut lines = command.lines().unwrap();
    assert_eq!(lines.next_within(LONG).item().unwrap().unwrap().text, "one");
    let start = Instant::now();
    assert!(matches!(lines.next_within(TICK), Next::Pending));
    assert!(start.elapsed() >= TICK);
    assert!(matches!(lines.next_within(Duration::ZERO), Next::Pending));
    std::fs::write(&go, b"").unwrap();
    let mut line = lines.next_within(Duration::ZERO);
    while matches!(line, Next::Pending) {
        line = lines.next_within(TICK);
    }
    assert_eq!(line.item().unwrap().unwrap().text, "two");
    assert!(matches!(lines.next_within(Duration::MAX), Next::Done));
    assert!(matches!(lines.next_within(TICK), Next::Done));
    assert_eq!(lines.finish().unwrap().status.code(), Some(3));
}

#[watched_test]
fn next_within_tells_an_event_from_a_timeout_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let (mut command, go) = held_up(dir.path());
    let mut events = command.events().unwrap();
    assert!(matches!(events.next_within(Duration::ZERO), Next::Item(Ok(Event::Started(_)))));
    let mut next = || events.next_within(LONG).item().unwrap().unwrap();
    assert_eq!(next(), Event::Stdout(b"one\n".into()));
    assert!(matches!(events.next_within(TICK), Next::Pending));
    std::fs::write(&go, b"").unwrap();
    let mut next = || events.next_within(LONG).item().unwrap().unwrap();
    assert_eq!(next(), Event::Stdout(b"two\n".into()));
    assert!(matches!(next(), Event::Exited(ending) if ending.status.code() == Some(3)));
    assert!(matches!(events.next_within(TICK), Next::Done));
}

#[watched_test]
fn async_next_within_behaves_the_same() {
    one_thread().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (mut command, go) = held_up(dir.path());
        let mut lines = command.lines_async().unwrap();
        let mut events = command.events_async().unwrap();
        assert_eq!(lines.next_within(LONG).await.item().unwrap().unwrap().text, "one");
        assert!(matches!(events.next().await, Some(Ok(Event::Started(_)))));
        assert!(matches!(events.next_within(LONG).await, Next::Item(Ok(Event::Stdout(_)))));
        let start = Instant::now();
        assert!(matches!(lines.next_within(TICK).await, Next::Pending));
        assert!(matches!(events.next_within(TICK).await, Next::Pending));
        assert!(start.elapsed() >= TICK * 2);
        assert!(matches!(lines.next_within(Duration::ZERO).await, Next::Pending));
        std::fs::write(&go, b"").unwrap();
        assert_eq!(lines.next_within(LONG).await.item().unwrap().unwrap().text, "two");
        assert!(matches!(lines.next_within(Duration::MAX).await, Next::Done));
        while !matches!(events.next_within(LONG).await, Next::Item(Ok(Event::Exited(_)))) {}
        assert!(matches!(events.next_within(TICK).await, Next::Done));
    });
}

#[watched_test]
fn a_timeout_holds_from_tick_to_tick() {
    let start = Instant::now();
    let mut lines = puppet(["wait=600"]).timeout(short()).lines().unwrap();
    let mut ticks = 0;
    while let Next::Pending = lines.next_within(TICK) {
        ticks += 1;
    }
    assert!(ticks > 0 && start.elapsed() >= short());
    let pid = lines.pid();
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
    assert!(!alive::is_running(pid));
}

#[watched_test]
fn next_within_tells_an_exit_from_a_timeout_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let commands = || [puppet([format!("wait-for-file={}", go.display())]), puppet(["exit=3"])];
    let code = |end: Next<(usize, pipewright::Result<pipewright::Capture>)>| {
        let (index, end) = end.item()?;
        Some((index, end.unwrap().status.code()?))
    };
    let mut ends = run_all(commands()).concurrency(2).as_they_end();
    assert_eq!(code(ends.next_within(LONG)), Some((1, 3)));
    assert!(matches!(ends.next_within(TICK), Next::Pending));
    assert!(matches!(ends.next_within(Duration::ZERO), Next::Pending));
    one_thread().block_on(async {
        let mut of_task = run_all(commands()).concurrency(2).as_they_end_async();
        assert_eq!(code(of_task.next_within(LONG).await), Some((1, 3)));
        assert!(matches!(of_task.next_within(TICK).await, Next::Pending));
        assert!(matches!(of_task.next_within(Duration::ZERO).await, Next::Pending));
        std::fs::write(&go, b"").unwrap();
        assert_eq!(code(of_task.next_within(Duration::MAX).await), Some((0, 0)));
        assert!(matches!(of_task.next_within(TICK).await, Next::Done));
    });
    assert_eq!(code(ends.next_within(Duration::MAX)), Some((0, 0)));
    assert!(matches!(ends.next_within(TICK), Next::Done));
}
