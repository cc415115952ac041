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

use super::{Conduit, Kind};
use crate::base::raw_pipe;

pub(super) fn open(kind: Kind, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    match kind {
        Kind::Pipe => {
            let (reader, writer) = raw_pipe::pipe()?;
            of_pipe(reader.into(), writer.into(), holds_bytes)
        }
        Kind::Fifo => {
            let (reader, writer) = fifo()?;
            of_pipe(reader, writer, holds_bytes)
        }
        Kind::Socket => sockets(holds_bytes),
    }
}

fn of_pipe(reader: File, writer: File, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    let reader = OwnedFd::from(reader);
    if let Some(bytes) = holds_bytes {
        raw_pipe::set_capacity(&reader, bytes)?;
    }
    let holds_bytes = size_of(&reader);
    // What macOS begins with; it makes more of it as a rule, but not when memory is short.
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
    // Only Linux tells.
    None
}

/// A pipe that was opened by its name, like any other program's.
fn fifo() -> io::Result<(File, File)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("pipewright-{}-{number}.fifo", std::process::id());
    let path = std::env::temp_dir().join(name);
    let raw = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a text that ends with a zero. A name that somebody has taken is an error of the call.
    if unsafe { libc::mkfifo(raw.as_ptr(), 0o600) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let opened = open_both(&path);
    // Ignored: somebody who cleans up was faster.
    let _ = fs::remove_file(&path);
    opened
}

fn open_both(path: &std::path::Path) -> io::Result<(File, File)> {
    // To open one end blocks until there is another.
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
    // Each piece is counted with what the kernel needs for it, which for small ones is more than they are.
    let fits_bytes = holds_bytes.unwrap_or(0) / 8;
    let [reader, writer] = [reader, writer].map(|end| File::from(OwnedFd::from(end)));
    Ok(Conduit { reader, writer, holds_bytes, fits_bytes })
}
