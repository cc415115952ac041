//! A good worker: messages of a channel, calls of a pool, items; the end of either side; the workers of
//! `docs/workers.md`.

use std::fs;
use std::future::Future;
use std::io::Read as _;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pipewright::{Command, Handle, PipeOptions, Stdio};
use pipewright_ipc::{
    CallEvent, Channel, ErrorKind, Options, PendingCall, Pool, PoolOptions, Request, SharedMemory,
    Side,
};
use pipewright_tests::{alive, bodies, pace, skip, watchdog};

use super::hostile::Victim;
use super::{Client, Language, clients};
use crate::calls::check_given_handles;
use crate::hostile::refused;
use crate::pool::{number, options, until_busy};
#[cfg(unix)]
use crate::whole_and_in_order::exchange_and_continue;
use crate::{both_ways, some_files, was_killed};

/// The messages that a worker sends by itself.
fn own_body(number: u64) -> Vec<u8> {
    vec![number as u8; (number * 7919 % 200_000) as usize]
}

fn small_rings() -> [Options; 2] {
    both_ways().map(|options| Options { ring_bytes: 64 << 10, ..options })
}

pub(super) fn messages_around_every_size_boundary_round_trip(client: &Client) {
    for options in small_rings() {
        let mut channel = client.start("echo ring=65536", &options);
        let (mut body, mut received, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for edge in [0, 64, 4096, 32 << 10, 64 << 10, 128 << 10, 512 << 10] {
            for length in [edge + 40_usize, edge + 33, edge + 32, edge + 31, edge + 1, edge] {
                for length in [length, edge.saturating_sub(length - edge)] {
                    bodies::body(7, length, &mut body);
                    channel.send_bytes(&body).unwrap();
                    channel.recv().unwrap().read_into(&mut received).unwrap();
                    bodies::check(7, length, &received, &mut expected);
                }
            }
        }
        for number in 0..300 {
            bodies::body(number, bodies::length(number), &mut body);
            channel.send_bytes(&body).unwrap();
            channel.recv().unwrap().read_into(&mut received).unwrap();
            bodies::check(number, bodies::length(number), &received, &mut expected);
        }
        assert!(channel.close().unwrap().unwrap().success());
    }
}

pub(super) fn a_long_message_arrives_both_ways(client: &Client) {
    for options in both_ways() {
        let mut channel = client.start("echo", &options);
        let length = 48 << 20;
        let (mut body, mut expected) = (Vec::new(), Vec::new());
        bodies::body(1, length, &mut body);
        channel.send_bytes(&body).unwrap();
        let received = channel.recv().unwrap().bytes().unwrap();
        bodies::check(1, length, &received, &mut expected);
        assert!(channel.close().unwrap().unwrap().success());
    }
}

pub(super) fn a_host_that_does_not_receive_never_deadlocks(client: &Client) {
    for options in small_rings() {
        let mut channel = client.start("echo ring=65536", &options);
        let (mut body, mut received) = (Vec::new(), Vec::new());
        for number in 0..400 {
            bodies::body(number, bodies::length(number), &mut body);
            channel.send_bytes(&body).unwrap();
        }
        for number in 0..400 {
            channel.recv().unwrap().read_into(&mut received).unwrap();
            bodies::check(number, bodies::length(number), &received, &mut body);
        }
    }
}

pub(super) fn two_sides_that_send_everything_first_do_not_deadlock(client: &Client) {
    for options in small_rings() {
        let mut channel = client.start("both ring=65536 count=200", &options);
        let mut received = Vec::new();
        for number in 0..200 {
            channel.send_bytes(&own_body(number)).unwrap();
        }
        for number in 0..200 {
            channel.recv().unwrap().read_into(&mut received).unwrap();
            assert!(received == own_body(number), "message {number}");
        }
        assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"right");
        // The worker says goodbye first.
        assert_eq!(channel.recv().unwrap_err().kind(), &ErrorKind::Closed);
        assert!(channel.close().unwrap().unwrap().success());
    }
}

