//! A pool: a crashing, leaking, hanging or hostile worker costs only its own calls, and no accepted call loses
//! its reply.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use pipewright::{CancelToken, ProcessHandle, Signal};
use pipewright_ipc::{
    ErrorKind, OnLine, Options, PendingCall, Pool, PoolOptions, Request, WorkerState, WorkerStatus,
};
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, bodies, pace, watchdog};

use crate::{complains_and_ends, exit_words, was_killed, worker};

/// Returns options with small rings, as a pool that starts hundreds of workers makes as many, and without a
/// timer that could hide a missed wake-up.
pub(super) fn options() -> PoolOptions {
    PoolOptions {
        max_workers: 3,
        idle_timeout: None,
        cancel_grace: Duration::from_secs(60),
        channel: Options { ring_bytes: 64 << 10, ..Options::default() },
        ..PoolOptions::default()
    }
}

pub(super) fn pool(options: PoolOptions) -> Pool {
    Pool::new(worker("calls,ring=65536"), options).unwrap()
}

pub(super) fn number(pool: &Pool, call: &str) -> u64 {
    String::from_utf8(pool.call(call).unwrap().into_bytes()).unwrap().parse().unwrap()
}

pub(super) fn until_busy(pool: &Pool) {
    watchdog::until("a worker has a call", || {
        pool.stats().workers.iter().any(|it| it.state == WorkerState::Busy)
    });
}

#[watched_test]
fn calls_use_as_many_workers_as_allowed() {
    for calls_per_worker in [1, 4] {
        let pool = pool(PoolOptions { calls_per_worker, ..options() });
        assert_eq!(pool.stats().started, 0);
        let calls: Vec<PendingCall> =
            (0..200).map(|number| pool.begin(format!("body {number}")).unwrap()).collect();
        let mut expected = Vec::new();
        for (number, call) in calls.into_iter().enumerate() {
            let number = number as u64;
            let reply = call.wait().unwrap();
            assert_eq!(reply.attempts(), 1);
            bodies::check(number, bodies::length(number), &reply, &mut expected);
        }
        let stats = pool.stats();
        assert!((1..=3).contains(&stats.started), "{stats:?}");
        assert_eq!((stats.died, stats.lost), (0, 0));
        pool.shut_down();
    }
}

#[watched_test]
fn a_dead_worker_fails_its_own_calls_with_its_status() {
    let pool = pool(options());
    // Two others are busy meanwhile.
    let others = ["wait 300", "wait 300"].map(|it| pool.begin(it).unwrap());
    let error = pool.call("exit 7").unwrap_err();
    let ErrorKind::Lost { status, stderr_tail, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(status.unwrap().code(), Some(7));
    assert_eq!(stderr_tail, "a line before\nthe last line of 7");
    let text = error.to_string();
    let words = format!("ended during the call: {}: the last line of 7", exit_words(7));
    assert!(text.ends_with(&words), "{text}");
    let error = pool.call("abort").unwrap_err();
    let ErrorKind::Lost { status: Some(status), .. } = error.kind() else { panic!("{error}") };
    assert!(error.to_string().contains(&status.to_string()), "{error}");
    assert_eq!(status.terminating_signal(), cfg!(unix).then_some(Signal::ABRT), "{status}");
    let error = pool.call("panic at the worker").unwrap_err();
    assert!(error.to_string().contains("worker"), "{error}");
    for other in others {
        assert_eq!(*other.wait().unwrap(), *b"done");
    }
    assert_eq!(*pool.call("echo still here").unwrap(), *b"still here");
}

#[cfg(target_os = "linux")]
#[watched_test]
fn a_worker_that_ran_out_of_memory_says_so() {
    use pipewright::Limits;
    use pipewright_tests::skip::{Need, skipped};

    let mut command = worker("calls");
    command.limits(Limits::new().memory_max(64 << 20).memory_swap_max(0));
    let pool = Pool::new(command, options()).unwrap();
    let error = pool.call("leak 200000000").unwrap_err();
    if matches!(error.kind(), ErrorKind::Start) {
        skipped(Need::TreeLimits, error);
        return;
    }
    let ErrorKind::Lost { out_of_memory: Some(lack), .. } = error.kind() else { panic!("{error}") };
    assert!(error.to_string().ends_with(&lack.to_string()), "{error}");
    assert_eq!(*pool.call("echo still here").unwrap(), *b"still here");
}

#[watched_test]
fn a_failed_call_is_an_error_and_its_worker_is_kept() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    let error = pool.call("fail for this reason").unwrap_err();
    let reason = ErrorKind::Failed { message: "for this reason".to_owned(), bytes: 15 };
    assert_eq!(error.kind(), &reason);
    assert_eq!(error.to_string(), "the worker failed: for this reason");
    assert_eq!(number(&pool, "pid"), pid);
    let stats = pool.stats();
    assert_eq!((stats.failures, stats.died), (1, 0));
}

