//! `/dev/null` and descriptors 0 to 2.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::handle::Handle;

pub(super) fn null() -> io::Result<Handle> {
    OpenOptions::new().read(true).write(true).open("/dev/null").map(Handle::from)
}

pub(super) fn console(number: i32) -> io::Result<Handle> {
    let owned = match number {
        0 => std::io::stdin().as_fd().try_clone_to_owned()?,
        1 => std::io::stdout().as_fd().try_clone_to_owned()?,
        _ => {
            let stderr = std::io::stderr();
            let borrowed: BorrowedFd<'_> = stderr.as_fd();
            borrowed.try_clone_to_owned()?
        }
    };
    Ok(Handle::from(owned))
}

pub(super) fn write_console(to_stderr: bool, mut bytes: &[u8]) -> io::Result<()> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let console = if to_stderr { stderr.as_fd() } else { stdout.as_fd() };
    while !bytes.is_empty() {
        match rustix::io::write(console, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut polled = [PollFd::from_borrowed_fd(console, PollFlags::OUT)];
                // Ignored: whatever it is, the next write says so.
                let _ = rustix::event::poll(&mut polled, None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
