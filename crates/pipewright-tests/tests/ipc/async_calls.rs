//! Async calls of channels and pools, whose cost of a dropped future is documented; requests that items follow.

use std::future::Future;
use std::io::Read as _;
use std::time::Duration;

use pipewright::{Handle, PipeOptions};
use pipewright_ipc::{Channel, ErrorKind, Options, Pool, PoolOptions, Request};
#[cfg(target_os = "linux")]
use pipewright_test_macros::isolated_test;
use pipewright_test_macros::watched_test;
use pipewright_tests::{alive, bodies, pace, watchdog};
use tokio::time::timeout;

use crate::pool::{number, options, pool};
use crate::{both_ways, complains_and_ends, exit_words, some_files, worker};

pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn start(kind: &str, options: &Options) -> Channel {
    Channel::start_async(&mut worker(kind), options).await.unwrap()
}

/// Sends messages of every length and receives them back.
async fn echo(options: &Options, count: u64) {
    let mut channel = start("echo", options).await;
    let (mut body, mut received) = (Vec::new(), Vec::new());
    for number in 0..count {
        let length = bodies::length(number);
        bodies::body(number, length, &mut body);
        if number % 3 == 0 {
            channel.send_bytes_async(&body).await.unwrap();
        } else if number % 3 == 1 {
            let mut rest = body.iter();
            let fill = |piece: &mut [u8]| piece.fill_with(|| rest.next().copied().unwrap());
            channel.send_filled_async(length, fill).await.unwrap();
        } else {
            channel.queue_bytes(&body).unwrap();
            channel.flush_async().await.unwrap();
        }
        let message = channel.recv_async().await.unwrap();
        assert_eq!(message.len(), length);
        if number % 3 == 0 {
            received = message.bytes_async().await.unwrap();
        } else {
            message.read_into_async(&mut received).await.unwrap();
        }
        bodies::check(number, length, &received, &mut body);
    }
    assert!(channel.close_async().await.unwrap().unwrap().success());
}

#[watched_test]
fn many_channels_of_one_thread_have_their_messages() {
    for options in both_ways() {
        run(async {
            let (a, b, c) = (echo(&options, 200), echo(&options, 200), echo(&options, 200));
            tokio::join!(a, b, c)
        });
    }
}

#[watched_test]
fn two_tasks_that_send_at_once_do_not_deadlock() {
    for options in both_ways() {
        let options = Options { ring_bytes: 64 << 10, ..options };
        run(async {
            let mut channel = start("both,ring=65536,count=300", &options).await;
            let (mut body, mut received) = (Vec::new(), Vec::new());
            for number in 0..300 {
                bodies::body(number, bodies::length(number), &mut body);
                channel.send_bytes_async(&body).await.unwrap();
            }
            for number in 0..300 {
                channel.recv_async().await.unwrap().read_into_async(&mut received).await.unwrap();
                bodies::check(number, bodies::length(number), &received, &mut body);
            }
            let last = channel.recv_async().await.unwrap().bytes_async().await.unwrap();
            assert_eq!(last, b"right");
            assert!(channel.close_async().await.unwrap().unwrap().success());
        });
    }
}

#[watched_test]
fn a_dropped_receive_loses_nothing() {
    for options in both_ways() {
        run(async {
            let mut channel = start("slow", &options).await;
            for round in 0..20_u8 {
                // No request was sent, so no reply can come.
                assert!(timeout(Duration::ZERO, channel.recv_async()).await.is_err());
                // The worker answers after that number of milliseconds.
                channel.send_bytes_async(&[5, round]).await.unwrap();
                let answer = loop {
                    let message = timeout(Duration::from_millis(1), channel.recv_async()).await;
                    if let Ok(message) = message {
                        break message.unwrap().bytes_async().await.unwrap();
                    }
                };
                assert_eq!(answer, [5, round]);
            }
        });
    }
}

