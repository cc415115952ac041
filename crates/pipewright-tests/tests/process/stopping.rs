//! A child that is stopped by its handle, or waited for, from one thread or several, with a limit or without.

#[cfg(unix)]
use std::io::Write as _;
use std::time::{Duration, Instant};

use pipewright::{Child, Command, Outcome, PipelineChild, Signal, Stdio};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, watchdog};

use crate::async_pipes::poll_once;
use crate::async_verbs::one_thread;
use crate::{ended_by, printed_pid, puppet, short, with_time};

const LONG: Duration = Duration::from_secs(600);

fn idle() -> Child {
    puppet(["wait=600"]).spawn().unwrap()
}

fn idle_pipeline() -> PipelineChild {
    (puppet(["wait=600"]) | puppet(["wait=600"])).spawn().unwrap()
}

#[watched_test]
fn stop_sends_the_signal_and_waits() {
    let child = idle();
    assert_eq!(child.pid(), child.id());
    ended_by(child.stop().unwrap(), Signal::TERM);
    assert!(!alive::is_running(child.pid()));
    // Every later call returns at once: the child has exited.
    ended_by(child.stop().unwrap(), Signal::TERM);
    let child = puppet(["exit=3"]).spawn().unwrap();
    watchdog::until("it has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.stop().unwrap().code(), Some(3));
    let pipeline = idle_pipeline();
    let pids = pipeline.ids();
    ended_by(pipeline.stop().unwrap(), Signal::TERM);
    assert!(!pids.into_iter().any(alive::is_running));
    one_thread().block_on(async {
        ended_by(idle().stop_async().await.unwrap(), Signal::TERM);
        ended_by(idle_pipeline().stop_async().await.unwrap(), Signal::TERM);
        let (signal, grace) = (Signal::KILL, Duration::ZERO);
        ended_by(idle().stop_with_async(signal, grace).await.unwrap(), Signal::KILL);
        ended_by(idle_pipeline().stop_with_async(signal, grace).await.unwrap(), Signal::KILL);
    });
    ended_by(idle().stop_with(Signal::INT, Duration::ZERO).unwrap(), Signal::KILL);
    ended_by(idle_pipeline().stop_with(Signal::INT, LONG).unwrap(), Signal::INT);
}

#[watched_test]
fn a_stop_reaches_descendants() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "descendants are only held by pidfds");
    }
    let mut command = puppet(["spawn=wait=600", "wait=600"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let grandchild = printed_pid(&mut child);
    assert!(alive::is_running(grandchild));
    child.stop().unwrap();
    watchdog::until("it has ended too", || !alive::is_running(grandchild));
}

#[watched_test]
fn a_stop_follows_the_commands_options() {
    // Its own signal, and no grace to wait for.
    let mut command = puppet(["wait=600"]);
    let child = command.stop_signal(Signal::INT).kill_grace(LONG).spawn().unwrap();
    ended_by(child.stop().unwrap(), Signal::INT);
}

/// Returns a shell that records each TERM and continues. The file `ready` exists when it runs.
#[cfg(unix)]
fn outlives_stop(dir: &std::path::Path) -> Command {
    let mut command = Command::new("sh");
    let script = "trap 'echo x >> heard' TERM; : > ready; while :; do sleep 0.01; done";
    command.args(["-c", script]).current_dir(dir).owned()
}

#[cfg(unix)]
fn stop_requests(dir: &std::path::Path) -> usize {
    std::fs::read_to_string(dir.join("heard")).map_or(0, |text| text.lines().count())
}

#[cfg(unix)]
#[watched_test]
fn a_child_that_ignores_a_stop_is_killed_after_the_grace() {
    let requests = with_time(short(), |grace| {
        let dir = tempfile::tempdir().unwrap();
        let child = outlives_stop(dir.path()).kill_grace(grace).spawn().unwrap();
        watchdog::until("it has begun", || dir.path().join("ready").exists());
        let start = Instant::now();
        ended_by(child.stop().unwrap(), Signal::KILL);
        assert!(start.elapsed() >= grace);
        Some(stop_requests(dir.path())).filter(|requests| *requests > 0)
    });
    assert_eq!(requests, 1);
}

#[cfg(unix)]
#[watched_test]
fn a_dropped_stop_continues_with_the_next_wait() {
    with_time(short(), |grace| {
        let dir = tempfile::tempdir().unwrap();
        let child = outlives_stop(dir.path()).kill_grace(grace).spawn().unwrap();
        watchdog::until("it has begun", || dir.path().join("ready").exists());
        let start = Instant::now();
        one_thread().block_on(async { assert!(poll_once(child.stop_async()).is_pending()) });
        watchdog::until("it has been asked", || stop_requests(dir.path()) == 1);
        let now = child.try_wait().unwrap();
        // Later than that, this wait may have been the one that kills it.
        let is_early = start.elapsed() < grace;
        assert!(!is_early || now.is_none(), "{now:?}");
        ended_by(child.wait().unwrap(), Signal::KILL);
        assert_eq!(stop_requests(dir.path()), 1);
        is_early.then_some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn waits_with_a_limit_ask_once_and_kill_after_the_grace() {
    let soon = Duration::from_millis(20);
    let check = |waits: &dyn Fn(&Child) -> bool| {
        let requests = with_time(short(), |time| {
            let dir = tempfile::tempdir().unwrap();
            let mut command = outlives_stop(dir.path());
            let start = Instant::now();
            let child = command.timeout(time).kill_grace(time).spawn().unwrap();
            while !waits(&child) {}
            // None, if it was asked before it was ready, or had no time to note that.
            let requests = Some(stop_requests(dir.path())).filter(|requests| *requests > 0)?;
            assert!(start.elapsed() >= time * 2);
            ended_by(child.wait().unwrap(), Signal::KILL);
            Some(requests)
        });
        assert_eq!(requests, 1, "the number of stop requests");
    };
    check(&|child| child.try_wait_for(soon).unwrap().is_some());
    let runtime = one_thread();
    check(&|child| runtime.block_on(child.try_wait_for_async(soon)).unwrap().is_some());
    check(&|child| {
        let timeout = async { tokio::time::timeout(soon, child.wait_async()).await };
        runtime.block_on(timeout).is_ok()
    });
}

#[watched_test]
fn a_wait_with_a_limit_keeps_the_child() {
    let runtime = one_thread();
    for mut command in [puppet(["wait=600"]), puppet(["wait=600"]).timeout(LONG).owned()] {
        let child = command.spawn().unwrap();
        let start = Instant::now();
        assert_eq!(child.try_wait_for(short()).unwrap(), None);
        assert!(start.elapsed() >= short());
        assert_eq!(child.try_wait_for(Duration::ZERO).unwrap(), None);
        assert_eq!(runtime.block_on(child.try_wait_for_async(short())).unwrap(), None);
        assert!(start.elapsed() >= short() * 2);
        child.signal(Signal::KILL).unwrap();
        ended_by(child.try_wait_for(Duration::MAX).unwrap().unwrap(), Signal::KILL);
        ended_by(runtime.block_on(child.try_wait_for_async(LONG)).unwrap().unwrap(), Signal::KILL);
    }
    let pipeline = idle_pipeline();
    assert_eq!(pipeline.try_wait_for(short()).unwrap(), None);
    assert_eq!(runtime.block_on(pipeline.try_wait_for_async(short())).unwrap(), None);
    pipeline.kill().unwrap();
    ended_by(pipeline.try_wait_for(LONG).unwrap().unwrap(), Signal::KILL);
}

#[watched_test]
fn a_timeout_holds_while_a_limited_wait_waits() {
    let start = Instant::now();
    let child = puppet(["wait=600"]).timeout(short()).spawn().unwrap();
    ended_by(child.try_wait_for(LONG).unwrap().unwrap(), Signal::TERM);
    assert!(start.elapsed() >= short());
}

#[watched_test]
fn one_thread_stops_while_another_waits() {
    let mut command = puppet(["wait=600"]);
    let child = command.timeout(LONG).spawn().unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| child.wait().unwrap())).collect();
        ended_by(child.stop().unwrap(), Signal::TERM);
        for wait in waits {
            ended_by(wait.join().unwrap(), Signal::TERM);
        }
    });
}

