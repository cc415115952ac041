//! The parts of `std::process`, in std's shape, that need `unsafe` or depend on the platform.
//!
//! `pipewright::process` re-exports the public items. A command gets the methods of the extension traits by
//! implementing [`CommandOptions`].

use std::ffi::OsStr;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::{fmt, io};

use crate::base::handle::Handle;
use crate::base::pipe::{Mode, PipeReader, PipeWriter};
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

/// The description of a child's stdin, stdout or stderr, as [`std::process::Stdio`].
///
/// It converts from every type that std's converts from: `File`, `OwnedFd` (`OwnedHandle`), the ends of
/// another child's pipes, `io::stdout()`, `io::stderr()`, and with Rust 1.87 and later std's `PipeReader`
/// and `PipeWriter`. It also converts from every other type that converts to a [`Handle`], such as the
/// pipes of this crate. It converts to std's.
///
/// ```
/// # use pipewright_os::process::std_process::Stdio;
/// let output = std::process::Command::new("echo")
///     .arg("hi")
///     .stdout(std::process::Stdio::from(Stdio::piped()))
///     .output()?;
/// assert_eq!(output.stdout, b"hi\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Stdio(StdioKind);

/// The kinds of a [`Stdio`].
#[derive(Debug)]
#[non_exhaustive]
pub enum StdioKind {
    /// This process's stream with the same number.
    Inherit,
    /// The null device.
    Null,
    /// A pipe to this process.
    Piped,
    /// A stream of this process, by its name.
    Parent(ParentStream),
    /// A copy of this handle.
    Handle(Handle),
}

/// A stream of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParentStream {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
}

impl Stdio {
    /// Creates a pipe to the child.
    #[must_use]
    pub fn piped() -> Stdio {
        Stdio(StdioKind::Piped)
    }

    /// Gives the child this process's stream.
    #[must_use]
    pub fn inherit() -> Stdio {
        Stdio(StdioKind::Inherit)
    }

    /// Gives the child the null device: reads find the end, writes are ignored.
    #[must_use]
    pub fn null() -> Stdio {
        Stdio(StdioKind::Null)
    }

    /// Returns the kind, with the handle if there is one.
    #[doc(hidden)]
    #[must_use]
    pub fn into_kind(self) -> StdioKind {
        self.0
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio").finish_non_exhaustive()
    }
}

impl<T: Into<Handle>> From<T> for Stdio {
    fn from(owner: T) -> Stdio {
        Stdio(StdioKind::Handle(owner.into()))
    }
}

impl From<io::Stdout> for Stdio {
    fn from(_: io::Stdout) -> Stdio {
        Stdio(StdioKind::Parent(ParentStream::Stdout))
    }
}

impl From<io::Stderr> for Stdio {
    fn from(_: io::Stderr) -> Stdio {
        Stdio(StdioKind::Parent(ParentStream::Stderr))
    }
}

impl From<Stdio> for std::process::Stdio {
    fn from(stdio: Stdio) -> std::process::Stdio {
        match stdio.0 {
            StdioKind::Inherit => std::process::Stdio::inherit(),
            StdioKind::Null => std::process::Stdio::null(),
            StdioKind::Piped => std::process::Stdio::piped(),
            StdioKind::Parent(ParentStream::Stdout) => io::stdout().into(),
            StdioKind::Parent(ParentStream::Stderr) => io::stderr().into(),
            StdioKind::Handle(handle) => std::process::Stdio::from(Owned::from(handle)),
        }
    }
}

#[cfg(unix)]
impl std::os::fd::FromRawFd for Stdio {
    unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> Stdio {
        // SAFETY: the caller passes an open descriptor that is owned nowhere else.
        Stdio(StdioKind::Handle(unsafe { Handle::from_raw_fd(fd) }))
    }
}

