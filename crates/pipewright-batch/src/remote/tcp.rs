//! TCP connections between a host and its workers.

use std::io;
use std::net::TcpStream;

/// Sets the options of a connection: messages leave at once.
pub(crate) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}
