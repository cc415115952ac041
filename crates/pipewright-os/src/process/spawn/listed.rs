//! Under which numbers the listed handles are to be.

use std::os::fd::{AsRawFd as _, RawFd};

use super::{BadInput, SpawnError};
use crate::base::handle::Handle;

/// The number that a listed handle is to have in the child.
pub(super) fn number((handle, number): &(Handle, Option<i32>)) -> RawFd {
    number.unwrap_or(handle.as_raw_fd())
}

/// Looks for numbers that are taken.
pub(super) fn check(list: &[(Handle, Option<i32>)]) -> Result<(), SpawnError> {
    for (index, entry) in list.iter().enumerate() {
        let to = number(entry);
        if to <= libc::STDERR_FILENO {
            return Err(SpawnError::bad(BadInput::InheritIsStdio(index)));
        }
        if list.iter().take(index).any(|earlier| number(earlier) == to) {
            return Err(SpawnError::bad(BadInput::InheritTwice(index)));
        }
    }
    Ok(())
}
