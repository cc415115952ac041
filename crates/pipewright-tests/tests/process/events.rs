//! Events: in order, complete, and under every option of a run.

use std::time::Instant;

use pipewright::{CancelToken, Command, Ending, Event, Events, Limit, Outcome};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::{alive, count, watchdog};

use super::{alternating, later, puppet};

/// Returns both streams put together again, and the exit.
fn gather(events: Events) -> (Vec<u8>, Vec<u8>, Ending) {
    let (mut out, mut err, mut ending) = (Vec::new(), Vec::new(), None);
    for (number, event) in events.enumerate() {
        assert!(ending.is_none(), "nothing comes after the end");
        match event.unwrap() {
            Event::Started(pid) => assert!(number == 0 && pid > 0),
            Event::Stdout(bytes) if !bytes.is_empty() => out.extend(bytes),
            Event::Stderr(bytes) if !bytes.is_empty() => err.extend(bytes),
            Event::Exited(last) => ending = Some(last),
            other => panic!("event {number} is {other:?}"),
        }
    }
    (out, err, ending.expect("the last event is the end"))
}

#[watched_test]
fn events_come_in_the_order_in_which_things_happen() {
    let dir = tempfile::tempdir().unwrap();
    let gates = ["1", "2", "3"].map(|name| dir.path().join(name));
    let acts = [
        "out=a".to_owned(),
        format!("wait-for-file={}", gates[0].display()),
        "err=b".to_owned(),
        format!("wait-for-file={}", gates[1].display()),
        "out=c".to_owned(),
        format!("wait-for-file={}", gates[2].display()),
        "exit=3".to_owned(),
    ];
    let mut events = puppet(acts).events().unwrap();
    let mut next = || events.next().unwrap().unwrap();
    assert!(matches!(next(), Event::Started(pid) if alive::is_running(pid)));
    for (gate, expected) in
        gates.iter().zip([Event::Stdout(b"a".into()), Event::Stderr(b"b".into()), {
            Event::Stdout(b"c".into())
        }])
    {
        // Each is here before the next thing can happen.
        assert_eq!(next(), expected);
        std::fs::write(gate, b"").unwrap();
    }
    let Event::Exited(ending) = next() else { panic!("the last event is the end") };
    assert_eq!((ending.status.code(), ending.stdout_bytes), (Some(3), Some(2)));
    assert!(events.next().is_none() && events.next().is_none());
}

#[watched_test]
fn events_contain_every_byte() {
    let (out, err, ending) = gather(puppet(["alternate=3000000"]).events().unwrap());
    let expected = alternating(3_000_000);
    assert!(out == expected && err == expected);
    assert_eq!((ending.stdout_bytes, ending.stderr_bytes), (Some(3_000_000), Some(3_000_000)));
    let (out, err, ending) = gather(puppet::<_, &str>([]).events().unwrap());
    assert!(out.is_empty() && err.is_empty() && ending.success());
}

#[watched_test]
fn timeouts_and_cancels_are_reported_by_the_last_event() {
    let limit = later();
    let start = Instant::now();
    let mut command = puppet(["out=x", "wait=600"]);
    let (out, _, ending) = gather(command.timeout(limit).events().unwrap());
    assert!(start.elapsed() >= limit);
    assert_eq!((out.as_slice(), ending.outcome), (&b"x"[..], Outcome::TimedOut));
    let mut command = puppet(["out=x", "wait=600"]);
    let (_, _, ending) = gather(command.idle_timeout(limit).events().unwrap());
    assert_eq!(ending.outcome, Outcome::IdleTimedOut);
    let token = CancelToken::new();
    let mut command = puppet(["out=x", "wait=600"]);
    let mut events = command.cancel(&token).events().unwrap();
    events.next().unwrap().unwrap();
    assert_eq!(events.next().unwrap().unwrap(), Event::Stdout(b"x".into()));
    token.cancel();
    let Some(Ok(Event::Exited(ending))) = events.next() else { panic!("the last event") };
    assert_eq!(ending.outcome, Outcome::Cancelled);
}

#[watched_test]
fn limits_hold_for_events() {
    let limited = |limit| {
        let mut command = puppet(["out-bytes=200000"]);
        gather(command.limit(limit).events().unwrap())
    };
    let all = super::flood(200_000);
    let (head, _, ending) = limited(Limit::keep_head(70_001));
    assert!(head == all[..70_001] && ending.truncated && ending.success());
    let (tail, _, ending) = limited(Limit::keep_tail(70_001));
    assert!(tail == all[all.len() - 70_001..] && ending.truncated && ending.success());
    let (start, _, ending) = limited(Limit::fail(70_001));
    assert!(start == all[..70_001]);
    assert_eq!(ending.outcome, Outcome::LimitExceeded);
}

#[cfg(unix)]
#[watched_test]
fn a_child_waits_until_its_events_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let acts = ["out-bytes=5000000".to_owned(), format!("touch={}", done.display())];
    let mut events = puppet(acts).events().unwrap();
    events.next().unwrap().unwrap();
    events.next().unwrap().unwrap();
    let pid = events.pid();
    watchdog::until("the pipe is full", || alive::state(pid) == Some('S'));
    assert!(!done.exists(), "it has written everything although no output was read");
    let ending = events.finish().unwrap();
    assert_eq!(ending.stdout_bytes, Some(5_000_000));
    assert!(done.exists());
}

#[cfg(unix)]
#[isolated_test]
fn dropped_events_end_a_child_that_writes_and_leave_nothing() {
    let before = count::handles();
    let mut events = Command::new("yes").events().unwrap();
    let Event::Started(pid) = events.next().unwrap().unwrap() else { panic!("the start") };
    assert!(matches!(events.next(), Some(Ok(Event::Stdout(_)))));
    drop(events);
    watchdog::until("SIGPIPE has ended it and it is reaped", || alive::state(pid).is_none());
    watchdog::until("no handle is left", || count::handles() == before);
}

#[watched_test]
fn the_exit_is_reported_once() {
    let mut events = puppet(["exit=5"]).events().unwrap();
    events.next().unwrap().unwrap();
    assert!(matches!(events.next(), Some(Ok(Event::Exited(ending))) if !ending.success()));
    assert!(events.next().is_none());
    let error = events.finish().unwrap_err();
    assert!(error.to_string().contains("has already been returned"), "{error}");
}