#[watched_test]
fn a_hanging_worker_is_killed_when_no_caller_waits() {
    let cancel_grace = Duration::from_millis(50);
    let pool = pool(PoolOptions { max_workers: 1, cancel_grace, ..options() });
    let pid = number(&pool, "pid");
    let error = pool.call(Request::new("hang").timeout(pace::seconds(1))).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
    let next = number(&pool, "pid");
    assert_ne!(next, pid);
    // Also if the worker is stopped.
    #[cfg(unix)]
    {
        let stopped = rustix::process::Pid::from_raw(next as i32).unwrap();
        rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
        watchdog::until("it is stopped", || alive::state(next as u32) == Some('T'));
        let error = pool.call(Request::new("pid").timeout(pace::seconds(1))).unwrap_err();
        assert!(error.to_string().contains("is stopped"), "{error}");
        assert_ne!(number(&pool, "pid"), next);
    }
}

#[watched_test]
fn a_worker_that_honours_a_cancel_is_kept() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    let call = pool.begin("wait 60000").unwrap();
    until_busy(&pool);
    call.cancel();
    assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    assert_eq!(number(&pool, "pid"), pid);
}

#[watched_test]
fn dropped_calls_are_not_started() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let token = pipewright::CancelToken::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("begun");
    let request = format!("wait-with-file {}", file.display());
    let busy = pool.begin(Request::new(request).cancel(&token)).unwrap();
    // A cancel that overtakes the call is not counted as a call.
    watchdog::until("the worker has begun the call", || file.exists());
    let dropped = pool.begin("exit 9").unwrap();
    let late = pool.begin(Request::new("exit 9").timeout(Duration::from_millis(20))).unwrap();
    assert!(late.wait().unwrap_err().is_timeout());
    drop(dropped);
    token.cancel();
    assert_eq!(busy.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    assert_eq!(*pool.call("count").unwrap(), *b"2");
    assert_eq!(pool.stats().died, 0);
}

#[watched_test]
fn worker_output_is_not_a_reply_and_is_bounded() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&lines);
    let on_line = OnLine::new(move |line| {
        taken.lock().unwrap().push((line.pid, line.call.is_some(), line.text.to_owned()));
    });
    let pool = pool(PoolOptions { max_workers: 1, on_line: Some(on_line), ..options() });
    for _ in 0..10 {
        assert_eq!(*pool.call("pollute").unwrap(), *b"done");
        assert_eq!(*pool.call("print 20").unwrap(), *b"done");
    }
    let pid = number(&pool, "pid") as u32;
    let error = pool.call("exit 3").unwrap_err();
    let ErrorKind::Lost { stderr_tail, .. } = error.kind() else { panic!("{error}") };
    assert!(stderr_tail.len() <= 16 << 10 && stderr_tail.ends_with("the last line of 3"));
    pool.shut_down();
    let lines = lines.lock().unwrap();
    assert!(lines.iter().all(|(whose, _, text)| *whose == pid && text.len() <= 3 * (16 << 10)));
    let count = |words: &str| lines.iter().filter(|(_, _, text)| text.ends_with(words)).count();
    assert_eq!(count("line 19 on stdout"), 10);
    assert_eq!(count("line 19 on stderr"), 10);
    assert!(lines.iter().any(|(_, during_call, _)| *during_call));
}

