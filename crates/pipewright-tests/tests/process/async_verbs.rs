//! The async verbs: they behave as the sync ones, are an error outside of a runtime, and take no thread of idle
//! children.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Command, Error, ErrorKind, Event, Outcome, ProcessHandle, Signal, Source, Stdio,
    run_all,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, counted, is_forced_off, skipped};
use pipewright_tests::{alive, count, pace, watchdog};
use tokio::runtime::{Builder, Runtime};

use crate::async_pipes::poll_once;
use crate::{alternating, ended_by, flood, in_time, later, puppet, short};

const MARK: &str = "PIPEWRIGHT_ASYNC_TEST";

pub(super) fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn both_runtimes() -> [Runtime; 2] {
    [one_thread(), Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()]
}

#[watched_test]
fn async_verbs_return_what_sync_verbs_return() {
    for runtime in both_runtimes() {
        runtime.block_on(async {
            let status = puppet(["exit=3"]).status_async().await.unwrap();
            assert_eq!(status.code(), Some(3));
            let output = puppet(["out=a", "err=b"]).output_async().await.unwrap();
            assert_eq!(
                (output.stdout.as_slice(), output.stderr.as_slice()),
                (&b"a"[..], &b"b"[..])
            );
            let capture = puppet(["out=a", "exit=4"]).capture_async().await.unwrap();
            assert_eq!((capture.stdout.as_str(), capture.status.code()), ("a", Some(4)));
            assert_eq!(puppet(["out=text\n"]).read_async().await.unwrap(), "text");
            let error = puppet(["exit=5"]).run_async().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Failed { .. }), "{error}");
            let error = Command::new("no-such-program").status_async().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
        });
    }
}

#[watched_test]
fn large_streams_in_every_direction_never_deadlock() {
    one_thread().block_on(async {
        let input = flood(10_000_000);
        let mut command = puppet(["cat-both"]);
        let output = command.stdin(Stdio::bytes(input.clone())).output_async().await.unwrap();
        assert!(output.stdout == input && output.stderr == input);
        let (mut a, mut b) = (puppet(["alternate=5000000"]), puppet(["out-bytes=20000000"]));
        let (a, b) = tokio::join!(a.output_async(), b.output_async());
        let expected = alternating(5_000_000);
        let a = a.unwrap();
        assert!(a.stdout == expected && a.stderr == expected);
        assert!(b.unwrap().stdout == flood(20_000_000));
    });
}

#[watched_test]
fn timeouts_cancels_and_limits_hold() {
    let (_, capture) = in_time(later(), |limit, done| {
        let start = Instant::now();
        let mut command = puppet(["out=partial", done, "wait=600"]);
        let capture = one_thread().block_on(command.timeout(limit).capture_async()).unwrap();
        assert!(start.elapsed() >= limit);
        capture
    });
    assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::TimedOut, "partial"));
    ended_by(capture.status, Signal::TERM);

    one_thread().block_on(async {
        let token = CancelToken::new();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let mut command = puppet([
            "out=so far".to_owned(),
            format!("touch={}", file.display()),
            "wait=600".into(),
        ]);
        let (capture, ()) = tokio::join!(command.cancel(&token).capture_async(), async {
            until(|| file.exists()).await;
            token.cancel();
        });
        let capture = capture.unwrap();
        assert_eq!((capture.outcome, capture.stdout.as_str()), (Outcome::Cancelled, "so far"));

        let mut command = puppet(["out-bytes=1000000", "wait=600"]);
        let output = command.limit(pipewright::Limit::fail(10)).output_async().await.unwrap();
        assert_eq!(output.outcome, Outcome::LimitExceeded);
    });
}

#[watched_test]
fn a_held_pipe_does_not_block_an_async_verb() {
    one_thread().block_on(async {
        let mut command = puppet(["spawn=wait=600", "out=done"]);
        let capture = command.capture_async().await.unwrap();
        assert_eq!((capture.stdout.as_str(), capture.held_open), ("done", true));
        capture.stderr.lines().for_each(|pid| alive::kill(pid.parse().unwrap()));
    });
}

#[watched_test]
fn lines_and_events_come_as_they_are_written() {
    one_thread().block_on(async {
        let mut lines = puppet(["lines=10000", "exit=3"]).lines_async().unwrap();
        let mut count = 0;
        while let Some(line) = lines.next().await {
            assert_eq!(line.unwrap().text, format!("line {count}"));
            count += 1;
        }
        assert_eq!((count, lines.finish().await.unwrap().status.code()), (10_000, Some(3)));

        let mut events = puppet(["out=a", "err=b", "exit=7"]).events_async().unwrap();
        let mut output = [Vec::new(), Vec::new()];
        let mut code = None;
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::Stdout(bytes) => output[0].extend(bytes),
                Event::Stderr(bytes) => output[1].extend(bytes),
                Event::Exited(ending) => code = ending.status.code(),
                _ => {}
            }
        }
        assert_eq!((output, code), ([b"a".to_vec(), b"b".to_vec()], Some(7)));

        // Left in the middle; the rest is read and dropped.
        let mut lines = puppet(["lines=100000"]).lines_async().unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap().source, Source::Stdout);
        assert!(lines.finish().await.unwrap().status.success());
    });
}

