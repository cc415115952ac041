//! Named pipes, without a name that anybody could know.

use std::fs::File;
use std::io;

use super::{Conduit, Kind};
use crate::base::handle::Handle;
use crate::base::pipe::{self, PipeOptions};

pub(super) fn open(kind: Kind, holds_bytes: Option<usize>) -> io::Result<Conduit> {
    if kind != Kind::Pipe {
        let words = "Windows has no such pipe";
        return Err(io::Error::new(io::ErrorKind::Unsupported, words));
    }
    let (reader, writer) =
        pipe::pair(PipeOptions { capacity: holds_bytes, ..PipeOptions::default() })?;
    let [reader, writer] = [Handle::from(reader), Handle::from(writer)].map(File::from);
    // What was asked for is a hint. The least that one is given, less what each write takes itself.
    const FITS_BYTES: usize = 8 << 10;
    Ok(Conduit { reader, writer, holds_bytes: None, fits_bytes: FITS_BYTES })
}
