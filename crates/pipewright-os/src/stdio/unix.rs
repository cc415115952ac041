//! `/dev/null` and descriptors 0 to 2.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

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
