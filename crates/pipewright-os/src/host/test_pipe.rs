//! Pipes, FIFOs and socket pairs as two plain files, for measuring their speed.
//!
//! Both ends block, and no code runs besides the system calls. [`crate::base::pipe`] creates pipes for children.

use std::fs::File;
use std::io;

/// The kind of pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TestPipeKind {
    /// An unnamed pipe, where the system has one.
    Pipe,
    /// A pipe opened by its name, which is removed afterwards.
    Fifo,
    /// A pair of local stream sockets.
    Socket,
}

/// Both ends of a pipe.
#[derive(Debug)]
pub struct Conduit {
    /// The end to read from.
    pub reader: File,
    /// The end to write to.
    pub writer: File,
    /// The capacity in bytes that the system reports. `None` if it reports none.
    pub holds_bytes: Option<usize>,
    /// The number of bytes that can always be written before anything is read.
    pub fits_bytes: usize,
}

/// Opens a pipe of that capacity, or of the default one. The system may round it up. Children inherit neither
/// end unless it is passed to them.
///
/// # Platform
/// Linux: `pipe2`, `mkfifo` in the folder for temporary files, `socketpair`; `F_SETPIPE_SZ` and `SO_SNDBUF`
/// set the capacity, and the actual one is queried. macOS: pipes cannot be resized. Windows: a named pipe; the
/// other kinds are `Unsupported`.
///
/// # Errors
/// `Unsupported`: this system lacks the kind. `PermissionDenied`: the capacity exceeds the limit
/// (`/proc/sys/fs/pipe-max-size`). The limit on handles was reached, or the name cannot be created.
///
/// ```
/// # use pipewright_os::host::test_pipe::{self, TestPipeKind};
/// use std::io::{Read, Write};
///
/// let mut pipe = test_pipe::open(TestPipeKind::Pipe, None)?;
/// pipe.writer.write_all(b"hello")?;
/// let mut bytes = [0; 5];
/// pipe.reader.read_exact(&mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open(kind: TestPipeKind, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    imp::open(kind, holds_bytes)
}

// `pipe`, `mkfifo`, `socketpair`.
#[cfg(unix)]
mod imp {
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
    use crate::base::pipe::{new_pipe, set_pipe_capacity};

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
}

// Named pipes with random names.
#[cfg(windows)]
mod imp {
    use std::fs::File;
    use std::io;

    use super::{Conduit, TestPipeKind};
    use crate::base::handle::Handle;
    use crate::base::pipe::{self, PipeOptions};

    pub(super) fn open(kind: TestPipeKind, holds_bytes: Option<usize>) -> io::Result<Conduit> {
        if kind != TestPipeKind::Pipe {
            let message = "Windows has no such pipe";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let (reader, writer) =
            pipe::pair(PipeOptions { capacity: holds_bytes, ..PipeOptions::default() })?;
        let [reader, writer] = [Handle::from(reader), Handle::from(writer)].map(File::from);
        // The capacity is a hint. This is the minimum that the system grants, less the overhead of each write.
        const FITS_BYTES: usize = 8 << 10;
        Ok(Conduit { reader, writer, holds_bytes: None, fits_bytes: FITS_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn pipe_returns_written_bytes_and_fits_as_many_as_reported() {
        for kind in [TestPipeKind::Pipe, TestPipeKind::Fifo, TestPipeKind::Socket] {
            let mut conduit = match open(kind, None) {
                Ok(conduit) => conduit,
                Err(error) if cfg!(windows) && error.kind() == io::ErrorKind::Unsupported => {
                    crate::base::skipped::skipped(
                        crate::base::skipped::Need::Unix,
                        format_args!("Windows has no {kind:?} of this shape"),
                    );
                    continue;
                }
                Err(error) => panic!("{kind:?}: {error}"),
            };
            let bytes: Vec<u8> = (0..conduit.fits_bytes).map(|byte| byte as u8).collect();
            conduit.writer.write_all(&bytes).unwrap();
            let mut read = vec![0; bytes.len()];
            conduit.reader.read_exact(&mut read).unwrap();
            assert!(read == bytes, "{kind:?}");
            drop(conduit.writer);
            assert_eq!(conduit.reader.read(&mut read).unwrap(), 0, "{kind:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn requested_size_is_granted_or_refused() {
        for kind in [TestPipeKind::Pipe, TestPipeKind::Fifo] {
            let conduit = open(kind, Some(256 << 10)).unwrap();
            assert_eq!(conduit.holds_bytes, Some(256 << 10), "{kind:?}");
            assert!(open(kind, Some(1 << 40)).is_err(), "{kind:?}");
        }
    }
}