#[watched_test]
fn spawned_children_and_handles_are_waited_for() {
    one_thread().block_on(async {
        let child = puppet(["wait=0.05", "exit=3"]).spawn().unwrap();
        assert_eq!(child.wait_async().await.unwrap().code(), Some(3));
        assert_eq!(child.wait_async().await.unwrap().code(), Some(3), "again and again");
        let mut command = puppet(["cat-both", "exit=2"]);
        command.stdin(Stdio::bytes(flood(1_000_000)));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.read_all_bytes_async().await.unwrap();
        assert!(output.stdout == flood(1_000_000) && output.stderr == output.stdout);
        let child = puppet(["out=text"]).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(child.read_all_text_async().await.unwrap().stdout, "text");

        let process = puppet(["wait=600"]).start().unwrap();
        assert_eq!(process.try_wait_for_async(short()).await.unwrap(), None);
        let end = process.wait_or_kill_on_timeout_async(short()).await.unwrap();
        assert_eq!(end.outcome, Some(Outcome::TimedOut));
        ended_by(end.status.unwrap(), Signal::KILL);
        let process = puppet(["wait=600"]).start().unwrap();
        let token = CancelToken::new();
        let (end, ()) = tokio::join!(process.wait_or_kill_on_cancel_async(&token), async {
            token.cancel();
        });
        assert_eq!(end.unwrap().outcome, Some(Outcome::Cancelled));
        // Two tasks wait for the same one.
        let process = puppet(["wait=0.05", "exit=7"]).start().unwrap();
        let (a, b) = tokio::join!(process.wait_async(), process.wait_async());
        assert_eq!(
            (a.unwrap().status.unwrap().code(), b.unwrap().status.unwrap().code()),
            (Some(7), Some(7))
        );
    });
}

#[watched_test]
fn pipelines_run_too() {
    one_thread().block_on(async {
        let mut first = puppet(["cat"]);
        first.stdin(Stdio::bytes(flood(3_000_000)));
        let mut pipeline = first | puppet(["cat"]) | puppet(["cat", "exit=4"]);
        let output = pipeline.output_async().await.unwrap();
        assert!(output.stdout == flood(3_000_000));
        assert_eq!((output.stages.len(), output.status.code()), (3, Some(4)));
        let mut pipeline = puppet(["out=b\na\n"]) | puppet(["sort"]);
        assert_eq!(pipeline.read_async().await.unwrap(), "a\nb");
        assert!(pipeline.status_async().await.unwrap().success());
        let mut lines = pipeline.lines_async().unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap().text, "a");
        assert!(lines.finish().await.unwrap().status.success());
        let child = (puppet(["exit=3"]) | puppet(["exit=0"])).spawn().unwrap();
        assert_eq!(child.wait_async().await.unwrap().code(), Some(3));
        let mut pipeline = puppet(["wait=600"]) | puppet(["wait=600"]);
        let capture = pipeline.timeout(short()).capture_async().await.unwrap();
        assert_eq!(capture.outcome, Outcome::TimedOut);
    });
}

#[watched_test]
fn many_commands_run_at_once() {
    one_thread().block_on(async {
        let commands = (0..40).map(|code| puppet([format!("out={code}"), format!("exit={code}")]));
        let captures = run_all(commands).concurrency(7).captures_async().await;
        assert_eq!(captures.len(), 40);
        for (code, capture) in captures.into_iter().enumerate() {
            let capture = capture.unwrap();
            assert_eq!(
                (capture.stdout, capture.status.code()),
                (code.to_string(), Some(code as i32))
            );
        }
        let commands = [puppet(["wait=600"]), puppet(["exit=3"]), puppet(["exit=0"])];
        let captures = run_all(commands).concurrency(2).fail_fast().captures_async().await;
        assert_eq!(captures.len(), 2);
        assert_eq!(captures[0].as_ref().unwrap().outcome, Outcome::Cancelled);
        let token = CancelToken::new();
        let commands =
            (0..5).map(|_| puppet(["wait=600"]).env(MARK, alive::mark("cancel")).owned());
        let all = run_all(commands).concurrency(2).cancel(&token);
        let (captures, ()) = tokio::join!(all.captures_async(), async {
            until(|| alive::marked(MARK, "cancel").len() == 2).await;
            token.cancel();
        });
        assert!(captures.iter().all(|it| it.as_ref().unwrap().outcome == Outcome::Cancelled));
        assert_eq!(captures.len(), 2);
    });
}

