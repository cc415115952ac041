//! Every call of a channel, with a real worker.

use std::io::Read as _;
use std::time::Duration;

use pipewright::{Command, Containment, Handle, PipeOptions, Scope, Stdio};
use pipewright_ipc::{Channel, ErrorKind, Lease, Options, Raw, SharedMemory, Side};
use pipewright_test_macros::watched_test;
use pipewright_tests::{bodies, skip};

use super::{both_ways, some_files, start, worker};

#[watched_test]
fn messages_round_trip_by_every_send_and_receive_call() {
    for options in both_ways() {
        let mut channel = start("echo", &options);
        let (mut body, mut received) = (Vec::new(), b"before".to_vec());
        for number in 0..300 {
            let length = bodies::length(number);
            bodies::body(number, length, &mut body);
            match number % 4 {
                0 => channel.send_bytes(&body).unwrap(),
                3 => {
                    let mut rest = &body[..];
                    let fill = |piece: &mut [u8]| {
                        let (now, later) = rest.split_at(piece.len());
                        piece.copy_from_slice(now);
                        rest = later;
                    };
                    channel.send_filled(length, fill).unwrap();
                    assert!(rest.is_empty());
                }
                1 => {
                    let mut loan = channel.reserve(length).unwrap();
                    assert_eq!(loan.len(), length);
                    loan.copy_from_slice(&body);
                    assert!(*loan == *body);
                    loan.send().unwrap();
                }
                _ => {
                    channel.queue_bytes(&body).unwrap();
                    channel.flush().unwrap();
                }
            }
            let message = channel.recv().unwrap();
            assert_eq!((message.len(), message.is_empty()), (length, length == 0));
            match number % 5 {
                0 => message.read_into(&mut received).unwrap(),
                1 => received = message.bytes().unwrap(),
                2 => {
                    received.clear();
                    message
                        .lease()
                        .for_each_chunk(|chunk| received.extend_from_slice(chunk))
                        .unwrap();
                }
                3 => received = folded(message.lease()),
                _ => {
                    received.clear();
                    let mut lease = message.lease();
                    assert_eq!(lease.left(), length);
                    lease.read_to_end(&mut received).unwrap();
                    assert_eq!(lease.left(), 0);
                }
            }
            bodies::check(number, length, &received, &mut body);
        }
        let stats = channel.stats();
        assert_eq!((stats.sent.messages, stats.received.messages), (300, 300));
        assert_eq!(stats.sent.bytes, stats.received.bytes);
        for direction in [stats.sent, stats.received] {
            assert_eq!(direction.inline_bytes + direction.shared_bytes, direction.bytes);
        }
        assert!(channel.close().unwrap().unwrap().success());
    }
}

#[watched_test]
fn a_message_whose_function_panics_is_cut_off() {
    for options in both_ways() {
        let mut channel = start("echo", &options);
        let mut pieces = 0;
        let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            channel.send_filled(200_000, |_| {
                pieces += 1;
                assert!(pieces < 3, "on purpose");
            })
        }));
        assert!(sent.is_err());
        assert_eq!(channel.send_bytes(b"another").unwrap_err().kind(), &ErrorKind::CutOff);
    }
}

/// Reads the rest of a message by `fold`, in blocks of which only the last may be short.
fn folded(lease: Lease<'_>) -> Vec<u8> {
    let blocks = lease.left().div_ceil(64);
    let (received, count) = lease
        .fold((Vec::new(), 0), |(mut received, count), block| {
            assert!(count + 1 == blocks || block.len() == 64, "{} in {count}", block.len());
            received.extend_from_slice(block);
            (received, count + 1)
        })
        .unwrap();
    assert_eq!(count, blocks);
    received
}

#[watched_test]
fn fold_sees_whole_blocks_across_frame_boundaries() {
    for options in both_ways() {
        let mut channel = start("echo,ring=65536", &options);
        let (mut body, mut number) = (Vec::new(), 0);
        for length in [0, 1, 63, 64, 65, 127, 128, 4_095, 65_535, 65_536, 65_537, 65_600, 300_001] {
            for begun in [0, 1, 7, 63, 64, 65_530] {
                bodies::body(number, length, &mut body);
                channel.send_bytes(&body).unwrap();
                let mut lease = channel.recv().unwrap().lease();
                let mut received = vec![0; begun.min(length)];
                lease.read_exact(&mut received).unwrap();
                received.extend(folded(lease));
                assert!(received == body, "{length} after {begun}");
                number += 1;
            }
        }
        assert!(channel.close().unwrap().unwrap().success());
    }
}