#[watched_test]
fn a_stop_without_a_runtime_sends_no_signal() {
    let child = idle();
    let std::task::Poll::Ready(Err(error)) = poll_once(child.stop_async()) else { panic!() };
    assert_eq!(error.kind(), &pipewright::ErrorKind::Unsupported);
    assert!(alive::is_running(child.pid()));
    child.stop().unwrap();
}

#[watched_test]
fn one_thread_waits_while_another_kills() {
    let child = puppet(["wait=600"]).spawn().unwrap();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| child.wait().unwrap())).collect();
        assert_eq!(child.try_wait().unwrap(), None);
        assert!(child.signal(Signal::KILL).unwrap());
        for waiter in waiters {
            ended_by(waiter.join().unwrap(), Signal::KILL);
        }
    });
    ended_by(child.wait().unwrap(), Signal::KILL);
    ended_by(child.try_wait().unwrap().unwrap(), Signal::KILL);
}

#[cfg(unix)]
#[watched_test]
fn every_kind_of_exit_is_reported() {
    for code in [0, 1, 42, 255] {
        let capture = puppet([format!("exit={code}")]).capture().unwrap();
        assert_eq!((capture.outcome, capture.status.code()), (Outcome::Exited, Some(code)));
        assert_eq!(capture.success(), code == 0);
    }
    for name in ["KILL", "TERM", "SEGV", "ABRT"] {
        let mut command = puppet([format!("raise={name}")]);
        let capture =
            command.rlimit(pipewright::Resource::CoreDump, Some(0), Some(0)).capture().unwrap();
        let signal: Signal = name.parse().unwrap();
        assert_eq!(capture.outcome, Outcome::Signaled);
        assert_eq!(capture.status.terminating_signal(), Some(signal));
        assert_eq!(capture.status.code(), None);
        assert!(capture.status.to_string().contains(&signal.to_string()), "{}", capture.status);
    }
}