#[cfg(windows)]
impl std::os::windows::io::FromRawHandle for Stdio {
    unsafe fn from_raw_handle(handle: std::os::windows::io::RawHandle) -> Stdio {
        // SAFETY: the caller passes an open handle that is owned nowhere else.
        Stdio(StdioKind::Handle(unsafe { Handle::from_raw_handle(handle) }))
    }
}

#[cfg(unix)]
type Owned = std::os::fd::OwnedFd;
#[cfg(windows)]
type Owned = std::os::windows::io::OwnedHandle;

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

// `CommandExt` of `std::os::unix::process`, in std's shape.
#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::io;

    use super::CommandOptions;

    /// The Unix extensions of a command: the stable methods of
    /// [`std::os::unix::process::CommandExt`], with their names and rules.
    pub trait CommandExt: CommandOptions {
        /// Sets the child's user id. Without other groups, a child of root has no supplementary groups.
        fn uid(&mut self, id: u32) -> &mut Self {
            self.unix_options().identity.user = Some(id);
            self
        }

        /// Sets the child's group id.
        fn gid(&mut self, id: u32) -> &mut Self {
            self.unix_options().identity.group = Some(id);
            self
        }

        /// Schedules a closure to run in the child just before its program is loaded.
        ///
        /// Several closures run in the order in which they were added; stdio, user, groups, working
        /// directory and process group are set by then. An error stops the start, and `spawn` returns
        /// its `raw_os_error` (`EINVAL` for an error without one).
        ///
        /// # Cost
        /// The child is created by `fork` instead of as a process that shares this process's memory. The time
        /// of a fork grows with the memory of this process (tens of milliseconds from a few GiB on), and the
        /// handlers of `pthread_atfork` run. For the usual purposes of closures there are options that need no
        /// fork: `own_session`, `rlimit`, `umask`, `nice`, `chroot`, `groups`, `inherit_fd_as` and
        /// `kill_on_parent_exit` of `pipewright::Command`.
        ///
        /// # Panics
        /// A panic in the closure aborts the child.
        ///
        /// # Safety
        /// The closure runs in a forked child of a process that may have other threads: it may call only
        /// async-signal-safe functions. It must not rely on locks, and should not allocate. File descriptors
        /// and values that it owns are copies, which both processes would clean up. See
        /// [`std::os::unix::process::CommandExt::pre_exec`].
        unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
        where
            F: FnMut() -> io::Result<()> + Send + Sync + 'static,
        {
            // SAFETY: as this method's.
            unsafe { self.unix_options().pre_exec.push(Box::new(f)) };
            self
        }

        /// Schedules a closure like [`pre_exec`](Self::pre_exec), which replaced this method.
        ///
        /// It is `unsafe` in every edition; std's is `unsafe` from edition 2024 on.
        ///
        /// # Safety
        /// As for [`pre_exec`](Self::pre_exec).
        #[deprecated(note = "use `pre_exec` instead")]
        unsafe fn before_exec<F>(&mut self, f: F) -> &mut Self
        where
            F: FnMut() -> io::Result<()> + Send + Sync + 'static,
        {
            // SAFETY: as this method's.
            unsafe { self.pre_exec(f) }
        }

        /// Replaces this process by the command. Returns only with the error that prevented it.
        ///
        /// Destructors do not run, and changes that the options have made to this process by then stay.
        #[must_use]
        fn exec(&mut self) -> io::Error {
            self.replace_process()
        }

        /// Sets the zeroth argument, which programs take as their name.
        fn arg0<S>(&mut self, arg: S) -> &mut Self
        where
            S: AsRef<OsStr>,
        {
            self.set_arg0(arg.as_ref());
            self
        }

        /// Sets the child's process group; 0 is a group of its own.
        fn process_group(&mut self, pgroup: i32) -> &mut Self {
            self.unix_options().set_process_group(pgroup);
            self
        }
    }

    impl<C: CommandOptions> CommandExt for C {}
}

// `CommandExt` of `std::os::windows::process`, in std's shape.
#[cfg(windows)]
mod windows {
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
}
