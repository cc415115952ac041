//! Every body arrives whole and in order: sizes 0 to 256 MB, around every threshold and boundary of the ring,
//! both directions at once, with either side killed, stopped and slowed at random points.

use std::time::{Duration, Instant};

#[cfg(unix)]
use pipewright::Signal;
use pipewright_ipc::{Channel, ErrorKind, Options, SharedMemory};
use pipewright_test_macros::watched_test;
use pipewright_tests::{bodies, skip};

use crate::{both_ways, start, torture_time, was_killed};

#[watched_test]
fn messages_around_every_size_boundary_arrive() {
    for options in both_ways() {
        let options = Options { ring_bytes: 256 << 10, ..options };
        let mut channel = start("echo,ring=65536", &options);
        let (mut body, mut received, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        let edges = [0, 64, 4096, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10];
        for edge in edges {
            for length in [edge + 40_usize, edge + 33, edge + 32, edge + 31, edge + 1, edge] {
                for length in [length, edge.saturating_sub(length - edge)] {
                    bodies::body(7, length, &mut body);
                    channel.send_bytes(&body).unwrap();
                    channel.recv().unwrap().read_into(&mut received).unwrap();
                    bodies::check(7, length, &received, &mut expected);
                }
            }
        }
    }
}

#[watched_test]
fn the_longest_message_arrives_both_ways() {
    let megabytes = if cfg!(debug_assertions) { 64 } else { 256 };
    for options in both_ways() {
        let options = Options { max_backlog_bytes: 1 << 30, ..options };
        let mut channel = start("echo", &options);
        let length = megabytes << 20;
        let (mut body, mut expected) = (Vec::new(), Vec::new());
        bodies::body(1, length, &mut body);
        channel.send_bytes(&body).unwrap();
        let received = channel.recv().unwrap().bytes().unwrap();
        bodies::check(1, length, &received, &mut expected);
        let stats = channel.stats();
        assert_eq!((stats.sent.progressive_messages, stats.received.progressive_messages), (1, 1));
        channel.close().unwrap();
    }
}

/// Receives from a source until the connection ends, and checks every byte. Returns the number of messages.
fn take_all(
    channel: &mut Channel,
    disturb: impl Fn(u64, &Channel),
) -> (u64, pipewright_ipc::Error) {
    let (mut received, mut expected) = (Vec::new(), Vec::new());
    for number in 0.. {
        disturb(number, channel);
        let result = channel.recv().and_then(|message| message.read_into(&mut received));
        match result {
            Ok(()) => bodies::check(number, bodies::length(number), &received, &mut expected),
            Err(error) => return (number, error),
        }
    }
    unreachable!()
}

#[watched_test(limit = Duration::from_secs(120) + torture_time())]
fn messages_before_a_kill_arrive_whole_and_in_order() {
    let until = Instant::now() + torture_time() / 3;
    let mut rounds = 0_u64;
    while Instant::now() < until || rounds < 6 {
        let [on, off] = both_ways();
        let options = if rounds % 3 == 2 { off } else { on };
        // A different number of messages each time: a kill before the first message, in the middle, later.
        let kill_at = rounds * 17 % 101;
        let mut channel = start("source,ring=65536", &options);
        let (count, error) = take_all(&mut channel, |number, channel| {
            if number == kill_at {
                channel.worker().unwrap().kill().unwrap();
            }
        });
        assert!(count >= kill_at, "{count} messages before a kill at {kill_at}");
        let ErrorKind::Died { status: Some(status) } = error.kind() else { panic!("{error}") };
        was_killed(*status);
        rounds += 1;
    }
}

/// Stops a worker that sends back what it gets, sends it a body and receives it. Continues the worker meanwhile, some
/// milliseconds later.
#[cfg(unix)]
pub(super) fn exchange_and_continue(
    channel: &mut Channel,
    stop: bool,
    number: u64,
    body: &[u8],
    received: &mut Vec<u8>,
) {
    let worker = channel.worker().unwrap();
    if stop {
        assert!(worker.signal(Signal::STOP).unwrap());
    }
    // Messages to a stopped process wait in the ring and in the socket. A sender of more than
    // that waits too, so another thread continues the process a moment later.
    let pid = rustix::process::Pid::from_raw(worker.id() as i32).unwrap();
    let pause = Duration::from_millis(1 + number % 7);
    let go_on = std::thread::spawn(move || {
        std::thread::park_timeout(pause);
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    });
    channel.send_bytes(body).unwrap();
    channel.recv().unwrap().read_into(received).unwrap();
    go_on.join().unwrap();
}

#[cfg(unix)]
#[watched_test(limit = Duration::from_secs(120) + torture_time())]
fn a_stopped_and_continued_worker_loses_nothing() {
    let until = Instant::now() + torture_time() / 3;
    let [on, off] = both_ways();
    for options in [on, off] {
        let mut channel = start("echo,ring=65536", &options);
        let (mut body, mut received) = (Vec::new(), Vec::new());
        let mut number = 0;
        while Instant::now() < until || number < 60 {
            let length = bodies::length(number);
            bodies::body(number, length, &mut body);
            let stop = number % 5 == 0;
            exchange_and_continue(&mut channel, stop, number, &body, &mut received);
            bodies::check(number, length, &received, &mut body);
            number += 1;
            if Instant::now() >= until && number >= 60 {
                break;
            }
        }
        channel.close().unwrap();
    }
}

#[watched_test(limit = Duration::from_secs(120) + torture_time())]
fn slow_readers_and_slow_writers_lose_nothing() {
    let until = Instant::now() + torture_time() / 3;
    for options in both_ways() {
        let mut channel = start("source,ring=65536,spin=0", &options);
        let (count, error) = take_all(&mut channel, |number, channel| {
            if number % 16 == 0 {
                // The source fills the ring, spills, and fills the socket.
                std::thread::park_timeout(Duration::from_millis(number / 16 % 5));
            }
            if Instant::now() >= until && number > 200 {
                channel.worker().unwrap().kill().unwrap();
            }
        });
        assert!(count > 200, "{count}: {error}");
        let stats = channel.stats();
        if options.shared_memory == SharedMemory::Auto && stats.shared_memory {
            assert!(stats.received.shared_frames > 0, "{stats:?}");
            assert!(stats.received.inline_frames > 0, "a full ring spills: {stats:?}");
        } else if options.shared_memory == SharedMemory::Auto {
            skip::skipped(skip::Need::SharedMemory, format_args!("{:?}", stats.fallback));
        }
    }
}

/// A number of messages beyond the capacity of two rings and two sockets.
const COUNT: u64 = 400;

#[watched_test]
fn two_sides_that_send_everything_first_do_not_deadlock() {
    for options in both_ways() {
        let options = Options { ring_bytes: 64 << 10, ..options };
        let mut channel = start(&format!("both,ring=65536,count={COUNT}"), &options);
        let (mut body, mut received) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for number in 0..COUNT {
            bytes += bodies::length(number);
            bodies::body(number, bodies::length(number), &mut body);
            channel.send_bytes(&body).unwrap();
        }
        assert!(bytes > 4 << 20, "{bytes} bytes may have fitted");
        for number in 0..COUNT {
            channel.recv().unwrap().read_into(&mut received).unwrap();
            bodies::check(number, bodies::length(number), &received, &mut body);
        }
        assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"right");
        assert!(channel.close().unwrap().unwrap().success());
    }
}

