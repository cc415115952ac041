//! Timeouts and cancels that hold while no call waits for the child.

use std::io::Read;
use std::time::{Duration, Instant};

use pipewright::{
    CancelToken, Child, Command, Event, Limit, Next, Outcome, PipeOptions, PipeReader,
    ProcessHandle, Runner, Signal, Stdio, TreeSlot, pipe, run_all,
};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::skip::{Need, is_forced_off, skipped};
use pipewright_tests::{alive, count, watchdog};

use super::async_pipes::poll_once;
use super::async_verbs::one_thread;
use super::{ended_by, later, puppet, short, with_time};

const LONG: Duration = Duration::from_secs(600);

/// Returns a command that writes a line and does not exit.
fn prints_and_waits() -> Command {
    let mut command = puppet(["out=said\n", "wait=600"]);
    command.stdout(Stdio::piped()).enforce_in_background();
    command
}

/// Does something else until the child has exited.
#[track_caller]
fn away(pid: u32) {
    watchdog::until("it is stopped without a wait", || !alive::is_running(pid));
}

/// Does something else for that long.
fn away_for(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

fn all_of(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[watched_test]
fn a_timeout_comes_between_two_lines() {
    let start = Instant::now();
    let mut lines = prints_and_waits().timeout(later()).lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    away(lines.pid());
    assert!(start.elapsed() >= later());
    assert!(lines.next().is_none());
    let ending = lines.finish().unwrap();
    assert_eq!(ending.outcome, Outcome::TimedOut);
    ended_by(ending.status, Signal::TERM);
}

#[watched_test]
fn a_cancel_comes_between_two_events() {
    let token = CancelToken::new();
    let mut events = prints_and_waits().cancel(&token).events().unwrap();
    assert!(matches!(events.next(), Some(Ok(Event::Started(_)))));
    token.cancel();
    away(events.pid());
    let Some(Ok(Event::Exited(ending))) = events.last() else { panic!("the end") };
    assert_eq!(ending.outcome, Outcome::Cancelled);
}

#[watched_test]
fn a_child_whose_streams_the_caller_reads_is_stopped() {
    let start = Instant::now();
    let mut child = prints_and_waits().timeout(later()).spawn().unwrap();
    assert_eq!(all_of(&mut child), "said\n");
    assert!(start.elapsed() >= later());
    ended_by(child.wait().unwrap(), Signal::TERM);
    let token = CancelToken::new();
    let mut child = prints_and_waits().cancel(&token).spawn().unwrap();
    token.cancel();
    all_of(&mut child);
    ended_by(child.wait().unwrap(), Signal::TERM);
}

#[watched_test]
fn a_later_wait_reports_the_enforced_timeout() {
    let stopped = || {
        let child = prints_and_waits().timeout(later()).spawn().unwrap();
        away(child.id());
        child
    };
    let output = stopped().wait_with_output().unwrap();
    assert_eq!((output.outcome, output.stdout.as_slice()), (Outcome::TimedOut, &b"said\n"[..]));
    let mut lines = stopped().read_all_lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
    let output = one_thread().block_on(stopped().wait_with_output_async()).unwrap();
    assert_eq!(output.outcome, Outcome::TimedOut);
    ended_by(stopped().wait().unwrap(), Signal::TERM);
    ended_by(stopped().stop().unwrap(), Signal::TERM);
}

#[watched_test]
fn output_of_a_spawned_child_is_kept() {
    let mut lines = prints_and_waits().timeout(later()).spawn().unwrap().read_all_lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    away(lines.pid());
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
}

#[watched_test]
fn a_pipeline_is_stopped_too() {
    let pipeline = || {
        let mut last = puppet(["cat"]);
        last.stdout(Stdio::piped());
        puppet(["out=said\n", "wait=600"]) | last
    };
    let child = pipeline().timeout(later()).enforce_in_background().spawn().unwrap();
    child.ids().into_iter().for_each(away);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.outcome, output.stdout.as_slice()), (Outcome::TimedOut, &b"said\n"[..]));
    let mut lines = pipeline().timeout(later()).enforce_in_background().lines().unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    away(lines.pid());
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
}

#[watched_test]
fn timeouts_hold_while_the_task_does_not_poll() {
    one_thread().block_on(async {
        let mut lines = prints_and_waits().timeout(later()).lines_async().unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap().text, "said");
        // A wait that is dropped, and then none.
        assert!(poll_once(lines.next()).is_pending());
        away(lines.pid());
        assert_eq!(lines.finish().await.unwrap().outcome, Outcome::TimedOut);
    });
}

