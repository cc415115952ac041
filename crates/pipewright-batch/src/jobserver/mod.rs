//! GNU make's jobserver protocol, as server and as client.
//!
//! A jobserver is a pipe with one byte, a token, for each job that may run besides the first. A program that takes part
//! runs its first job on the slot that its parent gave it. It takes a token before each further one, and puts the same
//! byte back after it. GNU make, cargo, rustc, ninja from 1.13 on and GCC's link-time optimization take part.
//!
//! # Slots
//! A [`Server`](server::Server) with `n` slots fills its pipe with `n - 1` tokens. A batch holds one [`Token`] for each
//! running job; the first takes no byte from the pipe, and the others one each. So while `k >= 1` jobs run, the batch
//! has `k - 1` bytes, and the programs below can have at most `n - 1 - (k - 1)`. Each job is at work itself or has its
//! own children at work on the slot that it was given: `k + (n - k) = n` processes work at once, and never more. This
//! holds as long as every program below returns no more than it took, and everything that a job started has ended
//! when its `Token` is dropped (`--contain tree`).
//!
//! One job can always run, whatever happened to the tokens.
//!
//! # Lost tokens
//! A program that is killed while it has tokens never puts them back: the protocol cannot tell whose a missing byte is.
//! [`Server::refill`](server::Server::refill) makes the count right again whenever no job runs. Until then a batch that
//! keeps running has fewer slots; at worst one job runs at a time, and the next refill follows its end. A [`Client`]
//! that is killed by SIGKILL, or aborts on a panic, takes the bytes that it has from the jobserver above, as any client
//! does.
//!
//! # Styles
//! [`Style::Fifo`](server::Style::Fifo) is for GNU make from 4.4 on; before that it ends with an error at the path of a
//! FIFO, and needs [`Style::Pipe`](server::Style::Pipe). cargo and ninja know both; ninja warns about a pipe. `make
//! -jN` in a job, with a number, starts a jobserver of its own and does not take part; plain `make` does.
//!
//! A batch below `make -jN` should be a client, and pass `MAKEFLAGS` and [`Client::inherited`] on, so that its jobs
//! share the slots of that make.
//!
//! # Platform
//! Unix. On Windows make shares a semaphore instead: both sides fail with [`JobserverErrorKind::Unsupported`].
//!
//! | file | contents |
//! |---|---|
//! | `server.rs` | the server, and the part that a batch takes: that of a server, a client, or none |
//! | `client.rs` | the client of a jobserver above; the options in `MAKEFLAGS` |
//! | `tokens.rs` | tokens that are taken and put back, for both; a thread that waits for one without taking it |

mod client;
mod server;
mod tokens;

use std::path::PathBuf;
use std::{fmt, io};

use pipewright_os::base::error::{OneLine, Quoted};

use client::Client;
pub use server::JobserverMode;
pub(crate) use server::Part;
pub(crate) use tokens::Token;

/// Returns the number of jobs of the make above, as `MAKEFLAGS` has it. `None`: there is no make, or its number is
/// unknown (before GNU make 4.3, or without `-j`).
///
/// ```
/// // Not below `make -jN`.
/// # if std::env::var_os("MAKEFLAGS").is_none() {
/// assert_eq!(pipewright_batch::jobs_of_make(), None);
/// # }
/// ```
#[must_use]
pub fn jobs_of_make() -> Option<u32> {
    std::env::var_os("MAKEFLAGS").and_then(|flags| client::jobs(&flags))
}

// Errors of jobservers.

pub(crate) struct JobserverError(Box<ErrorFacts>);

struct ErrorFacts {
    kind: JobserverErrorKind,
    source: Option<io::Error>,
}

/// The kind of a [`JobserverError`], with its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum JobserverErrorKind {
    /// `MAKEFLAGS` names a jobserver, in no known form.
    Malformed {
        /// The option.
        option: String,
    },
    /// `MAKEFLAGS` names handles, and make has not passed these on.
    NotPassedOn {
        /// The option.
        option: String,
    },
    /// The FIFO that `MAKEFLAGS` names cannot be opened.
    OpenFifo {
        /// The path.
        path: PathBuf,
    },
    /// The server cannot be created.
    Create,
    /// A pipe is too small for the tokens.
    TooManySlots {
        /// The number of slots.
        slots: u32,
        /// The largest number for which there is room.
        most: u32,
    },
    /// This system has no such jobserver.
    Unsupported,
}

impl JobserverError {
    fn new(kind: JobserverErrorKind, source: Option<io::Error>) -> JobserverError {
        JobserverError(Box::new(ErrorFacts { kind, source }))
    }

    /// Returns the kind of the error, with its facts.
    pub(crate) fn kind(&self) -> &JobserverErrorKind {
        &self.0.kind
    }

    /// Returns true if a jobserver was named and cannot be used, as after a recipe without `+`. A program can warn and
    /// go on without it; make and cargo do.
    pub(crate) fn is_warning(&self) -> bool {
        use JobserverErrorKind::{Malformed, NotPassedOn, OpenFifo, Unsupported};
        matches!(self.kind(), Malformed { .. } | NotPassedOn { .. } | OpenFifo { .. } | Unsupported)
    }

    fn io_kind(&self) -> io::ErrorKind {
        match (&self.0.kind, &self.0.source) {
            (JobserverErrorKind::Unsupported, _) => io::ErrorKind::Unsupported,
            (_, Some(source)) => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        }
    }
}

pipewright_os::impl_error!(JobserverError);

impl fmt::Display for JobserverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            JobserverErrorKind::Malformed { option } => {
                write!(f, "unknown form of jobserver in MAKEFLAGS: {}", OneLine(option))?;
            }
            JobserverErrorKind::NotPassedOn { option } => write!(
                f,
                "jobserver unavailable ({}): put + before the command in the makefile",
                OneLine(option)
            )?,
            JobserverErrorKind::OpenFifo { path } => {
                write!(f, "cannot open the FIFO of the jobserver, {}", Quoted(path.as_ref()))?;
            }
            JobserverErrorKind::Create => f.write_str("cannot create a jobserver")?,
            JobserverErrorKind::TooManySlots { slots, most } => {
                write!(f, "a jobserver cannot have {slots} slots: the pipe has room for {most}")?;
            }
            JobserverErrorKind::Unsupported => {
                f.write_str("jobservers are not supported on this system")?;
            }
        }
        match &self.0.source {
            Some(source) => write!(f, ": {}", OneLine(&source.to_string())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[cfg_attr(windows, expect(dead_code, reason = "most tests need pipes that are shared"))]
mod tests;
