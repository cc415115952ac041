//! Named pipes with random names.

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