#[watched_test]
fn a_child_that_has_ended_in_time_has_not_timed_out() {
    let command = || puppet(["out=said\n", "exit=3"]);
    with_time(short(), |limit| {
        let start = Instant::now();
        let mut command = command();
        command.timeout(limit).enforce_in_background();
        let lines = command.lines().unwrap();
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        away(lines.pid());
        away(child.id());
        let are_in_time = start.elapsed() < limit;
        are_in_time.then(|| {
            away_for(limit * 2);
            let ending = lines.finish().unwrap();
            assert_eq!((ending.outcome, ending.status.code()), (Outcome::Exited, Some(3)));
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.outcome, output.status.code()), (Outcome::Exited, Some(3)));
        })
    });
    // The same for a task that polls late, whichever thread keeps its deadline.
    let token = CancelToken::new();
    for mut command in [command().enforce_in_background().owned(), command()] {
        with_time(short(), |limit| {
            let start = Instant::now();
            one_thread().block_on(async {
                let mut lines = command.timeout(limit).cancel(&token).lines_async().unwrap();
                // With a line ready, and without.
                let _ = poll_once(lines.next());
                away(lines.pid());
                if start.elapsed() >= limit {
                    return None;
                }
                away_for(limit * 2);
                let ending = lines.finish().await.unwrap();
                assert_eq!((ending.outcome, ending.status.code()), (Outcome::Exited, Some(3)));
                Some(())
            })
        });
    }
    one_thread().block_on(async {
        let mut late = puppet(["out=said\n", "exit=3"]).cancel(&token).owned();
        let lines = late.lines_async().unwrap();
        away(lines.pid());
        token.cancel();
        assert_eq!(lines.finish().await.unwrap().outcome, Outcome::Exited);
    });
}

#[watched_test]
fn unread_output_is_not_idle() {
    let mut lines = prints_and_waits().idle_timeout(later()).lines().unwrap();
    // Also until that is reported.
    away_for(later() * 2);
    assert!(alive::is_running(lines.pid()));
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    away(lines.pid());
    assert_eq!(lines.finish().unwrap().outcome, Outcome::IdleTimedOut);
}

/// Returns a shell that records each signal and continues.
#[cfg(unix)]
fn outlives_stop(dir: &std::path::Path, grace: Duration) -> Command {
    let mut command = Command::new("sh");
    let traps = "trap 'echo x >> heard' TERM; trap 'echo x >> passed' USR1";
    let script = format!("{traps}; : > ready; while :; do sleep 0.01; done");
    command.args(["-c", &script]).current_dir(dir).stdout(Stdio::piped());
    command.kill_grace(grace).enforce_in_background().owned()
}

#[cfg(unix)]
#[watched_test]
fn a_background_stop_kills_after_the_grace() {
    with_time(short(), |grace| {
        let dir = tempfile::tempdir().unwrap();
        let count = |name: &str| {
            std::fs::read_to_string(dir.path().join(name)).map_or(0, |text| text.lines().count())
        };
        let token = CancelToken::new();
        let mut child = outlives_stop(dir.path(), grace).cancel(&token).spawn().unwrap();
        watchdog::until("it has begun", || dir.path().join("ready").exists());
        token.pass_on("USR1".parse().unwrap());
        watchdog::until("a signal is passed on", || count("passed") == 1);
        let start = Instant::now();
        token.cancel();
        all_of(&mut child);
        assert!(start.elapsed() >= grace);
        ended_by(child.wait().unwrap(), Signal::KILL);
        assert!(count("heard") <= 1);
        // The shell handles the stop between two commands, on a busy machine after the grace.
        (count("heard") == 1).then_some(())
    });
}

#[cfg(unix)]
#[watched_test]
fn a_dropped_stop_continues() {
    let dir = tempfile::tempdir().unwrap();
    let child = outlives_stop(dir.path(), short()).spawn().unwrap();
    watchdog::until("it has begun", || dir.path().join("ready").exists());
    one_thread().block_on(async { assert!(poll_once(child.stop_async()).is_pending()) });
    away(child.id());
    ended_by(child.wait().unwrap(), Signal::KILL);
}

#[watched_test]
fn a_blocking_wait_enforces_its_own_timeout() {
    let child = prints_and_waits().timeout(short()).spawn().unwrap();
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| child.wait().unwrap())).collect();
        for wait in waits {
            ended_by(wait.join().unwrap(), Signal::TERM);
        }
    });
    let mut lines = prints_and_waits().timeout(later()).lines().unwrap();
    assert!(lines.next().is_some() && lines.next().is_none());
    assert_eq!(lines.finish().unwrap().outcome, Outcome::TimedOut);
}

