//! Ways for bytes from a writer to a reader, of each kind that a system has, as two plain files.
//!
//! For measuring them: both ends block, and neither does anything that the system's calls do not.
//! What children are given is made by [`crate::base::pipe`].

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

/// What kind of way it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A pipe without a name, where the system has such.
    Pipe,
    /// A pipe that was opened by its name; the name is gone afterwards.
    Fifo,
    /// A pair of stream sockets of this machine.
    Socket,
}

/// Both ends.
#[derive(Debug)]
pub struct Conduit {
    /// Where the bytes come out.
    pub reader: File,
    /// Where they go in.
    pub writer: File,
    /// How many bytes it holds, as the system says. `None`: it does not say.
    pub holds_bytes: Option<usize>,
    /// How many bytes can certainly be written while nobody reads.
    pub fits_bytes: usize,
}

/// Opens a conduit that holds so many bytes, or as many as is usual. The system may round that up.
/// Neither end is inherited by a child unless it is given to one.
///
/// # Platform
/// Linux: `pipe2`, `mkfifo` in the folder for temporary files, `socketpair`; `F_SETPIPE_SZ` and
/// `SO_SNDBUF`, and what came of them is asked. macOS: a pipe cannot be resized. Windows: a pipe is a
/// named pipe; there is neither of the others.
///
/// # Errors
/// `Unsupported`: not on this system. `PermissionDenied`: more than one may have
/// (`/proc/sys/fs/pipe-max-size`). No room for two handles, or for the name.
///
/// ```
/// # use pipewright_os::host::test_pipe::{self, Kind};
/// use std::io::{Read, Write};
///
/// let mut conduit = test_pipe::open(Kind::Pipe, None)?;
/// conduit.writer.write_all(b"hello")?;
/// let mut bytes = [0; 5];
/// conduit.reader.read_exact(&mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open(kind: Kind, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    imp::open(kind, holds_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_as_much_fits_as_is_said() {
        for kind in [Kind::Pipe, Kind::Fifo, Kind::Socket] {
            let mut conduit = match open(kind, None) {
                Ok(conduit) => conduit,
                Err(error) if cfg!(windows) && error.kind() == io::ErrorKind::Unsupported => {
                    eprintln!("SKIPPED: Windows has no {kind:?} of this shape");
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
    fn the_size_that_is_asked_for_is_given_or_refused() {
        for kind in [Kind::Pipe, Kind::Fifo] {
            let conduit = open(kind, Some(256 << 10)).unwrap();
            assert_eq!(conduit.holds_bytes, Some(256 << 10), "{kind:?}");
            assert!(open(kind, Some(1 << 40)).is_err(), "{kind:?}");
        }
    }
}
