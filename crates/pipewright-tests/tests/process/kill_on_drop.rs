//! Children and calls that are dropped: each kills or keeps its child, as documented, and leaves no zombie and no
//! handle.

use std::collections::BTreeSet;
use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use pipewright::{
    AsyncRunner, CancelToken, Command, Event, Pipeline, ProcessHandle, Signal, Stdio, run_all,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::alive::{self, KillOnDrop};
use pipewright_tests::skip::{Need, is_forced_off, is_wine, skipped};
use pipewright_tests::{count, pace, watchdog};

use crate::async_verbs::one_thread;
use crate::{flood, printed_pid, puppet};

/// Waits until all of these processes are killed.
#[track_caller]
fn all_are_killed(pids: &[u32]) {
    watchdog::until("all of them are killed", || pids.iter().all(|pid| !alive::is_running(*pid)));
}

#[isolated_test]
fn a_dropped_child_is_killed_and_reaped() {
    let before = count::handles();
    for _ in 0..20 {
        let mut command = puppet(["ignore=TERM", "wait=600"]);
        let child = command.stdin(Stdio::piped()).kill_on_drop().spawn().unwrap();
        let pid = child.id();
        drop(child);
        all_are_killed(&[pid]);
    }
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("every handle is closed", || count::handles() == before);
}

#[watched_test]
fn the_kill_reaches_below_the_child() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let mut command = puppet(["spawn=wait=600", "wait=600"]);
    let mut child = command.stderr(Stdio::piped()).kill_on_drop().spawn().unwrap();
    let pids = [child.id(), printed_pid(&mut child)];
    let _clean = KillOnDrop(pids[1]);
    drop(child);
    all_are_killed(&pids);
}

#[cfg(unix)]
#[watched_test]
fn the_kill_reaches_the_group() {
    // The middle process has exited, so that only the group leads to the last.
    let acts = "spawn=wait=600";
    let script = format!("{} {acts} >&2; exec sleep 600", env!("CARGO_BIN_EXE_puppet"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stderr(Stdio::piped()).own_group().kill_on_drop();
    let mut child = command.spawn().unwrap();
    let pids = [child.id(), printed_pid(&mut child)];
    let _clean = KillOnDrop(pids[1]);
    drop(child);
    all_are_killed(&pids);
}

#[cfg(unix)]
#[watched_test]
fn dropped_lines_and_handles_kill_too() {
    let mut lines = puppet(["out=ready\n", "wait=600"]).kill_on_drop().lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "ready");
    let pid = lines.pid();
    drop(lines);
    all_are_killed(&[pid]);

    let process = puppet(["wait=600"]).kill_on_drop().start().unwrap();
    let pid = process.pid();
    drop(process);
    all_are_killed(&[pid]);

    // The setting moves with the child.
    let child = puppet(["wait=600"]).kill_on_drop().spawn().unwrap();
    let process = ProcessHandle::from(child);
    assert!(process.signal(Signal::CONT).unwrap());
    let pid = process.pid();
    drop(process);
    all_are_killed(&[pid]);
}

#[watched_test]
fn a_child_that_exited_keeps_its_daemons() {
    let mut command = puppet(["spawn=wait=600", "exit=3"]);
    let mut child = command.stderr(Stdio::piped()).kill_on_drop().spawn().unwrap();
    let daemon = KillOnDrop(printed_pid(&mut child));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(child);
    assert!(alive::is_running(daemon.0));

    // Calls that wait are not changed by it.
    assert_eq!(puppet(["out=x"]).kill_on_drop().read().unwrap(), "x");
}

#[isolated_test]
fn dropped_children_leave_no_zombie_and_no_handle() {
    let before = count::handles();
    for round in 0..pace::rounds(50, 10) {
        // Some have ended when they are dropped, some end later, some are waited for.
        let mut command = puppet([["exit=0", "wait=0.2"][round % 2]]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        if round % 5 == 0 {
            child.wait().unwrap();
        }
        drop(child);
    }
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("the reaper's own handles are closed", || count::handles() == before);
}

#[isolated_test]
fn a_dropped_child_keeps_running() {
    let dir = tempfile::tempdir().unwrap();
    let [go, done] = ["go", "done"].map(|name| dir.path().join(name));
    let acts = [format!("wait-for-file={}", go.display()), format!("touch={}", done.display())];
    let child = puppet(acts).spawn().unwrap();
    let pid = child.id();
    drop(child);
    assert!(alive::is_running(pid));
    std::fs::write(&go, b"").unwrap();
    watchdog::until("it has done its work", || done.exists());
    watchdog::until("it is reaped", || alive::state(pid).is_none());
}

#[isolated_test]
fn children_dropped_by_many_threads_are_reaped() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..pace::rounds(20, 4) {
                    drop(puppet(["wait=0.05"]).spawn().unwrap());
                }
            });
        }
    });
    watchdog::until("every child is reaped", || count::children().is_empty());
    let is_idle = || count::threads() <= 3;
    watchdog::until("the reaper has gone to rest", is_idle);
    // The thread starts again for the next one.
    drop(puppet(["wait=0.05"]).spawn().unwrap());
    watchdog::until("the last child is reaped", || count::children().is_empty());
    std::thread::park_timeout(Duration::from_millis(1));
}

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

