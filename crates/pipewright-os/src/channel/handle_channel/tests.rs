//! Both ends in one process.

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::time::{Duration, Instant};

use super::*;
use crate::base::pipe;
use crate::base::wait::{self, Slot};

/// Returns an open handle that is not a channel end.
fn some_file() -> Handle {
    Handle::from(File::open(std::env::current_exe().unwrap()).unwrap())
}

fn both() -> (ChannelEnd, ChannelEnd) {
    let (ours, theirs) = pair().unwrap();
    (ours, ChannelEnd::from_handle(theirs).unwrap())
}

#[test]
fn bytes_that_do_not_fit_are_kept_and_sent_in_order() {
    check_order(both());
}

/// The end of another process's socket, on macOS.
#[cfg(unix)]
#[test]
fn an_end_whose_mode_is_not_ours_sends_no_more_than_fits() {
    let (mut a, b) = both();
    a.send_after_poll();
    check_order((a, b));
}

#[cfg(unix)]
#[test]
fn a_wait_on_an_end_that_is_in_nonblocking_mode_waits() {
    let (mut a, mut b) = both();
    rustix::io::ioctl_fionbio(&b.socket, true).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| b.wait_and_receive().unwrap());
        a.send(&[IoSlice::new(b"late")]).unwrap();
        assert_eq!(waits.join().unwrap(), Arrived::Bytes { to_caller: 0, ahead: 4 });
    });
}

fn check_order((mut a, mut b): (ChannelEnd, ChannelEnd)) {
    let bytes: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
    let (first, second) = bytes.split_at(1_000_000);
    a.send(&[IoSlice::new(first)]).unwrap();
    assert!(a.unsent() > 0, "more was sent than a socket holds");
    a.send(&[IoSlice::new(&second[..7]), IoSlice::new(&second[7..])]).unwrap();
    let mut received = Vec::new();
    while received.len() < bytes.len() {
        wait::any(&mut [Slot::Event(&b)], None).unwrap();
        while let Arrived::Bytes { to_caller: 0, .. } = b.receive(usize::MAX).unwrap() {}
        received.extend_from_slice(b.arrived());
        b.consume(b.arrived().len());
        if a.unsent() > 0 {
            wait::any(&mut [Slot::Room(&a)], None).unwrap();
            a.flush().unwrap();
        }
    }
    assert_eq!(received, bytes);
    assert_eq!((a.unsent(), b.receive(1).unwrap()), (0, Arrived::Nothing));
}

#[test]
fn first_bytes_go_to_the_callers_buffer() {
    let (mut a, mut b) = both();
    a.send(&[IoSlice::new(b"bodyand the next")]).unwrap();
    let mut body = b"a ".to_vec();
    let arrived = b.receive_into(&mut body, 4).unwrap();
    assert_eq!(arrived, Arrived::Bytes { to_caller: 4, ahead: 12 });
    assert_eq!((&body[..], b.arrived()), (&b"a body"[..], &b"and the next"[..]));
    // Not while earlier bytes are not consumed.
    assert_eq!(b.receive_into(&mut body, 4).unwrap(), Arrived::Nothing);
}

#[test]
fn receive_stops_at_the_limit() {
    let (mut a, mut b) = both();
    a.send(&[IoSlice::new(&[7; 100])]).unwrap();
    assert_eq!(b.receive(100).unwrap(), Arrived::Bytes { to_caller: 0, ahead: 100 });
    a.send(&[IoSlice::new(&[7; 100])]).unwrap();
    assert_eq!(b.receive(100).unwrap(), Arrived::Nothing);
    assert_eq!(b.receive(101).unwrap(), Arrived::Bytes { to_caller: 0, ahead: 100 });
}

#[test]
fn handles_arrive_with_the_bytes_and_work() {
    let (mut a, mut b) = both();
    let (mut reader, writer) = pipe::pair(Default::default()).unwrap();
    assert!(a.send_handles(&[IoSlice::new(b"x")], &[Handle::from(writer), some_file()]).unwrap());
    b.receive(10).unwrap();
    assert_eq!((b.arrived(), b.waiting_handles()), (&b"x"[..], 2));
    let mut writer = File::from(b.take_handle().unwrap());
    writer.write_all(b"through it").unwrap();
    drop((writer, b.take_handle().unwrap()));
    assert!(b.take_handle().is_none());
    let mut text = String::new();
    // Ends when our copy is gone too, which the call above consumed.
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through it");
}

