//! The wire of `docs/wire.md`, as another implementation may use it. `clients` has the suite of those in other
//! languages.

use std::io::IoSlice;

use pipewright_ipc::{Channel, ErrorKind, Options, SharedMemory};
use pipewright_os::base::wait::{self, Slot};
use pipewright_test_macros::watched_test;
use pipewright_tests::hostile::{frame, on_a_thread, receive_frame, send, send_hello};

/// A message of eight bytes in three frames: two, three and three bytes.
fn parts() -> [Vec<u8>; 3] {
    let first = [&8_u64.to_le_bytes()[..], b"in"].concat();
    [frame(16, 1, 0, 2, &first), frame(8, 0, 0, 3, b"par"), frame(8, 0, 0, 3, b"ts!")]
}

#[watched_test]
fn a_message_may_come_in_any_frames_with_a_wake_between_them() {
    let (end, thread) = on_a_thread(|end| {
        send_hello(end, "handles.v1 something.new");
        let wake = frame(9, 0, 0, 0, b"");
        let [first, second, third] = parts();
        for bytes in [first, wake, second, third] {
            send(end, &bytes);
        }
        // Longer than the frames of this library.
        send(end, &frame(16, 0, 0, 3_000_000, &vec![b'x'; 3_000_000]));
        while receive_frame(end).is_some() {}
    });
    let options = Options { shared_memory: SharedMemory::Auto, ..Options::default() };
    let mut channel: Channel = Channel::as_host(end, &options).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"inparts!");
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), vec![b'x'; 3_000_000]);
    let stats = channel.stats();
    assert_eq!(stats.fallback.as_deref(), Some("the other side has shared memory off"));
    drop(channel);
    thread.join().unwrap();
}

/// `docs/wire.md` has these bytes as its example.
#[watched_test]
fn a_message_has_the_documented_bytes() {
    let (end, thread) = on_a_thread(|end| {
        send_hello(end, "");
        let (kind, _) = receive_frame(end).unwrap();
        assert_eq!(kind, 4);
        let bytes = [2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'h', b'i'];
        while end.arrived().len() < bytes.len() {
            wait::any(&mut [Slot::Event(end)], None).unwrap();
            end.receive(usize::MAX).unwrap();
        }
        assert_eq!(end.arrived(), bytes);
        end.consume(bytes.len());
        end.send(&[IoSlice::new(&bytes)]).unwrap();
        send(end, &frame(10, 0, 0, 0, b""));
        while receive_frame(end).is_some() {}
    });
    let options = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    let mut channel: Channel = Channel::as_host(end, &options).unwrap();
    channel.send_bytes(b"hi").unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"hi");
    assert_eq!(channel.recv().unwrap_err().kind(), &ErrorKind::Closed);
    drop(channel);
    thread.join().unwrap();
}
