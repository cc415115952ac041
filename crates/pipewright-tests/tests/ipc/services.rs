//! Typed services, with real workers; the examples; events of `tracing`.

#[expect(dead_code, reason = "only the example itself calls it")]
#[path = "../../../pipewright-ipc/examples/build.rs"]
mod build;
#[expect(dead_code, reason = "only the example itself calls it")]
#[path = "../../../pipewright-ipc/examples/service.rs"]
mod example;
#[expect(dead_code, reason = "only the example itself calls it")]
#[path = "../../../pipewright-ipc/examples/pool.rs"]
mod pool;

use std::time::Duration;

use pipewright::CancelToken;
use pipewright_ipc::service::Bytes;
use pipewright_ipc::{ErrorKind, Options, Peer, Pool, PoolOptions, Request};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::service::others::{MethodsClient, VersionClient};
use pipewright_tests::service::{DivisionError, ProbeClient};
use pipewright_tests::traced::TraceLines;
use pipewright_tests::{alive, skip, watchdog};

use crate::async_calls::run;
use crate::pool::options;
use crate::{both_ways, exit_words, start, was_killed, worker};

#[watched_test]
fn the_example_gets_the_right_sums() {
    example::calculate(worker("calculator")).unwrap();
}

fn client(options: PoolOptions) -> ProbeClient {
    ProbeClient::new(worker("probe,ring=65536"), options).unwrap()
}

fn one_worker() -> PoolOptions {
    PoolOptions { max_workers: 1, ..options() }
}

#[watched_test]
fn methods_return_their_values_and_their_own_errors() {
    let client = client(one_worker());
    assert_eq!(client.divide(-7, 2).unwrap(), Ok(-3));
    assert_eq!(client.divide(5, 0).unwrap(), Err(DivisionError::ByZero { dividend: 5 }));
    assert_eq!(client.divide(i64::MIN, -1).unwrap(), Err(DivisionError::Overflow));
    client.nothing((), "x".repeat(100_000), 1, 2, 3).unwrap();
    // The worker keeps its state.
    assert_eq!(client.add(vec![1, 2, 3]).unwrap(), 6);
    assert_eq!(client.clone().add((0..100_000).collect()).unwrap(), 4_999_950_006);
    let pid = client.pid().unwrap();
    assert_eq!(client.pool().stats().workers[0].pid, pid);
    // An error of a method is no failure of its call.
    assert_eq!(client.pool().stats().failures, 0);
    client.shut_down();
}

#[watched_test]
fn bytes_come_back_as_they_are_however_many() {
    let client = client(one_worker());
    for size in [0, 1, 4096, 4097, 65_536, 65_537, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|it: u32| it as u8).collect();
        assert!(client.echo(bytes.clone()).unwrap() == bytes, "{size}");
        let cut = client.cut(b"<".to_vec(), Bytes(bytes.clone()), size / 2).unwrap().unwrap();
        assert!(cut[..1] == *b"<" && cut[1..] == bytes[size as usize / 2..], "{size}");
        let refused = client.cut(Vec::new(), bytes.clone().into(), size + 1).unwrap();
        assert_eq!(refused.unwrap_err(), format!("{} of {size}", size + 1));
        let mut pieces = client.split(bytes.clone(), 500_000).unwrap();
        let mut joined = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            joined.extend_from_slice(&piece);
        }
        assert!(joined == bytes && pieces.finish().unwrap() == bytes, "{size}");
    }
    run(async {
        assert_eq!(client.echo_async(vec![1, 2]).await.unwrap(), [1, 2]);
    });
}

#[watched_test]
fn a_call_of_any_method_can_begin_without_waiting() {
    let client = client(PoolOptions { max_workers: 2, ..options() });
    let (echo, quotient) =
        (client.begin_echo(vec![7]).unwrap(), client.begin_divide(9, 3).unwrap());
    let refused = client.begin_cut(Vec::new(), Bytes::default(), 1).unwrap();
    assert_eq!(quotient.wait().unwrap(), Ok(3));
    assert_eq!(echo.wait().unwrap(), [7]);
    assert_eq!(run(refused).unwrap().unwrap_err(), "1 of 0");
    // Dropping it cancels the call.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("begun");
    let call = client.begin_wait(file.display().to_string()).unwrap();
    watchdog::until("the method has begun", || file.exists());
    drop(call);
    assert!(client.pid().is_ok());
}

