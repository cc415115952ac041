//! Systems without FIFOs: nothing can be made, so there is nothing to call.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use crate::base::handle::Handle;
use crate::base::wake::EventSource;

pub(super) type Ends = Infallible;
pub(super) type Named = Infallible;

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this system has no pipes that are shared by name or number",
    )
}

pub(super) fn open(_: &Path) -> io::Result<Ends> {
    Err(unsupported())
}

pub(super) fn from_numbers(_: i32, _: i32) -> io::Result<Ends> {
    Err(unsupported())
}

pub(super) fn are_inherited(_: i32, _: i32) -> io::Result<bool> {
    Err(unsupported())
}

pub(super) fn try_take(ends: &Ends) -> io::Result<Option<u8>> {
    match *ends {}
}

pub(super) fn put(ends: &Ends, _: u8) -> io::Result<()> {
    match *ends {}
}

pub(super) fn count(ends: &Ends) -> io::Result<usize> {
    match *ends {}
}

pub(super) fn source(ends: &Ends) -> EventSource<'_> {
    match *ends {}
}

pub(super) fn create(_: &Path, _: &str) -> io::Result<Named> {
    Err(unsupported())
}

pub(super) fn path(named: &Named) -> &Path {
    match *named {}
}

pub(super) fn ends(named: &Named) -> io::Result<(Handle, Handle)> {
    match *named {}
}
