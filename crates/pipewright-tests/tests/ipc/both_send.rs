//! Both sides sending at once with everything full: never a deadlock.

use pipewright_ipc::{ErrorKind, Options};
use pipewright_test_macros::watched_test;
use pipewright_tests::bodies;

use super::{both_ways, start};

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