#[watched_test]
fn blocking_recv_after_a_dropped_future_gets_its_message() {
    for options in both_ways() {
        let mut channel = run(start("slow", &options));
        channel.set_timeout(Some(pace::seconds(10)));
        for round in 0..20_u8 {
            let dropped =
                run(async { timeout(Duration::ZERO, channel.recv_async()).await.is_err() });
            assert!(dropped, "nothing was asked");
            // The worker answers after that number of milliseconds: the blocking call sleeps as the future did.
            channel.send_bytes(&[5, round]).unwrap();
            assert_eq!(channel.recv().unwrap().bytes().unwrap(), [5, round]);
        }
    }
}

#[watched_test]
fn a_dropped_partial_send_fails_later_sends() {
    for options in both_ways() {
        run(async {
            let mut channel = start("silent", &options).await;
            let long = vec![7; 32 << 20];
            let sent = timeout(Duration::from_millis(50), channel.send_bytes_async(&long)).await;
            assert!(sent.is_err(), "nobody reads it");
            let error = channel.send_bytes_async(b"short").await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::CutOff);
        });
    }
}

#[watched_test]
fn tasks_can_send_values_and_handles() {
    for options in both_ways() {
        run(async {
            let mut command = worker("typed");
            let started = Channel::<Vec<u64>, (u64, String)>::start_async(&mut command, &options);
            let mut channel = started.await.unwrap();
            for count in [0, 1, 100_000] {
                channel.send_async(&(0..count).collect()).await.unwrap();
                let (sum, text) = channel.recv_async().await.unwrap().value_async().await.unwrap();
                assert_eq!((sum, text), ((0..count).sum(), format!("{count} numbers")));
            }

            let mut channel = start("handles", &options).await;
            let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
            let writers = [Handle::from(writer.try_clone().unwrap()), Handle::from(writer)];
            channel.send_with_handles_async(b"line\n", &writers).await.unwrap();
            let count = channel.recv_async().await.unwrap().bytes_async().await.unwrap();
            assert_eq!(count, [2]);
            // Also a long one, of which the last part is a short one.
            let long = [b'x'; 20_000 + (64 << 10)];
            let reader = std::thread::spawn(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).map(|_| text)
            });
            channel.send_with_handles_async(&long, &writers[..1]).await.unwrap();
            drop(writers);
            let count = channel.recv_async().await.unwrap().bytes_async().await.unwrap();
            assert_eq!(count, [1]);
            let text = reader.join().unwrap().unwrap();
            assert_eq!((&text[..11], text.len()), ("line\nline\nx", 10 + long.len()));
            let files = some_files(65);
            let error = channel.send_with_handles_async(b"", &files).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Io);

            let mut channel = start("silent", &options).await;
            let long = vec![7; 32 << 20];
            let sent = channel.send_with_handles_async(&long, &files[..2]);
            assert!(timeout(Duration::from_millis(50), sent).await.is_err(), "nobody reads it");
            let error = channel.send_with_handles_async(b"", &files[..2]).await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::CutOff);
        });
    }
}

#[watched_test]
fn exit_silence_and_refusal_of_a_worker_are_errors() {
    for options in both_ways() {
        run(async {
            let mut channel = start("die", &options).await;
            let message = channel.recv_async().await.unwrap().bytes_async().await.unwrap();
            assert_eq!(message, b"last words");
            let error = channel.recv_async().await.unwrap_err();
            let ErrorKind::Died { status: Some(status) } = error.kind() else { panic!("{error}") };
            assert_eq!(status.code(), Some(7));

            let mut channel = start("silent", &options).await;
            channel.set_timeout(Some(Duration::from_millis(20)));
            assert!(channel.recv_async().await.unwrap_err().is_timeout());
            let token = pipewright::CancelToken::new();
            channel.set_timeout(None);
            channel.set_cancel(&token);
            let cancel = async { token.cancel() };
            let (error, ()) = tokio::join!(channel.recv_async(), cancel);
            assert_eq!(error.unwrap_err().kind(), &ErrorKind::Cancelled);

            let started = Channel::start_async(&mut worker("echo,app=other"), &options).await;
            let error = {
                let started: Result<Channel, _> = started;
                started.unwrap_err()
            };
            assert!(error.to_string().contains("app differs"), "{error}");
            let started = Channel::start_async(&mut complains_and_ends(), &options).await;
            let error = {
                let started: Result<Channel, _> = started;
                started.unwrap_err()
            };
            assert!(error.to_string().contains(&exit_words(4)), "{error}");
        });
    }
}

