//! The parts that the error types of all crates share: one-line texts, the traits of an error, and the meanings of
//! system errors.

use std::error::Error;
use std::ffi::OsStr;
use std::sync::Arc;
use std::{fmt, io};

#[cfg(windows)]
pub(crate) use imp::os_error;

/// Text from elsewhere on one bounded line, without commands for a terminal.
///
/// Trailing white space is dropped, every control character is escaped, and text beyond 500 characters is
/// replaced by `...`.
///
/// ```
/// # use pipewright_os::base::error::OneLine;
/// assert_eq!(OneLine("no\tdisk\r\n\x1b[31mat all\n").to_string(), r"no\tdisk\r\n\u{1b}[31mat all");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OneLine<'a>(pub &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_CHARS: usize = 500;
        let text = self.0.trim_end();
        let cut = text.char_indices().nth(MAX_CHARS);
        let kept = cut.and_then(|(end, _)| text.get(..end));
        write_escaped(kept.unwrap_or(text), f)?;
        if kept.is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// A file name or path in quotes, with its control characters escaped. Of a long one, `...` replaces the middle: the
/// start and the end of a path say most, and at most 500 characters remain.
///
/// ```
/// # use pipewright_os::base::error::Quoted;
/// assert_eq!(Quoted("a\nb".as_ref()).to_string(), r#""a\nb""#);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a OsStr);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The characters that remain at each end of a long name.
        const END_CHARS: usize = 248;
        let name = self.0.to_string_lossy();
        let starts = || name.char_indices().map(|(start, _)| start);
        f.write_str("\"")?;
        match (starts().nth(END_CHARS), starts().rev().nth(END_CHARS - 1)) {
            (Some(head), Some(tail)) if name.get(head..tail).is_some_and(is_long) => {
                write_escaped(name.get(..head).unwrap_or_default(), f)?;
                f.write_str("...")?;
                write_escaped(name.get(tail..).unwrap_or_default(), f)?;
            }
            _ => write_escaped(&name, f)?,
        }
        f.write_str("\"")
    }
}

/// Returns true if `...` is shorter.
fn is_long(middle: &str) -> bool {
    middle.chars().count() > "...".len()
}

fn write_escaped(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    text.chars().try_for_each(|character| match character.is_control() {
        true => write!(f, "{}", character.escape_default()),
        false => fmt::Write::write_char(f, character),
    })
}

/// Writes a message and, in parentheses, the number of the system's error.
///
/// # Errors
/// The formatter's.
pub fn write_numbered(
    message: &str,
    source: Option<&io::Error>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.write_str(message)?;
    match source.and_then(io::Error::raw_os_error) {
        Some(number) => write!(f, " (os error {number})"),
        None => Ok(()),
    }
}

/// A value that an error type keeps as its source.
pub trait AsSource {
    /// Returns the error itself, so that callers can downcast it.
    fn as_source(&self) -> &(dyn Error + 'static);
}

impl AsSource for io::Error {
    fn as_source(&self) -> &(dyn Error + 'static) {
        self
    }
}

impl AsSource for Arc<dyn Error + Send + Sync> {
    fn as_source(&self) -> &(dyn Error + 'static) {
        &**self
    }
}

/// Implements `Debug`, `std::error::Error` and the conversion to `io::Error` for a crate's error type.
///
/// The type is a struct around a pointer to its facts, among them `kind` and `source: Option<impl AsSource>`. It
/// has a method `io_kind(&self) -> io::ErrorKind`, which chooses the kind of the converted error.
#[macro_export]
macro_rules! impl_error {
    ($error:ty) => {
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct("Error")
                    .field("message", &::std::format_args!("{self}"))
                    .field("kind", &self.0.kind)
                    .field("source", &self.0.source)
                    .finish()
            }
        }

        impl ::std::error::Error for $error {
            fn source(&self) -> Option<&(dyn ::std::error::Error + 'static)> {
                self.0.source.as_ref().map($crate::base::error::AsSource::as_source)
            }
        }

