//! The worker's side: the connection to the host that started this process.
//!
//! | function | use |
//! |---|---|
//! | [`serve`] | one answer to each request, of a [`Channel`] or a [`Pool`](crate::Pool) |
//! | [`serve_calls`] | also items, questions to the host, cancellation and error messages |
//! | [`run`] | the same, for a service that can be reset |
//! | [`channel`] | messages in any other order |
//! | [`is_worker`] | a program that starts itself as its worker |

mod call;
mod inbox;
#[cfg(feature = "serde")]
mod typed;

use std::io;

use pipewright_os::channel::handle_channel::{self, End, Inheritance};

use crate::channel::Channel;
use crate::error::{Error, ErrorKind};
use crate::host::VARIABLE;
use crate::options::Options;
use crate::wire::kind;
pub use call::{Answer, Call, Serve};
use inbox::Inbox;

/// Returns true if a [`Channel`] or a [`Pool`](crate::Pool) started this process as its worker, before and after the handle
/// channel to the host is claimed. Leaves the handle channel alone.
///
/// A program that starts itself as its worker calls this first in `main`. If it returns true, [`serve`] or another function
/// of this module claims the handle channel; until then this process cannot start workers of its own
/// ([`Unclaimed`](ErrorKind::Unclaimed)).
///
/// Descendants of a worker inherit its environment and are not workers. A shell between the worker and its host may pass the
/// handle channel on. So a child that a worker starts with `std::process` before it claims the handle channel is taken for
/// the worker; a child that it starts with [`pipewright::Command`] is not.
///
/// # Platform
/// Reads the variable `PIPEWRIGHT_IPC` and checks the handle whose number it contains. Unix: it has to be a socket without
/// `FD_CLOEXEC`, and the one in `PIPEWRIGHT_IPC_ID`. Windows: it has to be an inherited pipe.
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

/// Connects to the process that started this one with [`Channel::start`].
///
/// # Errors
/// [`Start`](ErrorKind::Start): this process was started in another way, or has claimed its handle channel already. Those
/// of [`Channel::as_worker`].
pub fn channel<S, R>(options: &Options) -> Result<Channel<S, R>, Error> {
    Channel::connected_as_worker(inherited()?, options)
}

/// Like [`channel`], for a task of a tokio runtime: feature `tokio`.
///
/// # Cancellation
/// Dropping the future closes the connection.
///
/// # Errors
/// Those of [`channel`]; `Unsupported` outside of a tokio runtime.
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

/// Answers requests until the host closes the connection or is gone. The handler gets each request, and an empty buffer for
/// the answer.
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
/// Those of [`channel`], and errors of the connection. A host that is gone is not an error.
pub fn serve(options: &Options, mut handler: impl FnMut(&[u8], &mut Vec<u8>)) -> Result<(), Error> {
    let mut inbox = Inbox::new(channel(options)?);
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    let ended = loop {
        let (kind, id) = match inbox.next(&mut question) {
            Ok(begun) => begun,
            Err(error) => break error,
        };
        let kind = match kind {
            kind::MESSAGE => kind::MESSAGE,
            kind::CALL => kind::REPLY,
            // RESET: there is no service to reset.
            _ => kind::FAILED,
        };
        answer.clear();
        if kind != kind::FAILED {
            handler(&question, &mut answer);
        }
        if let Err(error) = inbox.end(kind, id, &answer) {
            break error;
        }
    };
    inbox.close(ended)
}

/// Answers calls until the host closes the connection or is gone.
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
/// Those of [`serve`]. The caller receives the error that the handler returns.
pub fn serve_calls(
    options: &Options,
    handler: impl FnMut(&mut Call<'_>) -> Answer,
) -> Result<(), Error> {
    run(options, &mut call::Handler(handler))
}

/// Like [`serve_calls`], for a service that can be [reset](Serve::reset).
///
/// # Errors
/// Those of [`serve_calls`].
pub fn run(options: &Options, service: &mut impl Serve) -> Result<(), Error> {
    let mut inbox = Inbox::new(channel(options)?);
    loop {
        if let Err(error) = call::answer_next(&mut inbox, service) {
            return inbox.close(error);
        }
    }
}