#[cfg(unix)]
#[watched_test]
fn usage_is_reported() {
    let capture = Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
        .capture()
        .unwrap();
    let usage = capture.usage.unwrap();
    assert!(usage.user + usage.system > Duration::ZERO);
    assert!(capture.elapsed >= usage.user);
}

#[cfg(unix)]
#[isolated_test]
fn peak_memory_is_reported_if_above_our_own() {
    let script = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let capture = Command::new("sh").args(["-c", script]).capture().unwrap();
    let peak = capture.usage.unwrap().peak_rss_bytes;
    assert!(peak.is_some_and(|bytes| bytes > 90_000_000), "{peak:?}");
}

#[cfg(unix)]
#[watched_test]
fn the_memory_of_the_parent_is_not_reported_as_the_childs() {
    let memory = vec![1_u8; 100 << 20];
    let capture = Command::new("true").capture().unwrap();
    let peak = capture.usage.unwrap().peak_rss_bytes;
    assert_eq!(peak, None, "true(1) uses less than this process, so its peak is unknown");
    assert_eq!(memory[memory.len() / 2], 1);
}

#[watched_test]
fn elapsed_is_at_least_what_the_child_took() {
    let start = Instant::now();
    let capture = puppet(["wait=0.2"]).capture().unwrap();
    assert!(capture.elapsed >= Duration::from_millis(200));
    assert!(capture.elapsed <= start.elapsed());
}

#[cfg(unix)]
#[watched_test]
fn a_signal_reaches_only_the_child() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let spawn = format!("spawn=wait-for-file={};out=grandchild", go.display());
    let mut command = puppet([spawn.as_str(), "wait=600"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _grandchild = alive::KillOnDrop(printed_pid(&mut child));
    assert!(child.signal(Signal::TERM).unwrap());
    watchdog::until("the child has ended", || child.try_wait().unwrap().is_some());
    std::fs::write(&go, b"").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut rest).unwrap();
    assert_eq!(rest, "grandchild");
    ended_by(child.wait().unwrap(), Signal::TERM);
}

#[cfg(unix)]
#[watched_test]
fn exec_replaces_the_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["stopping::execs_another_program", "--exact", "--nocapture", "--ignored"]);
    let text = command.env("PIPEWRIGHT_EXEC", "1").read().unwrap();
    assert!(text.ends_with("another program"), "{text}");
    let error = Command::new("/no/such/program").exec();
    assert!(error.to_string().contains("no such file"), "{error}");
}

#[cfg(unix)]
#[isolated_test]
fn a_grandchild_can_write_after_the_parents_exec() {
    let error = Command::new("/no/such/program").exec();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let (reader, mut writer) = pipewright::pipe(pipewright::PipeOptions::default()).unwrap();
    drop(reader);
    let error = writer.write(b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[cfg(unix)]
#[watched_test]
fn exec_refuses_options_that_need_a_parent() {
    // Uses a program that does not exist, because an existing one would replace this process.
    let words = |change: fn(&mut Command) -> &mut Command| {
        let error = change(&mut Command::new("/no/such/program")).exec();
        assert_eq!(error.kind(), &pipewright::ErrorKind::InvalidInput);
        error.to_string()
    };
    let said = words(|command| command.stdin(Stdio::bytes("input")));
    assert!(
        said.ends_with(
            "its stdin would pass through this process: use a file, a handle, null or inherit"
        ),
        "{said}"
    );
    let said = words(|command| command.stdout(Stdio::tee()));
    assert!(said.ends_with(
        "its stdout would pass through this process: use a file, a handle, null or inherit"
    ));
    let said = words(|command| command.timeout(Duration::from_secs(1)));
    assert!(
        said.ends_with(
            "a timeout or cancel token needs a call that waits: use `spawn` or `status`"
        ),
        "{said}"
    );
}

/// Runs in the process that the test above starts.
#[cfg(unix)]
#[watched_test]
#[ignore = "replaces the test program: only for exec_replaces_the_process"]
fn execs_another_program() {
    assert!(std::env::var_os("PIPEWRIGHT_EXEC").is_some());
    panic!("{}", Command::new("printf").arg("another program").exec());
}
