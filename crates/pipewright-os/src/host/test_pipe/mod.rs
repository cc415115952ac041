//! Pipes, FIFOs and socket pairs as two plain files, for measuring their speed.
//!
//! Both ends block, and no code runs besides the system calls. [`crate::base::pipe`] creates pipes for children.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

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
