//! Handshakes between two threads.

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
    let greeted = greet_worker_as(programs[0], &mut reader, &mut host, host_secret.as_ref(), false);
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
    old.0[16] = 1;
    let greeted = greet_worker(&mut &old.0[..], &mut io::sink(), Some(&secret), false);
    let error = greeted.unwrap_err().to_string();
    assert_eq!(error, "the other side speaks protocol 1, this one 2: use one build of pipewright");
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
    let replayed = greet_worker(&mut Cursor::new(recorded), &mut io::sink(), Some(&secret), false);
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
    for noise in
        ["", "Welcome!\n", "pipewright", "pipewright batcpipewright batc", "p", "pipewright batc"]
    {
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
    for (skips_noise, most) in [(false, MAGIC.len()), (true, MOST_NOISE_BYTES + 2 * MAGIC.len())] {
        let mut endless = Endless(0);
        let greeted = greet_worker(&mut endless, &mut std::io::sink(), None, skips_noise);
        assert!(matches!(greeted, Err(RemoteError::NotPipewright(_))));
        assert!(endless.0 <= most, "{}", endless.0);
    }
}