#[test]
fn too_many_handles_are_refused_and_closed() {
    let (mut a, mut b) = both();
    let (mut reader, writer) = pipe::pair(Default::default()).unwrap();
    let copies = |count| (0..count).map(|_| Handle::from(writer.try_clone().unwrap())).collect();
    let most: Vec<Handle> = copies(MOST_HANDLES);
    assert!(a.send_handles(&[IoSlice::new(b"x")], &most).unwrap());
    let one_more: Vec<Handle> = copies(MOST_HANDLES + 1);
    assert!(a.send_handles(&[IoSlice::new(b"x")], &one_more).is_err());
    assert!(a.send_handles(&[], &most).is_err());
    assert!(a.send_handles(&[IoSlice::new(b"x")], &most[..1]).unwrap());
    b.receive(10).unwrap();
    let error = b.receive(10).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    drop((most, one_more, writer, b));
    // The end of the stream comes when every copy is closed.
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn end_of_stream_comes_after_everything_sent() {
    let (mut a, mut b) = both();
    a.send(&[IoSlice::new(b"last words")]).unwrap();
    b.send(&[IoSlice::new(b"never read")]).unwrap();
    drop(a);
    assert!(matches!(b.receive(100).unwrap(), Arrived::Bytes { ahead: 10, .. }));
    // A process that another test has started has a copy of the end until it executes its program.
    let arrived = loop {
        wait::any(&mut [Slot::Event(&b)], None).unwrap();
        match b.receive(100).unwrap() {
            Arrived::Nothing => {}
            arrived => break arrived,
        }
    };
    assert_eq!((arrived, b.has_ended()), (Arrived::End, true));
    assert_eq!(b.send(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn other_handles_are_refused() {
    assert_eq!(
        ChannelEnd::from_handle(some_file()).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

/// On Windows a thread's pending calls end with it.
#[test]
fn an_end_outlives_the_thread_that_used_it() {
    let bytes: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
    let (mut a, mut b) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (mut a, b) = both();
            a.send(&[IoSlice::new(&bytes)]).unwrap();
            (a, b)
        });
        thread.join().unwrap()
    });
    assert!(a.unsent() > 0, "more was sent than a link holds");
    let mut received = Vec::new();
    while received.len() < bytes.len() {
        a.flush().unwrap();
        wait::any(&mut [Slot::Event(&b)], None).unwrap();
        b.receive(usize::MAX).unwrap();
        received.extend_from_slice(b.arrived());
        b.consume(b.arrived().len());
    }
    assert!(received == bytes);
    assert_eq!((a.unsent(), b.receive(1).unwrap()), (0, Arrived::Nothing));
}

#[test]
fn wait_times_out_if_everything_was_consumed() {
    let (mut a, mut b) = both();
    let file = some_file();
    for round in 0..20 {
        // Bytes that come with handles are received separately, however much arrives at once.
        a.send(&[IoSlice::new(b"plain")]).unwrap();
        assert!(a.send_handles(&[IoSlice::new(b"more")], &[file.try_clone().unwrap()]).unwrap());
        while b.arrived().len() < 9 {
            assert_eq!(wait::any(&mut [Slot::Event(&b)], None).unwrap(), 1);
            b.receive(usize::MAX).unwrap();
        }
        assert_eq!((b.arrived(), b.waiting_handles()), (&b"plainmore"[..], 1));
        b.consume(9);
        drop(b.take_handle());
        let soon = Some(Instant::now() + Duration::from_millis(round % 3));
        assert_eq!(wait::any(&mut [Slot::Event(&b)], soon).unwrap(), 0);
        assert_eq!(wait::any(&mut [Slot::Room(&a)], None).unwrap(), 1);
    }
}

/// A pipe of Windows ends in both directions at once.
#[cfg(unix)]
#[test]
fn one_direction_ends_and_the_other_stays_open() {
    let (mut a, mut b) = both();
    a.send(&[IoSlice::new(b"last")]).unwrap();
    a.end_sending();
    while b.receive(usize::MAX).unwrap() != Arrived::End {}
    assert_eq!(b.arrived(), b"last");
    b.send(&[IoSlice::new(b"still")]).unwrap();
    wait::any(&mut [Slot::Event(&a)], None).unwrap();
    a.receive(usize::MAX).unwrap();
    assert_eq!((a.arrived(), a.has_ended()), (&b"still"[..], false));
}

#[test]
fn bytes_are_consumed_in_order() {
    let mut receive_buffer = ReceiveBuffer::default();
    let mut received = 0_usize;
    let mut left = 0_usize;
    for round in 1..500 {
        let room = receive_buffer.room().unwrap();
        assert!(room.capacity() - room.len() >= READ_AHEAD_BYTES);
        for _ in 0..(round * 37) % 9_000 {
            room.push((received % 251) as u8);
            received += 1;
        }
        let leave = (round * 113) % (receive_buffer.bytes().len() + 1);
        for byte in &receive_buffer.bytes()[..leave] {
            assert_eq!(*byte, (left % 251) as u8);
            left += 1;
        }
        receive_buffer.consume(leave);
    }
    assert_eq!(receive_buffer.bytes().len(), received - left);
    receive_buffer.consume(usize::MAX / 2);
    assert!(receive_buffer.bytes().is_empty());
}

#[test]
fn accepted_bytes_of_several_parts_are_not_kept() {
    let parts = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")];
    for taken in 0..=7 {
        let mut send_buffer = SendBuffer::default();
        send_buffer.keep_rest(&parts, taken).unwrap();
        assert_eq!(send_buffer.bytes(), &b"abcdefg"[taken..]);
        assert_eq!(send_buffer.is_empty(), taken == 7);
    }
}
