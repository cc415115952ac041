//! Calls of methods over D-Bus: only what it takes to have systemd make a scope (the D-Bus specification, "Message
//! Protocol" and "Authentication Protocol").
//!
//! A connection has one deadline for all that is done with it. Nothing that the other side sends, or does not send,
//! makes this process wait beyond it, or allocate more than a message of [`MOST_BYTES`].

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use crate::base::poll::poll_again;

/// The length of the longest message that is read. Those about units have some hundred bytes.
const MOST_BYTES: usize = 1 << 20;

/// The length of the longest line of the authentication.
const MOST_LINE_BYTES: usize = 512;

/// The reason why a call was not answered as it should be.
#[derive(Debug)]
pub(super) enum Failure {
    /// The socket does not let this process in.
    NotLetIn(String),
    /// The deadline came first.
    NoAnswer,
    /// The method returned an error.
    Error { name: String, text: String },
    /// The other side sent bytes that have no meaning here.
    Meaningless(String),
    /// The connection failed.
    Broken(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotLetIn(reason) => write!(f, "its socket lets no one in: {reason}"),
            Failure::NoAnswer => f.write_str("it does not answer"),
            Failure::Error { name, text } if text.is_empty() => write!(f, "it answers {name}"),
            Failure::Error { name, text } => write!(f, "it answers {name}: {text}"),
            Failure::Meaningless(reason) => write!(f, "its answer has no meaning: {reason}"),
            Failure::Broken(error) => write!(f, "its connection failed: {error}"),
        }
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        match error {
            Errno::AGAIN => Failure::NoAnswer,
            error => Failure::Broken(error.into()),
        }
    }
}

/// A connection over which methods can be called.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    deadline: Instant,
    /// The bytes that have been received and not been looked at.
    received: Vec<u8>,
    last_serial: u32,
}

impl Connection {
    /// Connects to a socket as this process's user.
    pub(super) fn open(path: &Path, deadline: Instant) -> Result<Connection, Failure> {
        let stream = connected(path, deadline)?;
        let mut connection = Connection { stream, deadline, received: Vec::new(), last_serial: 0 };
        match connection.authenticate() {
            Ok(()) => Ok(connection),
            // A manager closes the connection of a user whom it does not serve.
            Err(Failure::Broken(error)) => Err(Failure::NotLetIn(error.to_string())),
            Err(failure) => Err(failure),
        }
    }

    fn authenticate(&mut self) -> Result<(), Failure> {
        let uid = rustix::process::geteuid().as_raw().to_string();
        let hex: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
        // With the last command at once: a manager that has received it together with a call forgets the call until it
        // receives something else (systemd 252). The call itself is only sent to one that answers.
        self.send(format!("\0AUTH EXTERNAL {hex}\r\nBEGIN\r\n").as_bytes())?;
        let line = self.line()?;
        if line == "OK" || line.starts_with("OK ") {
            return Ok(());
        }
        Err(match line.split(' ').next() {
            Some("REJECTED" | "ERROR") => Failure::NotLetIn(plain(&line)),
            _ => Failure::Meaningless(plain(&line)),
        })
    }

    /// Sets another deadline for all that follows.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Calls a method, and waits for its reply.
    pub(super) fn call(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        self.last_serial += 1;
        self.send(&call.bytes(self.last_serial))?;
        // Signals may come before the reply.
        loop {
            let message = self.message()?;
            if message.reply_to != Some(self.last_serial) {
                continue;
            }
            match message.kind {
                Kind::Reply => return Ok(()),
                Kind::Error => {
                    let (name, text) = (plain(&message.error_name), plain(&message.text));
                    return Err(Failure::Error { name, text });
                }
                Kind::Other => {}
            }
        }
    }

