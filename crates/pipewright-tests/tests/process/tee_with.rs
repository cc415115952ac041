//! A tee to a closure: it gets the whole stream as it arrives, on the thread that waits.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{
    AsyncRunner, CancelToken, Child, Command, ErrorKind, Event, Limit, Next, Outcome,
    ProcessHandle, Runner, Stdio,
};
use pipewright_test_macros::watched_test;
use pipewright_tests::watchdog;

use super::async_verbs::one_thread;
use super::{flood, puppet};

/// Collects the chunks of a closure.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<u8>>>);

impl Seen {
    fn tee(&self) -> Stdio {
        let to = Arc::clone(&self.0);
        Stdio::tee_with(move |chunk| {
            assert!(!chunk.is_empty());
            to.lock().unwrap().extend_from_slice(chunk);
        })
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Returns a tee to lines, and the lines.
fn lines_tee() -> (Stdio, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&lines);
    let tee = Stdio::tee_lines(move |line| {
        to.lock().unwrap().push(String::from_utf8(line.to_vec()).unwrap());
    });
    (tee, lines)
}

#[watched_test]
fn a_closure_gets_whole_lines_however_they_arrive() {
    let (tee, lines) = lines_tee();
    let mut command = puppet(["out=on", "wait=0.05", "out=e\ntwo\n\nla", "wait=0.05", "out=st"]);
    let done = command.stdout(tee).capture().unwrap();
    assert_eq!(done.stdout, "one\ntwo\n\nlast");
    assert_eq!(*lines.lock().unwrap(), ["one\n", "two\n", "\n", "last"]);
    // Each run begins with a new line, whatever the one before has left, and a stopped one gives what it has.
    lines.lock().unwrap().clear();
    let (tee, lines) = lines_tee();
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    let mut command = puppet(["out=half", &format!("touch={}", said.display()), "wait=600"]);
    command.stdout(tee).kill_grace(Duration::ZERO);
    for _ in 0..2 {
        let cancel = CancelToken::new();
        command.cancel(&cancel);
        thread::scope(|scope| {
            scope.spawn(|| {
                watchdog::until("the half line", || said.exists());
                cancel.cancel();
            });
            assert_eq!(command.capture().unwrap().outcome, Outcome::Cancelled);
        });
        std::fs::remove_file(&said).unwrap();
    }
    assert_eq!(*lines.lock().unwrap(), ["half", "half"]);
}

#[watched_test]
fn a_line_that_is_too_long_comes_in_pieces() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&sizes);
    let tee = Stdio::tee_lines(move |line| to.lock().unwrap().push(line.len()));
    let long = |more: usize| format!("out={}", "x".repeat((64 << 10) + more));
    let acts = [long(0), long(7), "out=\nshort\n".to_owned()];
    puppet(&acts).stdout(tee).limit(Limit::keep_tail(3)).capture().unwrap();
    assert_eq!(*sizes.lock().unwrap(), [64 << 10, 64 << 10, 8, 6]);
}

#[watched_test]
fn a_runner_that_calls_closures_between_its_steps_gives_the_last_line_too() {
    let (tee, lines) = lines_tee();
    let mut command = puppet(["out=one\nlast"]);
    command.stdout(tee).limit(Limit::keep_head(0).count_only());
    let mut runner = Runner::new(1).enforce_in_background();
    runner.push((), command);
    assert!(runner.next().unwrap().1.unwrap().success());
    assert_eq!(*lines.lock().unwrap(), ["one\n", "last"]);
}

#[watched_test]
fn a_panic_at_the_last_line_loses_nothing() {
    let mut runner = Runner::new(1);
    let mut command = puppet(["out=half"]);
    command.stdout(Stdio::tee_lines(|_| panic!("at the end")));
    runner.push((), command);
    let caught = panic::catch_unwind(AssertUnwindSafe(|| runner.next()));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"at the end"));
    assert_eq!(runner.next().unwrap().1.unwrap().stdout, "half");
}