#[watched_test]
fn a_streamed_reply_is_paced_by_its_reader() {
    let pool = pool(options());
    for window in [1, 2, 7] {
        let mut call = pool.begin(Request::new("items 100").in_pieces(window)).unwrap();
        for number in 0..100 {
            match call.next().unwrap() {
                pipewright_ipc::CallEvent::Item(item) => {
                    assert_eq!(item, number.to_string().as_bytes())
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(*call.wait().unwrap(), *b"done");
    }
    let error = pool.call("items 1").unwrap_err();
    assert!(error.to_string().contains("accepts no items"), "{error}");
    // An unread reply delays no other call, and is dropped.
    let untaken = pool.begin(Request::new("items 1000000").in_pieces(4)).unwrap();
    assert_eq!(*pool.call("echo hi").unwrap(), *b"hi");
    drop(untaken);
}

#[watched_test]
fn a_worker_can_ask_its_caller() {
    let pool = pool(options());
    let mut call = pool.begin("asks 50").unwrap();
    let reply = loop {
        match call.next().unwrap() {
            pipewright_ipc::CallEvent::Question(question) => {
                let number: u64 = std::str::from_utf8(question.bytes()).unwrap().parse().unwrap();
                // The function may call a worker itself.
                let doubled = pool.call(format!("echo {}", number * 2)).unwrap();
                question.answer(doubled.into_bytes());
            }
            pipewright_ipc::CallEvent::Reply(reply) => break reply,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(*reply, *(0..50).map(|it| it * 2).sum::<u64>().to_string().as_bytes());
    let error = pool.call("ask anybody").unwrap_err();
    assert!(error.to_string().contains("does not answer questions"), "{error}");
}

#[watched_test]
fn a_worker_that_breaks_the_protocol_is_killed_and_its_call_fails() {
    let wrong_answers = [
        ("18,7", "a reply to a call that the worker does not have"),
        ("21,1", "an item without credit"),
        ("22,1", "credit without items"),
        ("16,1", "a frame of kind 16 from a worker"),
        ("27,0", "a reply to a call that the worker does not have"),
        ("31,1", "a frame of kind 31 from a worker"),
        ("8,1", "unexpected frame of kind 8"),
        // It continues, and the pool kills it for that.
        ("10,0", "the other side has closed the connection"),
    ];
    for (wrong_answer, words) in wrong_answers {
        let pool = Pool::new(worker(&format!("liar,{wrong_answer}")), options()).unwrap();
        let error = pool.call("echo").unwrap_err();
        let ErrorKind::Lost { status, .. } = error.kind() else { panic!("{error}") };
        was_killed(status.unwrap());
        assert!(error.to_string().contains(words), "{wrong_answer}: {error}");
    }
    // A worker without calls is refused.
    let pool = Pool::new(worker("liar,none"), options()).unwrap();
    let error = pool.call("echo").unwrap_err();
    assert!(error.to_string().contains("can differs"), "{error}");
}

#[watched_test]
fn requests_and_replies_can_be_values() {
    let pool = Pool::new(worker("sums,ring=65536"), options()).unwrap();
    let reply = pool.call(Request::of(&vec![1_u64, 2, 300]).unwrap()).unwrap();
    assert_eq!(reply.value::<(u64, usize)>().unwrap(), (303, 3));
    assert_eq!(reply.value::<Vec<String>>().unwrap_err().kind(), &ErrorKind::Codec);
    let error = pool.call("\u{7f}no numbers").unwrap_err();
    let ErrorKind::Failed { message, .. } = error.kind() else { panic!("{error}") };
    assert!(message.starts_with("cannot (de)serialize the message"), "{message}");
}

#[watched_test]
fn a_call_to_a_full_pool_is_an_error() {
    let pool = pool(PoolOptions { max_workers: 1, max_waiting: 5, ..options() });
    let busy = pool.begin("wait 60000").unwrap();
    until_busy(&pool);
    let waiting: Vec<PendingCall> = (0..5).map(|_| pool.begin("echo").unwrap()).collect();
    assert_eq!(pool.begin("echo").unwrap_err().kind(), &ErrorKind::Full { most: 5 });
    drop(busy);
    for call in waiting {
        assert_eq!(*call.wait().unwrap(), *b"");
    }
}

#[watched_test]
fn callers_get_the_error_of_workers_that_cannot_start() {
    let start = |command| Pool::new(command, options()).unwrap().call("echo").unwrap_err();
    let error = start(pipewright::Command::new("/no/such/worker"));
    assert_eq!(error.kind(), &ErrorKind::Start);
    let error = start(worker("calls,app=another"));
    assert!(error.to_string().contains("app differs"), "{error}");
    let error = start(complains_and_ends());
    assert!(error.to_string().ends_with(&format!("{}: no disk", exit_words(4))), "{error}");
    let channel = Options { handshake_timeout: Duration::from_millis(100), ..options().channel };
    let pool = Pool::new(worker("mute"), PoolOptions { channel, start_attempts: 1, ..options() });
    let error = pool.unwrap().call("echo").unwrap_err();
    assert!(error.to_string().contains("timed out waiting for the handshake"), "{error}");
}

#[watched_test(limit = Duration::from_secs(300))]
fn ten_thousand_calls_lose_no_reply_while_workers_are_killed() {
    // Wine takes a tenth of a second and more for each worker that is started.
    const CALLS: usize = if cfg!(windows) { 600 } else { 10_000 };
    let backoff = Duration::from_millis(1);
    let pool = pool(PoolOptions { retries: 1_000, calls_per_worker: 2, backoff, ..options() });
    let mut open: VecDeque<(usize, PendingCall)> = VecDeque::new();
    let (mut kills, mut lost, mut began) = (0, 0, 0);
    for ended in 0..CALLS {
        while open.len() < 30 && began < CALLS {
            let request = Request::new(format!("echo {began}"));
            let request = if began % 4 == 0 { request } else { request.idempotent() };
            open.push_back((began, pool.begin(request).unwrap()));
            began += 1;
        }
        // Not at the end, when the remaining workers may be enough.
        if ended % 50 == 49 && began < CALLS {
            watchdog::until("one is killed", || kill_one(&pool));
            kills += 1;
        }
        let (number, call) = open.pop_front().unwrap();
        match call.wait() {
            Ok(reply) => assert_eq!(*reply, *number.to_string().as_bytes()),
            Err(error) => {
                assert!(number % 4 == 0, "call {number} was promised: {error}");
                let ErrorKind::Lost { status, .. } = error.kind() else { panic!("{error}") };
                was_killed(status.unwrap());
                lost += 1;
            }
        }
    }
    // Two at a time at most.
    assert!(lost <= 2 * kills, "{lost} of {kills}");
    watchdog::until("the pool has counted the same", || {
        let stats = pool.stats();
        (stats.lost as usize, stats.replies as usize) == (lost, CALLS - lost)
    });
    pool.shut_down();
}

/// Kills one of the pool's workers. Returns false if none is certainly running.
pub(super) fn kill_one(pool: &Pool) -> bool {
    let stats = pool.stats();
    // Wine's server crashes if a process is killed right after its start.
    let has_begun = |it: &&WorkerStatus| it.state != WorkerState::Starting;
    let Some(pid) = stats.workers.iter().find(has_begun).map(|it| it.pid) else { return false };
    // The pid could have passed to another process since.
    #[cfg(unix)]
    let is_ours = || alive::is_child_of(pid, std::process::id());
    // Not while the process is held, and pids are not reused soon there.
    #[cfg(windows)]
    let is_ours = || true;
    match ProcessHandle::open(pid) {
        Ok(process) => is_ours() && process.kill().unwrap_or(false),
        // Without pidfds.
        Err(_) => {
            let is_ours = is_ours();
            is_ours.then(|| alive::kill(pid));
            is_ours
        }
    }
}

#[watched_test]
fn shutdown_finishes_started_calls_and_kills_workers_that_stay() {
    let pool = pool(options());
    let calls: Vec<PendingCall> = (0..20).map(|_| pool.begin("wait 10").unwrap()).collect();
    let pids: Vec<u32> = std::iter::repeat_with(|| number(&pool, "pid") as u32).take(5).collect();
    pool.shut_down();
    for call in calls {
        assert_eq!(*call.wait().unwrap(), *b"done");
    }
    for pid in pids {
        watchdog::until("the worker is gone", || !alive::is_running(pid));
    }
    // A plain drop of the pool waits for nothing.
    let pool = self::pool(options());
    let call = pool.begin("hang").unwrap();
    until_busy(&pool);
    drop(pool);
    assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::ShutDown);
}

fn count_of_calls() -> u64 {
    if cfg!(windows) { 200 } else { pace::rounds(2_000, 200) as u64 }
}

#[watched_test]
fn a_reply_is_counted_before_the_call_returns() {
    let pool = pool(options());
    for number in 1..=count_of_calls() {
        pool.begin("echo x").unwrap().wait().unwrap();
        let stats = pool.stats();
        assert_eq!(stats.replies, number);
        let jobs: u64 = stats.workers.iter().map(|worker| worker.jobs).sum();
        assert_eq!(jobs, number);
    }
    // All at once, and the last one is waited for.
    let calls: Vec<PendingCall> =
        (0..count_of_calls()).map(|_| pool.begin("echo x").unwrap()).collect();
    for call in calls {
        call.wait().unwrap();
    }
    assert_eq!(pool.stats().replies, 2 * count_of_calls());
}

#[watched_test]
fn a_reply_is_counted_before_the_future_resolves() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    crate::async_calls::run(async {
        for number in 1..=count_of_calls() {
            match number % 3 {
                0 => pool.begin("echo x").unwrap().await.unwrap(),
                1 => pool.call_async("echo x").await.unwrap(),
                _ => pool.call("echo x").unwrap(),
            };
            let stats = pool.stats();
            assert_eq!((stats.replies, stats.workers[0].jobs), (number, number));
        }
    });
}

#[watched_test]
fn calls_of_many_threads_are_counted_when_they_return() {
    let pool = pool(PoolOptions { max_workers: 2, ..options() });
    let threads = 4;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for number in 1..=count_of_calls() / 10 {
                    pool.call("echo x").unwrap();
                    pool.call("fail x").unwrap_err();
                    let stats = pool.stats();
                    let jobs: u64 = stats.workers.iter().map(|worker| worker.jobs).sum();
                    assert!(stats.replies >= number && stats.failures >= number, "{stats:?}");
                    assert!(jobs >= 2 * number, "{stats:?}");
                }
            });
        }
    });
    let stats = pool.stats();
    let all = threads * (count_of_calls() / 10);
    assert_eq!((stats.replies, stats.failures), (all, all));
    assert_eq!(stats.workers.iter().map(|worker| worker.jobs).sum::<u64>(), 2 * all);
}

