//! Workers that connect by themselves, over TCP. Each proves that it knows the secret of the batch.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::Handle;
use pipewright_batch::LocalSettings;
use pipewright_os::base::{open_limit, stdio};

use super::link;
use super::reports::{Origin, Reports};
use crate::error::RemoteError;
use crate::outbox;
use crate::program::Program;
use crate::sealed::{Secret, Session};
use crate::wire::hello::greet_worker;

/// The time for a handshake. Somebody who only connects is not waited for longer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes at one time, at most, and their share of the handles that this process may have. Further connections are
/// closed, and workers try again.
const MOST_HANDSHAKES: usize = 256;
const HANDLES_SHARE: usize = 8;

/// The port at which workers connect.
///
/// # Drop
/// Closes it. Connections stay.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    reports: Arc<Reports>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Everything that a connection needs.
struct Shared {
    reports: Arc<Reports>,
    settings: LocalSettings,
    secret: Secret,
    places: Places,
}

/// Handles that are kept for handshakes: a stranger gets one of them, and gives it back. So the others, those of
/// outputs, the log and nodes, are as many whatever strangers do.
struct Places {
    free: Mutex<Vec<Handle>>,
    /// Those of handshakes, and one that a connection has before it is closed.
    most: usize,
}

impl Places {
    fn reserve(most: usize) -> Places {
        let places = Places { free: Mutex::default(), most };
        places.give_back(most);
        places
    }

    /// Frees the handle of a place, for a connection. Returns the number of places that are left; `None`: there is
    /// none.
    fn take(&self) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop().map(|_| free.len())
    }

    /// Keeps that many handles again. Those that cannot be had now are had later.
    fn give_back(&self, count: usize) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..count {
            match stdio::null() {
                Ok(handle) if free.len() < self.most => free.push(handle),
                _ => return,
            }
        }
    }
}

impl Listener {
    /// Opens a port on that address. Port 0: a free one.
    ///
    /// # Errors
    /// The address is not one of this machine, or its port is in use.
    pub(crate) fn open(
        address: SocketAddr,
        reports: &Arc<Reports>,
        settings: &LocalSettings,
        secret: Secret,
    ) -> io::Result<Listener> {
        // Once, and not by the first stranger.
        Program::own_hash()?;
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            reports: Arc::clone(reports),
            settings: settings.clone(),
            secret,
            places: Places::reserve(most_handshakes() + 1),
        });
        let thread = thread::Builder::new()
            .name("listener".to_owned())
            .stack_size(128 << 10)
            .spawn(move || accept(&listener, &shared))?;
        Ok(Listener { address, reports: Arc::clone(reports), thread: Some(thread) })
    }

    /// Returns the address, with the port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.reports.close();
        // Wakes the thread. One that cannot be woken ends with the next connection.
        if TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok() {
            // A panic there has been printed.
            let _ = self.thread.take().map(thread::JoinHandle::join);
        }
    }
}

fn most_handshakes() -> usize {
    let share = open_limit::of_this_process().map(|handles| handles / HANDLES_SHARE);
    share.map_or(MOST_HANDSHAKES, |share| share.clamp(1, MOST_HANDSHAKES))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let places = &shared.places;
    loop {
        let left = places.take();
        let accepted = listener.accept();
        if shared.reports.is_closed() {
            return;
        }
        let Ok((stream, peer)) = accepted else {
            // No handle is left, or the peer is gone already. Nothing is lost: workers try again.
            places.give_back(1);
            thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        if left.is_none_or(|left| left == 0) {
            drop(stream);
            places.give_back(1);
            continue;
        }
        let for_it = Arc::clone(shared);
        let serving = thread::Builder::new().name("node".to_owned()).stack_size(256 << 10);
        if serving.spawn(move || for_it.serve(stream, peer)).is_err() {
            places.give_back(1);
        }
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        match self.greet(&stream) {
            Ok(session) => {
                self.places.give_back(1);
                // One handle for all three.
                let stream = Arc::new(stream);
                let reader = session.reader(One(Arc::clone(&stream)));
                let writer = session.writer(One(Arc::clone(&stream)));
                let close: link::Closer = Arc::new(move || {
                    // Ignored: it is closed already.
                    let _ = stream.shutdown(Shutdown::Both);
                });
                let from = Origin::Allocation;
                let notes = AtomicU32::new(0);
                link::serve(&self.reports, reader, writer, &self.settings, &close, from, &notes);
            }
            Err(error) => {
                drop(stream);
                self.places.give_back(1);
                self.reports.add([super::reports::Report::Refused { peer, error }]);
            }
        }
    }

    fn greet(&self, stream: &TcpStream) -> Result<Session, RemoteError> {
        outbox::configure(stream)?;
        let until = Instant::now() + HANDSHAKE_TIMEOUT;
        stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT))?;
        let mut reader = Timed { stream, until };
        let session = greet_worker(&mut reader, &mut &*stream, Some(&self.secret), false)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        // There are keys, because there is a secret.
        session.ok_or(RemoteError::WrongSecret)
    }
}

/// A connection whose reader and writer share its handle.
struct One(Arc<TcpStream>);

impl Read for One {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl Write for One {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

/// Reads until a time, however slowly the bytes arrive.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, File};
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const NAME: &str = "host::listener::tests::strangers_take_no_handle_from_outputs_and_the_log";
    const IS_LIMITED: &str = "PIPEWRIGHT_STRANGERS";
    const HANDLES: usize = 96;

    /// Connects 60 times, greets half, and waits for the end of stdin.
    const STRANGERS: &str = "trap '' PIPE
        for number in {1..60}; do exec {fd}<>/dev/tcp/127.0.0.1/$1; printf half >&$fd; done 2> /dev/null
        echo ready; read -r line";

    /// Returns the number of files that can be opened now.
    fn room() -> usize {
        let files: Vec<_> = std::iter::from_fn(|| File::open("/").ok()).collect();
        files.len()
    }

    fn sockets() -> usize {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    }

    #[test]
    fn strangers_take_no_handle_from_outputs_and_the_log() {
        if std::env::var_os(IS_LIMITED).is_none() {
            let mut limited = Command::new("sh");
            limited.args(["-c", &format!("ulimit -n {HANDLES}; exec \"$@\""), "sh"]);
            limited.arg(std::env::current_exe().unwrap()).args(["--exact", NAME, "--nocapture"]);
            let output = limited.env(IS_LIMITED, "yes").output().unwrap();
            let text = [&output.stdout[..], &output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
            return;
        }
        let reports = Reports::new();
        let secret = Secret::random().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::open(any, &reports, &LocalSettings::default(), secret).unwrap();
        let mut strangers = Command::new("bash");
        strangers.args(["-c", STRANGERS, "bash", &listener.address().port().to_string()]);
        strangers.stdin(Stdio::piped()).stdout(Stdio::piped());
        let before = (room(), sockets());
        let mut strangers = strangers.spawn().unwrap();
        let mut said = BufReader::new(strangers.stdout.take().unwrap());
        let (mut line, most) = (String::new(), HANDLES / HANDLES_SHARE);
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let until = Instant::now() + Duration::from_secs(60);
        while sockets() < before.1 + most {
            assert!(Instant::now() < until, "{} of {most} connections", sockets() - before.1);
            thread::yield_now();
        }
        // The thread that accepts may have a place free, or not. `said` and the child's stdin are two.
        let room = room() + 2;
        assert!(room + 1 >= before.0, "{room}, and {} without strangers", before.0);
        drop(strangers.stdin.take());
        strangers.wait().unwrap();
    }
}