#[watched_test]
fn a_worker_that_streams_is_not_called_silent() {
    let client = client(one_worker());
    let pid = client.pid().unwrap();
    let mut time = Duration::from_millis(100);
    let error = loop {
        let mut numbers = client.timeout(time).count_up(u32::MAX).unwrap();
        let mut has_item = false;
        let error = loop {
            match numbers.next() {
                Ok(_) => has_item = true,
                Err(error) => break error,
            }
        };
        // On a busy machine the time may be over before the first item, or before a worker has the call.
        let early = [Peer::Runs { pid }, Peer::Nobody];
        let is_early =
            matches!(error.kind(), ErrorKind::TimedOut { peer, .. } if early.contains(peer));
        if has_item || !is_early {
            break error;
        }
        time *= 2;
    };
    let line = error.to_string();
    let ErrorKind::TimedOut { peer: Peer::Streams { .. }, .. } = error.kind() else {
        panic!("{line}")
    };
    assert!(line.contains("is running, and has not ended the call"), "{line}");
}

#[watched_test]
fn a_service_can_be_reset_between_calls() {
    let reset_timeout = Some(Duration::from_secs(60));
    let client = client(PoolOptions { reset_timeout, ..one_worker() });
    let pid = client.pid().unwrap();
    for _ in 0..3 {
        assert_eq!(client.add(vec![5]).unwrap(), 5);
    }
    assert_eq!(client.pid().unwrap(), pid);
}

#[watched_test]
fn tasks_call_without_blocking_their_thread() {
    let client = client(PoolOptions { max_workers: 3, ..options() });
    run(async {
        let (sum, quotient, pid) = tokio::join!(
            client.add_async(vec![2, 3]),
            client.divide_async(9, 3),
            client.pid_async()
        );
        assert_eq!((sum.unwrap(), quotient.unwrap().unwrap()), (5, 3));
        assert!(client.pool().stats().workers.iter().any(|it| it.pid == *pid.as_ref().unwrap()));
    });
}

#[watched_test]
fn a_method_sees_the_cancellation_of_its_call() {
    let client = client(one_worker());
    let dir = tempfile::tempdir().unwrap();
    let (pid, mut number) = (client.pid().unwrap(), 0);
    let mut file = || {
        number += 1;
        let file = dir.path().join(number.to_string());
        (file.clone(), file.display().to_string())
    };
    // By a token.
    let ((file_1, name), token) = (file(), CancelToken::new());
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.cancel(&token).wait(name).unwrap_err());
        watchdog::until("the method has begun", || file_1.exists());
        token.cancel();
        assert_eq!(call.join().unwrap().kind(), &ErrorKind::Cancelled);
    });
    // If the method went on, the worker would never answer.
    assert_eq!(client.pid().unwrap(), pid);
    // By dropping the future.
    let (file_2, name) = file();
    run(async {
        let mut call = Box::pin(client.wait_async(name));
        while !file_2.exists() {
            let tick = tokio::time::timeout(Duration::from_millis(2), &mut call);
            assert!(tick.await.is_err());
        }
    });
    assert_eq!(client.pid().unwrap(), pid);
    // By a timeout.
    let (_, name) = file();
    let error = client.timeout(Duration::from_millis(50)).wait(name).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(client.pid().unwrap(), pid);
    // By dropping what receives, or an unfinished sender.
    let mut receiver = client.count_up(u32::MAX).unwrap();
    assert_eq!(receiver.next().unwrap(), Some(0));
    drop(receiver);
    assert_eq!(client.pid().unwrap(), pid);
    let (mut sender, reply) = client.sum(1).unwrap();
    sender.send(&2).unwrap();
    drop(sender);
    assert_eq!(reply.wait().unwrap_err().kind(), &ErrorKind::Cancelled);
    assert_eq!(client.pid().unwrap(), pid);
    assert_eq!(client.pool().stats().died, 0);
}

