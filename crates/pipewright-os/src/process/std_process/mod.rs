//! The parts of `std::process`, in std's shape, that need `unsafe` or depend on the platform.
//!
//! `pipewright::process` re-exports the public items. A command gets the methods of the extension traits by
//! implementing [`CommandOptions`].

mod apply_to_std;
mod stdio;
mod streams;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::ffi::OsStr;
use std::io;

pub use apply_to_std::{apply_to_std, push_arg};
pub use stdio::{ParentStream, Stdio, StdioKind};

use crate::base::pipe::Mode;
use crate::process::start::{UnixOptions, WindowsOptions};

/// The extension traits, in a module with the name of the platform, as in std.
pub mod platform {
    /// The traits and functions of `std::os::unix::process`.
    #[cfg(unix)]
    pub mod unix {
        pub use super::super::unix::CommandExt;
        pub use std::os::unix::process::{ExitStatusExt, parent_id};
    }

    /// The traits of `std::os::windows::process`.
    #[cfg(windows)]
    pub mod windows {
        pub use super::super::windows::CommandExt;
        pub use std::os::windows::process::ExitStatusExt;
    }
}

/// The options of a command that the extension traits set.
pub trait CommandOptions {
    /// Returns the options for Unix.
    fn unix_options(&mut self) -> &mut UnixOptions;

    /// Returns the options for Windows.
    fn windows_options(&mut self) -> &mut WindowsOptions;

    /// Sets the name that the program gets as its first argument.
    fn set_arg0(&mut self, name: &OsStr);

    /// Adds text to the command line unchanged.
    fn push_raw_arg(&mut self, text: &OsStr);

    /// Replaces this process by the program. Returns only on failure.
    fn replace_process(&mut self) -> io::Error;
}

/// The mode of this process's end of a stdin that becomes std's `ChildStdin`.
///
/// # Platform
/// Unix: std's end blocks. Windows: std's end is overlapped (`From<OwnedHandle> for ChildStdin`).
pub const STD_STDIN_MODE: Mode = if cfg!(windows) { Mode::Async } else { Mode::Sync };

/// Implements for a child in std's shape the traits that std's `Child` implements on this platform.
///
/// # Platform
/// Unix: nothing. Windows: `AsHandle`, `AsRawHandle` and `IntoRawHandle`, all for the process. The field,
/// or the path of fields, leads to a value with `child_handle()`.
#[cfg(unix)]
#[macro_export]
macro_rules! child_handle_traits {
    ($child:ty, $field:ident) => {};
}

/// Implements for a child in std's shape the traits that std's `Child` implements on this platform.
#[cfg(windows)]
#[macro_export]
macro_rules! child_handle_traits {
    ($child:ty, $field:ident) => {
        impl std::os::windows::io::AsHandle for $child {
            fn as_handle(&self) -> std::os::windows::io::BorrowedHandle<'_> {
                std::os::windows::io::AsHandle::as_handle(self.$field.child_handle())
            }
        }

        impl std::os::windows::io::AsRawHandle for $child {
            fn as_raw_handle(&self) -> std::os::windows::io::RawHandle {
                let handle = std::os::windows::io::AsHandle::as_handle(self);
                std::os::windows::io::AsRawHandle::as_raw_handle(&handle)
            }
        }
    };
}