/// The worker passes a connection whose close takes ten seconds, with half a frame. This process holds its other side.
#[cfg(target_os = "linux")]
#[isolated_test]
fn a_start_that_is_dropped_closes_what_came_on_another_thread() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = pipewright::Command::new(env!("CARGO_BIN_EXE_puppet"));
    command.arg(format!("peer=-;{};0;shake-linger:10:1:3", log.path().display()));
    command.env("PEER_HOLDER", holder.local_addr().unwrap().to_string());
    let closes = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut names = threads.map(|it| std::fs::read_to_string(it.path().join("comm")));
        names.any(|name| name.is_ok_and(|name| name.trim() == "pw-close"))
    };
    let tcp_sockets = || {
        let known = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = files.filter_map(|it| std::fs::read_link(it.path()).ok());
        let is_known = |link: &std::path::PathBuf| {
            let inode = link.to_str().and_then(|link| link.strip_prefix("socket:["));
            let inode = inode.and_then(|inode| inode.strip_suffix(']'));
            inode.is_some_and(|inode| known.split_whitespace().any(|word| word == inode))
        };
        links.filter(is_known).count()
    };
    run(async {
        let options = Options::default();
        let mut start = Box::pin(Channel::<(), ()>::start_async(&mut command, &options));
        let first = timeout(Duration::ZERO, start.as_mut()).await;
        assert!(first.is_err(), "half a frame");
        let (_open, _) = holder.accept().unwrap();
        // The holder, its connection, and that of the worker.
        while tcp_sockets() < 3 {
            assert!(timeout(Duration::from_millis(5), start.as_mut()).await.is_err());
        }
        assert!(!closes());
        drop(start);
        // Its close takes ten seconds: without the other thread it is over now.
        pipewright_tests::watchdog::until("another thread closes it", closes);
    });
}

#[watched_test]
fn without_a_runtime_there_is_an_error() {
    let mut channel = crate::start("silent", &Options::default());
    let mut wait = std::pin::pin!(channel.recv_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match wait.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Err(error)) => assert_eq!(error.kind(), &ErrorKind::Io),
        other => panic!("{other:?}"),
    }
}

#[watched_test]
fn a_pool_is_called_by_tasks() {
    let options = PoolOptions { max_workers: 2, idle_timeout: None, ..PoolOptions::default() };
    let pool = Pool::new(worker("calls"), options).unwrap();
    run(async {
        let mut tasks = Vec::new();
        for number in 0..200_u64 {
            tasks.push(pool.call_async(Request::new(format!("body {number}")).idempotent()));
        }
        let mut expected = Vec::new();
        for (number, task) in (0..).zip(tasks) {
            bodies::check(number, bodies::length(number), &task.await.unwrap(), &mut expected);
        }
        // A dropped future frees the worker.
        for _ in 0..2 {
            let call = pool.call_async("wait 60000");
            assert!(timeout(Duration::from_millis(20), call).await.is_err());
        }
        let both = ["echo a", "echo b"].map(|it| pool.begin(it).unwrap());
        for (call, expected) in both.into_iter().zip([b"a", b"b"]) {
            assert_eq!(*call.await.unwrap(), *expected);
        }
        let error = pool.call_async("exit 5").await.unwrap_err();
        assert!(error.to_string().contains(&exit_words(5)), "{error}");
        pool.shut_down_async().await;
    });
}

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
