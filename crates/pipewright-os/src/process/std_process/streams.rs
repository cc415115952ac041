//! Conversions of a child's pipes between std's types and this crate's.

use std::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::base::handle::Handle;
use crate::base::pipe::{PipeReader, PipeWriter};

#[cfg(unix)]
pub(super) type Owned = std::os::fd::OwnedFd;
#[cfg(windows)]
pub(super) type Owned = std::os::windows::io::OwnedHandle;

/// Implements both conversions between a stream of std's child and one of this crate's.
macro_rules! converts {
    ($($ours:ty, $std:ty;)*) => {$(
        impl From<$ours> for $std {
            /// # Platform
            /// Unix: `O_NONBLOCK` is cleared, because std's streams block. Windows: the end is overlapped,
            /// like std's; std's type cannot read or write one that is not.
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
