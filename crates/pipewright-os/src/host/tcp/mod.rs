//! Options of TCP connections that std lacks.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;

use std::io;
use std::net::TcpStream;

/// Sends lost bytes again within about a second, however long the network has been down. By default the time between two
/// attempts doubles: after 3 seconds without a network, the next attempt comes 3 seconds later.
///
/// Returns true if the system keeps to a second from then on, and false if only the first attempts come sooner.
///
/// # Platform
/// Linux 6.15 and newer: `TCP_RTO_MAX_MS`, which limits the time between two attempts to a second. Before, and in addition,
/// `TCP_THIN_LINEAR_TIMEOUTS` keeps the time between the first six attempts the same, while little is under way.
/// Elsewhere: nothing, and false.
///
/// # Errors
/// The socket is no TCP connection.
///
/// ```
/// # use std::net::{TcpListener, TcpStream};
/// # use pipewright_os::host::tcp::resend_soon;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// resend_soon(&stream)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TCP_RTO_MAX_MS")]
#[doc(alias = "TCP_THIN_LINEAR_TIMEOUTS")]
pub fn resend_soon(stream: &TcpStream) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    return imp::resend_soon(stream);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = stream;
        Ok(false)
    }
}