#[watched_test]
fn a_failed_call_is_counted_before_it_returns() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    for number in 1..=count_of_calls() {
        pool.begin("fail x").unwrap().wait().unwrap_err();
        assert_eq!(pool.stats().failures, number);
    }
}

#[watched_test]
fn a_lost_call_and_its_worker_are_counted_before_it_returns() {
    let backoff = Duration::from_millis(1);
    let pool = pool(PoolOptions {
        max_workers: 1,
        retries: 1,
        backoff,
        max_backoff: backoff,
        ..options()
    });
    for number in 1..=if cfg!(windows) { 3 } else { pace::rounds(20, 4) as u64 } {
        let request = Request::new("exit 3").idempotent();
        let error = pool.begin(request).unwrap().wait().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
        let stats = pool.stats();
        let counted = (stats.lost, stats.retries, stats.died, stats.started);
        assert_eq!(counted, (number, number, 2 * number, 2 * number));
    }
}

#[watched_test]
fn a_cancelled_call_is_counted_before_it_returns() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    pool.call("echo x").unwrap();
    let mut cancelled = 0;
    for _ in 0..if cfg!(windows) { 5 } else { 50 } {
        // Cancelled at the worker or in the queue; by its token; before any worker has it; at its deadline.
        let call = pool.begin("wait 60000").unwrap();
        call.cancel();
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
        cancelled += 1;
        assert_eq!(pool.stats().cancelled, cancelled);
        let token = CancelToken::new();
        let call = pool.begin(Request::new("wait 60000").cancel(&token)).unwrap();
        token.cancel();
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
        cancelled += 1;
        assert_eq!(pool.stats().cancelled, cancelled);
        let call = pool.begin(Request::new("echo x").cancel(&token)).unwrap();
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
        cancelled += 1;
        assert_eq!(pool.stats().cancelled, cancelled);
        let late = Request::new("wait 60000").timeout(Duration::from_millis(1));
        assert!(pool.begin(late).unwrap().wait().unwrap_err().is_timeout());
        cancelled += 1;
        assert_eq!(pool.stats().cancelled, cancelled);
    }
}

