//! A hostile worker (fuzzed frames, lengths, missing seals, memory that changes while it is read, too many
//! handles): it causes an error, never a crash, a hang or an allocation beyond the agreed limit.

use std::io::{IoSlice, Read as _};
use std::time::Duration;

use pipewright::Stdio;
use pipewright_ipc::{Channel, Error, ErrorKind, Options, SharedMemory, Side};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{self, ChannelEnd};
use pipewright_os::channel::shm::{ShmOptions, Written};
use pipewright_test_macros::{isolated_test, watched_test};
use pipewright_tests::hostile::{
    self, frame, on_a_thread, outcome, receive_frame, send, send_hello, text,
};
use pipewright_tests::{count, pace, skip, watchdog};
use proptest::prelude::*;

use crate::{some_files, worker};

const MOST_BYTES: u64 = 1 << 20;

fn options(shared_memory: SharedMemory) -> Options {
    Options {
        shared_memory,
        max_message_bytes: MOST_BYTES,
        ring_bytes: 64 << 10,
        handshake_timeout: pace::seconds(5),
        timeout: Some(pace::seconds(5)),
        ..Options::default()
    }
}

fn is_protocol(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Protocol { .. })
}

#[watched_test]
fn wrong_frames_after_the_handshake_are_errors_with_the_reason() {
    let cases: [(Vec<u8>, &str); 9] = [
        (frame(200, 0, 0, 0, b""), "kind 200"),
        (frame(1, 0, 0, 0, b""), "kind 1"),
        (frame(8, 0, 0, 4, b"part"), "kind 8"),
        (frame(16, 2, 0, 0, b""), "flags"),
        (frame(16, 0, 0, u32::MAX, b""), "4294967295 bytes exceeds the agreed maximum of 1048576"),
        (frame(16, 1, 0, 4, &u64::MAX.to_le_bytes()), "18446744073709551615 bytes"),
        (frame(16, 1, 0, 9, &8_u64.to_le_bytes()), "parts"),
        (frame(16, 0, 1, 1, b"x"), "handles"),
        (
            [frame(16, 1, 0, 4, &[8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]), frame(16, 0, 0, 1, b"x")]
                .concat(),
            "kind 16",
        ),
    ];
    for (bytes, words) in cases {
        let act = move |end: &mut ChannelEnd| {
            send_hello(end, "");
            send(end, &bytes);
            while receive_frame(end).is_some() {}
        };
        let error = outcome(act, &options(SharedMemory::Off));
        assert!(is_protocol(&error) && error.to_string().contains(words), "{words}: {error}");
    }
}

#[watched_test]
fn an_endless_message_is_an_error() {
    let short = Options { timeout: Some(Duration::from_millis(100)), ..options(SharedMemory::Off) };
    for (stays, options) in [(true, short), (false, options(SharedMemory::Off))] {
        let act = move |end: &mut ChannelEnd| {
            send_hello(end, "");
            send(end, &frame(16, 0, 0, 1000, b"only this"));
            while stays && receive_frame(end).is_some() {}
        };
        let error = outcome(act, &options);
        assert_eq!((error.is_timeout(), error.is_disconnect()), (stays, !stays), "{error}");
    }
}

#[isolated_test]
fn unexpected_handles_are_an_error_and_are_closed() {
    let before = count::handles();
    let act = |end: &mut ChannelEnd| {
        send_hello(end, "");
        let handles = some_files(60);
        for _ in 0..3 {
            // Not announced by any frame.
            let frame = frame(16, 0, 0, 1, b"x");
            if end.send_handles(&[IoSlice::new(&frame)], &handles).is_err() {
                break;
            }
        }
        while receive_frame(end).is_some() {}
    };
    let error = outcome(act, &options(SharedMemory::Off));
    assert!(is_protocol(&error) && error.to_string().contains("handles"), "{error}");
    watchdog::until("all are closed", || count::handles() == before);
}

#[watched_test]
fn unsafe_memory_is_refused_and_the_channel_works_without_it() {
    let act = |end: &mut ChannelEnd| {
        send_hello(end, "shm.v1");
        let (kind, _) = receive_frame(end).unwrap();
        if kind == 3 {
            // Another file instead of memory.
            let body = b"memory\nbytes=65536\nproof=1\n";
            let frame = frame(3, 0, 1, body.len() as u32, body);
            assert!(end.send_handles(&[IoSlice::new(&frame)], &some_files(1)).unwrap());
            let (kind, ready) = receive_frame(end).unwrap();
            assert!(kind == 4 && ready.contains("shared=0"), "{ready}");
        }
        send(end, &frame(16, 0, 0, 5, b"hello"));
        send(end, &frame(10, 0, 0, 0, b""));
        while receive_frame(end).is_some() {}
    };
    let (link, thread) = hostile::on_a_thread(act);
    let mut channel: Channel = Channel::as_host(link, &options(SharedMemory::Auto)).unwrap();
    assert_eq!(channel.recv().unwrap().bytes().unwrap(), b"hello");
    assert_eq!(channel.recv().unwrap_err().kind(), &ErrorKind::Closed);
    let stats = channel.stats();
    assert!(!stats.shared_memory && stats.fallback.is_some(), "{stats:?}");
    drop(channel);
    thread.join().unwrap();
}

