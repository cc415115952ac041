//! Sets the options of a command on std's.

use std::ffi::OsStr;
use std::process::Command;

use crate::process::start::{UnixOptions, WindowsOptions};

/// Sets those options on std's command for which std has stable setters.
///
/// # Platform
/// Unix: user, group, process group and `arg0`; [`UnixOptions::move_closures_to_std`] moves the closures of
/// `pre_exec`. Windows: the creation flags.
pub fn apply_to_std(
    theirs: &mut Command,
    arg0: Option<&OsStr>,
    unix: &UnixOptions,
    windows: Option<&WindowsOptions>,
) {
    imp::apply_to_std(theirs, arg0, unix, windows);
}

/// Adds an argument to std's command; a raw one goes on the command line unchanged.
///
/// # Platform
/// Unix: no argument is raw.
pub fn push_arg(theirs: &mut Command, arg: &OsStr, is_raw: bool) {
    imp::push_arg(theirs, arg, is_raw);
}

impl UnixOptions {
    /// Moves the closures of `pre_exec` to std's command.
    pub fn move_closures_to_std(&mut self, theirs: &mut Command) {
        imp::move_closures_to_std(self, theirs);
    }
}

#[cfg(unix)]
mod imp {
    use std::ffi::OsStr;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use crate::process::start::{Group, UnixOptions, WindowsOptions};

    pub(super) fn apply_to_std(
        theirs: &mut Command,
        arg0: Option<&OsStr>,
        unix: &UnixOptions,
        _: Option<&WindowsOptions>,
    ) {
        if let Some(name) = arg0 {
            theirs.arg0(name);
        }
        if let Some(user) = unix.identity.user {
            theirs.uid(user);
        }
        if let Some(group) = unix.identity.group {
            theirs.gid(group);
        }
        match unix.group {
            Group::Own => _ = theirs.process_group(0),
            Group::Join(group) => _ = theirs.process_group(group),
            Group::Same | Group::Session => {}
        }
    }

    pub(super) fn move_closures_to_std(unix: &mut UnixOptions, theirs: &mut Command) {
        for closure in unix.pre_exec.take() {
            // SAFETY: the caller that added it has promised the same (`PreExec::push`).
            unsafe { theirs.pre_exec(closure) };
        }
    }

    pub(super) fn push_arg(theirs: &mut Command, arg: &OsStr, _: bool) {
        theirs.arg(arg);
    }
}

#[cfg(windows)]
mod imp {
    use std::ffi::OsStr;
    use std::os::windows::process::CommandExt as _;
    use std::process::Command;

    use crate::process::start::{UnixOptions, WindowsOptions};

    pub(super) fn apply_to_std(
        theirs: &mut Command,
        _: Option<&OsStr>,
        _: &UnixOptions,
        windows: Option<&WindowsOptions>,
    ) {
        if let Some(options) = windows {
            theirs.creation_flags(options.creation_flags);
        }
    }

    pub(super) fn move_closures_to_std(_: &mut UnixOptions, _: &mut Command) {}

    pub(super) fn push_arg(theirs: &mut Command, arg: &OsStr, is_raw: bool) {
        if is_raw {
            theirs.raw_arg(arg)
        } else {
            theirs.arg(arg)
        };
    }
}