#[cfg(unix)]
#[watched_test]
fn a_signal_is_passed_on_to_all_and_a_cancel_comes_through_after_it() {
    one_thread().block_on(async {
        let token = CancelToken::new();
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let script = |name: &str| {
            let mut command = Command::new("sh");
            let heard = path(name).display().to_string();
            let traps = "trap 'echo >\"$0.heard\"' USR1; trap 'exit 3' TERM; echo >\"$0.ready\"";
            command.args(["-c", &format!("{traps}; while :; do sleep 0.01; done"), &heard]).owned()
        };
        let all = run_all([script("a"), script("b")]).concurrency(2).cancel(&token);
        let (captures, ()) = tokio::join!(all.captures_async(), async {
            // Before that, it would end them.
            until(|| path("a.ready").exists() && path("b.ready").exists()).await;
            token.pass_on("USR1".parse().unwrap());
            until(|| path("a.heard").exists() && path("b.heard").exists()).await;
            token.cancel();
        });
        let codes: Vec<_> = captures.into_iter().map(|it| it.unwrap().status.code()).collect();
        assert_eq!(codes, [Some(3), Some(3)]);
    });
}

/// Waits for a fact, and lets other tasks work meanwhile.
pub(super) async fn until(fact: impl Fn() -> bool) {
    while !fact() {
        // Not at once: this may be the only processor.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[isolated_test]
fn outside_of_a_runtime_there_is_an_error_and_no_child() {
    let mut command = puppet(["wait=600"]);
    let mut running = std::pin::pin!(command.status_async());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(result) = running.as_mut().poll(&mut cx) else { panic!() };
    let error = result.unwrap_err();
    assert!(error.to_string().ends_with("there is no tokio runtime here"), "{error}");
    watchdog::until("it is reaped", || count::children().is_empty());
}

#[watched_test]
fn lines_and_events_continue_in_another_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let go = |name: &str| dir.path().join(name).display().to_string();
    // The first runtime is no longer driven, or gone.
    for (is_kept, file) in [(true, go("kept")), (false, go("dropped"))] {
        // With a time limit, for which the runtime has a timer.
        let start = || {
            let mut command = puppet(["lines=1", &format!("wait-for-file={file}"), "lines=1"]);
            command.timeout(Duration::from_secs(600)).owned()
        };
        let mut lines = start().lines_async().unwrap();
        let mut events = start().events_async().unwrap();
        let mut ends = run_all([start(), start()]).concurrency(2).as_they_end_async();
        let first = one_thread();
        first.block_on(async {
            assert_eq!(lines.next().await.unwrap().unwrap().text, "line 0");
            // No more output before the file exists.
            assert!(poll_once(lines.next()).is_pending());
            while !matches!(events.next().await.unwrap().unwrap(), Event::Stdout(_)) {}
            assert!(poll_once(events.next()).is_pending());
            assert!(poll_once(ends.next()).is_pending());
        });
        let first = is_kept.then_some(first);
        std::fs::write(&file, "").unwrap();
        one_thread().block_on(async {
            assert_eq!(lines.next().await.unwrap().unwrap().text, "line 0");
            assert!(lines.finish().await.unwrap().status.success());
            assert!(events.finish().await.unwrap().status.success());
            for _ in 0..2 {
                assert_eq!(ends.next().await.unwrap().1.unwrap().stdout.lines().count(), 2);
            }
        });
        drop(first);
    }
}

#[watched_test]
fn a_stream_that_is_always_ready_yields_to_other_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let written = dir.path().join("written").display().to_string();
    one_thread().block_on(async {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut row = LongestRun { turns, ..LongestRun::default() };

        // All output is there before the first line is taken.
        let acts = [&format!("out={}", "x\n".repeat(5000)), &format!("touch={written}")];
        let mut lines = puppet(acts).lines_async().unwrap();
        until(|| std::path::Path::new(&written).exists()).await;
        while let Some(line) = lines.next().await {
            assert_eq!(line.unwrap().text, "x");
            row.note();
        }
        assert!(row.longest < 1000, "{} of 5000 lines in a row", row.longest);

        row.longest = 0;
        let starts = pace::rounds(1000, 300);
        let missing = (0..starts).map(|_| Command::new("/no/such/program"));
        let mut ends = run_all(missing).as_they_end_async();
        while let Some((_, end)) = ends.next().await {
            assert!(end.is_err());
            row.note();
        }
        assert!(row.longest < starts / 2, "{} of {starts} starts in a row", row.longest);
        other.abort();
    });
}

/// A counter of repetitions during which no other task ran.
#[derive(Default)]
struct LongestRun {
    turns: Arc<AtomicUsize>,
    seen: usize,
    now: usize,
    longest: usize,
}

impl LongestRun {
    fn note(&mut self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.now = if turns == self.seen { self.now + 1 } else { 1 };
        self.seen = turns;
        self.longest = self.longest.max(self.now);
    }
}

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
    runtime.block_on(async { assert!(crate::async_pipes::poll_once(ends.next()).is_pending()) });
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
    runtime.block_on(async { assert!(crate::async_pipes::poll_once(wait.as_mut()).is_pending()) });
    refused(outside(wait));
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
    // A call that has started its child kills it, because no one else has a handle.
    let mut command: Command = puppet(["wait=600"]);
    command.env(MARK, alive::mark("moved"));
    let mut status = Box::pin(command.status_async());
    runtime
        .block_on(async { assert!(crate::async_pipes::poll_once(status.as_mut()).is_pending()) });
    refused(outside(status));
    watchdog::until("it is killed", || alive::marked(MARK, "moved").is_empty());
}

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