#[cfg(windows)]
pub(super) fn a_stopped_and_continued_worker_loses_nothing(_: &Client) {
    pipewright_tests::skip::skipped(
        pipewright_tests::skip::Need::Unix,
        "Windows has no signal that stops a process",
    );
}

#[cfg(unix)]
pub(super) fn a_stopped_and_continued_worker_loses_nothing(client: &Client) {
    for options in small_rings() {
        let mut channel = client.start("echo ring=65536", &options);
        let (mut body, mut received) = (Vec::new(), Vec::new());
        for number in 0..40 {
            let length = bodies::length(number);
            bodies::body(number, length, &mut body);
            exchange_and_continue(&mut channel, true, number, &body, &mut received);
            bodies::check(number, length, &received, &mut body);
        }
        assert!(channel.close().unwrap().unwrap().success());
    }
}

pub(super) fn messages_before_a_kill_arrive_whole_and_in_order(client: &Client) {
    for round in 0..pace::rounds(6, 2) as u64 {
        let [on, off] = small_rings();
        let mut channel =
            client.start("source ring=65536", if round % 3 == 2 { &off } else { &on });
        let kill_at = round * 37 % 101;
        let mut received = Vec::new();
        let mut number = 0;
        let error = loop {
            if number == kill_at {
                channel.worker().unwrap().kill().unwrap();
            }
            match channel.recv().and_then(|message| message.read_into(&mut received)) {
                Ok(()) => assert!(received == own_body(number), "message {number}"),
                Err(error) => break error,
            }
            number += 1;
        };
        assert!(number >= kill_at, "{number} messages before a kill at {kill_at}");
        let ErrorKind::Died { status: Some(status) } = error.kind() else { panic!("{error}") };
        was_killed(*status);
    }
}

pub(super) fn handles_go_with_messages(client: &Client) {
    if !client.carries_handles() {
        let mut channel = client.start("echo", &Options::default());
        let error = channel.send_with_handles(b"x", &some_files(1)).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>();
        assert_eq!(source.unwrap().kind(), std::io::ErrorKind::Unsupported, "{error}");
        // Nothing was sent.
        channel.send_bytes(b"y").unwrap();
        assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"y");
        return;
    }
    for options in both_ways() {
        let mut channel = client.start("handles", &options);
        let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
        let writers = [Handle::from(writer.try_clone().unwrap()), Handle::from(writer)];
        channel.send_with_handles(b"line\n", &writers).unwrap();
        channel.send_bytes(b"none").unwrap();
        channel.send_with_handles(&[b'x'; 100_000], &writers[..1]).unwrap();
        drop(writers);
        let (mut text, mut counts) = (String::new(), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| reader.read_to_string(&mut text).unwrap());
            for _ in 0..3 {
                counts.extend(channel.recv().unwrap().bytes().unwrap());
            }
        });
        assert_eq!(counts, [2, 0, 1]);
        assert_eq!((&text[..10], text.len()), ("line\nline\n", 100_010));
        assert!(channel.close().unwrap().unwrap().success());
        let mut channel = client.start("gives", &options);
        check_given_handles(&mut channel);
        assert!(channel.close().unwrap().unwrap().success());
    }
}

pub(super) fn stdout_is_not_read_as_messages(client: &Client) {
    let mut command = client.worker("calls");
    command.stdout(Stdio::piped());
    let pool = pipewright_ipc::Pool::new(command, crate::pool::options()).unwrap();
    assert_eq!(*pool.call("print 20").unwrap(), *b"done");
    assert_eq!(*pool.call("echo x").unwrap(), *b"x");
}

