//! Callers that go too far: bodies over the limit, calls dropped at the worst moment, more calls than a worker
//! may have, a dropped pool, and a line function that panics.

use std::time::Duration;

#[cfg(unix)]
use pipewright::CancelToken;
use pipewright_ipc::{
    CallEvent, ErrorKind, OnLine, Options, PendingCall, Pool, PoolOptions, Request, WorkerState,
};
#[cfg(unix)]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, watchdog};

use super::pool::{number, options, pool as start};
use super::worker;

#[watched_test]
fn a_body_that_is_too_long_fails_only_its_own_call() {
    // Whichever side refuses the length.
    for (kind, max_message_bytes) in [("calls,ring=65536,most=1000", 1 << 20), ("calls", 1000)] {
        let channel = Options { max_message_bytes, ..options().channel };
        let options = PoolOptions { max_workers: 1, calls_per_worker: 4, channel, ..options() };
        let pool = Pool::new(worker(kind), options).unwrap();
        let pid = number(&pool, "pid");
        let too_long = ErrorKind::TooLong { bytes: 1001, most: 1000 };
        let body = |length: usize| [b"echo ".to_vec(), vec![b'x'; length - 5]].concat();
        for _ in 0..3 {
            // By the caller itself, and by the pool's thread with others beside it.
            let error = pool.call(Request::new(body(1001)).idempotent()).unwrap_err();
            assert_eq!(error.kind(), &too_long);
            let calls = [1000, 1001, 1000].map(|it| pool.begin(body(it)).unwrap());
            let [before, long, after] = calls.map(PendingCall::wait);
            assert_eq!((before.unwrap().len(), after.unwrap().len()), (995, 995));
            assert_eq!(long.unwrap_err().kind(), &too_long);
            assert_eq!(pool.call(body(1000)).unwrap().len(), 995);
        }
        // The worker's reply, either way; its question; and the answer to that.
        for _ in 0..2 {
            let error = pool.call("long 1001").unwrap_err();
            let ErrorKind::Failed { message, .. } = error.kind() else { panic!("{error}") };
            assert!(message.contains("1001"), "{message}");
            let error = pool.begin("long 1001").unwrap().wait().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Failed { .. }), "{error}");
            assert_eq!(pool.call("long 1000").unwrap().len(), 1000);
        }
        let mut call = pool.begin("ask x").unwrap();
        let CallEvent::Question(question) = call.next().unwrap() else { panic!("no question") };
        question.answer(vec![0; 1001]);
        let error = call.wait().unwrap_err();
        assert!(error.to_string().contains("1001"), "{error}");
        assert_eq!(number(&pool, "pid"), pid);
        let stats = pool.stats();
        assert_eq!((stats.started, stats.died, stats.lost), (1, 0, 0));
    }
}

#[watched_test]
fn a_worker_never_has_more_calls_than_its_limit() {
    let options = PoolOptions { max_workers: 1, calls_per_worker: 10_000, ..options() };
    let pool = start(options);
    // The worker checks for a cancel, and reads the frames that have arrived.
    let first = pool.begin("wait 200").unwrap();
    let calls: Vec<PendingCall> = (0..3000).map(|_| pool.begin("count").unwrap()).collect();
    assert_eq!(*first.wait().unwrap(), *b"done");
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(*call.wait().unwrap(), *(number + 2).to_string().as_bytes());
    }
    assert_eq!((pool.stats().started, pool.stats().died), (1, 0));
}

#[watched_test]
fn calls_dropped_as_their_reply_arrives_affect_no_other_call() {
    const ROUNDS: u64 = if cfg!(windows) { 100 } else { 2000 };
    let pool = start(PoolOptions { max_workers: 2, calls_per_worker: 3, ..options() });
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let call = pool.begin(format!("echo {round}")).unwrap();
                    match (round + thread) % 4 {
                        0 => drop(call),
                        1 => call.cancel(),
                        2 => {
                            call.cancel();
                            let result = call.wait();
                            let is_cancelled = |error: &pipewright_ipc::Error| {
                                error.kind() == &ErrorKind::Cancelled
                            };
                            assert!(result.as_ref().err().is_none_or(is_cancelled), "{result:?}");
                        }
                        _ => assert_eq!(*call.wait().unwrap(), *round.to_string().as_bytes()),
                    }
                    let reply = pool.call(format!("echo {round}")).unwrap();
                    assert_eq!(*reply, *round.to_string().as_bytes());
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.died, stats.lost, stats.retries), (0, 0, 0), "{stats:?}");
    pool.shut_down();
}

