//! Network interfaces of this machine.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::net::IpAddr;

/// Returns the addresses of the interface of that name, IPv4 first. Without an interface of that name, there are none.
///
/// IPv6 addresses that are valid on their link only are left out: others cannot use them without the name of their own interface.
///
/// # Platform
/// Unix: `getifaddrs`. Windows: always the error [`io::ErrorKind::Unsupported`].
///
/// # Errors
/// The system refuses to tell.
///
/// ```
/// # use pipewright_os::host::interfaces::addresses;
/// # if cfg!(target_os = "linux") {
/// let addresses = addresses("lo")?;
/// assert!(addresses.iter().all(|address| address.is_loopback()));
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "getifaddrs")]
pub fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    imp::addresses(name)
}
