//! The numbers of the listed handles in the child.

use std::os::fd::{AsRawFd as _, RawFd};

use super::{BadInput, SpawnError};
use crate::base::handle::Handle;

/// Returns the number of a listed handle in the child.
pub(super) fn number((handle, number): &(Handle, Option<i32>)) -> RawFd {
    number.unwrap_or(handle.as_raw_fd())
}

/// Checks that no number is used twice, or is that of a standard handle.
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