pub(super) fn shared_memory_is_used_where_it_is_promised(client: &Client) {
    let mut channel = client.start("echo", &Options::default());
    let body = vec![7; 100_000];
    channel.send_bytes(&body).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), body);
    let stats = channel.stats();
    assert_eq!(stats.shared_memory, client.has_shared_memory(), "{stats:?}");
    if stats.shared_memory {
        assert!(stats.sent.shared_frames > 0 && stats.received.shared_frames > 0, "{stats:?}");
    } else {
        assert!(stats.fallback.is_some(), "{stats:?}");
    }
    // Either side can leave it out.
    let off = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    for (kind, options) in [("echo shm=off", Options::default()), ("echo", off)] {
        let mut channel: Channel = client.start(kind, &options);
        channel.send_bytes(&body).unwrap();
        assert_eq!(channel.recv().unwrap().bytes().unwrap(), body);
        assert!(!channel.stats().shared_memory);
    }
}

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

/// Sends items to a worker that sends each back, receives them at the same time, and returns the reply.
fn exchange(pool: &Pool, window: u32, count: u32) -> Vec<u8> {
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

pub(super) fn items_go_both_ways_at_once(client: &Client) {
    let pool = one(client);
    for window in [1, 16] {
        assert_eq!(exchange(&pool, window, 500), b"done");
    }
}

/// Polls a future once. Nothing wakes it.
fn is_ready(future: impl Future<Output = Result<(), pipewright_ipc::Error>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(sent) => sent.map(|()| true).unwrap(),
        Poll::Pending => false,
    }
}

pub(super) fn the_worker_decides_how_many_items_are_on_their_way(client: &Client) {
    let pool = one(client);
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

pub(super) fn a_goodbye_ends_the_worker(client: &Client) {
    for options in both_ways() {
        for kind in ["echo", "calls", "handles"] {
            let channel = client.start(kind, &options);
            // A worker that had to be killed is an error.
            assert!(channel.close().unwrap().unwrap().success(), "{kind}");
        }
    }
}

pub(super) fn refused_handshakes_name_the_field_on_both_sides(client: &Client) {
    let options = Options {
        app: "app=1".into(),
        build: "1".into(),
        salt: "\u{e9}".into(),
        ..Options::default()
    };
    // Equal values, also unusual ones.
    let channel = client.start("echo app=app=1 build=1 salt=\u{e9}", &options);
    assert!(channel.close().unwrap().unwrap().success());
    let cases = [
        ("echo app=other build=1 salt=\u{e9}", ("app", "app=1", "other")),
        ("echo app=app=1 build=2 salt=\u{e9}", ("build", "1", "2")),
        ("echo app=app=1 build=1 salt=t", ("salt", "\u{e9}", "t")),
        ("echo app=app=1 salt=\u{e9}", ("build", "1", "")),
    ];
    for (kind, (field, ours, theirs)) in cases {
        let mut command = client.worker(kind);
        let (mut reader, writer) = pipewright::pipe(Default::default()).unwrap();
        command.stderr(writer);
        let started: Result<Channel, _> = Channel::start(&mut command, &options);
        let error = started.unwrap_err();
        assert_eq!(refused(&error), (Side::Worker, field, ours, theirs));
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.contains(&format!("{field} differs")), "{text}");
    }
}