        impl From<$error> for ::std::io::Error {
            /// Wraps the whole error, under the kind of std that is closest.
            fn from(error: $error) -> ::std::io::Error {
                ::std::io::Error::new(error.io_kind(), error)
            }
        }
    };
}

/// The meaning of a system error, if the crates above treat it specially.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OsErrorKind {
    /// A permission is missing.
    Denied,
    /// No process has that id.
    NoSuchProcess,
    /// Other code of this program has already reaped the child.
    StatusLost,
    /// The handle is not open.
    BadHandle,
    /// The file is not a program for this machine.
    BadFormat,
    /// A program's file is still open for writing.
    Busy,
    /// The operation was cancelled before it began.
    Cancelled,
    /// A device failed.
    Device,
    /// A limit was reached; the text names it.
    Limit(&'static str),
}

/// Returns the meaning of the error; `None` for an error that is not listed above.
///
/// # Platform
/// Unix: the `errno`. Windows: the code of `GetLastError`. An error without a number, made by the
/// platform layer itself: its [`ErrorKind`](io::ErrorKind).
#[must_use]
pub fn os_error_kind(error: &io::Error) -> Option<OsErrorKind> {
    match error.raw_os_error() {
        Some(number) => imp::os_error_kind(number),
        None => match error.kind() {
            io::ErrorKind::PermissionDenied => Some(OsErrorKind::Denied),
            io::ErrorKind::NotFound => Some(OsErrorKind::NoSuchProcess),
            io::ErrorKind::ArgumentListTooLong => Some(OsErrorKind::Limit(TOO_LONG)),
            _ => None,
        },
    }
}

/// Returns the system's error for an operation that was cancelled before it began.
///
/// # Platform
/// Unix: `ECANCELED`. Windows: `ERROR_OPERATION_ABORTED`.
#[must_use]
pub fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(imp::CANCELLED)
}

const TOO_LONG: &str = "arguments and environment are too long";

/// Returns true if a limit was reached: on handles, memory, processes or queues. Nothing else may be concluded from
/// such an error, and it must not be remembered.
#[cfg(all(target_os = "linux", feature = "process"))]
pub(crate) fn is_lack_of_room(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    // Such an error says nothing about this machine, and is gone the next moment.
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
#[cfg(all(target_os = "linux", feature = "process"))]
pub(crate) fn is_lack(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error).is_some_and(is_lack_of_room)
}

// The values of `errno`.
#[cfg(unix)]
mod imp {
    use super::{OsErrorKind, TOO_LONG};

    pub(super) const CANCELLED: i32 = libc::ECANCELED;

    pub(super) fn os_error_kind(number: i32) -> Option<OsErrorKind> {
        Some(match number {
            libc::EACCES | libc::EPERM => OsErrorKind::Denied,
            libc::ESRCH => OsErrorKind::NoSuchProcess,
            libc::ECHILD => OsErrorKind::StatusLost,
            libc::EBADF => OsErrorKind::BadHandle,
            libc::ENOEXEC => OsErrorKind::BadFormat,
            // For another processor, or damaged (execve(2)).
            #[cfg(target_os = "macos")]
            libc::EBADEXEC | libc::EBADARCH | libc::EBADMACHO => OsErrorKind::BadFormat,
            libc::ETXTBSY => OsErrorKind::Busy,
            libc::ECANCELED => OsErrorKind::Cancelled,
            libc::EIO => OsErrorKind::Device,
            libc::E2BIG => OsErrorKind::Limit(TOO_LONG),
            libc::EAGAIN => OsErrorKind::Limit("too many processes"),
            libc::ENOMEM => OsErrorKind::Limit("out of memory"),
            libc::ENFILE => OsErrorKind::Limit("too many open files in the system"),
            libc::EMFILE => OsErrorKind::Limit("too many open files"),
            _ => return None,
        })
    }
}

