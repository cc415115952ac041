//! Not there yet: an overlapped duplex pipe, whose reads and writes are those of the end's buffers.

use std::convert::Infallible;
use std::io::{self, IoSlice};

use super::{Arrived, End, Wait};
use crate::handle::Handle;

/// There can be none.
#[derive(Debug)]
pub(crate) struct Socket(Infallible);

impl Socket {
    /// What stands where there can be none.
    pub(crate) fn absurd(&self) -> ! {
        match self.0 {}
    }
}

pub(super) fn pair() -> io::Result<(Socket, Handle)> {
    Err(unsupported())
}

pub(super) fn socket(_: Handle) -> io::Result<Socket> {
    Err(unsupported())
}

pub(super) fn inherited(_: i32) -> io::Result<Socket> {
    Err(unsupported())
}

pub(super) fn user() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

pub(super) fn send(end: &mut End, _: &[IoSlice<'_>], _: &[Handle]) -> io::Result<usize> {
    end.socket.absurd()
}

pub(super) fn receive(
    end: &mut End,
    _: Option<(&mut Vec<u8>, usize)>,
    _: Wait,
) -> io::Result<Arrived> {
    end.socket.absurd()
}

fn unsupported() -> io::Error {
    let words = "links between processes are not supported on Windows yet";
    io::Error::new(io::ErrorKind::Unsupported, words)
}
