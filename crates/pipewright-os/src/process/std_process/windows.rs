//! `CommandExt` of `std::os::windows::process`, in std's shape.

use std::ffi::OsStr;

use super::CommandOptions;

/// The Windows extensions of a command: the stable methods of
/// [`std::os::windows::process::CommandExt`], with their names and rules.
pub trait CommandExt: CommandOptions {
    /// Sets the flags for `CreateProcessW`, instead of those set before.
    fn creation_flags(&mut self, flags: u32) -> &mut Self {
        self.windows_options().creation_flags = flags;
        self
    }

    /// Appends text to the command line unchanged, without quotes and escapes.
    fn raw_arg<S: AsRef<OsStr>>(&mut self, text_to_append_as_is: S) -> &mut Self {
        self.push_raw_arg(text_to_append_as_is.as_ref());
        self
    }
}

impl<C: CommandOptions> CommandExt for C {}
