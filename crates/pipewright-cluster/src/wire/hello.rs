//! The handshake: each side says which program it is before anything else is read, and with a secret both make keys.
//!
//! 1. The worker sends its hello, 84 bytes. A host sends nothing to somebody who sends anything else.
//! 2. The host sends its hello. Different programs end the handshake on both sides: their messages have no version.
//! 3. With a secret, the worker sends its message for the keys, and then the host sends its own (see `sealed.rs`). Both
//!    hellos, with their random numbers, are part of the keys, so the messages are worthless for any other connection.

use std::io::{Read, Write};

use crate::error::RemoteError;
use crate::program::Program;
use crate::sealed::{Secret, Session};

const MAGIC: &[u8; 16] = b"pipewright batch";

/// The version of the protocol. From 2 on, what follows the hellos of a connection with a secret is encrypted; from 3
/// on files are sent and fetched.
const PROTOCOL: u16 = 3;

/// The hash of the program, in hexadecimal digits.
const PROGRAM_BYTES: usize = 32;
const NONCE_BYTES: usize = 32;

// A hello: magic, protocol (two bytes, little-endian), role, 1 with a secret, program, nonce.
const PROTOCOL_AT: usize = MAGIC.len();
const ROLE_AT: usize = PROTOCOL_AT + 2;
const SECRET_AT: usize = ROLE_AT + 1;
const PROGRAM_AT: usize = SECRET_AT + 1;
const HELLO_BYTES: usize = PROGRAM_AT + PROGRAM_BYTES + NONCE_BYTES;

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
        let program = &self.0[PROGRAM_AT..PROGRAM_AT + PROGRAM_BYTES];
        let end = program.iter().position(|byte| *byte == 0).unwrap_or(PROGRAM_BYTES);
        String::from_utf8_lossy(&program[..end]).into_owned()
    }

    fn protocol(&self) -> u16 {
        u16::from_le_bytes([self.0[PROTOCOL_AT], self.0[PROTOCOL_AT + 1]])
    }

    /// Checks the hello of the other side, apart from its program.
    fn check(&self, role: Role, has_secret: bool) -> Result<(), RemoteError> {
        if self.0[..MAGIC.len()] != *MAGIC || self.0[ROLE_AT] != role.byte() {
            return Err(RemoteError::NotPipewright(String::new()));
        }
        match self.0[SECRET_AT] == u8::from(has_secret) {
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

/// Greets a worker. `skips_noise`: what a shell prints before it is passed over. With a secret, returns the keys of the
/// connection.
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
mod tests {
    use std::io::{self, Cursor};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// Returns the two ends of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let worker = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, worker)
    }

    type Results = [Result<Option<Session>, RemoteError>; 2];

    fn copy(secret: &Secret) -> Secret {
        Secret::parse(secret.to_text().as_bytes()).unwrap()
    }

    /// Returns the results of host and worker.
    fn greet(programs: [&'static str; 2], secrets: [Option<Secret>; 2]) -> Results {
        let (mut host, mut worker) = connection();
        let [host_secret, worker_secret] = secrets;
        let greeting = thread::spawn(move || {
            let mut reader = worker.try_clone().unwrap();
            greet_host_as(programs[1], &mut reader, &mut worker, worker_secret.as_ref())
        });
        let mut reader = host.try_clone().unwrap();
        let greeted =
            greet_worker_as(programs[0], &mut reader, &mut host, host_secret.as_ref(), false);
        // The worker waits for the end of the connection otherwise.
        host.shutdown(std::net::Shutdown::Both).unwrap_or_default();
        [greeted, greeting.join().unwrap()]
    }

    #[test]
    fn sides_with_one_secret_and_one_program_accept_each_other() {
        let secret = Secret::random().unwrap();
        let [host, worker] = greet(["f3a0"; 2], [Some(copy(&secret)), Some(secret)]);
        assert!(host.unwrap().is_some() && worker.unwrap().is_some());
        let [host, worker] = greet(["f3a0"; 2], [None, None]);
        assert!(host.unwrap().is_none() && worker.unwrap().is_none());
    }

    #[test]
    fn another_program_is_refused_by_both_sides_with_both_hashes() {
        let secret = Secret::random().unwrap();
        let [host, worker] = greet(["f3a0", "77b1"], [Some(copy(&secret)), Some(secret)]);
        let (host, worker) = (host.unwrap_err(), worker.unwrap_err());
        assert_eq!(
            host.to_string(),
            "the other side is another build of pipewright: its program is 77b1, this one f3a0"
        );
        assert_eq!(
            worker.to_string(),
            "the other side is another build of pipewright: its program is f3a0, this one 77b1"
        );
    }

    #[test]
    fn a_wrong_secret_is_refused_by_both_sides() {
        let wrong = || Some(Secret::random().unwrap());
        let [host, worker] = greet(["1"; 2], [wrong(), wrong()]);
        assert!(matches!(host, Err(RemoteError::WrongSecret)), "{host:?}");
        assert!(matches!(worker, Err(RemoteError::WrongSecret)), "{worker:?}");
    }

    #[test]
    fn a_side_without_a_secret_is_refused() {
        let secret = || Some(Secret::random().unwrap());
        for secrets in [[secret(), None], [None, secret()]] {
            let [host, worker] = greet(["1"; 2], secrets);
            assert!(matches!(host, Err(RemoteError::WrongSecret)), "{host:?}");
            assert!(worker.is_err());
        }
    }

    #[test]
    fn a_side_of_the_protocol_without_encryption_is_refused_by_name() {
        let secret = Secret::random().unwrap();
        let mut old = Hello::new(Role::Worker, true, Program::own_hash().unwrap()).unwrap();
        old.0[PROTOCOL_AT] = 1;
        let greeted = greet_worker(&mut &old.0[..], &mut io::sink(), Some(&secret), false);
        let error = greeted.unwrap_err().to_string();
        assert_eq!(
            error,
            "the other side speaks protocol 1, this one 3: use one build of pipewright"
        );
    }

    /// A stream whose bytes are recorded.
    struct Recorded<'a, R>(R, &'a mut Vec<u8>);

    impl<R: Read> Read for Recorded<'_, R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.read(buffer)?;
            self.1.extend_from_slice(&buffer[..count]);
            Ok(count)
        }
    }

    #[test]
    fn a_replayed_handshake_is_refused() {
        // All bytes of a worker whose handshake succeeded.
        let secret = Secret::random().unwrap();
        let (host, worker) = connection();
        let worker_secret = copy(&secret);
        let greeting =
            thread::spawn(move || greet_host(&mut &worker, &mut &worker, Some(&worker_secret)));
        let mut recorded = Vec::new();
        let mut reader = Recorded(&host, &mut recorded);
        greet_worker(&mut reader, &mut &host, Some(&secret), false).unwrap();
        greeting.join().unwrap().unwrap();
        assert!(recorded.len() > HELLO_BYTES);
        let replayed =
            greet_worker(&mut Cursor::new(recorded), &mut io::sink(), Some(&secret), false);
        assert!(matches!(replayed, Err(RemoteError::WrongSecret)), "{replayed:?}");
    }

    #[test]
    fn a_reflected_handshake_is_refused() {
        // A port that sends back what it receives.
        let secret = Secret::random().unwrap();
        let (mut echo, mut worker) = connection();
        let echoing = thread::spawn(move || {
            let mut reader = echo.try_clone().unwrap();
            io::copy(&mut reader, &mut echo)
        });
        let mut reader = worker.try_clone().unwrap();
        let greeted = greet_host(&mut reader, &mut worker, Some(&secret));
        assert!(matches!(greeted, Err(RemoteError::NotPipewright(_))), "{greeted:?}");
        worker.shutdown(std::net::Shutdown::Both).unwrap();
        echoing.join().unwrap().unwrap_or_default();
    }

    #[test]
    fn a_port_scanner_gets_no_byte() {
        for sent in
            [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"", b"\x16\x03\x01", &[0; 9000]]
        {
            let mut answer = Vec::new();
            let greeted = greet_worker(&mut &sent[..], &mut answer, None, false);
            assert!(matches!(greeted, Err(RemoteError::NotPipewright(_))), "{greeted:?}");
            assert_eq!(answer, b"");
        }
    }

    #[test]
    fn what_a_shell_prints_before_the_hello_is_passed_over() {
        let hello = || Hello::new(Role::Worker, false, Program::own_hash().unwrap()).unwrap().0;
        for noise in [
            "",
            "Welcome!\n",
            "pipewright",
            "pipewright batcpipewright batc",
            "p",
            "pipewright batc",
        ] {
            let bytes = [noise.as_bytes(), &hello(), b"rest"].concat();
            let mut reader = &bytes[..];
            greet_worker(&mut reader, &mut io::sink(), None, true).unwrap();
            assert_eq!(reader, b"rest", "{noise:?}");
        }
        let error = greet_worker(&mut &b"Hi\nsh: not found\n"[..], &mut io::sink(), None, true);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "the other side is not pipewright: sh: not found");
        // An endless stream of something else ends, too.
        let greeted = greet_worker(&mut io::repeat(b'y'), &mut io::sink(), None, true);
        assert!(matches!(greeted, Err(RemoteError::NotPipewright(_))));
    }

    /// A stranger behind a command that prints for ever.
    struct Endless(usize);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(b'x');
            self.0 += buffer.len();
            Ok(buffer.len())
        }
    }

    #[test]
    fn noise_without_an_end_is_refused() {
        for (skips_noise, most) in
            [(false, MAGIC.len()), (true, MOST_NOISE_BYTES + 2 * MAGIC.len())]
        {
            let mut endless = Endless(0);
            let greeted = greet_worker(&mut endless, &mut std::io::sink(), None, skips_noise);
            assert!(matches!(greeted, Err(RemoteError::NotPipewright(_))));
            assert!(endless.0 <= most, "{}", endless.0);
        }
    }
}