pub(super) fn required_shared_memory_is_an_error_if_unavailable(client: &Client) {
    let off = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    let mut command = client.worker("echo shm=required");
    command.stderr(pipewright::Stdio::null());
    let mut channel: Channel = match Channel::start(&mut command, &off) {
        Ok(channel) => channel,
        Err(error) => {
            assert_eq!((refused(&error).0, refused(&error).1), (Side::Worker, "shared memory"));
            return;
        }
    };
    // The host may still take the READY for the end of the handshake.
    let error = channel.recv().unwrap_err();
    assert!(error.is_disconnect() || matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
}

pub(super) fn a_program_without_a_host_is_told_so(client: &Client) {
    let error = client.worker("echo").env_remove("PIPEWRIGHT_IPC").run().unwrap_err();
    assert!(error.to_string().contains("was not started as a worker"), "{error}");
    for number in ["77", "1", "-1", "x", "99999999999999", ""] {
        let error = client.worker("echo").env("PIPEWRIGHT_IPC", number).run().unwrap_err();
        assert!(error.to_string().contains("was not started as a worker"), "{number}: {error}");
    }
}

pub(super) fn a_worker_exits_when_its_host_is_gone(client: &Client) {
    for can in ["", "shm.v1"] {
        // Idle, and in the middle of a message.
        for rest in [&b""[..], &[100, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]] {
            let mut victim = Victim::start(client, "echo");
            victim.shake_hands(can);
            victim.send(rest);
            let (status, stderr) = victim.leave();
            assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
        }
    }
}

/// Returns the number of handles of that process. 0: this system does not show them.
fn handles(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

pub(super) fn nothing_is_left_in_a_worker(client: &Client) {
    for options in both_ways() {
        let mut channel = client.start("echo ring=65536", &options);
        let pid = channel.worker().unwrap().id();
        let mut before = 0;
        for number in 0..400_usize {
            let body = vec![number as u8; number * 1_237 % 90_000];
            if client.carries_handles() && number % 4 == 0 {
                // Handles that nobody takes are closed.
                channel.send_with_handles(&body, &crate::some_files(3)).unwrap();
            } else {
                channel.send_bytes(&body).unwrap();
            }
            assert_eq!(channel.recv().unwrap().bytes().unwrap(), body);
            if number == 50 {
                before = handles(pid);
            }
        }
        match before {
            0 => skip::skipped(skip::Need::File("/proc/self/fd"), "the handles of the worker"),
            _ => assert_eq!(handles(pid), before),
        }
        channel.close().unwrap();
        watchdog::until("it has ended", || !alive::is_running(pid));
    }
}

/// Compiles an example in C.
#[cfg(unix)]
fn compiled_example(file: &str, name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pipewright-{name}-c"));
    super::compile(file, &["-O2"], &program);
    program
}

#[cfg(windows)]
fn compiled_example(_: &str, name: &str) -> PathBuf {
    super::compiled_before(name).unwrap()
}

/// Returns a pool of an example's workers. The tutorial shows the whole example.
fn example_pool(client: &Client, name: &str) -> Pool {
    let (file, mut command) = match client.language {
        Language::Rust => unreachable!("its examples are tested with the library"),
        Language::C => {
            let file = format!("c/examples/{name}.c");
            let program = compiled_example(&file, name);
            (file, Command::new(program))
        }
        Language::Python => (format!("python/examples/{name}.py"), Command::new("python3")),
        Language::Node => (format!("node/examples/{name}.mjs"), Command::new("node")),
    };
    let file = clients().join(file);
    if client.language != Language::C {
        command.arg(&file);
    }
    // In a program of its own, the library is beside it.
    command.env("PYTHONPATH", clients().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let example = fs::read_to_string(file).unwrap().replace("../pipewright", "./pipewright");
    let (_title, code) = example.split_once('\n').unwrap();
    let tutorial = fs::read_to_string(clients().join("../docs/workers.md")).unwrap();
    assert!(tutorial.contains(code), "docs/workers.md has not this example:\n{code}");
    Pool::new(command, options()).unwrap()
}

pub(super) fn the_worker_of_the_tutorial_reverses_requests(client: &Client) {
    let pool = example_pool(client, "reverse");
    assert_eq!(*pool.call("hello").unwrap(), *b"olleh");
    assert_eq!(*pool.call("").unwrap(), *b"");
    pool.shut_down();
}

pub(super) fn the_worker_of_the_tutorial_adds_up_items(client: &Client) {
    let pool = example_pool(client, "sum");
    let (mut items, call) = pool.begin_with_items("").unwrap();
    for item in ["hello", "", "world"] {
        items.send(item).unwrap();
    }
    items.finish();
    assert_eq!(*call.wait().unwrap(), *b"10");
    pool.shut_down();
}
