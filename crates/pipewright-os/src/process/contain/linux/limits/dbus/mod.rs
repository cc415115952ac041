//! Calls of methods over D-Bus, as far as it takes to have systemd make a scope (the D-Bus specification, "Message Protocol"
//! and "Authentication Protocol").
//!
//! A connection has one deadline for all that is done with it. Nothing that the other side sends, or does not send, makes
//! this process wait beyond it, or allocate more than a message of [`MOST_BYTES`].

mod message;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

pub(super) use message::{Body, Call};
use message::{Kind, Message, Size};

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
            match message::size(&self.received).map_err(Failure::Meaningless)? {
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
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(stream.as_fd(), flags)], Some(&left)) {
        Ok(0) => Err(Failure::NoAnswer),
        // An error of the connection is told by the call that follows.
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