    /// Returns the next line of the authentication, without its end.
    fn line(&mut self) -> Result<String, Failure> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.received.len() > MOST_LINE_BYTES {
                return Err(Failure::Meaningless("a line without an end".to_owned()));
            }
            self.receive()?;
        }
    }

    fn message(&mut self) -> Result<Message, Failure> {
        loop {
            match size(&self.received).map_err(Failure::Meaningless)? {
                Size::Known(bytes) if bytes > MOST_BYTES => {
                    let reason = format!("a message of {bytes} bytes");
                    return Err(Failure::Meaningless(reason));
                }
                Size::Known(bytes) if bytes <= self.received.len() => {
                    let message: Vec<u8> = self.received.drain(..bytes).collect();
                    return Message::parse(&message).map_err(Failure::Meaningless);
                }
                Size::Known(_) | Size::Unknown => self.receive()?,
            }
        }
    }

    /// Adds bytes to those that have been received.
    fn receive(&mut self) -> Result<(), Failure> {
        let mut chunk = [0; 4096];
        loop {
            wait(&self.stream, PollFlags::IN, self.deadline)?;
            match recv(&self.stream, &mut chunk[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Failure::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok((_, count)) => {
                    self.received.extend_from_slice(chunk.get(..count).unwrap_or_default());
                    return Ok(());
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut left = bytes;
        while !left.is_empty() {
            wait(&self.stream, PollFlags::OUT, self.deadline)?;
            match send(&self.stream, left, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => left = left.get(count..).unwrap_or_default(),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Connects to a socket. Waits while its queue is full.
fn connected(path: &Path, deadline: Instant) -> Result<UnixStream, Failure> {
    let not_let_in = |error: Errno| Failure::NotLetIn(io::Error::from(error).to_string());
    let address = SocketAddrUnix::new(path).map_err(not_let_in)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN) => pause(deadline)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(not_let_in(error)),
        }
    }
}

/// Waits until a stream is ready.
fn wait(stream: &UnixStream, flags: PollFlags, deadline: Instant) -> Result<(), Failure> {
    let left = left(deadline)?;
    match poll_again(&mut [PollFd::from_borrowed_fd(stream.as_fd(), flags)], Some(&left)) {
        Ok(0) => Err(Failure::NoAnswer),
        // An error of the connection is reported by the call that follows.
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits some milliseconds: for a fact that nothing tells.
pub(super) fn pause(deadline: Instant) -> Result<(), Failure> {
    const PAUSE: Duration = Duration::from_millis(3);
    let until = deadline.min(Instant::now() + PAUSE);
    // Ignored: a shorter pause is one too.
    let _ = rustix::event::poll(&mut [], Some(&left(until)?));
    left(deadline).map(drop)
}

fn left(deadline: Instant) -> Result<Timespec, Failure> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => left.try_into().map_err(|_| Failure::NoAnswer),
        _ => Err(Failure::NoAnswer),
    }
}

/// Returns a text of the other side as a part of one line.
fn plain(text: &str) -> String {
    const MOST_CHARS: usize = 200;
    text.chars().take(MOST_CHARS).map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// The kinds of messages, as they are numbered.
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// The fields of a header, as they are numbered.
mod field {
    pub(super) const PATH: u8 = 1;
    pub(super) const INTERFACE: u8 = 2;
    pub(super) const MEMBER: u8 = 3;
    pub(super) const ERROR_NAME: u8 = 4;
    pub(super) const REPLY_SERIAL: u8 = 5;
    pub(super) const DESTINATION: u8 = 6;
    pub(super) const SIGNATURE: u8 = 8;
}

// The bytes of messages (the D-Bus specification, "Marshaling" and "Message Format"). Each value begins at a multiple
// of its alignment, counted from the start of the message. A header ends at a multiple of 8, so a body is aligned by
// itself.

/// The part of a header whose length is the same in every message: up to the fields.
const FIXED_BYTES: usize = 16;

/// A method, and its arguments.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    /// The types of the arguments.
    pub(super) signature: &'a str,
    pub(super) body: Body,
}

impl Call<'_> {
    /// Returns the message, in the order of bytes of small ends first.
    pub(super) fn bytes(&self, serial: u32) -> Vec<u8> {
        const NO_FLAGS: u8 = 0;
        const VERSION: u8 = 1;
        let mut message = Body(vec![b'l', METHOD_CALL, NO_FLAGS, VERSION]);
        message.u32(u32_of(self.body.0.len()));
        message.u32(serial);
        message.array(8, |fields| {
            let mut add = |code, kind, value| {
                fields.align(8);
                fields.0.push(code);
                fields.variant(kind, |it| {
                    if kind == "g" { it.signature(value) } else { it.string(value) }
                });
            };
            add(field::PATH, "o", self.path);
            add(field::MEMBER, "s", self.member);
            add(field::INTERFACE, "s", self.interface);
            add(field::DESTINATION, "s", self.destination);
            if !self.signature.is_empty() {
                add(field::SIGNATURE, "g", self.signature);
            }
        });
        message.align(8);
        message.0.extend_from_slice(&self.body.0);
        message.0
    }
}

/// Values, one after another.
#[derive(Debug, Clone, Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    pub(super) fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.align(8);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Adds a string, or the path of an object.
    pub(super) fn string(&mut self, value: &str) {
        self.u32(u32_of(value.len()));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, value: &str) {
        self.0.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
    }

    /// Adds a value with its type.
    pub(super) fn variant(&mut self, kind: &str, add: impl FnOnce(&mut Body)) {
        self.signature(kind);
        add(self);
    }

    /// Adds an array of values with that alignment.
    pub(super) fn array(&mut self, alignment: usize, add: impl FnOnce(&mut Body)) {
        self.u32(0);
        let length_at = self.0.len() - 4;
        self.align(alignment);
        let start = self.0.len();
        add(self);
        let length = u32_of(self.0.len() - start);
        if let Some(place) = self.0.get_mut(length_at..length_at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Adds a name with a value of any type, as `(sv)`.
    pub(super) fn property(&mut self, name: &str, kind: &str, add: impl FnOnce(&mut Body)) {
        self.align(8);
        self.string(name);
        self.variant(kind, add);
    }
}

fn u32_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The length of the message at the start of some bytes.
pub(super) enum Size {
    /// They are too few to know it.
    Unknown,
    Known(usize),
}

/// Returns the length of the message at the start of the bytes.
pub(super) fn size(bytes: &[u8]) -> Result<Size, String> {
    let Some(fixed) = bytes.get(..FIXED_BYTES) else { return Ok(Size::Unknown) };
    let mut reader = Reader::new(fixed)?;
    reader.at = 4;
    let numbers = (reader.u32(), reader.u32(), reader.u32());
    let (Some(body), Some(_serial), Some(fields)) = numbers else { return Ok(Size::Unknown) };
    let header = (FIXED_BYTES as u64 + u64::from(fields)).next_multiple_of(8);
    Ok(Size::Known(usize::try_from(header + u64::from(body)).unwrap_or(usize::MAX)))
}

/// The meaning of a message to a caller of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Reply,
    Error,
    Other,
}

/// The parts of a message of the other side that matter here.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The serial of the call that it replies to.
    pub(super) reply_to: Option<u32>,
    pub(super) error_name: String,
    /// Its first argument, if that is a text.
    pub(super) text: String,
}

impl Message {
    /// Takes a whole message apart. The error is the reason why it has no meaning.
    pub(super) fn parse(bytes: &[u8]) -> Result<Message, String> {
        let mut reader = Reader::new(bytes)?;
        let kind = match bytes.get(1) {
            Some(&METHOD_RETURN) => Kind::Reply,
            Some(&ERROR) => Kind::Error,
            _ => Kind::Other,
        };
        let mut message =
            Message { kind, reply_to: None, error_name: String::new(), text: String::new() };
        reader.at = FIXED_BYTES - 4;
        let mut has_text = false;
        message
            .read_fields(&mut reader, &mut has_text)
            .ok_or_else(|| "a header that cannot be read".to_owned())?;
        reader.align(8);
        if has_text {
            message.text = reader.string().unwrap_or_default();
        }
        Ok(message)
    }

    fn read_fields(&mut self, reader: &mut Reader<'_>, has_text: &mut bool) -> Option<()> {
        let length = usize::try_from(reader.u32()?).ok()?;
        let end = reader.at.checked_add(length)?;
        while reader.at < end {
            reader.align(8);
            let code = reader.u8()?;
            let kind = reader.signature()?;
            match (code, kind) {
                (field::REPLY_SERIAL, b"u") => self.reply_to = Some(reader.u32()?),
                (field::ERROR_NAME, b"s") => self.error_name = reader.string()?,
                (field::SIGNATURE, b"g") => *has_text = reader.signature()?.starts_with(b"s"),
                (_, b"s" | b"o") => drop(reader.string()?),
                (_, b"g") => drop(reader.signature()?),
                (_, b"u") => drop(reader.u32()?),
                // A field of a later version, with a value that cannot be skipped.
                _ => return None,
            }
        }
        (reader.at == end).then_some(())
    }
}

/// The values of a message. Each read is `None` at its end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big_endian: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, String> {
        let is_big_endian = match bytes.first() {
            Some(b'l') => false,
            Some(b'B') => true,
            other => return Err(format!("a message that begins with {other:?}")),
        };
        Ok(Reader { bytes, at: 0, is_big_endian })
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Some(text)
    }

    fn signature(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u8()?);
        let text = self.take(length)?;
        self.take(1)?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
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
            let path =
                std::env::temp_dir().join(format!("pw-dbus-{}-{number}", std::process::id()));
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
        assert_eq!(
            Manager::answering(Vec::new()).ask(SHORT).0,
            Err("it does not answer".to_owned())
        );
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
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
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
            let _ = size(&whole[..end]);
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
            let _ = size(&damaged);
        }
    }
}
