//! An error with the name of the system call that failed. Several are involved, each with its own limits.

use std::error::Error;
use std::fmt;
use std::io;

/// The error of a system call.
#[derive(Debug)]
struct CallError {
    call: &'static str,
    error: io::Error,
}

/// Adds the name of the call to an error, which becomes the source.
pub(super) fn in_call<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), CallError { call, error })
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