#[watched_test]
fn failed_starts_are_counted_before_the_call_returns() {
    let backoff = Duration::from_millis(1);
    for number in 1..=if cfg!(windows) { 2 } else { pace::rounds(20, 4) as u32 } {
        let options =
            PoolOptions { start_attempts: number, backoff, max_backoff: backoff, ..options() };
        let pool = Pool::new(complains_and_ends(), options).unwrap();
        pool.begin("x").unwrap().wait().unwrap_err();
        assert_eq!(pool.stats().failed_starts, u64::from(number));
    }
}

/// Returns a pool with one idle worker, and its pid.
fn one_idle() -> (Pool, u64) {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    (pool, pid)
}

#[watched_test(limit = Duration::from_secs(120))]
fn callers_on_many_threads_get_their_own_replies() {
    let calls = if cfg!(windows) { 40 } else { pace::rounds(400, 60) as u64 };
    for (threads, max_workers, calls_per_worker) in [(1, 1, 1), (2, 2, 1), (4, 1, 1), (4, 2, 3)] {
        let pool = pool(PoolOptions { max_workers, calls_per_worker, ..options() });
        let together = Barrier::new(threads as usize);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (pool, together) = (&pool, &together);
                scope.spawn(move || {
                    let mut expected = Vec::new();
                    together.wait();
                    for number in thread * calls..(thread + 1) * calls {
                        if number % 3 == 0 {
                            let error = pool.call(format!("fail {number}")).unwrap_err();
                            assert!(error.to_string().ends_with(&format!(": {number}")), "{error}");
                            continue;
                        }
                        // Small ones and, now and then, one longer than the ring.
                        let which = if number % 50 == 0 { number } else { number % 8 };
                        let reply = pool.call(format!("body {which}")).unwrap();
                        bodies::check(which, bodies::length(which), &reply, &mut expected);
                    }
                });
            }
        });
        let all = threads * calls;
        let failures = (0..all).filter(|number| number % 3 == 0).count() as u64;
        watchdog::until("the pool has counted the same", || {
            let stats = pool.stats();
            (stats.replies, stats.failures) == (all - failures, failures)
        });
        let stats = pool.stats();
        assert!(stats.started as usize <= max_workers, "{stats:?}");
        assert_eq!((stats.died, stats.lost, stats.retries, stats.cancelled), (0, 0, 0, 0));
        watchdog::until("every job has its worker", || {
            let stats = pool.stats();
            stats.workers.iter().map(|worker| worker.jobs).sum::<u64>() == all
        });
        pool.shut_down();
    }
}

