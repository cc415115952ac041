//! TCP options by `setsockopt`.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use rustix::net::sockopt;

/// The option of Linux 6.15, from `linux/tcp.h`; the crate libc lacks it.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// The smallest value that the kernel takes.
const MILLISECONDS: libc::c_int = 1000;

pub(super) fn resend_soon(stream: &TcpStream) -> io::Result<bool> {
    sockopt::set_tcp_thin_linear_timeouts(stream, true)?;
    let (value, size) = (MILLISECONDS, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option's value is an int, which lives during the call, and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const value).cast(),
            size,
        )
    };
    if result == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        // An older kernel.
        error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_options_are_set() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let is_limited = resend_soon(&stream).unwrap();
        assert!(sockopt::tcp_thin_linear_timeouts(&stream).unwrap());
        let (mut value, mut size) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: `value` has room for the int of the option, as `size` says.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                TCP_RTO_MAX_MS,
                (&raw mut value).cast(),
                &raw mut size,
            )
        };
        assert_eq!(result == 0, is_limited);
        assert_eq!(value, if is_limited { MILLISECONDS } else { 0 });
    }
}
