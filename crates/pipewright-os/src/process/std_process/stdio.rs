//! `Stdio` in std's shape.

use std::fmt;
use std::io;

use crate::base::handle::Handle;

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
            StdioKind::Handle(handle) => {
                std::process::Stdio::from(super::streams::Owned::from(handle))
            }
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
