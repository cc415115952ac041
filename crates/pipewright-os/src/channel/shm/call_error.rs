//! An error that says which call of the system it comes from: there are several, and each has limits of its own.

use std::error::Error;
use std::fmt;
use std::io;

/// What the system said, of that call.
#[derive(Debug)]
struct CallError {
    call: &'static str,
    error: io::Error,
}

/// Adds the call to what the system said. Its error is the source.
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