#[watched_test]
fn a_closure_gets_both_streams_with_every_verb() {
    let (out, err) = (Seen::default(), Seen::default());
    let mut command = puppet(["out-bytes=300000", "err-bytes=200000"]);
    command.stdout(out.tee()).stderr(err.tee());
    let check = |verb: &str| {
        assert!(out.take() == flood(300_000), "{verb}");
        assert!(err.take() == flood(200_000), "{verb}");
    };
    // The same command: all runs share the closures.
    let done = command.output().unwrap();
    assert!(done.stdout == flood(300_000) && done.stderr == flood(200_000));
    assert_eq!(done.tee_failed, None);
    check("output");
    command.capture().unwrap();
    check("capture");
    assert!(command.status().unwrap().success());
    check("status");
    command.run().unwrap();
    check("run");
    command.read().unwrap();
    check("read");
    let mut written = 0;
    for event in command.events().unwrap() {
        if let Event::Stdout(bytes) | Event::Stderr(bytes) = event.unwrap() {
            written += bytes.len();
        }
    }
    assert_eq!(written, 500_000);
    check("events");
    command.lines().unwrap().finish().unwrap();
    check("lines");
    assert_eq!(command.spawn().unwrap().wait_with_output().unwrap().stdout.len(), 300_000);
    check("spawn");
    one_thread().block_on(async {
        assert_eq!(command.output_async().await.unwrap().stdout.len(), 300_000);
        check("output_async");
        command.run_async().await.unwrap();
        check("run_async");
    });
}

#[watched_test]
fn a_closure_sees_everything_while_the_capture_keeps_the_tail() {
    let all = flood(300_000);
    for (limit, kept) in [
        (Limit::keep_tail(4096), &all[all.len() - 4096..]),
        (Limit::keep_head(4096), &all[..4096]),
        (Limit::fail(1 << 30).count_only(), &[][..]),
    ] {
        let seen = Seen::default();
        let mut command = puppet(["out-bytes=300000"]);
        let done = command.stdout(seen.tee()).limit(limit).output().unwrap();
        assert!(done.stdout == kept, "{limit:?}");
        assert!(seen.take() == all, "{limit:?}");
        assert_eq!(done.stdout_bytes, Some(300_000));
    }
    // The chunk that exceeds a limit is complete.
    let seen = Seen::default();
    let mut command = puppet(["out-bytes=300000", "wait=600"]);
    let done = command.stdout(seen.tee()).limit(Limit::fail(1000)).output().unwrap();
    assert_eq!((done.outcome, done.stdout.len()), (Outcome::LimitExceeded, 1000));
    let seen = seen.take();
    assert_eq!(done.stdout_bytes, Some(seen.len() as u64));
    assert!(seen == flood(seen.len()));
}

#[watched_test]
fn a_closure_is_called_as_output_arrives_and_on_the_waiting_thread() {
    let (sender, chunks) = mpsc::channel();
    let mut command = puppet(["out=first", "wait=600"]);
    command.stdout(Stdio::tee_with(move |chunk| {
        sender.send((thread::current().id(), chunk.to_vec())).unwrap();
    }));
    let mut runner = Runner::new(1);
    runner.push((), command);
    let chunk = loop {
        assert!(matches!(runner.next_within(Duration::from_millis(1)), Next::Pending));
        if let Ok(chunk) = chunks.try_recv() {
            break chunk;
        }
    };
    assert_eq!(chunk, (thread::current().id(), b"first".to_vec()));
}

#[watched_test]
fn commands_of_a_runner_call_their_own_closures() {
    let seen = [0; 20].map(|_| Seen::default());
    let mut runner = Runner::new(4);
    for (number, seen) in seen.iter().enumerate() {
        let mut command = puppet([format!("out-bytes={}", number * 10_000)]);
        command.stdout(seen.tee()).limit(Limit::keep_tail(7));
        runner.push(number, command);
    }
    for (number, result) in runner {
        assert_eq!(result.unwrap().stdout_bytes, Some(number as u64 * 10_000));
        assert!(seen[number].take() == flood(number * 10_000), "{number}");
    }
}