#[watched_test]
fn items_stream_in_both_directions() {
    let client = client(options());
    let mut receiver = client.count_up(1_000).unwrap();
    for number in 0..1_000 {
        assert_eq!(receiver.next().unwrap(), Some(number));
    }
    assert_eq!((receiver.next().unwrap(), receiver.next().unwrap()), (None, None));
    assert_eq!(receiver.finish().unwrap(), "done");
    // Items that nobody has taken are discarded.
    assert_eq!(client.count_up(1_000).unwrap().finish().unwrap(), "done");
    let (mut sender, reply) = client.sum(5).unwrap();
    for number in 0..1_000 {
        sender.send(&number).unwrap();
    }
    sender.finish();
    assert_eq!(reply.wait().unwrap(), Some(499_505));
    let (mut sender, mut receiver) = client.number("text ".to_owned()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..1_000 {
                sender.send(&number.to_string()).unwrap();
            }
            sender.finish();
        });
        for number in 0..1_000 {
            assert_eq!(receiver.next().unwrap(), Some((number, format!("text {number}"))));
        }
    });
    assert_eq!(receiver.finish().unwrap(), 1_000);
}

#[watched_test]
fn items_stream_in_both_directions_in_one_task() {
    let client = client(options());
    run(async {
        let (mut sender, mut receiver) = client.number(String::new()).unwrap();
        let send = async {
            for number in 0..1_000 {
                sender.send_async(&number.to_string()).await.unwrap();
            }
            sender.finish();
        };
        let receive = async {
            let mut count = 0;
            while let Some(item) = receiver.next_async().await.unwrap() {
                assert_eq!(item, (count, count.to_string()));
                count += 1;
            }
            receiver.finish_async().await.unwrap()
        };
        assert_eq!(tokio::join!(send, receive).1, 1_000);
        let (mut sender, reply) = client.sum(1).unwrap();
        sender.send_async(&2).await.unwrap();
        sender.finish();
        assert_eq!(reply.await.unwrap(), Some(3));
    });
}

#[watched_test]
fn another_service_or_version_is_refused_with_the_field() {
    let once = || PoolOptions { start_attempts: 1, ..one_worker() };
    let errors = [
        (VersionClient::new(worker("probe"), once()).unwrap().pid().unwrap_err(), "Probe 8 "),
        (MethodsClient::new(worker("probe"), once()).unwrap().pid().unwrap_err(), "Probe 7 "),
        // A worker without a typed service, and a host without one.
        (ProbeClient::new(worker("calls"), once()).unwrap().pid().unwrap_err(), "Probe 7 "),
        (Pool::new(worker("probe"), once()).unwrap().call("x").unwrap_err(), "nothing"),
    ];
    for (error, ours) in errors {
        let ErrorKind::Refused { field, host, worker, .. } = error.kind() else {
            panic!("{error}")
        };
        assert_eq!(field, "service");
        assert!(host.starts_with(ours) && host != worker, "{error}");
        assert!(worker.starts_with("Probe 7 ") || worker == "nothing", "{error}");
    }
}

#[watched_test]
fn a_killed_worker_loses_its_call_only() {
    let client = client(one_worker());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("begun");
    let pid = client.pid().unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client.wait(file.display().to_string()).unwrap_err());
        watchdog::until("the method has begun", || file.exists());
        alive::kill(pid);
        let error = call.join().unwrap();
        let ErrorKind::Lost { status, attempts: 1, .. } = error.kind() else { panic!("{error:?}") };
        was_killed(status.unwrap());
    });
    assert_ne!(client.pid().unwrap(), pid);
    // A method that is idempotent is tried again.
    let error = client.exit(9).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { attempts: 3, .. }), "{error:?}");
    assert!(error.to_string().contains(&exit_words(9)), "{error}");
    // While items are on their way.
    let (mut sender, mut receiver) = client.number(String::new()).unwrap();
    sender.send(&"x".to_owned()).unwrap();
    assert_eq!(receiver.next().unwrap(), Some((0, "x".to_owned())));
    alive::kill(client.pool().stats().workers[0].pid);
    assert!(matches!(receiver.next().unwrap_err().kind(), ErrorKind::Lost { .. }));
    let error = sender.send(&"x".to_owned()).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::CallEnded);
    assert!(client.pid().is_ok());
}