#[isolated_test]
fn one_background_thread_serves_all_runs_and_ends() {
    // Starts our other thread, which reaps, and allocates the permanent resources of std.
    drop(puppet(["exit=0"]).spawn().unwrap());
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("it has ended", || count::threads() <= 3);
    let (threads, handles) = (count::threads(), count::handles());
    let token = CancelToken::new();
    let children: Vec<_> =
        (0..20).map(|_| prints_and_waits().timeout(LONG).cancel(&token).spawn().unwrap()).collect();
    assert!(count::threads() <= threads + 1, "{} threads", count::threads());
    let lines: Vec<_> =
        (0..20).map(|_| prints_and_waits().timeout(short()).lines().unwrap()).collect();
    lines.iter().for_each(|lines| away(lines.pid()));
    assert!(children.iter().all(|child| alive::is_running(child.id())));
    assert!(count::threads() <= threads + 1, "{} threads", count::threads());
    drop(lines);
    for (number, child) in children.into_iter().enumerate() {
        match number % 3 {
            0 => drop(child.stop().unwrap()),
            1 => drop(ProcessHandle::from(child).kill().unwrap()),
            _ => {
                child.kill().unwrap();
                drop(child.wait_with_output().unwrap());
            }
        }
    }
    drop(token);
    watchdog::until("every child is reaped", || count::children().is_empty());
    watchdog::until("no thread is left", || count::threads() <= threads);
    watchdog::until("every handle is closed", || count::handles() <= handles);
}

#[watched_test]
fn a_dropped_child_loses_its_timeout_or_is_killed() {
    let child = prints_and_waits().timeout(LONG).kill_on_drop().spawn().unwrap();
    let pid = child.id();
    drop(child);
    // The drop waits for the end, but not long.
    watchdog::until("it is killed", || !alive::is_running(pid));
    with_time(short(), |limit| {
        let start = Instant::now();
        let child = puppet(["wait=600"]).timeout(limit).enforce_in_background().spawn().unwrap();
        let pid = child.id();
        drop(child);
        // Otherwise the drop may have been too late.
        let is_in_time = start.elapsed() < limit;
        away_for(limit * 2);
        let is_running = alive::is_running(pid);
        alive::kill(pid);
        is_in_time.then(|| assert!(is_running, "its timeout went with its handle"))
    });
}

/// A parked run belongs to the process that started it.
#[cfg(unix)]
#[isolated_test]
fn a_forked_process_enforces_only_its_own_timeouts() {
    if is_forced_off("pidfd") {
        return skipped(Need::Pidfd, "the fork is waited for by a pidfd");
    }
    let mut ours = prints_and_waits().timeout(LONG).spawn().unwrap();
    // SAFETY: the child only uses data of this thread, and ends by `_exit`.
    #[expect(clippy::disallowed_methods, reason = "tests a fork, as a daemon makes it")]
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let mut theirs = prints_and_waits().timeout(later()).spawn().unwrap();
        let is_fine = all_of(&mut theirs) == "said\n" && theirs.wait().is_ok();
        // SAFETY: it ends here.
        unsafe { libc::_exit(if is_fine { 0 } else { 1 }) };
    }
    let other = ProcessHandle::open(forked as u32).unwrap();
    assert!(other.wait().unwrap().status.unwrap().success());
    assert_eq!(ours.try_wait().unwrap(), None);
    ours.kill().unwrap();
    all_of(&mut ours);
    ours.wait().unwrap();
}

/// Returns a command that writes to both streams and then does not exit, and the reader of its stderr.
fn holds_a_pipe() -> (Command, PipeReader) {
    let (reader, writer) = pipe(PipeOptions::default()).unwrap();
    let mut command = puppet(["out=said\n", "err=up", "wait=600"]);
    (command.stderr(writer).enforce_in_background().owned(), reader)
}

/// Pushes commands that write to a pipe, with a timeout each. Returns the reader, which gets no end before all of them
/// have.
fn push_holders<K>(runner: &mut Runner<K>, keys: impl IntoIterator<Item = K>) -> PipeReader {
    let (reader, writer) = pipe(PipeOptions::default()).unwrap();
    let slot = TreeSlot::new().ok();
    for (number, key) in keys.into_iter().enumerate() {
        let mut command = puppet(["wait=600"]);
        command.stderr(writer.try_clone().unwrap()).timeout(later()).kill_grace(short());
        match (number, &slot) {
            // The runner does not wait for its start.
            (1, Some(slot)) => drop(command.contain_in(slot)),
            (2, _) if cfg!(unix) => drop(command.stop_signal("WINCH".parse().unwrap())),
            _ => {}
        }
        runner.push(key, command);
    }
    reader
}

fn all_timed_out<K: Copy + Ord + std::fmt::Debug>(runner: Runner<K>, keys: &[K]) {
    let mut ended: Vec<_> = runner
        .map(|(key, result)| {
            assert_eq!(result.unwrap().outcome, Outcome::TimedOut, "{key:?}");
            key
        })
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, keys);
}