#[watched_test]
fn a_runner_that_calls_its_closures_between_two_steps_gives_them_everything() {
    let fails = Limit::fail(70_000).count_only();
    for limit in [Limit::keep_head(0).count_only(), Limit::keep_tail(7).count_only(), fails] {
        let seen = [0; 20].map(|_| Seen::default());
        let mut runner = Runner::new(4).enforce_in_background();
        for (number, seen) in seen.iter().enumerate() {
            let mut command = puppet([format!("out-bytes={}", number * 10_000)]);
            command.stdout(seen.tee()).limit(limit);
            runner.push(number, command);
        }
        for (number, result) in runner {
            let (capture, seen) = (result.unwrap(), seen[number].take());
            assert_eq!(capture.stdout_bytes, Some(seen.len() as u64), "{limit:?} {number}");
            assert!(capture.stdout.is_empty() && seen == flood(seen.len()), "{limit:?} {number}");
            let is_over = limit == fails && number > 7;
            assert_eq!(capture.outcome == Outcome::LimitExceeded, is_over, "{limit:?} {number}");
            assert!(is_over || seen.len() == number * 10_000, "{limit:?} {number}");
        }
    }
}

#[watched_test]
fn runs_at_the_same_time_share_one_closure() {
    let seen = Seen::default();
    let mut command = puppet(["out=x"]);
    command.stdout(seen.tee());
    let children: Vec<Child> = (0..8).map(|_| command.spawn().unwrap()).collect();
    let waits = children.into_iter().map(|child| thread::spawn(|| child.wait_with_output()));
    for wait in waits.collect::<Vec<_>>() {
        assert_eq!(wait.join().unwrap().unwrap().stdout, b"x");
    }
    assert_eq!(seen.take(), b"x".repeat(8));
}

#[watched_test]
fn a_pipeline_calls_the_closure_of_its_last_stdout() {
    let seen = Seen::default();
    let mut both = puppet(["out=both ways"]) | puppet(["cat"]).stdout(seen.tee()).owned();
    assert_eq!(both.output().unwrap().stdout, b"both ways");
    assert_eq!(seen.take(), b"both ways");
    let merged = puppet(["err=merged"]).stdout(seen.tee()).merge_stderr().output().unwrap();
    assert_eq!(merged.stdout, b"merged");
    assert_eq!(seen.take(), b"merged");
}

#[watched_test]
fn a_closure_is_refused_where_no_verb_reads() {
    let tee = || Stdio::tee_with(|_| {});
    let refused = |error: pipewright::Error, words: &str| {
        assert_eq!(error.kind(), &ErrorKind::InvalidInput);
        assert!(error.to_string().contains(words), "{error}");
    };
    let stdin = puppet(["out=x"]).stdin(tee()).output().unwrap_err();
    refused(stdin, "its stdin needs a source to read from");
    let target = puppet(["out=x"]).stdout(Stdio::tee_to(tee())).output().unwrap_err();
    refused(target, "a tee target must be a file, a handle, null or inherit");
    let stage = puppet(["out=x"]).stderr(tee()).owned() | puppet(["cat"]);
    refused({ stage }.output().unwrap_err(), "`tee_with` cannot be used for stderr");
    let first = puppet(["out=x"]).stdout(tee()).owned() | puppet(["cat"]);
    refused({ first }.output().unwrap_err(), "its stdout goes to the next stage");
    let mut unattended = puppet(["out=x"]);
    let error = ProcessHandle::start(unattended.stdout(tee())).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::InvalidInput);
    assert_eq!(format!("{:?}", tee()), "Stdio::tee_with");
}

/// Panics with its first chunk, and collects all chunks.
fn panics_once(seen: &Seen) -> Stdio {
    let to = Arc::clone(&seen.0);
    let mut has_panicked = false;
    Stdio::tee_with(move |chunk| {
        to.lock().unwrap().extend_from_slice(chunk);
        if !std::mem::replace(&mut has_panicked, true) {
            panic::resume_unwind(Box::new("the closure's"));
        }
    })
}

#[track_caller]
fn panics<T>(work: impl FnOnce() -> T) {
    let Err(payload) = panic::catch_unwind(AssertUnwindSafe(work)) else {
        panic!("the panic must arrive");
    };
    assert_eq!(payload.downcast_ref(), Some(&"the closure's"));
}

#[watched_test]
fn a_panic_of_the_closure_arrives_and_the_command_can_run_again() {
    let seen = Seen::default();
    let mut command = puppet(["out=x"]);
    command.stdout(panics_once(&seen)).kill_on_drop();
    panics(|| command.output());
    assert_eq!(command.output().unwrap().stdout, b"x");
    assert_eq!(seen.take(), b"xx");
}