#[watched_test]
fn an_echoing_worker_and_a_host_that_does_not_receive_do_not_deadlock() {
    for options in both_ways() {
        let mut channel = start("echo,ring=65536", &options);
        let (mut body, mut received) = (Vec::new(), Vec::new());
        for number in 0..COUNT {
            bodies::body(number, bodies::length(number), &mut body);
            channel.send_bytes(&body).unwrap();
        }
        for number in 0..COUNT {
            channel.recv().unwrap().read_into(&mut received).unwrap();
            bodies::check(number, bodies::length(number), &received, &mut body);
        }
    }
}

#[watched_test]
fn messages_kept_while_sending_are_bounded() {
    // The worker's messages before it stops reading: more than the ring and our queue hold, less than the ring and a
    // socket hold.
    const SENT: u64 = 16;
    const BYTES: usize = 8 << 10;
    const RING: usize = 64 << 10;
    const KEPT: usize = 16 << 10;
    for options in both_ways() {
        let options = Options { max_backlog_bytes: KEPT, ring_bytes: RING, ..options };
        let mut channel = start(&format!("deaf,ring={RING},count={SENT},length={BYTES}"), &options);
        // The worker never reads, so this waits; messages that arrive meanwhile are kept, up to the bound.
        let error = channel.send_bytes(&vec![7; 64 << 20]).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Backlog { most: KEPT }, "{error}");
        // Messages that arrived can still be received.
        let (mut received, mut expected) = (Vec::new(), Vec::new());
        for number in 0..SENT {
            channel.recv().unwrap().read_into(&mut received).unwrap();
            bodies::check(number, BYTES, &received, &mut expected);
        }
    }
}