// The codes of `GetLastError`.
#[cfg(windows)]
mod imp {
    use std::io;

    use windows_sys::Win32::Foundation as win;

    use super::{OsErrorKind, TOO_LONG};

    pub(super) const CANCELLED: i32 = win::ERROR_OPERATION_ABORTED as i32;

    pub(super) fn os_error_kind(number: i32) -> Option<OsErrorKind> {
        Some(match number as u32 {
            // ELEVATION_REQUIRED: the program requests rights that only a dialog could grant.
            win::ERROR_ACCESS_DENIED
            | win::ERROR_ELEVATION_REQUIRED
            | win::ERROR_PRIVILEGE_NOT_HELD
            | win::ERROR_ACCESS_DISABLED_BY_POLICY => OsErrorKind::Denied,
            win::ERROR_INVALID_HANDLE => OsErrorKind::BadHandle,
            win::ERROR_BAD_EXE_FORMAT
            | win::ERROR_BAD_FORMAT
            | win::ERROR_EXE_MACHINE_TYPE_MISMATCH
            | win::ERROR_EXE_MARKED_INVALID
            | win::ERROR_INVALID_EXE_SIGNATURE
            | win::ERROR_INVALID_IMAGE_HASH => OsErrorKind::BadFormat,
            // The writer has not closed the file, or a virus scanner has opened it because it is new.
            win::ERROR_SHARING_VIOLATION | win::ERROR_LOCK_VIOLATION => OsErrorKind::Busy,
            win::ERROR_FILENAME_EXCED_RANGE => OsErrorKind::Limit(TOO_LONG),
            win::ERROR_NOT_ENOUGH_MEMORY
            | win::ERROR_OUTOFMEMORY
            | win::ERROR_COMMITMENT_LIMIT
            | win::ERROR_NO_SYSTEM_RESOURCES => OsErrorKind::Limit("out of memory"),
            // A job of this process limits the number of processes, or their resources.
            win::ERROR_NOT_ENOUGH_QUOTA => OsErrorKind::Limit("a quota of this process or its job"),
            win::ERROR_OPERATION_ABORTED => OsErrorKind::Cancelled,
            win::ERROR_IO_DEVICE | win::ERROR_CRC => OsErrorKind::Device,
            win::ERROR_TOO_MANY_OPEN_FILES => OsErrorKind::Limit("too many open files"),
            _ => return None,
        })
    }

    pub(crate) fn os_error(code: u32) -> io::Error {
        io::Error::from_raw_os_error(code as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_control_characters_stays_on_one_line() {
        let name = OsStr::new("a\nb\0\x1b[31m\u{e9}\"");
        assert_eq!(Quoted(name).to_string(), "\"a\\nb\\u{0}\\u{1b}[31m\u{e9}\"\"");
    }

    #[test]
    fn the_middle_of_a_long_name_is_left_out() {
        let name = |characters: usize| format!("/{}", "\u{e9}".repeat(characters - 1));
        for fits in [1, 247, 248, 249, 499] {
            let name = name(fits);
            assert_eq!(Quoted(name.as_ref()).to_string(), format!("\"{name}\""));
        }
        for long in [500, 501, 5000, 100_000] {
            let (start, end) = (name(248), "\u{e9}".repeat(248));
            let shown = Quoted(name(long).as_ref()).to_string();
            assert_eq!(shown, format!("\"{start}...{end}\""), "{long}");
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(OneLine(&"\u{e9}".repeat(500)).to_string(), "\u{e9}".repeat(500));
        let long = OneLine(&"\u{e9}".repeat(501)).to_string();
        assert_eq!(long, format!("{}...", "\u{e9}".repeat(500)));
    }

    #[test]
    fn a_shared_source_can_be_downcast() {
        let source: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::from_raw_os_error(2));
        assert!(source.as_source().downcast_ref::<io::Error>().is_some());
    }
}
