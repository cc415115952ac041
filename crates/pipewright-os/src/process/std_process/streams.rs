//! The pipes of a child, as std's types and as ours.

use std::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::base::handle::Handle;
use crate::base::pipe::{PipeReader, PipeWriter};

#[cfg(unix)]
pub(super) type Owned = std::os::fd::OwnedFd;
#[cfg(windows)]
pub(super) type Owned = std::os::windows::io::OwnedHandle;

/// The two conversions between a stream of std's child and one of ours.
macro_rules! converts {
    ($($ours:ty, $std:ty;)*) => {$(
        impl From<$ours> for $std {
            /// # Platform
            /// Unix: `O_NONBLOCK` is cleared: std's streams block. Windows: the end overlaps, as
            /// std's do; one that does not cannot be read or written by std's type.
            fn from(ours: $ours) -> $std {
                <$std>::from(Owned::from(ours))
            }
        }

        impl From<$std> for $ours {
            fn from(theirs: $std) -> $ours {
                <$ours>::from(Owned::from(Handle::from(theirs)))
            }
        }
    )*};
}

converts! {
    PipeWriter, ChildStdin;
    PipeReader, ChildStdout;
    PipeReader, ChildStderr;
}
