//! A good worker of a pool: calls, items, questions, cancellation and resets.

use pipewright_ipc::{
    CallEvent, ErrorKind, Options, PendingCall, Pool, PoolOptions, Request, SharedMemory,
};
use pipewright_tests::pace;

use super::language::Client;
use crate::pool::{number, options, until_busy};

/// Returns a pool of one worker.
pub(super) fn one(client: &Client) -> Pool {
    pool(client, PoolOptions { max_workers: 1, ..options() })
}

pub(super) fn pool(client: &Client, options: PoolOptions) -> Pool {
    Pool::new(client.worker("calls ring=65536"), options).unwrap()
}

pub(super) fn many_calls_are_answered(client: &Client) {
    for shared_memory in [SharedMemory::Auto, SharedMemory::Off] {
        for calls_per_worker in [1, 8] {
            let channel = Options { shared_memory, ..options().channel };
            let pool = pool(
                client,
                PoolOptions { calls_per_worker, max_workers: 2, channel, ..options() },
            );
            let body = |number: usize| vec![number as u8; number * 7919 % 120_000];
            let calls: Vec<PendingCall> = (0..100)
                .map(|number| pool.begin([b"echo ".to_vec(), body(number)].concat()).unwrap())
                .collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert!(*call.wait().unwrap() == *body(number), "call {number}");
            }
            let stats = pool.stats();
            assert_eq!((stats.died, stats.lost), (0, 0));
            pool.shut_down();
        }
    }
}

pub(super) fn a_failed_call_is_an_error_and_its_worker_is_kept(client: &Client) {
    let pool = one(client);
    let pid = number(&pool, "pid");
    let error = pool.call("fail for this reason").unwrap_err();
    let reason = ErrorKind::Failed { message: "for this reason".to_owned(), bytes: 15 };
    assert_eq!(error.kind(), &reason);
    assert!(matches!(pool.call("no-such-act").unwrap_err().kind(), ErrorKind::Failed { .. }));
    assert_eq!(number(&pool, "pid"), pid);
}

pub(super) fn an_exception_without_a_text_fails_only_its_call(client: &Client) {
    let pool = one(client);
    let pid = number(&pool, "pid");
    let error = pool.call("fail-without-text").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Failed { bytes: 1.., .. }), "{error}");
    assert_eq!(number(&pool, "pid"), pid);
}