#[watched_test]
fn a_panic_in_a_method_is_the_error_of_its_call() {
    let client = client(one_worker());
    let error = client.panic("no such unit".to_owned()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Lost { attempts: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("panicked at"), "{error}");
    assert!(error.to_string().ends_with(": no such unit"), "{error}");
    assert!(client.pid().is_ok());
}

#[watched_test]
fn requests_that_are_no_calls_of_the_service_are_errors() {
    let service = ProbeClient::IDENTITY.to_owned();
    let channel = Options { service, ..one_worker().channel };
    let pool = Pool::new(worker("probe,ring=65536"), PoolOptions { channel, ..one_worker() });
    let pool = pool.unwrap();
    for request in [&b""[..], b"\x7f", b"\xff\xff\xff\xff\xff\xff", b"\x01\x02", b"\x00more"] {
        let error = pool.call(Request::new(request)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Failed { .. }), "{request:?}: {error}");
    }
    assert_eq!(pool.stats().died, 0);
}

#[watched_test]
fn the_packets_of_a_build_arrive() {
    for options in both_ways() {
        let [there, back] = build::build(&options, || worker("build")).unwrap();
        assert_eq!((there.packets, there.bytes / 1_000_000), (5_000, 434));
        assert_eq!((back.packets, back.bytes / 1_000_000), (1_664, 120));
        let is_shared = options.shared_memory != pipewright_ipc::SharedMemory::Off
            && !skip::is_forced_off("memfd");
        for way in [there, back] {
            assert_eq!(way.shared_frames > 0, is_shared, "{way:?}");
        }
    }
}

#[watched_test]
fn a_pool_hashes_large_buffers() {
    let hashes = pool::hash_all(worker("hash"), 2, 20, 1 << 20).unwrap();
    let expected = (0..20).map(|number| pool::hash(&pool::buffer(number, 1 << 20)));
    assert_eq!(hashes, expected.collect::<Vec<_>>());
}

#[isolated_test]
fn a_closed_connection_records_its_traffic() {
    // The first event of a process decides for all whether there is a subscriber.

    let lines = TraceLines::listen("pipewright_ipc");
    let mut channel = start("echo", &Options::default());
    channel.send_bytes(&[7; 10_000]).unwrap();
    assert_eq!(channel.recv().unwrap().len(), 10_000);
    assert!(lines.lines().is_empty());
    channel.close().unwrap();
    let words = [
        "DEBUG message=connection ended",
        " sent.messages=1 ",
        " sent.bytes=10000 ",
        " received.bytes=10000 ",
    ];
    assert!(lines.find(&words), "{:?}", lines.lines());
}

#[isolated_test]
fn a_pool_records_its_workers() {
    let lines = TraceLines::listen("pipewright_ipc");
    let options = PoolOptions { max_workers: 1, max_jobs: Some(1), ..PoolOptions::default() };
    let pool = Pool::new(worker("calls"), options).unwrap();
    pool.call("echo").unwrap();
    pool.call("exit 7").unwrap_err();
    pool.shut_down();
    assert!(lines.find(&["INFO message=worker started", " worker=1 "]), "{:?}", lines.lines());
    let ended = ["INFO message=worker ended", " jobs=1 ", " worker=1 "];
    assert!(lines.find(&ended), "{:?}", lines.lines());
    let how = exit_words(7);
    let lost = ["WARN message=worker lost", " worker=2 ", &how, "the last line of 7"];
    assert!(lines.find(&lost), "{:?}", lines.lines());
    let pool = Pool::new(pipewright::Command::new("/no/such"), PoolOptions::default()).unwrap();
    pool.call("echo").unwrap_err();
    assert!(lines.find(&["WARN message=worker not started", "/no/such"]), "{:?}", lines.lines());
}

#[watched_test]
fn tuned_options_change_only_the_threshold() {
    let options = Options { app: "a".into(), ring_bytes: 64 << 10, ..Options::default() };
    let tuned = options.tune().unwrap();
    assert!((512..=128 << 10).contains(&tuned.threshold_bytes), "{tuned:?}");
    assert_eq!(Options { threshold_bytes: options.threshold_bytes, ..tuned }, options);
}
