//! TCP connections between a host and its workers.

use std::io;
use std::net::TcpStream;

use pipewright_os::host::network;

/// Sets the options of a connection: messages leave at once, and those that are lost are sent again soon, because a node that
/// is not heard for some seconds is lost.
pub(crate) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Without it, a cut of the network loses a node sooner.
    network::resend_soon(stream).map(drop)
}