#[watched_test]
fn a_panic_of_a_closure_loses_nothing_of_events_and_of_other_runs() {
    let seen = Seen::default();
    let mut command = puppet(["out-bytes=300000"]);
    let mut events = command.stdout(panics_once(&seen)).events().unwrap();
    let mut written = Vec::new();
    let mut caught = 0;
    loop {
        match panic::catch_unwind(AssertUnwindSafe(|| events.next())) {
            Ok(Some(Ok(Event::Stdout(bytes)))) => written.extend(bytes),
            Ok(Some(event)) => drop(event.unwrap()),
            Ok(None) => break,
            Err(_) => caught += 1,
        }
    }
    assert_eq!(caught, 1);
    assert!(written == flood(300_000) && seen.take() == flood(300_000));

    // Closures of streams that are not kept are called between two steps.
    let guarded = || Runner::new(8).enforce_in_background();
    for (mut runner, keeps) in [(Runner::new(8), true), (guarded(), true), (guarded(), false)] {
        push_some(|number, mut command| {
            if !keeps {
                command.limit(Limit::fail(1 << 30).count_only());
            }
            runner.push(number, command);
        });
        let mut caught = 0;
        let mut ends = Vec::new();
        loop {
            match panic::catch_unwind(AssertUnwindSafe(|| runner.next())) {
                Ok(Some(end)) => ends.push(end),
                Ok(None) => break,
                Err(_) => caught += 1,
            }
        }
        check_all(ends, caught, keeps);
    }
}

#[watched_test]
fn a_panic_in_a_task_loses_nothing_of_other_runs() {
    let runtime = one_thread();
    let mut runner = AsyncRunner::new(8);
    push_some(|number, command| runner.push(number, command));
    let mut caught = 0;
    let mut ends = Vec::new();
    loop {
        match panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(runner.next()))) {
            Ok(Some(end)) => ends.push(end),
            Ok(None) => break,
            Err(_) => caught += 1,
        }
    }
    check_all(ends, caught, true);
}

/// Pushes 8 commands, 4 of which have a closure that panics once.
fn push_some(mut push: impl FnMut(u32, Command)) {
    for number in 0..8 {
        let mut command = puppet(["out-bytes=300000"]);
        if number % 2 == 0 {
            command.stdout(panics_once(&Seen::default()));
        }
        // UTF-8 is not the subject: the bytes are counted.
        push(number, command);
    }
}

#[track_caller]
fn check_all(
    mut ends: Vec<(u32, Result<pipewright::Capture, pipewright::Error>)>,
    caught: u32,
    keeps: bool,
) {
    assert_eq!(caught, 4);
    ends.sort_unstable_by_key(|(number, _)| *number);
    let numbers: Vec<u32> = ends.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
    for (number, result) in ends {
        let done = result.unwrap();
        assert!(done.success(), "{number}");
        assert_eq!((done.stdout_bytes, done.truncated), (Some(300_000), false), "{number}");
        let kept = if keeps { flood(300_000) } else { Vec::new() };
        assert!(done.stdout == String::from_utf8_lossy(&kept), "{number}");
    }
}

#[watched_test]
fn a_taken_stream_does_not_reach_the_closure() {
    let seen = Seen::default();
    let mut child = puppet(["out=x"]).stdout(seen.tee()).spawn().unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((text.as_str(), seen.take().len()), ("x", 0));
}

#[watched_test]
fn coalesced_reads_of_small_chunks_are_a_millisecond_apart() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&chunks);
    let mut command = puppet(["lines=2000"]);
    command.stdout(Stdio::tee_with(move |chunk| {
        seen.lock().unwrap().push((Instant::now(), chunk.len()));
    }));
    let done = command.coalesce_reads().capture().unwrap();
    let chunks = chunks.lock().unwrap();
    assert_eq!(chunks.iter().map(|(_, bytes)| bytes).sum::<usize>(), done.stdout.len());
    let apart = chunks.last().unwrap().0 - chunks[0].0;
    // A chunk that is not small ends the delay, and so does the end of the child.
    let least = chunks.len().saturating_sub(8) as u32 * Duration::from_micros(500);
    assert!(apart >= least, "{} chunks in {apart:?}", chunks.len());
}
