//! Workers that connect by themselves, over TCP. Each proves that it knows the secret of the batch.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::open_limit;

use super::link;
use super::reports::Reports;
use crate::executor::LocalSettings;
use crate::remote::error::RemoteError;
use crate::remote::sealed::Session;
use crate::remote::secret::Secret;
use crate::remote::tcp;
use crate::remote::wire::hello::greet_worker;

/// The time for a handshake. Somebody who only connects is not waited for longer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Handshakes at one time, at most, and their share of the handles that this process may have. Further connections are closed, and
/// workers try again. Strangers can use up no more: the rest is for nodes, outputs and the log.
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
    handshakes: AtomicUsize,
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
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            reports: Arc::clone(reports),
            settings: settings.clone(),
            secret,
            handshakes: AtomicUsize::new(0),
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

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let share = open_limit::of_this_process().map(|handles| handles / HANDLES_SHARE);
    let most = share.map_or(MOST_HANDSHAKES, |share| share.clamp(1, MOST_HANDSHAKES));
    loop {
        let accepted = listener.accept();
        if shared.reports.is_closed() {
            return;
        }
        let Ok((stream, peer)) = accepted else {
            // No handle is left, or the peer is gone already. Nothing is lost: workers try again.
            thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        if shared.handshakes.fetch_add(1, Ordering::SeqCst) >= most {
            shared.handshakes.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let for_it = Arc::clone(shared);
        let serving = thread::Builder::new().name("node".to_owned()).stack_size(256 << 10);
        let spawned = serving.spawn(move || for_it.serve(stream, peer));
        if spawned.is_err() {
            shared.handshakes.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream, peer: SocketAddr) {
        let greeted = self.greet(&stream);
        self.handshakes.fetch_sub(1, Ordering::SeqCst);
        match greeted {
            Ok(session) => {
                // One handle for all three.
                let stream = Arc::new(stream);
                let reader = session.reader(One(Arc::clone(&stream)));
                let writer = session.writer(One(Arc::clone(&stream)));
                let close: link::Closer = Arc::new(move || {
                    // Ignored: it is closed already.
                    let _ = stream.shutdown(Shutdown::Both);
                });
                link::serve(&self.reports, reader, writer, &self.settings, &close);
            }
            Err(error) => {
                self.reports.add([super::reports::Report::Refused { peer, error }]);
            }
        }
    }

    fn greet(&self, stream: &TcpStream) -> Result<Session, RemoteError> {
        tcp::configure(stream)?;
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
