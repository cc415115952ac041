//! Closed streams, where nothing records them: none is known to be closed.

use std::io;

pub(super) fn was_closed(_: u8) -> bool {
    false
}

pub(super) fn was_pipe_ignored() -> bool {
    false
}

pub(super) fn closed_error() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

pub(super) fn keep_closed() -> io::Result<()> {
    Ok(())
}
