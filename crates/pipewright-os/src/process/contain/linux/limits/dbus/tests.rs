//! Managers that answer wrongly, late or not at all.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use super::super::scope::ping;
use super::*;

/// A reply to the call with the serial 1, as busctl gets it: with a body of one string.
fn reply(kind: u8, fields: &[u8], text: &str) -> Vec<u8> {
    let mut body = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    body.extend_from_slice(text.as_bytes());
    body.push(0);
    let mut message = vec![b'l', kind, 1, 1];
    message.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    message.extend_from_slice(&[9, 0, 0, 0]);
    message.extend_from_slice(&u32::try_from(fields.len()).unwrap().to_le_bytes());
    message.extend_from_slice(fields);
    message.resize(message.len().next_multiple_of(8), 0);
    message.extend_from_slice(&body);
    message
}

/// The fields of a reply to the call with the serial 1: that number, and the type of the body.
const FIELDS: &[u8] = b"\x05\x01u\0\x01\0\0\0\x08\x01g\0\x01s\0";
/// The same, with the name of an error `a.B` before them.
const ERROR_FIELDS: &[u8] =
    b"\x04\x01s\0\x03\0\0\0a.B\0\0\0\0\0\x05\x01u\0\x01\0\0\0\x08\x01g\0\x01s\0";

/// The sequence of a conversation: each entry is sent after something has been received.
struct Manager {
    path: PathBuf,
    thread: JoinHandle<Vec<u8>>,
}

impl Manager {
    /// Starts one that answers so, and then keeps the connection until the other side ends it.
    fn answering(answers: Vec<Vec<u8>>) -> Manager {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pw-dbus-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = Vec::new();
            let mut chunk = [0; 4096];
            let mut answers = answers.into_iter();
            loop {
                match stream.read(&mut chunk) {
                    Ok(0) | Err(_) => return heard,
                    Ok(count) => heard.extend_from_slice(&chunk[..count]),
                }
                match answers.next() {
                    Some(answer) if answer == HANG_UP => return heard,
                    // Ignored: the other side has heard enough.
                    Some(answer) => drop(stream.write_all(&answer)),
                    None => {}
                }
            }
        });
        Manager { path, thread }
    }

    /// Calls a method, and returns the result with what the manager has heard.
    fn ask(self, time: Duration) -> (Result<(), String>, Vec<u8>) {
        let deadline = Instant::now() + time;
        let called = Connection::open(&self.path, deadline).and_then(|mut it| it.call(&ping()));
        let heard = self.thread.join().unwrap();
        std::fs::remove_file(&self.path).unwrap();
        (called.map_err(|failure| failure.to_string()), heard)
    }

    /// Returns the failure of a call.
    fn fail(self) -> String {
        self.ask(LONG).0.unwrap_err()
    }
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
/// Stands for the end of the connection.
const HANG_UP: &[u8] = b"the end";
const OK: &[u8] = b"OK 0123456789abcdef0123456789abcdef\r\n";

#[test]
fn a_reply_ends_the_call_and_signals_before_it_are_passed_over() {
    let mut answer = reply(4, b"\x02\x01s\0\x03\0\0\0a.B\0", "");
    answer.extend(reply(2, FIELDS, "x"));
    let (called, heard) = Manager::answering(vec![OK.to_vec(), answer]).ask(LONG);
    assert_eq!(called, Ok(()));
    let uid = rustix::process::geteuid().as_raw().to_string();
    let hex: String = uid.bytes().map(|it| format!("{it:02x}")).collect();
    let mut expected = format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").into_bytes();
    expected.extend(ping().bytes(1));
    assert_eq!(heard, expected);
}

#[test]
fn a_reply_in_pieces_is_one_reply() {
    let whole = reply(2, FIELDS, "x");
    let mut signals: Vec<u8> = Vec::new();
    for _ in 0..50 {
        signals.extend(reply(4, b"", "nothing of interest"));
    }
    signals.extend(&whole);
    let (called, _) = Manager::answering(vec![OK.to_vec(), signals]).ask(LONG);
    assert_eq!(called, Ok(()));
}

