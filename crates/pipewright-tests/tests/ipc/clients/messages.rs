//! A good worker of a channel: every message arrives whole and in order.

use std::io::Read as _;

use pipewright::{Handle, PipeOptions, Stdio};
use pipewright_ipc::{Channel, ErrorKind, Options, SharedMemory};
use pipewright_tests::{bodies, pace};

use super::language::Client;
use crate::calls::check_given_handles;
#[cfg(unix)]
use crate::whole_and_in_order::exchange_and_continue;
use crate::{both_ways, some_files, was_killed};

/// The messages that a worker sends by itself.
pub(super) fn own_body(number: u64) -> Vec<u8> {
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
