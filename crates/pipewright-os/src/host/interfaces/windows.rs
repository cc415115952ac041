//! Interfaces on Windows: nothing here needs them.

use std::io;
use std::net::IpAddr;

pub(super) fn addresses(_name: &str) -> io::Result<Vec<IpAddr>> {
    Err(io::ErrorKind::Unsupported.into())
}
