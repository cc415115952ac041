//! `pipe`, `mkfifo`, `socketpair`.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use rustix::net::sockopt;

use super::{Conduit, TestPipeKind};
use crate::base::handle::{new_pipe, set_pipe_capacity};

pub(super) fn open(kind: TestPipeKind, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    match kind {
        TestPipeKind::Pipe => {
            let (reader, writer) = new_pipe()?;
            of_pipe(reader.into(), writer.into(), holds_bytes)
        }
        TestPipeKind::Fifo => {
            let (reader, writer) = fifo()?;
            of_pipe(reader, writer, holds_bytes)
        }
        TestPipeKind::Socket => sockets(holds_bytes),
    }
}

fn of_pipe(reader: File, writer: File, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    let reader = OwnedFd::from(reader);
    if let Some(bytes) = holds_bytes {
        set_pipe_capacity(&reader, bytes)?;
    }
    let holds_bytes = size_of(&reader);
    // The initial capacity on macOS. The system usually enlarges it, but not if memory is short.
    const MIN_BYTES: usize = 16 << 10;
    let fits_bytes = holds_bytes.unwrap_or(MIN_BYTES);
    Ok(Conduit { reader: reader.into(), writer, holds_bytes, fits_bytes })
}

#[cfg(target_os = "linux")]
fn size_of(pipe: &OwnedFd) -> Option<usize> {
    rustix::pipe::fcntl_getpipe_size(pipe).ok()
}

#[cfg(not(target_os = "linux"))]
fn size_of(_: &OwnedFd) -> Option<usize> {
    // Only Linux reports it.
    None
}

/// Opens a pipe by its name, as any other program would.
fn fifo() -> io::Result<(File, File)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("pipewright-{}-{number}.fifo", std::process::id());
    let path = std::env::temp_dir().join(name);
    let raw = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a text that ends with a zero. If the name exists, the call fails.
    if unsafe { libc::mkfifo(raw.as_ptr(), 0o600) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let opened = open_both(&path);
    // Ignored: another program may have removed it.
    let _ = fs::remove_file(&path);
    opened
}

fn open_both(path: &std::path::Path) -> io::Result<(File, File)> {
    // Opening one end blocks until the other end is open.
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let writer = OpenOptions::new().write(true).open(path)?;
    rustix::fs::fcntl_setfl(&reader, OFlags::empty())?;
    Ok((reader, writer))
}

fn sockets(holds_bytes: Option<usize>) -> io::Result<Conduit> {
    let (reader, writer) = UnixStream::pair()?;
    if let Some(bytes) = holds_bytes {
        sockopt::set_socket_send_buffer_size(&writer, bytes)?;
    }
    let holds_bytes = sockopt::socket_send_buffer_size(&writer).ok();
    // The kernel counts its overhead for each piece, which exceeds the size of small ones.
    let fits_bytes = holds_bytes.unwrap_or(0) / 8;
    let [reader, writer] = [reader, writer].map(|end| File::from(OwnedFd::from(end)));
    Ok(Conduit { reader, writer, holds_bytes, fits_bytes })
}