#[test]
fn silence_ends_with_the_deadline() {
    assert_eq!(Manager::answering(Vec::new()).ask(SHORT).0, Err("it does not answer".to_owned()));
    let after_ok = Manager::answering(vec![OK.to_vec()]).ask(SHORT).0;
    assert_eq!(after_ok, Err("it does not answer".to_owned()));
    // Half a message, and nothing after it.
    let half = reply(2, FIELDS, "x")[..20].to_vec();
    let half = Manager::answering(vec![OK.to_vec(), half]).ask(SHORT).0;
    assert_eq!(half, Err("it does not answer".to_owned()));
}

#[test]
fn a_full_queue_of_connections_ends_with_the_deadline() {
    let path = std::env::temp_dir().join(format!("pw-dbus-{}-full", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let waiting = Connection::open(&path, Instant::now() + SHORT).unwrap_err();
    assert!(matches!(waiting, Failure::NoAnswer), "{waiting}");
    let held: Vec<_> = (0..2).map(|_| connected(&path, Instant::now() + SHORT)).collect();
    assert!(held.iter().any(|it| matches!(it, Err(Failure::NoAnswer))), "{held:?}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_error_is_told_with_its_text_in_one_line() {
    let error = reply(3, ERROR_FIELDS, "no such\nslice");
    let failure = Manager::answering(vec![OK.to_vec(), error]).fail();
    assert_eq!(failure, "it answers a.B: no such slice");
    let error = reply(3, ERROR_FIELDS, &"x".repeat(9000));
    assert!(Manager::answering(vec![OK.to_vec(), error]).fail().len() < 300);
}

#[test]
fn a_socket_that_lets_no_one_in_is_told_from_one_that_answers_wrongly() {
    let deadline = || Instant::now() + LONG;
    let absent = Connection::open(Path::new("/nonexistent"), deadline()).unwrap_err();
    assert!(matches!(absent, Failure::NotLetIn(_)), "{absent}");
    let too_long = Connection::open(Path::new(&"x".repeat(200)), deadline()).unwrap_err();
    assert!(matches!(too_long, Failure::NotLetIn(_)), "{too_long}");
    let rejected = Manager::answering(vec![b"REJECTED EXTERNAL\r\n".to_vec()]).fail();
    assert_eq!(rejected, "its socket lets no one in: REJECTED EXTERNAL");
    let closed = Manager::answering(vec![HANG_UP.to_vec()]).fail();
    assert!(closed.starts_with("its socket lets no one in: "), "{closed}");
    let closed = Manager::answering(vec![OK.to_vec(), HANG_UP.to_vec()]).fail();
    assert!(closed.starts_with("its connection failed: "), "{closed}");
}

#[test]
fn bytes_without_a_meaning_are_an_error() {
    let refused = |answers: Vec<Vec<u8>>| {
        let failure = Manager::answering(answers).fail();
        assert!(failure.starts_with("its answer has no meaning: "), "{failure}");
    };
    refused(vec![b"HTTP/1.1 400 Bad Request\r\n".to_vec()]);
    refused(vec![b"x".repeat(100_000)]);
    refused(vec![OK.to_vec(), b"x".repeat(100_000)]);
    refused(vec![OK.to_vec(), vec![0; 64]]);
    // Fields that end in the middle, of an unknown type, or beyond the message.
    for fields in
        [&FIELDS[..6], b"\x05\x01u\0\x01\0\0\0\x63\x01d\0", b"\x04\x01s\0\xff\xff\xff\xff"]
    {
        refused(vec![OK.to_vec(), reply(2, fields, "")]);
    }
}

#[test]
fn a_huge_length_is_an_error_at_once() {
    let huge = |at: usize| {
        let mut message = reply(2, FIELDS, "x");
        message[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let failure = Manager::answering(vec![OK.to_vec(), message]).fail();
        assert!(failure.starts_with("its answer has no meaning: a message of 4"), "{failure}");
    };
    // The lengths of the body and of the fields.
    huge(4);
    huge(12);
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let whole = reply(3, ERROR_FIELDS, "text");
    for end in 0..whole.len() {
        let _ = Message::parse(&whole[..end]);
        let _ = message::size(&whole[..end]);
    }
    let mut state = 1_u32;
    for _ in 0..20_000 {
        let mut damaged = whole.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = usize::try_from(state >> 8).unwrap() % damaged.len();
            damaged[at] = state.to_le_bytes()[3];
        }
        let _ = Message::parse(&damaged);
        let _ = message::size(&damaged);
    }
}