/// Returns the error of a host whose worker has real memory, and fills its words and its ring with anything. `None`:
/// there is no shared memory here.
fn with_memory(act: impl FnOnce(&mut ChannelEnd, &mut Written) + Send + 'static) -> Option<Error> {
    let shm = ShmOptions { bytes: 64 << 10, prefault: true };
    let Ok(mut ours) = Written::create(shm) else {
        skip::skipped(skip::Need::SharedMemory, "no shared memory here");
        return None;
    };
    let greeting = move |end: &mut ChannelEnd| {
        hostile::send_hello_with_memory(end, &ours);
        act(end, &mut ours);
        while receive_frame(end).is_some() {}
    };
    Some(outcome(greeting, &options(SharedMemory::Auto)))
}

/// Returns the header of a frame in a ring, with the cursors behind it.
pub(super) fn record(length: u32, kind: u8, flags: u8, after: u64, total: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..6].copy_from_slice(&[kind, flags]);
    bytes[16..24].copy_from_slice(&after.to_le_bytes());
    bytes[24..].copy_from_slice(&total.to_le_bytes());
    bytes
}

pub(super) const HEAD: usize = 0;

/// Returns records that no side writes: the head of the ring, the record, and a word of the error.
pub(super) fn wrong_records() -> [(u64, [u8; 32], &'static str); 9] {
    [
        (65, record(0, 16, 0, 0, 0), "HEAD of the ring"),
        (u64::MAX - 63, record(0, 16, 0, 0, 0), "HEAD of the ring"),
        (128 << 10, record(0, 16, 0, 0, 0), "HEAD of the ring"),
        (64, record(33, 16, 0, 0, 0), "does not fit"),
        (64, record(u32::MAX, 16, 0, 0, 0), "does not fit"),
        (64, record(0, 11, 0, 0, 0), "does not fit"),
        (64, record(0, 99, 0, 0, 0), "kind 99"),
        (64, record(1, 16, 1, 0, 1 << 40), "1099511627776 bytes"),
        (64, record(1, 16, 1, 0, 1), "parts"),
    ]
}

#[watched_test]
fn a_corrupt_ring_is_an_error_with_the_reason() {
    for (head, record, words) in wrong_records() {
        let act = move |end: &mut ChannelEnd, ours: &mut Written| {
            ours.data()[..32].copy_from_slice(&record);
            ours.publish(HEAD, head);
            send(end, &frame(9, 0, 0, 0, b""));
        };
        let Some(error) = with_memory(act) else { return };
        assert!(is_protocol(&error) && error.to_string().contains(words), "{words}: {error}");
    }
}

#[watched_test]
fn a_record_whose_frame_never_arrives_times_out() {
    let act = |end: &mut ChannelEnd, ours: &mut Written| {
        ours.data()[..32].copy_from_slice(&record(0, 16, 0, 5, 0));
        ours.publish(HEAD, 64);
        send(end, &frame(9, 0, 0, 0, b""));
    };
    let Some(error) = with_memory(act) else { return };
    assert!(error.is_timeout(), "{error}");
}

#[watched_test]
fn memory_that_changes_while_it_is_read_is_a_message_or_an_error() {
    let act = |end: &mut ChannelEnd, ours: &mut Written| {
        let mut head = 0;
        let mut seed = 1_u64;
        for round in 0..20_000_u64 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Headers that change while the host reads them, between valid ones.
            let length = (seed >> 40) as u32 % 9_000;
            let bytes = (u64::from(length) + 32).next_multiple_of(64);
            let at = (head % (64 << 10)) as usize;
            if at as u64 + bytes > 64 << 10 {
                break;
            }
            ours.data()[at..at + 32].copy_from_slice(&record(length, 16, 0, 0, 0));
            head += bytes;
            ours.publish(HEAD, head);
            if round % 3 == 0 {
                ours.data()[at..at + 32].copy_from_slice(&seed.to_le_bytes().repeat(4));
            }
        }
        send(end, &frame(9, 0, 0, 0, b""));
        send(end, &frame(10, 0, 0, 0, b""));
    };
    for _ in 0..20 {
        let Some(error) = with_memory(act) else { return };
        assert!(is_protocol(&error) || error.is_disconnect() || error.is_timeout(), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Sends any bytes, before the handshake or after it.
    #[watched_test(limit = Duration::from_secs(300))]
    fn any_bytes_are_messages_or_an_error(
        greets: bool,
        frames in prop::collection::vec(
            (0_u8..24, prop::num::u8::ANY, 0_u16..3, 0_u32..300, prop::collection::vec(prop::num::u8::ANY, 0..300)),
            0..12,
        ),
        junk: Vec<u8>,
    ) {
        let act = move |end: &mut ChannelEnd| {
            if greets {
                send_hello(end, "shm.v1");
            }
            for (kind, flags, handles, length, body) in frames {
                // Mostly valid, so that later frames are checked too.
                let flags = if flags < 230 { 0 } else { flags & 3 };
                let handles = if handles == 2 { 1 } else { 0 };
                let length = if length % 8 == 0 { length } else { body.len() as u32 };
                send(end, &frame(kind, flags, handles, length, &body));
            }
            send(end, &junk);
        };
        let error = outcome(act, &options(SharedMemory::Auto));
        let expected = is_protocol(&error)
            || error.is_disconnect()
            || matches!(error.kind(), ErrorKind::Refused { .. });
        prop_assert!(expected, "{error}");
    }
}

fn app_options() -> Options {
    Options { app: "app".into(), build: "1".into(), salt: "s".into(), ..Options::default() }
}

#[track_caller]
pub(super) fn refused(error: &Error) -> (Side, &str, &str, &str) {
    match error.kind() {
        ErrorKind::Refused { by, field, host, worker } => (*by, field, host, worker),
        _ => panic!("{error}"),
    }
}

#[watched_test]
fn another_application_build_or_salt_is_named_on_both_sides() {
    let cases = [
        ("app=other,build=1,salt=s", ("app", "app", "other")),
        ("app=app,build=2,salt=s", ("build", "1", "2")),
        ("app=app,build=1,salt=t", ("salt", "s", "t")),
        ("app=app,salt=s", ("build", "1", "")),
    ];
    for (kind, (field, ours, theirs)) in cases {
        let mut command = worker(&format!("echo,{kind}"));
        command.stderr(Stdio::piped());
        // The worker's output, through a pipe of ours.
        let (mut reader, writer) = pipewright::pipe(Default::default()).unwrap();
        command.stderr(writer);
        let started: Result<Channel, _> = Channel::start(&mut command, &app_options());
        let error = started.unwrap_err();
        assert_eq!(refused(&error), (Side::Worker, field, ours, theirs));
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let words = format!("{field} differs (host {ours:?}, worker {theirs:?})");
        assert!(text.contains(&words) && error.to_string().contains(&words), "{text} / {error}");
    }
}

#[cfg(unix)]
#[watched_test]
fn another_user_is_named() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "only root can start a worker of another user");
    }
    let mut command = worker("echo,app=app,build=1,salt=s");
    // The puppet must be readable for that user, which is not the case in every folder.
    command.uid(65534).stderr(Stdio::null());
    let started: Result<Channel, _> = Channel::start(&mut command, &app_options());
    let error = started.unwrap_err();
    if *error.kind() == ErrorKind::Start {
        return skip::skipped(skip::Need::PublicTarget, error);
    }
    assert_eq!(refused(&error), (Side::Worker, "user", "0", "65534"));
}