#[watched_test]
fn waiting_threads_get_an_error_when_the_pool_is_dropped() {
    for rounds in 0..5 {
        let pool = start(options());
        let calls: Vec<PendingCall> = (0..20).map(|_| pool.begin("hang").unwrap()).collect();
        if rounds > 0 {
            watchdog::until("workers have some", || {
                pool.stats().workers.iter().any(|it| it.state == WorkerState::Busy)
            });
        }
        std::thread::scope(|scope| {
            let waits: Vec<_> = calls.into_iter().map(|it| scope.spawn(|| it.wait())).collect();
            drop(pool);
            for wait in waits {
                let error = wait.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::ShutDown);
            }
        });
    }
}

#[watched_test]
fn thousands_of_waiting_calls_get_the_start_error() {
    let backoff = Duration::from_millis(1);
    let options = PoolOptions { min_workers: 2, backoff, ..options() };
    let pool = Pool::new(pipewright::Command::new("/no/such/worker"), options).unwrap();
    let calls: Vec<PendingCall> = (0..4000).filter_map(|_| pool.begin("x").ok()).collect();
    for call in calls {
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Start);
    }
    // Also later callers.
    assert_eq!(pool.call("x").unwrap_err().kind(), &ErrorKind::Start);
    assert_eq!(pool.stats().started, 0);
}

#[watched_test]
fn a_pool_with_no_restart_delay_accepts_calls() {
    let options = PoolOptions { min_workers: 1, backoff: Duration::ZERO, ..options() };
    let pool = Pool::new(pipewright::Command::new("/no/such/worker"), options).unwrap();
    assert_eq!(pool.call("x").unwrap_err().kind(), &ErrorKind::Start);
    pool.shut_down();
}

#[watched_test]
fn a_panicking_line_function_ends_the_pool() {
    let on_line = OnLine::new(|_| panic!("this panic is part of the test"));
    let pool = start(PoolOptions { max_workers: 2, on_line: Some(on_line), ..options() });
    let pid = number(&pool, "pid") as u32;
    let other = pool.begin("hang").unwrap();
    // Its line may be read after its answer.
    let is_over = |call| pool.call(call).is_err_and(|it| it.kind() == &ErrorKind::ShutDown);
    watchdog::until("nothing is answered any more", || is_over("print 1"));
    assert_eq!(other.wait().unwrap_err().kind(), &ErrorKind::ShutDown);
    assert!(is_over("pid"));
    watchdog::until("the worker is gone", || !alive::is_running(pid));
    pool.shut_down();
}

#[cfg(unix)]
#[isolated_test]
fn a_token_that_cannot_be_waited_for_is_an_error() {
    let pool = start(PoolOptions { max_workers: 1, ..options() });
    number(&pool, "pid");
    let files = rustix::process::Resource::Nofile;
    let most = rustix::process::getrlimit(files);
    let few = rustix::process::Rlimit { current: Some(64), ..most };
    rustix::process::setrlimit(files, few).unwrap();
    let token = CancelToken::new();
    let request = || Request::new("hang").cancel(&token);
    let open = || std::fs::File::open("/dev/null").ok();
    let all: Vec<_> = std::iter::from_fn(open).collect();
    for error in [pool.begin(request()).unwrap_err(), pool.call(request()).unwrap_err()] {
        assert_eq!(error.kind(), &ErrorKind::Io, "{error}");
    }
    drop(all);
    let call = pool.begin(request()).unwrap();
    token.cancel();
    assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
}