pub(super) fn items_are_paced_by_their_reader(client: &Client) {
    let pool = one(client);
    for window in [1, 2, 7] {
        let mut call = pool.begin(Request::new("items 100").in_pieces(window)).unwrap();
        for number in 0..100 {
            match call.next().unwrap() {
                CallEvent::Item(item) => assert_eq!(item, number.to_string().as_bytes()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(*call.wait().unwrap(), *b"done");
    }
    let error = pool.call("items 1").unwrap_err();
    assert!(error.to_string().contains("accepts no items"), "{error}");
    // Dropped while the worker waits for credit.
    let unread = pool.begin(Request::new("items 1000000").in_pieces(4)).unwrap();
    until_busy(&pool);
    drop(unread);
    assert_eq!(*pool.call("echo hi").unwrap(), *b"hi");
    assert_eq!(pool.stats().started, 1);
}

pub(super) fn a_worker_asks_its_caller(client: &Client) {
    let pool = one(client);
    let mut call = pool.begin("asks 50").unwrap();
    let reply = loop {
        match call.next().unwrap() {
            CallEvent::Question(question) => {
                let number: u64 = std::str::from_utf8(question.bytes()).unwrap().parse().unwrap();
                question.answer((number * 2).to_string().into_bytes());
            }
            CallEvent::Reply(reply) => break reply,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(*reply, *b"2450");
    let mut call = pool.begin("ask for a reason").unwrap();
    let CallEvent::Question(question) = call.next().unwrap() else { panic!("no question") };
    assert_eq!(question.bytes(), b"for a reason");
    question.decline("not today");
    let error = call.wait().unwrap_err();
    assert!(error.to_string().contains("not today"), "{error}");
    let error = pool.call("ask anybody").unwrap_err();
    assert!(error.to_string().contains("does not answer questions"), "{error}");
    assert_eq!(pool.stats().started, 1);
}

pub(super) fn an_answer_arrives_behind_long_calls_that_wait(client: &Client) {
    let pool = pool(client, PoolOptions { max_workers: 1, calls_per_worker: 16, ..options() });
    let mut asking = pool.begin("ask first").unwrap();
    let CallEvent::Question(question) = asking.next().unwrap() else { panic!("no question") };
    // More than a worker would keep unread.
    let body = vec![7; 6 << 20];
    let begin = || pool.begin([&b"echo "[..], &body].concat()).unwrap();
    let waiting: Vec<PendingCall> = (0..6).map(|_| begin()).collect();
    question.answer("the answer");
    assert_eq!(*asking.wait().unwrap(), *b"the answer");
    for call in waiting {
        assert!(*call.wait().unwrap() == *body);
    }
    assert_eq!(pool.stats().started, 1);
}

pub(super) fn a_cancelled_call_ends_and_its_worker_is_kept(client: &Client) {
    let pool = one(client);
    let pid = number(&pool, "pid");
    for request in ["wait 60000", "ask me"] {
        let call = pool.begin(request).unwrap();
        until_busy(&pool);
        call.cancel();
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
        assert_eq!(number(&pool, "pid"), pid);
    }
}

pub(super) fn a_call_that_is_cancelled_while_it_waits_is_not_started(client: &Client) {
    let pool = pool(client, PoolOptions { max_workers: 1, calls_per_worker: 3, ..options() });
    let mut busy = pool.begin("ask me").unwrap();
    // A worker asks in a call that it has started.
    let CallEvent::Question(_question) = busy.next().unwrap() else { panic!("no question") };
    let cancelled = pool.begin("exit 9").unwrap();
    let after = pool.begin("count").unwrap();
    // In this order: the worker hears of the one that waits first.
    for call in [cancelled, busy] {
        call.cancel();
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    }
    assert_eq!(*after.wait().unwrap(), *b"2");
    assert_eq!(pool.stats().died, 0);
}

pub(super) fn a_reset_is_acknowledged(client: &Client) {
    let reset_timeout = Some(pace::seconds(20));
    let pool = pool(client, PoolOptions { max_workers: 1, reset_timeout, ..options() });
    let pid = number(&pool, "pid");
    assert_eq!([(); 5].map(|()| number(&pool, "count")), [1; 5]);
    assert_eq!(number(&pool, "pid"), pid);
    // One that cannot be reset.
    let options = PoolOptions { max_workers: 1, reset_timeout, ..options() };
    let pool = Pool::new(client.worker("echo ring=65536"), options).unwrap();
    let workers: Vec<u64> = (0..2).map(|_| pool.call("x").unwrap().worker()).collect();
    assert_eq!(workers, [1, 2]);
}

pub(super) fn a_dead_worker_fails_its_calls_with_its_status(client: &Client) {
    let pool = one(client);
    let error = pool.call("exit 7").unwrap_err();
    let ErrorKind::Lost { status, stderr_tail, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(status.unwrap().code(), Some(7));
    assert_eq!(stderr_tail, "a line before\nthe last line");
    assert_eq!(*pool.call("echo still here").unwrap(), *b"still here");
}

pub(super) fn a_body_that_is_too_long_fails_only_its_own_call(client: &Client) {
    let command = client.worker("calls ring=65536 most=1000");
    let pool = Pool::new(command, PoolOptions { max_workers: 1, ..options() }).unwrap();
    let pid = number(&pool, "pid");
    let too_long = ErrorKind::TooLong { bytes: 1001, most: 1000 };
    assert_eq!(pool.call(vec![b'x'; 1001]).unwrap_err().kind(), &too_long);
    let error = pool.call("long 1001").unwrap_err();
    let ErrorKind::Failed { message, .. } = error.kind() else { panic!("{error}") };
    assert!(message.contains("1001"), "{message}");
    assert_eq!(pool.call("long 1000").unwrap().len(), 1000);
    assert_eq!(number(&pool, "pid"), pid);
}
