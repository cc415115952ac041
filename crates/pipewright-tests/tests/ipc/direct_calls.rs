//! Calls on an idle worker, which bypass the pool's thread: they behave as calls through it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pipewright::CancelToken;
use pipewright_ipc::{ErrorKind, Options, Pool, PoolOptions, Request, WorkerState};
use pipewright_test_macros::watched_test;
use pipewright_tests::{bodies, pace, watchdog};

use super::pool::{kill_one, number, options, pool as start};
use super::{exit_words, was_killed, worker};

/// Returns a pool with one idle worker, and its pid.
fn one_idle() -> (Pool, u64) {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    (pool, pid)
}

#[watched_test(limit = Duration::from_secs(120))]
fn callers_on_many_threads_get_their_own_replies() {
    let calls = if cfg!(windows) { 40 } else { pace::rounds(400, 60) as u64 };
    for (threads, max_workers, calls_per_worker) in [(1, 1, 1), (2, 2, 1), (4, 1, 1), (4, 2, 3)] {
        let pool = start(PoolOptions { max_workers, calls_per_worker, ..options() });
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
    let pool = start(PoolOptions { max_workers: 2, retries: 1_000, backoff, ..options() });
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
    for _ in 0..3 {
        let request = Request::new("wait 60000").timeout(pace::millis(30));
        let error = pool.call(request).unwrap_err();
        assert!(error.is_timeout() && error.to_string().contains("a reply"), "{error}");
        // The worker ends the call itself, and is kept.
        assert_eq!(number(&pool, "pid"), pid);
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
    assert_eq!((stats.cancelled, stats.died), (9, 0));
}

#[watched_test]
fn a_call_with_a_cancelled_token_does_not_start() {
    // A direct call has its reply before it needs to sleep, and so before it checks the token.
    let channel = Options { spin: Duration::from_millis(100), ..options().channel };
    let pool = start(PoolOptions { max_workers: 1, channel, ..options() });
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
