//! GNU make's jobserver protocol, as server and as client.
//!
//! A jobserver is a pipe with one byte, a token, for each job that may run besides the first. A program that takes part
//! runs its first job on the slot that its parent gave it. It takes a token before each further one, and puts the same
//! byte back after it. GNU make, cargo, rustc, ninja from 1.13 on and GCC's link-time optimization take part.
//!
//! # Slots
//! A [`Server`] with `n` slots fills its pipe with `n - 1` tokens. A batch holds one [`Token`] for each running job;
//! the first takes no byte from the pipe, and the others one each. So while `k >= 1` jobs run, the batch has `k - 1`
//! bytes, and the programs below can have at most `n - 1 - (k - 1)`. Each job is at work itself or has its own children
//! at work on the slot that it was given: `k + (n - k) = n` processes work at once, and never more. This holds as long
//! as every program below puts back no more than it took, and everything that a job started has ended when its `Token`
//! is dropped (`--contain tree`).
//!
//! One job can always run, whatever happened to the tokens.
//!
//! # Lost tokens
//! A program that is killed while it has tokens never puts them back: the protocol cannot tell whose a missing byte is.
//! [`Server::refill`] makes the count right again whenever no job runs. Until then a batch that keeps running has fewer
//! slots; at worst one job runs at a time, and the next refill follows its end. A [`Client`] that is killed by SIGKILL,
//! or aborts on a panic, takes the bytes that it has from the jobserver above, as any client does.
//!
//! # Styles
//! [`Style::Fifo`] is for GNU make from 4.4 on; before that it ends with an error at the path of a FIFO, and needs
//! [`Style::Pipe`]. cargo and ninja know both; ninja warns about a pipe. `make -jN` in a job, with a number, starts a
//! jobserver of its own and does not take part; plain `make` does.
//!
//! A batch below `make -jN` should be a client, and pass `MAKEFLAGS` and [`Client::inherited`] on, so that its jobs share
//! the slots of that make.
//!
//! # Platform
//! Unix. On Windows make shares a semaphore instead: both sides fail with [`JobserverErrorKind::Unsupported`].
//!
//! | file | contents |
//! |---|---|
//! | `part.rs` | the part that a batch takes: that of a server, a client, or none |
//! | `server.rs` | the server: its pool, and what children need to know |
//! | `client.rs` | the client of a jobserver above |
//! | `tokens.rs` | tokens that are taken and put back, for both |
//! | `notify.rs` | the thread that waits for tokens without taking one |
//! | `makeflags.rs` | the options in `MAKEFLAGS`: read and written |
//! | `error.rs` | errors |

mod client;
mod error;
mod makeflags;
mod notify;
mod part;
mod server;
#[cfg(test)]
#[cfg_attr(windows, expect(dead_code, reason = "most tests need pipes that are shared"))]
mod tests;
mod tokens;

/// Returns the number of jobs of the make above, as `MAKEFLAGS` has it. `None`: there is no make, or its number is unknown (before GNU
/// make 4.3, or without `-j`).
///
/// ```
/// // Not below `make -jN`.
/// # if std::env::var_os("MAKEFLAGS").is_none() {
/// assert_eq!(pipewright_batch::jobs_of_make(), None);
/// # }
/// ```
#[must_use]
pub fn jobs_of_make() -> Option<u32> {
    std::env::var_os("MAKEFLAGS").and_then(|flags| makeflags::jobs(&flags))
}

use client::Client;
pub(crate) use error::JobserverError;
use error::JobserverErrorKind;
pub use part::JobserverMode;
pub(crate) use part::Part;
#[cfg(all(test, not(windows)))]
use server::Correction;
use server::{Server, Style};
pub(crate) use tokens::Token;