/// Forgotten and detached children leave no zombie and no handle.
#[cfg(target_os = "linux")]
mod forgotten {
    use std::fs;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use pipewright::{Command, ErrorKind, Scope, Signal, Stdio};
    use pipewright_test_macros::{isolated_test, watched_test};
    use pipewright_tests::alive::{self, KillOnDrop};
    use pipewright_tests::{count, pace, watchdog};

    use super::super::tee::terminal;
    use super::super::{printed_pid, puppet};

    #[isolated_test]
    fn forgotten_and_detached_children_leave_no_zombie_and_no_handle() {
        let before = count::handles();
        for round in 0..pace::rounds(60, 24) {
            let mut command = puppet([["exit=0", "wait=0.1", "raise=KILL"][round % 3]]);
            match round % 4 {
                0 => drop(command.start_and_forget().unwrap()),
                1 => drop(command.detached().start_and_forget().unwrap()),
                2 => drop(command.detached().start().unwrap()),
                _ => drop(command.detached().stdout(Stdio::piped()).spawn().unwrap()),
            }
        }
        let error = Command::new("/no/such").start_and_forget().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NotFound { .. }), "{error}");
        watchdog::until("every child is reaped", || count::children().is_empty());
        watchdog::until("every handle is closed", || count::handles() == before);
        watchdog::until("the reaper has gone to rest", || count::threads() <= 3);
    }

    /// Returns the files behind the handles 0 to 2 of that process.
    fn stdio_of(pid: u32) -> [String; 3] {
        [0, 1, 2].map(|number| {
            let target = fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap();
            target.to_string_lossy().into_owned()
        })
    }

    #[isolated_test]
    fn a_forgotten_child_has_null_stdio_by_default() {
        let file = File::open("/etc/passwd").unwrap();
        // Our stdio must differ from null.
        // SAFETY: numbers; this process runs nothing but this test.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 0) }, 0);
        look_at_stdio();
    }

    fn look_at_stdio() {
        let null = || ["/dev/null"; 3].map(str::to_owned);
        let forgotten = KillOnDrop(puppet(["wait=600"]).start_and_forget().unwrap());
        assert_eq!(stdio_of(forgotten.0), null());
        let merged = KillOnDrop(puppet(["wait=600"]).merge_stderr().start_and_forget().unwrap());
        assert_eq!(stdio_of(merged.0), null());
        for process in [puppet(["wait=600"]).detached().start().unwrap(), {
            puppet(["wait=600"]).detached().spawn().unwrap().into()
        }] {
            assert_eq!(stdio_of(process.pid()), null());
            process.kill().unwrap();
        }

        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = puppet(["out=said", "wait=600"]);
        command.stdout(Stdio::create(&log)).stderr(Stdio::inherit()).detached();
        let process = KillOnDrop(command.start_and_forget().unwrap());
        let ours = fs::read_link("/proc/self/fd/2").unwrap().to_string_lossy().into_owned();
        let log_name = log.to_string_lossy().into_owned();
        assert_eq!(stdio_of(process.0), ["/dev/null".to_owned(), log_name, ours]);
        watchdog::until("it has written it", || fs::read_to_string(&log).unwrap() == "said");

        // Verbs that capture go on capturing.
        assert_eq!(puppet(["out=x"]).detached().read().unwrap(), "x");
    }

    #[watched_test]
    fn contradicting_options_are_refused() {
        let words = |change: fn(&mut Command) -> &mut Command| {
            let mut command = puppet(["exit=0"]);
            let error = change(&mut command).start_and_forget().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::InvalidInput);
            error.to_string()
        };
        let said = words(|command| command.detached().kill_on_parent_exit(Scope::Child));
        assert!(
            said.ends_with("`detached` and `kill_on_parent_exit` contradict each other"),
            "{said}"
        );
        let said = words(|command| command.detached().process_group(1));
        assert!(
            said.ends_with("`detached` starts a session, so no process group can be set"),
            "{said}"
        );
        let said = words(|command| command.kill_on_drop());
        assert!(said.ends_with("returns no handle, so `kill_on_drop` has no effect"), "{said}");
        let said = words(|command| command.own_group().foreground());
        assert!(
            said.ends_with("`foreground` needs a call that waits: use `spawn` or `status`"),
            "{said}"
        );
        // A group of its own comes with the session.
        assert!(puppet(["exit=0"]).detached().own_group().status().unwrap().success());
    }

    #[watched_test]
    fn a_detached_child_survives_the_end_of_the_terminal() {
        let (holder, terminal) = terminal();
        let mut command = puppet(["own-terminal", "detach=wait=600", "spawn=wait=600", "wait=600"]);
        command.own_session().stdin(terminal).stderr(Stdio::piped());
        let mut parent = command.spawn().unwrap();
        drop(command);
        let pids = read_lines(&mut parent, 2);
        let (detached, other) = (KillOnDrop(pids[0]), KillOnDrop(pids[1]));
        drop(holder);
        assert_eq!(parent.wait().unwrap().terminating_signal(), Some(Signal::HUP));
        watchdog::until("the other child is gone", || !alive::is_running(other.0));
        assert!(alive::is_running(detached.0));
    }

    /// Returns the numbers that a child writes to stderr, a line each.
    fn read_lines(child: &mut pipewright::Child, count: usize) -> Vec<u32> {
        let mut text = Vec::with_capacity(256);
        while text.iter().filter(|byte| **byte == b'\n').count() < count {
            assert_ne!(child.stderr.as_ref().unwrap().read_spare(&mut text).unwrap(), 0);
        }
        let text = String::from_utf8(text).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    #[watched_test]
    fn a_detached_child_survives_the_death_of_its_parent_and_a_signal_to_its_group() {
        for signal in [Signal::KILL, Signal::INT] {
            let mut command = puppet(["detach=wait=600", "wait=600"]);
            let mut parent = command.own_session().stderr(Stdio::piped()).spawn().unwrap();
            let detached = KillOnDrop(printed_pid(&mut parent));
            let group = rustix::process::Pid::from_raw(parent.id() as i32).unwrap();
            // The parent is not reaped, so the group is still its own.
            let by_number = rustix::process::Signal::from_named_raw(signal.number()).unwrap();
            rustix::process::kill_process_group(group, by_number).unwrap();
            assert_eq!(parent.wait().unwrap().terminating_signal(), Some(signal));
            assert!(alive::is_running(detached.0));
            let stat = fs::read_to_string(format!("/proc/{}/stat", detached.0)).unwrap();
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            // Fields 6 and 7 of proc(5): its session, which it leads, and its terminal, which is none.
            assert_eq!((fields[3], fields[4]), (detached.0.to_string().as_str(), "0"));
        }
    }
}