#[watched_test]
fn a_worker_exit_fails_its_call_and_the_next_call_gets_a_new_worker() {
    let (pool, pid) = one_idle();
    let error = pool.call("exit 7").unwrap_err();
    let ErrorKind::Lost { pid: whose, status, stderr_tail, attempts: 1, .. } = error.kind() else {
        panic!("{error:?}")
    };
    assert_eq!((u64::from(*whose), status.unwrap().code()), (pid, Some(7)));
    assert_eq!(stderr_tail, "a line before\nthe last line of 7");
    assert!(error.to_string().contains(&exit_words(7)), "{error}");
    assert_ne!(number(&pool, "pid"), pid);
    // An idempotent call is retried on the next worker, up to its limit.
    let error = pool.call(Request::new("exit 8").idempotent()).unwrap_err();
    assert!(error.to_string().contains(&exit_words(8)), "{error}");
    assert!(matches!(error.kind(), ErrorKind::Lost { attempts: 3, .. }), "{error:?}");
    assert!(error.to_string().contains("ended during the call (attempt 3): "), "{error}");
    watchdog::until("each is counted", || {
        let stats = pool.stats();
        (stats.died, stats.lost, stats.retries) == (4, 2, 2)
    });
    assert_eq!(number(&pool, "count"), 1);
}

#[watched_test]
fn an_idle_worker_that_exits_costs_no_call() {
    let rounds = if cfg!(windows) { 3 } else { 30 };
    let (pool, mut pid) = one_idle();
    for _ in 0..rounds {
        let handle = pipewright::ProcessHandle::open(pid as u32);
        match handle {
            Ok(process) => assert!(process.kill().unwrap()),
            Err(_) => pipewright_tests::alive::kill(pid as u32),
        }
        // The loss may be seen before the exit is reported, but not before the kill: sent bytes are lost.
        watchdog::until("it has ended", || !pipewright_tests::alive::is_running(pid as u32));
        let next = number(&pool, "pid");
        assert_ne!(next, pid);
        pid = next;
    }
    let stats = pool.stats();
    assert_eq!((stats.died, stats.lost), (rounds, 0));
}