#[watched_test]
fn the_timeouts_of_a_runner_hold_between_two_calls() {
    let mut runner = Runner::new(3).enforce_in_background();
    let mut end = push_holders(&mut runner, 0..3);
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    end.read_to_end(&mut Vec::new()).unwrap();
    all_timed_out(runner, &[0, 1, 2]);
    // Without times there is no thread, and the drop kills.
    let mut runner = Runner::new(1).enforce_in_background();
    runner.push((), puppet(["wait=600"]));
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    let pid = runner.pid(&()).unwrap();
    drop(runner);
    watchdog::until("it is killed", || !alive::is_running(pid));
}

#[watched_test]
fn the_timeout_of_the_command_that_a_runner_has_started_last_holds_between_two_calls() {
    let mut runner = Runner::new(1).enforce_in_background();
    runner.push(0, puppet(["exit=0"]));
    let mut end = push_holders(&mut runner, 1..2);
    // It starts in the place of the first one, when that has ended.
    assert!(runner.next().is_some_and(|(key, _)| key == 0));
    assert!(runner.pid(&1).is_some());
    end.read_to_end(&mut Vec::new()).unwrap();
    all_timed_out(runner, &[1]);
}

#[watched_test]
fn the_idle_timeout_of_a_start_in_a_slot_holds_between_two_calls() {
    let slot = match TreeSlot::new() {
        Ok(slot) => slot,
        Err(error) => return skipped(Need::Supervisor, error),
    };
    let (reader, writer) = pipe(PipeOptions::default()).unwrap();
    let mut command = puppet(["wait=600"]);
    command.stderr(writer).idle_timeout(later()).kill_grace(short()).contain_in(&slot);
    let mut runner = Runner::new(1).enforce_in_background();
    runner.push(0, puppet(["exit=0"]));
    runner.push(1, command);
    // The slot is asked then, and answers while nobody waits.
    assert!(runner.next().is_some_and(|(key, _)| key == 0));
    let mut end = reader;
    end.read_to_end(&mut Vec::new()).unwrap();
    let (key, capture) = runner.next().unwrap();
    assert_eq!((key, capture.unwrap().outcome), (1, Outcome::IdleTimedOut));
}

#[watched_test]
fn the_timeouts_of_a_runner_hold_in_the_closure_of_a_tee() {
    let mut runner = Runner::new(4).enforce_in_background();
    let mut end = push_holders(&mut runner, 1..4);
    let mut writes = puppet(["out=said", "wait=600"]);
    writes.timeout(later()).limit(Limit::keep_head(0).count_only());
    // It waits for a file, as it were, until the others are gone.
    writes.stdout(Stdio::tee_with(move |_| {
        end.read_to_end(&mut Vec::new()).unwrap();
    }));
    runner.push(0, writes);
    all_timed_out(runner, &[0, 1, 2, 3]);
}

#[watched_test]
fn a_timeout_comes_between_two_results_of_run_all() {
    let (mut slow, mut end) = holds_a_pipe();
    let commands = [slow.timeout(later()).owned(), puppet(["exit=0"])];
    let mut ends = run_all(commands).concurrency(2).as_they_end();
    assert_eq!(ends.next().unwrap().0, 1);
    // No call of `next`, and yet this ends.
    end.read_to_end(&mut Vec::new()).unwrap();
    let (index, slow) = ends.next().unwrap();
    assert_eq!((index, slow.unwrap().outcome), (0, Outcome::TimedOut));
    assert!(ends.next().is_none());
}

#[watched_test]
fn a_cancel_comes_between_two_results_of_a_runner() {
    let token = CancelToken::new();
    let (mut slow, mut end) = holds_a_pipe();
    let mut runner = Runner::new(2);
    runner.push("slow", slow.cancel(&token).owned());
    // Drops the command's copy of the pipe.
    drop(slow);
    runner.push("quick", puppet(["exit=0"]));
    assert_eq!(runner.next().unwrap().0, "quick");
    // Waits until the slow one has written: on a busy machine it may start after the quick one has exited.
    end.read_exact(&mut [0; 2]).unwrap();
    token.cancel();
    end.read_to_end(&mut Vec::new()).unwrap();
    let (key, slow) = runner.next().unwrap();
    let slow = slow.unwrap();
    assert_eq!((key, slow.outcome, slow.stdout.as_str()), ("slow", Outcome::Cancelled, "said\n"));
    // A run that is still parked when the runner is dropped is killed with it.
    let (slow, mut end) = holds_a_pipe();
    runner.push("left", slow);
    assert!(matches!(runner.next_within(Duration::ZERO), Next::Pending));
    drop(runner);
    end.read_to_end(&mut Vec::new()).unwrap();
}
