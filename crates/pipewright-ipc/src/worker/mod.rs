//! The worker's side: the connection to the host that started this process.
//!
//! | function | use |
//! |---|---|
//! | [`serve`] | one answer to each request, of a [`Channel`] or a [`Pool`](crate::Pool) |
//! | [`serve_calls`] | also items (parts of a reply), questions to the host, cancellation and error messages |
//! | [`run`] | the same, for a service that can be [reset](Serve::reset) |
//! | [`channel`] | messages in any order |
//! | [`is_worker`] | a program that starts itself as its worker |
//!
//! Workers in C, Python and Node have the same functions: `docs/workers.md` in the repository.

mod call;
mod call_receiver;
mod credit;
mod input;
#[cfg(feature = "serde")]
mod typed;

use std::io;

use pipewright_os::channel::handle_channel::{self, ChannelEnd, Inheritance};

use crate::channel::Channel;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::process::VARIABLE;
use crate::wire::kind;
pub use call::{Answer, Call, Serve};
use call_receiver::CallReceiver;

/// Returns true if a [`Channel`] or a [`Pool`](crate::Pool) started this process as its worker. Does not connect to the
/// host.
///
/// A program that starts itself as its worker calls this first in `main`. If it returns true, the program calls
/// [`serve`] or another function of this module, which *claims* the handle channel to the host: this process connects
/// over it, and no child inherits it any more. Until then this process cannot start workers of its own
/// ([`Unclaimed`](ErrorKind::Unclaimed)). The result is the same before and after that.
///
/// Descendants of a worker inherit its environment and are not workers. A shell between host and worker passes the
/// handle channel on, so the identity of the parent is not checked. A child that a worker starts with `std::process`
/// before it claims the handle channel is therefore taken for the worker; a child that it starts with
/// [`pipewright::Command`] is not.
///
/// # Platform
/// Reads the variable `PIPEWRIGHT_IPC` and checks the handle whose number it contains. Unix: it has to be a socket without
/// `FD_CLOEXEC`, and the one that `PIPEWRIGHT_IPC_ID` identifies. Windows: it has to be an inherited pipe.
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

/// Connects to the process that started this one with [`Channel::start`]. Works once.
///
/// # Errors
/// [`Start`](ErrorKind::Start): this process was not started as a worker, or has connected already. Those of
/// [`Channel::as_worker`].
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

fn inherited() -> Result<ChannelEnd, Error> {
    handle_channel::inherited(VARIABLE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::Start),
        _ => Error::caused(ErrorKind::Start, error),
    })
}

/// Connects to the host and answers requests until the host closes the connection or ends. The handler gets each
/// request, and an empty buffer for the answer.
///
/// A panic in the handler unwinds out of this function and usually ends the worker. The call then fails with
/// [`Lost`](ErrorKind::Lost), which has the exit status and the message of the panic, and the pool starts another
/// worker. Any other crash has the same effect.
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
/// Those of [`channel`], and errors of the connection. The end of the host is not an error.
pub fn serve(options: &Options, mut handler: impl FnMut(&[u8], &mut Vec<u8>)) -> Result<(), Error> {
    let mut call_receiver = CallReceiver::new(channel(options)?);
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    let ended = loop {
        let (kind, id) = match call_receiver.next(&mut question) {
            Ok(header) => header,
            Err(error) => break error,
        };
        let kind = match kind {
            kind::MESSAGE => kind::MESSAGE,
            // Items that follow the request are not read: there is no credit for them.
            kind::CALL | kind::OPEN_CALL => kind::REPLY,
            // RESET: there is no service to reset.
            _ => kind::FAILED,
        };
        answer.clear();
        if kind != kind::FAILED {
            handler(&question, &mut answer);
        }
        if let Err(error) = call_receiver.end(kind, id, &answer) {
            break error;
        }
    };
    call_receiver.close(ended)
}

/// Connects to the host and answers calls until the host closes the connection or ends. The handler may return an
/// error; a panic has the effect that [`serve`] describes.
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
/// Those of [`serve`]. An error that the handler returns does not end this function: the caller receives its text, as
/// [`Failed`](ErrorKind::Failed).
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
    let mut call_receiver = CallReceiver::new(channel(options)?);
    loop {
        if let Err(error) = call::answer_next(&mut call_receiver, service) {
            return call_receiver.close(error);
        }
    }
}