#[watched_test]
fn skipped_bytes_of_a_message_are_not_read() {
    for options in both_ways() {
        let mut channel = start("echo,ring=65536", &options);
        let (mut body, length) = (Vec::new(), 400_000);
        bodies::body(5, length, &mut body);
        for steps in [[0, 1], [1, 63], [7, 4_097], [65_533, 70_001], [399_000, 998]] {
            channel.send_bytes(&body).unwrap();
            let mut lease = channel.recv().unwrap().lease();
            let mut at = 0;
            for step in steps {
                lease.skip(step).unwrap();
                at += step;
                assert_eq!(lease.left(), length - at);
                let mut byte = [0];
                lease.read_exact(&mut byte).unwrap();
                assert_eq!(byte[0], body[at], "{at}");
                at += 1;
            }
            lease.skip(usize::MAX).unwrap();
            assert_eq!((lease.left(), lease.read(&mut [0]).unwrap()), (0, 0));
        }
        assert!(channel.close().unwrap().unwrap().success());
    }
}

#[watched_test]
fn small_messages_are_batched() {
    for options in both_ways() {
        let mut channel = start("echo", &options);
        for number in 0..20_000_u64 {
            channel.queue_bytes(&number.to_le_bytes()).unwrap();
        }
        channel.flush().unwrap();
        let mut received = Vec::new();
        for number in 0..20_000_u64 {
            channel.recv().unwrap().read_into(&mut received).unwrap();
            assert_eq!(received, number.to_le_bytes());
        }
        let stats = channel.stats();
        // A worker with a runtime for each reply sends them one by one, and each ends a wait for room.
        if !skip::is_forced_async() {
            assert!(stats.sent.system_calls < 2_000, "{stats:?}");
        }
    }
}

#[watched_test]
fn try_calls_do_not_block() {
    for options in both_ways() {
        let mut channel = start("silent", &options);
        assert!(channel.try_recv().unwrap().is_none());
        let body = vec![7; 100_000];
        let mut taken = 0;
        while channel.try_send_bytes(&body).unwrap() {
            taken += 1;
            assert!(taken < 1_000, "nobody reads it");
        }
        assert!(taken > 0);
        assert!(!channel.try_send_bytes(b"x").unwrap());
    }
    for options in both_ways() {
        let mut channel = start("echo", &options);
        let mut received = Vec::new();
        for number in 0..200 {
            let (length, mut body) = (bodies::length(number), Vec::new());
            bodies::body(number, length, &mut body);
            while !channel.try_send_bytes(&body).unwrap() {
                std::thread::yield_now();
            }
            loop {
                match channel.try_recv().unwrap() {
                    Some(message) => break message.read_into(&mut received).unwrap(),
                    None => std::thread::yield_now(),
                }
            }
            bodies::check(number, length, &received, &mut body);
        }
    }
}

#[watched_test]
fn an_unread_message_is_skipped() {
    for options in both_ways() {
        let mut channel = start("echo", &options);
        for length in [0, 10, 5_000, 70_000, 5_000_000, 1] {
            channel.send_bytes(&vec![length as u8; length]).unwrap();
        }
        for length in [0, 10, 5_000, 70_000, 5_000_000] {
            let message = channel.recv().unwrap();
            assert_eq!(message.len(), length);
            if length % 4 == 0 {
                // Or only begun.
                let _ = message.lease().read(&mut [0; 7]).unwrap();
            }
        }
        assert_eq!(channel.recv().unwrap().bytes().unwrap(), [1]);
    }
}

#[watched_test]
fn handles_go_with_messages() {
    for options in both_ways() {
        let mut channel = start("handles", &options);
        let (mut reader, writer) = pipewright::pipe(PipeOptions::default()).unwrap();
        let writers = [Handle::from(writer.try_clone().unwrap()), Handle::from(writer)];
        channel.send_with_handles(b"line\n", &writers).unwrap();
        channel.send_bytes(b"none").unwrap();
        // Also a long one.
        channel.send_with_handles(&[b'x'; 100_000], &writers[..1]).unwrap();
        drop(writers);
        let mut text = String::new();
        let mut counts = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| reader.read_to_string(&mut text).unwrap());
            for _ in 0..3 {
                counts.extend(channel.recv().unwrap().bytes().unwrap());
            }
        });
        assert_eq!(counts, [2, 0, 1]);
        assert_eq!((&text[..10], text.len()), ("line\nline\n", 100_010));
        let error = channel.send_with_handles(b"", &some_files(65)).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Io);
    }
}