#[watched_test(limit = Duration::from_secs(120))]
fn no_accepted_call_loses_its_reply_while_workers_are_killed() {
    let kills = if cfg!(windows) { 10 } else { pace::rounds(100, 20) };
    let backoff = Duration::from_millis(1);
    let pool = pool(PoolOptions { max_workers: 2, retries: 1_000, backoff, ..options() });
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (pool, is_over) = (&pool, &is_over);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let request = Request::new(format!("echo {thread} {number}"));
                    // Every fourth call may be lost, with a killed worker.
                    let is_promised = number % 4 != 0;
                    let request = if is_promised { request.idempotent() } else { request };
                    match pool.call(request) {
                        Ok(reply) => assert_eq!(*reply, *format!("{thread} {number}").as_bytes()),
                        Err(error) => {
                            assert!(!is_promised, "{error}");
                            let ErrorKind::Lost { status, .. } = error.kind() else {
                                panic!("{error}")
                            };
                            was_killed(status.unwrap());
                        }
                    }
                }
            });
        }
        for kill in 0..kills {
            watchdog::until("one is killed", || kill_one(&pool));
            watchdog::until("that is known", || pool.stats().died > kill as u64);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(pool.stats().failures, 0);
    pool.shut_down();
}

#[watched_test]
fn a_call_ends_at_its_deadline_or_cancel() {
    let (pool, pid) = one_idle();
    let (mut time, mut ended, mut late) = (pace::millis(30), 0, 0);
    while late < 3 {
        let error = pool.call(Request::new("wait 60000").timeout(time)).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        ended += 1;
        // The worker ends the call itself, and is kept.
        assert_eq!(number(&pool, "pid"), pid);
        let words = error.to_string();
        match words.contains("a reply") {
            true => late += 1,
            // On a busy machine the time may be over before the worker has the call.
            false => {
                assert!(words.starts_with("timed out waiting for a worker"), "{words}");
                time *= 2;
            }
        }
    }
    for _ in 0..3 {
        let token = CancelToken::new();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| pool.call(Request::new("wait 60000").cancel(&token)));
            watchdog::until("the worker has it", || {
                pool.stats().workers.iter().any(|it| it.state == WorkerState::Busy)
            });
            token.cancel();
            let error = call.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Cancelled);
        });
        assert_eq!(number(&pool, "pid"), pid);
        // One that was cancelled before.
        let error = pool.call(Request::new("wait 60000").cancel(&token)).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Cancelled);
        assert_eq!(number(&pool, "pid"), pid);
    }
    let stats = pool.stats();
    assert_eq!((stats.cancelled, stats.died), (ended + 6, 0));
}

#[watched_test]
fn a_call_with_a_cancelled_token_does_not_start() {
    // A direct call has its reply before it needs to sleep, and so before it checks the token.
    let channel = Options { spin: Duration::from_millis(100), ..options().channel };
    let pool = pool(PoolOptions { max_workers: 1, channel, ..options() });
    let before = (0..200).map(|_| number(&pool, "count")).max().unwrap();
    let token = CancelToken::new();
    token.cancel();
    // By direct calls, and by the thread of the pool.
    for _ in 0..20 {
        let request = || Request::new("count").cancel(&token);
        let ends = [pool.call(request()), pool.begin(request()).unwrap().wait()];
        for end in ends {
            assert_eq!(end.unwrap_err().kind(), &ErrorKind::Cancelled);
        }
    }
    assert_eq!(number(&pool, "count"), before + 1);
    assert_eq!(pool.stats().cancelled, 40);
}

#[watched_test]
fn concurrent_callers_get_the_worker_next() {
    let (pool, pid) = one_idle();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| pool.call("wait 100"));
        watchdog::until("the worker has it", || {
            pool.stats().workers.iter().any(|it| it.state == WorkerState::Busy)
        });
        let others: Vec<_> = (0..20).map(|_| pool.begin("pid").unwrap()).collect();
        for other in others {
            assert_eq!(*other.wait().unwrap(), *pid.to_string().as_bytes());
        }
        assert_eq!(*slow.join().unwrap().unwrap(), *b"done");
    });
}

/// The second reply arrives while the worker is idle, or with the next call.
#[watched_test]
fn a_worker_that_answers_twice_is_replaced() {
    let pool = Pool::new(worker("liar,18,1,18,1"), PoolOptions { max_workers: 1, ..options() });
    let pool = pool.unwrap();
    assert_eq!(*pool.call("x").unwrap(), *b"");
    // The next one does not know the number of this call.
    let error = pool.call("x").unwrap_err();
    let ErrorKind::Lost { status, .. } = error.kind() else { panic!("{error}") };
    was_killed(status.unwrap());
    let words = "a reply to a call that the worker does not have";
    assert!(error.to_string().contains(words), "{error}");
}
