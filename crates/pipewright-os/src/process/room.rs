//! Lack of room: errors that say nothing about this machine, and that are gone the next moment.

use std::io;

use rustix::io::Errno;

/// Returns true if a limit was reached: on handles, memory, processes or queues. Nothing else may be concluded from such an
/// error, and it must not be remembered.
pub(crate) fn is_lack_of_room(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::AGAIN
            | Errno::NOBUFS
            | Errno::TOOMANYREFS
            | Errno::NOSPC
            | Errno::DQUOT
    )
}

/// Does the same for an error of std.
pub(crate) fn is_lack(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(is_lack_of_room)
}