/// Asks a worker, which answers with the end of a pipe that has the question.
pub(super) fn check_given_handles(channel: &mut Channel) {
    for length in [0, 1, 10_000] {
        let question = vec![7; length];
        channel.send_bytes(&question).unwrap();
        let mut message = channel.recv().unwrap();
        let handle = message.take_handles().pop().unwrap();
        assert_eq!(message.bytes().unwrap(), b"read it");
        let mut received = Vec::new();
        // Reaches its end when the worker has closed the other one.
        std::fs::File::from(handle).read_to_end(&mut received).unwrap();
        assert_eq!(received, question);
    }
}

#[watched_test]
fn a_worker_passes_handles_too() {
    for options in both_ways() {
        let mut channel = start("gives", &options);
        check_given_handles(&mut channel);
        channel.close().unwrap();
    }
}

/// On Windows handles are numbers of the process that was started, and here that is another one.
#[watched_test]
fn a_worker_below_a_shell_works() {
    let puppet = env!("CARGO_BIN_EXE_puppet");
    let mut command = if cfg!(windows) {
        let mut shell = Command::new("cmd");
        shell.args(["/c", puppet, "ipc=echo"]);
        shell
    } else {
        let mut shell = Command::new("sh");
        // Not the last thing that it does: it would become the worker.
        shell.args(["-c", "\"$0\" ipc=echo; exit $?", puppet]);
        shell
    };
    let mut channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    let body = vec![7; 100_000];
    channel.send_bytes(&body).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), body);
    if cfg!(windows) {
        assert!(!channel.stats().shared_memory);
        let error = channel.send_with_handles(b"x", &some_files(1)).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>();
        assert_eq!(source.unwrap().kind(), std::io::ErrorKind::Unsupported, "{error}");
    }
    assert!(channel.close().unwrap().unwrap().success());
}

#[watched_test]
fn values_round_trip() {
    let options = Options::default();
    let mut channel =
        Channel::<Vec<u64>, (u64, String)>::start(&mut worker("typed"), &options).unwrap();
    for count in [0, 1, 1_000, 100_000] {
        channel.send(&(0..count).collect()).unwrap();
        let (sum, text) = channel.recv().unwrap().value().unwrap();
        assert_eq!((sum, text), ((0..count).sum(), format!("{count} numbers")));
    }
    channel.send_bytes(b"\xff").unwrap();
    let error = channel.recv().map(|message| message.value()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Died { status: Some(_) }), "{error}");
}

#[watched_test]
fn stdout_of_a_worker_is_not_read_as_messages() {
    let mut command = worker("noisy");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut channel: Channel = Channel::start(&mut command, &Options::default()).unwrap();
    channel.send_bytes(b"question").unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"question");
    let mut line = vec![0; 31];
    let child = channel.worker_mut().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(line, b"a line on stdout of the worker\n");
    channel.close().unwrap();
}

#[watched_test]
fn a_message_over_the_limit_is_refused_before_sending() {
    let mut channel = start("echo,most=1000", &Options::default());
    let error = channel.send_bytes(&[0; 1001]).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::TooLong { bytes: 1001, most: 1000 });
    assert!(channel.reserve(1001).is_err());
    channel.send_bytes(&[7; 1000]).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), [7; 1000]);
}

#[watched_test]
fn required_shared_memory_is_an_error_if_unavailable() {
    let options = Options { shared_memory: SharedMemory::Required, ..Options::default() };
    let started: Result<Channel, _> = Channel::start(&mut worker("echo,shm=off"), &options);
    let error = started.unwrap_err();
    let ErrorKind::Refused { by, field, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((*by, field.as_str()), (Side::Host, "shared memory"));
}

#[watched_test]
fn a_cancel_ends_a_wait() {
    for options in both_ways() {
        let mut channel = start("silent", &options);
        let token = pipewright::CancelToken::new();
        channel.set_cancel(&token);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::park_timeout(Duration::from_millis(30));
                token.cancel();
            });
            let error = channel.recv().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Cancelled);
        });
        assert_eq!(channel.recv().unwrap_err().kind(), &ErrorKind::Cancelled);
    }
}

#[watched_test]
fn starting_a_worker_does_not_change_its_command() {
    let mut command = worker("echo");
    drop(Channel::<Raw, Raw>::start(&mut command, &Options::default()).unwrap());
    // Every other child of it would take itself for a worker.
    assert_eq!(command.get_envs().count(), 0);
    // The options of the command still apply.
    command.kill_on_parent_exit(Scope::Tree);
    match Channel::<Raw, Raw>::start(&mut command, &Options::default()) {
        Ok(channel) => {
            let containment = channel.worker().unwrap().containment();
            assert_ne!(containment, Containment::None);
        }
        Err(error) => skip::skipped(skip::Need::Supervisor, error),
    }
}
