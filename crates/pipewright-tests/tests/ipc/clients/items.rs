//! Requests that items follow: a good worker takes them at its own pace.

use pipewright_ipc::{CallEvent, ErrorKind, Pool, PoolOptions, Request};
use pipewright_tests::{alive, watchdog};

use super::calls::{one, pool};
use super::language::Client;
use super::messages::own_body;
use crate::both_ways;
use crate::pool::{number, options, until_busy};
use crate::streamed_requests::{exchange, is_ready};

pub(super) fn items_of_a_request_arrive_whole_and_in_order(client: &Client) {
    for channel in both_ways() {
        let pool = pool(client, PoolOptions { channel, max_workers: 1, ..options() });
        for count in [0, 1, 16, 17, 300_u64] {
            let (mut items, call) = pool.begin_with_items("count-items").unwrap();
            for number in 0..count {
                items.send(own_body(number)).unwrap();
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
        assert_eq!((stats.started, stats.cancelled), (1, 0), "{stats:?}");
    }
}

pub(super) fn a_later_loop_continues_after_an_earlier_one(client: &Client) {
    let pool = one(client);
    for count in [0_u32, 1, 2, 41] {
        let (mut items, call) = pool.begin_with_items("two-by-two").unwrap();
        for _ in 0..count {
            items.send("x").unwrap();
        }
        items.finish();
        assert_eq!(*call.wait().unwrap(), *(count / 2 + 1).to_string().as_bytes());
    }
}

pub(super) fn items_go_both_ways_at_once(client: &Client) {
    let pool = one(client);
    for window in [1, 16] {
        assert_eq!(exchange(&pool, window, 500), b"done");
    }
}

pub(super) fn the_worker_decides_how_many_items_are_on_their_way(client: &Client) {
    let pool = one(client);
    // It sends each back, and nobody takes them.
    let request = Request::new("echo-items").in_pieces(1);
    let (mut items, call) = pool.begin_with_items(request).unwrap();
    items.send("first").unwrap();
    let mut sent = 1;
    watchdog::until("as many as the worker accepts were sent", || {
        sent += usize::from(is_ready(items.send_async("next")));
        sent == 16
    });
    // A worker that has not begun accepts none. Its call waits for the first one.
    let (mut others, other) = pool.begin_with_items("take-items").unwrap();
    assert!(!is_ready(others.send_async("x")) && !is_ready(items.send_async("one more")));
    items.finish();
    assert_eq!(*call.wait().unwrap(), *b"done");
    others.finish();
    assert_eq!(*other.wait().unwrap(), *b"done");
}

pub(super) fn a_worker_may_reply_before_the_last_item(client: &Client) {
    let pool = one(client);
    for _ in 0..20 {
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
    assert_eq!(pool.stats().started, 1);
}

pub(super) fn a_call_that_is_cancelled_between_items_ends(client: &Client) {
    let pool = one(client);
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

pub(super) fn a_worker_that_knows_of_the_cancellation_does_not_wait(client: &Client) {
    let pool = one(client);
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

pub(super) fn items_may_end_before_their_call_begins(client: &Client) {
    let pool = pool(client, PoolOptions { max_workers: 1, calls_per_worker: 4, ..options() });
    let mut busy = pool.begin("ask me").unwrap();
    let CallEvent::Question(question) = busy.next().unwrap() else { panic!("no question") };
    let begin = |request: &str| pool.begin_with_items(request).unwrap();
    let (none, empty) = begin("count-items");
    none.finish();
    let (dropped, cancelled) = begin("count-items");
    drop(dropped);
    let (mut some, full) = begin("count-items");
    question.answer("yes");
    assert_eq!(*busy.wait().unwrap(), *b"yes");
    assert_eq!(*empty.wait().unwrap(), *b"0");
    assert_eq!(cancelled.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    some.send(own_body(0)).unwrap();
    some.finish();
    assert_eq!(*full.wait().unwrap(), *b"1");
    assert_eq!(pool.stats().started, 1);
}

pub(super) fn a_call_with_items_is_lost_with_its_worker(client: &Client) {
    let pool = one(client);
    let (mut items, call) = pool.begin_with_items("exit-at-item").unwrap();
    while items.send("x").is_ok() {}
    let error = call.wait().unwrap_err();
    let ErrorKind::Lost { status: Some(status), .. } = error.kind() else { panic!("{error}") };
    assert_eq!(status.code(), Some(3));
    // Also if the worker is killed while it waits for an item.
    let pid = number(&pool, "pid") as u32;
    let (mut items, call) = pool.begin_with_items("take-items").unwrap();
    items.send(Vec::new()).unwrap();
    alive::kill(pid);
    watchdog::until("no more items are taken", || items.send(Vec::new()).is_err());
    assert!(matches!(call.wait().unwrap_err().kind(), ErrorKind::Lost { .. }));
}

pub(super) fn an_item_over_the_limit_ends_its_call(client: &Client) {
    let command = client.worker("calls ring=65536 most=1000");
    let pool = Pool::new(command, PoolOptions { max_workers: 1, ..options() }).unwrap();
    let (mut items, call) = pool.begin_with_items("take-items").unwrap();
    items.send(vec![0; 1_001]).unwrap();
    watchdog::until("no more items are taken", || items.send(Vec::new()).is_err());
    let too_long = ErrorKind::TooLong { bytes: 1_001, most: 1_000 };
    assert_eq!(call.wait().unwrap_err().kind(), &too_long);
    assert_eq!(*pool.call("echo hi").unwrap(), *b"hi");
    assert_eq!(pool.stats().started, 1);
}
