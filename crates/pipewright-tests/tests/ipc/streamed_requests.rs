//! Requests that items follow.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use pipewright_ipc::{CallEvent, ErrorKind, Pool, PoolOptions, Request};
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, bodies, watchdog};

use super::pool::{number, options, pool, until_busy};
use super::{both_ways, worker};

#[watched_test]
fn items_of_a_request_arrive_whole_and_in_order() {
    for channel in both_ways() {
        let pool = pool(PoolOptions { channel, ..options() });
        for count in [0, 1, 300_u64] {
            let (mut items, call) = pool.begin_with_items("count-items").unwrap();
            let mut body = Vec::new();
            for number in 0..count {
                bodies::body(number, bodies::length(number), &mut body);
                items.send(&*body).unwrap();
            }
            items.finish();
            assert_eq!(*call.wait().unwrap(), *count.to_string().as_bytes());
        }
        // A request that comes as a whole has no items.
        assert_eq!(*pool.call("count-items").unwrap(), *b"0");
        // Other acts ignore them, and the worker is used again.
        let (items, call) = pool.begin_with_items("echo ignored").unwrap();
        assert_eq!(*call.wait().unwrap(), *b"ignored");
        drop(items);
        let stats = pool.stats();
        assert_eq!((stats.died, stats.cancelled), (0, 0), "{stats:?}");
    }
}

#[watched_test]
fn items_go_both_ways_at_once() {
    let pool = pool(options());
    for window in [1, 16] {
        assert_eq!(exchange(&pool, window, 2_000), b"2000");
    }
}

/// Sends items to a worker that sends each back, receives them at the same time, and returns the reply.
pub(super) fn exchange(pool: &Pool, window: u32, count: u32) -> Vec<u8> {
    let request = Request::new("echo-items").in_pieces(window);
    let (mut items, mut call) = pool.begin_with_items(request).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..count {
                items.send(number.to_le_bytes()).unwrap();
            }
            items.finish();
        });
        for number in 0..count {
            let CallEvent::Item(item) = call.next().unwrap() else { panic!("{number}") };
            assert_eq!(item, number.to_le_bytes());
        }
    });
    call.wait().unwrap().to_vec()
}

/// Polls a future once. Nothing wakes it.
pub(super) fn is_ready(future: impl Future<Output = Result<(), pipewright_ipc::Error>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        std::task::Poll::Ready(sent) => sent.map(|()| true).unwrap(),
        std::task::Poll::Pending => false,
    }
}

#[watched_test]
fn the_worker_decides_how_many_items_are_on_their_way() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    // It sends each back, and nobody takes them.
    let request = Request::new("echo-items").in_pieces(1);
    let (mut items, call) = pool.begin_with_items(request).unwrap();
    items.send("first").unwrap();
    let mut sent = 1;
    // One was returned, the worker waits with another one, and it accepts more only for half of the sixteen.
    watchdog::until("as many as the worker accepts were sent", || {
        sent += usize::from(is_ready(items.send_async("next")));
        sent == 16
    });
    // A worker that has not begun accepts none.
    let (mut others, other) = pool.begin_with_items("take-items").unwrap();
    assert!(!is_ready(others.send_async("x")) && !is_ready(items.send_async("one more")));
    items.finish();
    assert_eq!(*call.wait().unwrap(), *b"16");
    others.send(Vec::new()).unwrap();
    drop(others);
    assert_eq!(other.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
}

#[watched_test]
fn a_worker_may_reply_before_the_last_item() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    for _ in 0..50 {
        let (mut items, call) = pool.begin_with_items("first-item").unwrap();
        items.send("the first").unwrap();
        let error = loop {
            if let Err(error) = items.send("another") {
                break error;
            }
        };
        assert_eq!(error.kind(), &ErrorKind::CallEnded);
        assert_eq!(*call.wait().unwrap(), *b"the first");
    }
    assert_eq!(pool.stats().died, 0);
}

#[watched_test]
fn a_sender_that_is_dropped_before_the_end_cancels_the_call() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    let (mut items, call) = pool.begin_with_items("take-items").unwrap();
    items.send(Vec::new()).unwrap();
    drop(items);
    assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    // The worker has ended the call, and does not take the beginning for all of it.
    assert_eq!(number(&pool, "pid"), pid);
    // Dropping the call ends the items.
    let (mut items, call) = pool.begin_with_items("take-items").unwrap();
    drop(call);
    watchdog::until("no more items are taken", || items.send("x").is_err());
    assert_eq!(number(&pool, "pid"), pid);
}

#[watched_test]
fn a_worker_that_knows_of_the_cancellation_does_not_wait_for_items_or_credit() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let pid = number(&pool, "pid");
    for request in ["after-cancel take", "after-cancel send"] {
        let request = Request::new(request).in_pieces(1);
        let (_items, call) = pool.begin_with_items(request).unwrap();
        until_busy(&pool);
        call.cancel();
        assert_eq!(call.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
        assert_eq!(number(&pool, "pid"), pid);
    }
}

#[watched_test]
fn a_call_with_items_is_not_retried() {
    let pool = pool(PoolOptions { max_workers: 1, ..options() });
    let request = Request::new("exit-at-item").idempotent();
    let (mut items, call) = pool.begin_with_items(request).unwrap();
    while items.send("x").is_ok() {}
    let error = call.wait().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { attempts: 1, .. }), "{error:?}");
    // Also if the worker is killed while it waits for an item.
    let pid = number(&pool, "pid") as u32;
    let (mut items, call) = pool.begin_with_items("take-items").unwrap();
    items.send(Vec::new()).unwrap();
    alive::kill(pid);
    watchdog::until("no more items are taken", || items.send(Vec::new()).is_err());
    assert!(matches!(call.wait().unwrap_err().kind(), ErrorKind::Lost { attempts: 1, .. }));
}

#[watched_test]
fn a_worker_that_takes_no_items_is_refused_them() {
    // One that supports calls only.
    let pool = Pool::new(worker("liar,18,1"), options()).unwrap();
    let (mut items, call) = pool.begin_with_items("x").unwrap();
    let kind = ErrorKind::Unsupported { capability: "streams.v1" };
    assert_eq!(items.send("x").unwrap_err().kind(), &ErrorKind::CallEnded);
    let error = call.wait().unwrap_err();
    assert_eq!(error.kind(), &kind);
    assert!(error.to_string().ends_with("its library lacks streams.v1"), "{error}");
    assert_eq!(pool.stats().died, 0);
}

#[watched_test]
fn an_item_over_the_limit_ends_its_call() {
    let pool = Pool::new(worker("calls,ring=65536,most=1000"), options()).unwrap();
    let (mut items, call) = pool.begin_with_items("take-items").unwrap();
    items.send(vec![0; 1_001]).unwrap();
    watchdog::until("no more items are taken", || items.send(Vec::new()).is_err());
    let error = call.wait().unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::TooLong { bytes: 1_001, most: 1_000 });
    assert_eq!(*pool.call("echo hi").unwrap(), *b"hi");
}
