//! Counters of a pool: each call is counted before it returns.

use std::time::Duration;

use pipewright::CancelToken;
use pipewright_ipc::{ErrorKind, PendingCall, Pool, PoolOptions, Request};
use pipewright_test_macros::watched_test;
use pipewright_tests::pace;

use super::complains_and_ends;
use super::pool::{options, pool as start};

fn count_of_calls() -> u64 {
    if cfg!(windows) { 200 } else { pace::rounds(2_000, 200) as u64 }
}

#[watched_test]
fn a_reply_is_counted_before_the_call_returns() {
    let pool = start(options());
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
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    super::async_calls::run(async {
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
    let pool = start(PoolOptions { max_workers: 2, ..options() });
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
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    for number in 1..=count_of_calls() {
        pool.begin("fail x").unwrap().wait().unwrap_err();
        assert_eq!(pool.stats().failures, number);
    }
}

#[watched_test]
fn a_lost_call_and_its_worker_are_counted_before_it_returns() {
    let backoff = Duration::from_millis(1);
    let pool = start(PoolOptions {
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
    let pool = start(PoolOptions { max_workers: 1, ..options() });
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