/// Starts a side that sends the hello of a real one with one field changed.
fn impostor(
    field: &'static str,
    value: &'static str,
) -> (pipewright::Handle, std::thread::JoinHandle<String>) {
    let (mut end, handle) = handle_channel::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let (_, hello) = receive_frame(&mut end).unwrap();
        let lines: Vec<String> = hello
            .lines()
            .map(|line| match line.split_once('=') {
                Some((key, _)) if key == field => format!("{key}={value}"),
                _ => line.to_owned(),
            })
            .collect();
        let body = lines.join("\n") + "\n";
        send(&mut end, &text(1, &body));
        receive_frame(&mut end).map(|(_, body)| body).unwrap_or_default()
    });
    (handle, thread)
}

#[watched_test]
fn a_host_that_finds_a_mismatch_reports_it() {
    let version = "1".to_owned();
    let arch = format!("{}-{}-little", std::env::consts::ARCH, usize::BITS);
    let user = handle_channel::user();
    for (field, ours) in [("version", version), ("arch", arch), ("user", user)] {
        let (link, thread) = impostor(field, "another");
        let connected: Result<Channel, _> = Channel::as_host(link, &app_options());
        let error = connected.unwrap_err();
        assert_eq!(refused(&error), (Side::Host, field, ours.as_str(), "another"));
        let body = thread.join().unwrap();
        let expected = format!("rejected\nby=host\nfield={field}\nhost={ours}\nworker=another\n");
        assert_eq!(body, expected);
    }
}

#[watched_test]
fn a_program_not_started_as_a_worker_gets_an_error() {
    let error = worker("echo").env_remove("PIPEWRIGHT_IPC").run().unwrap_err();
    assert!(error.to_string().contains("was not started as a worker"), "{error}");
    // A number of no handle, or of another file.
    for number in ["77", "1", "-1", "x", "99999999999999"] {
        let error = worker("echo").env("PIPEWRIGHT_IPC", number).run().unwrap_err();
        assert!(error.to_string().contains("worker"), "{error}");
    }
}

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
