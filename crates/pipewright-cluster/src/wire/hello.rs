//! The handshake: each side says which program it is before anything else is read, and with a secret both make keys.
//!
//! 1. The worker sends its hello, 84 bytes. A host sends nothing to somebody who sends anything else.
//! 2. The host sends its hello. Different programs end the handshake on both sides: their messages have no version.
//! 3. With a secret, the worker sends its message for the keys, and then the host sends its own (see `sealed.rs`). Both hellos, with
//!    their random numbers, are part of the keys, so the messages are worthless for any other connection.

use std::io::{Read, Write};

use crate::error::RemoteError;
use crate::program::Program;
use crate::sealed::Session;
use crate::secret::Secret;

const MAGIC: &[u8; 16] = b"pipewright batch";

/// The version of the protocol. From 2 on, what follows the hellos of a connection with a secret is encrypted.
const PROTOCOL: u16 = 2;

/// The hash of the program, in hexadecimal digits.
const PROGRAM_BYTES: usize = 32;
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = MAGIC.len() + 2 + 1 + 1 + PROGRAM_BYTES + NONCE_BYTES;

/// Bytes that may come before a worker's hello: a shell prints its greetings there.
const MOST_NOISE_BYTES: usize = 64 << 10;

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Host,
    Worker,
}

impl Role {
    fn byte(self) -> u8 {
        match self {
            Role::Host => b'h',
            Role::Worker => b'w',
        }
    }
}

/// The first bytes of a side.
struct Hello([u8; HELLO_BYTES]);

impl Hello {
    fn new(role: Role, has_secret: bool, program: &str) -> Result<Hello, RemoteError> {
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&PROTOCOL.to_le_bytes());
        bytes.extend_from_slice(&[role.byte(), u8::from(has_secret)]);
        bytes.extend(program.bytes().chain(std::iter::repeat(0)).take(PROGRAM_BYTES));
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
        bytes.extend_from_slice(&nonce);
        let bytes = bytes.try_into().map_err(|_| RemoteError::Garbled("its hello"))?;
        Ok(Hello(bytes))
    }

    fn program(&self) -> String {
        let program = &self.0[20..20 + PROGRAM_BYTES];
        let end = program.iter().position(|byte| *byte == 0).unwrap_or(PROGRAM_BYTES);
        String::from_utf8_lossy(&program[..end]).into_owned()
    }

    fn protocol(&self) -> u16 {
        u16::from_le_bytes([self.0[16], self.0[17]])
    }

    /// Checks the hello of the other side, apart from its program.
    fn check(&self, role: Role, has_secret: bool) -> Result<(), RemoteError> {
        if self.0[..MAGIC.len()] != *MAGIC || self.0[18] != role.byte() {
            return Err(RemoteError::NotPipewright(String::new()));
        }
        match self.0[19] == u8::from(has_secret) {
            true => Ok(()),
            false => Err(RemoteError::WrongSecret),
        }
    }

    /// Checks that both sides are the same program.
    fn check_program(&self, own: &Hello) -> Result<(), RemoteError> {
        let (own_protocol, peer_protocol) = (own.protocol(), self.protocol());
        if own_protocol != peer_protocol {
            return Err(RemoteError::Protocol { own: own_protocol, peer: peer_protocol });
        }
        match self.program() == own.program() {
            true => Ok(()),
            false => Err(RemoteError::Program { own: own.program(), peer: self.program() }),
        }
    }
}

/// Greets a worker. `skips_noise`: what a shell prints before it is passed over. With a secret, returns the keys of the connection.
///
/// # Errors
/// The other side is no worker, is another program or has another secret, or the connection failed.
pub(crate) fn greet_worker(
    reader: &mut impl Read,
    writer: &mut impl Write,
    secret: Option<&Secret>,
    skips_noise: bool,
) -> Result<Option<Session>, RemoteError> {
    greet_worker_as(Program::own_hash()?, reader, writer, secret, skips_noise)
}

fn greet_worker_as(
    program: &str,
    reader: &mut impl Read,
    writer: &mut impl Write,
    secret: Option<&Secret>,
    skips_noise: bool,
) -> Result<Option<Session>, RemoteError> {
    let worker = read_hello(reader, skips_noise)?;
    worker.check(Role::Worker, secret.is_some())?;
    let host = Hello::new(Role::Host, secret.is_some(), program)?;
    writer.write_all(&host.0)?;
    writer.flush()?;
    worker.check_program(&host)?;
    let Some(secret) = secret else { return Ok(None) };
    Session::accept(reader, writer, secret, &hellos(&host, &worker)).map(Some)
}

/// Greets a host. With a secret, returns the keys of the connection.
///
/// # Errors
/// The other side is no host, is another program or has another secret, or the connection failed.
pub(crate) fn greet_host(
    reader: &mut impl Read,
    writer: &mut impl Write,
    secret: Option<&Secret>,
) -> Result<Option<Session>, RemoteError> {
    greet_host_as(Program::own_hash()?, reader, writer, secret)
}

fn greet_host_as(
    program: &str,
    reader: &mut impl Read,
    writer: &mut impl Write,
    secret: Option<&Secret>,
) -> Result<Option<Session>, RemoteError> {
    let worker = Hello::new(Role::Worker, secret.is_some(), program)?;
    writer.write_all(&worker.0)?;
    writer.flush()?;
    let host = read_hello(reader, false)?;
    host.check(Role::Host, secret.is_some())?;
    host.check_program(&worker)?;
    let Some(secret) = secret else { return Ok(None) };
    Session::open(reader, writer, secret, &hellos(&host, &worker)).map(Some)
}

/// Returns what both sides have said so far.
fn hellos(host: &Hello, worker: &Hello) -> Vec<u8> {
    [host.0, worker.0].concat()
}

/// Reads the hello of the other side.
fn read_hello(reader: &mut impl Read, skips_noise: bool) -> Result<Hello, RemoteError> {
    let mut noise = Vec::new();
    let mut hello = [0; HELLO_BYTES];
    let mut length = 0;
    // Never past the magic: what comes before it can end at any byte.
    loop {
        while length < MAGIC.len() {
            match reader.read(&mut hello[length..MAGIC.len()]) {
                Ok(0) => return Err(not_pipewright(&noise, &hello[..length])),
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if hello[..length] == *MAGIC {
            break;
        }
        if !skips_noise || noise.len() >= MOST_NOISE_BYTES {
            return Err(not_pipewright(&noise, &hello[..length]));
        }
        // The next place where the magic can begin.
        let skipped = (1..MAGIC.len()).find(|at| MAGIC.starts_with(&hello[*at..length]));
        let skipped = skipped.unwrap_or(length);
        noise.extend_from_slice(&hello[..skipped]);
        hello.copy_within(skipped..length, 0);
        length -= skipped;
    }
    reader.read_exact(&mut hello[length..])?;
    Ok(Hello(hello))
}

/// Returns the error for a stream that has no hello, with the last line of it.
fn not_pipewright(noise: &[u8], rest: &[u8]) -> RemoteError {
    let text = [noise, rest].concat();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    RemoteError::NotPipewright(last.unwrap_or_default().chars().take(200).collect())
}

#[cfg(test)]
mod tests;
