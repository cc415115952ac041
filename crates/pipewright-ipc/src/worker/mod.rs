//! The worker's side: the connection to whoever started this process.
//!
//! | call | for |
//! |---|---|
//! | [`serve`] | a question, an answer: of a [`Channel`] and of a [`Pool`](crate::Pool) |
//! | [`serve_calls`] | answers in pieces, questions back to the host, cancellation; errors that are told |
//! | [`run`] | the same, of something that can be reset |
//! | [`channel`] | messages of any other order |
//! | [`is_worker`] | a program that starts itself as its worker |

mod call;
mod desk;

use std::io;

use pipewright_os::channel::handle_channel::{self, End, Inheritance};

use crate::channel::Channel;
use crate::error::{Error, ErrorKind};
use crate::host::VARIABLE;
use crate::options::Options;
use crate::wire::kind;
pub use call::{Answer, Call, Serve};
use desk::Desk;
pub(crate) use desk::MOST_WAITING;

/// Returns true if a [`Channel`] or a [`Pool`](crate::Pool) started this process as its worker, before the link to the
/// host is claimed and afterwards. Leaves the link alone.
///
/// A program that starts itself as its worker asks this first in `main`. If it is true, [`serve`] or one of the other
/// functions of this module claims the link; without that this process may start no workers of its own
/// ([`Unclaimed`](ErrorKind::Unclaimed)).
///
/// Descendants of a worker are no workers, though they inherit its environment. Between the worker and its host there may
/// be a shell that passes the link on. So a child that a worker starts with `std::process` before it has claimed the link
/// is taken for the worker; one that it starts with [`pipewright::Command`] is not.
///
/// # Platform
/// Looks for the variable `PIPEWRIGHT_IPC` and the handle whose number it holds. Unix: which is a socket without
/// `FD_CLOEXEC`, and that of `PIPEWRIGHT_IPC_ID`. Windows: which is an inherited pipe.
///
/// ```no_run
/// use pipewright::Command;
/// use pipewright_ipc::{Pool, PoolOptions, worker};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if worker::is_worker() {
///         return Ok(worker::serve(&Default::default(), |question, answer| {
///             answer.extend(question.iter().rev());
///         })?);
///     }
///     let pool = Pool::new(Command::new(std::env::current_exe()?), PoolOptions::default())?;
///     assert_eq!(*pool.call("hello")?, *b"olleh");
///     pool.shut_down();
///     Ok(())
/// }
/// ```
#[must_use]
pub fn is_worker() -> bool {
    handle_channel::inheritance(VARIABLE) != Inheritance::Nothing
}

/// The channel to the process that started this one with [`Channel::start`].
///
/// # Errors
/// [`Start`](ErrorKind::Start): it was started in another way, or has claimed its link already; and as
/// [`Channel::as_worker`].
pub fn channel<S, R>(options: &Options) -> Result<Channel<S, R>, Error> {
    Channel::connected_as_worker(inherited()?, options)
}

/// As [`channel`], for a task of a tokio runtime: feature `tokio`.
///
/// # Cancellation
/// Dropping the future closes the connection.
///
/// # Errors
/// As [`channel`]; outside of a tokio runtime, `Unsupported`.
#[cfg(feature = "tokio")]
pub async fn channel_async<S, R>(options: &Options) -> Result<Channel<S, R>, Error> {
    Channel::connected_async(inherited()?, options).await
}

fn inherited() -> Result<End, Error> {
    handle_channel::inherited(VARIABLE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::Start),
        _ => Error::caused(ErrorKind::Start, error),
    })
}

/// Answers questions until the host says goodbye or is gone: the handler is given each question and a
/// buffer for the answer, which is empty.
///
/// ```no_run
/// use pipewright_ipc::{Options, worker};
///
/// fn main() -> Result<(), pipewright_ipc::Error> {
///     worker::serve(&Options::default(), |question, answer| {
///         answer.extend(question.iter().rev());
///     })
/// }
/// ```
///
/// # Errors
/// As [`channel`], and what befalls the connection; a host that is gone is no error.
pub fn serve(options: &Options, mut handler: impl FnMut(&[u8], &mut Vec<u8>)) -> Result<(), Error> {
    let mut desk = Desk::new(channel(options)?);
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    let answered = loop {
        let (kind, id) = match desk.next(&mut question) {
            Ok(piece) => piece,
            Err(error) => break error,
        };
        let kind = match kind {
            kind::MESSAGE => kind::MESSAGE,
            kind::CALL => kind::REPLY,
            // There is nothing here that could be reset.
            _ => kind::FAILED,
        };
        answer.clear();
        if kind != kind::FAILED {
            handler(&question, &mut answer);
        }
        if let Err(error) = desk.end(kind, id, &answer) {
            break error;
        }
    };
    desk.leave(answered)
}

/// Answers calls until the host says goodbye or is gone.
///
/// ```no_run
/// use pipewright_ipc::{Options, worker};
///
/// fn main() -> Result<(), pipewright_ipc::Error> {
///     worker::serve_calls(&Options::default(), |call| {
///         let number: u64 = std::str::from_utf8(call.request())?.parse()?;
///         Ok((number * 2).to_string().into_bytes())
///     })
/// }
/// ```
///
/// # Errors
/// As [`serve`]. What the handler returns is told to whoever has called.
pub fn serve_calls(
    options: &Options,
    handler: impl FnMut(&mut Call<'_>) -> Answer,
) -> Result<(), Error> {
    run(options, &mut call::Handler(handler))
}

/// As [`serve_calls`], of something that can be [reset](Serve::reset).
///
/// # Errors
/// As [`serve_calls`].
pub fn run(options: &Options, service: &mut impl Serve) -> Result<(), Error> {
    let mut desk = Desk::new(channel(options)?);
    loop {
        if let Err(error) = call::answer(&mut desk, service) {
            return desk.leave(error);
        }
    }
}
