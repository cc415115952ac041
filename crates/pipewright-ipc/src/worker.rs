//! The worker's side: the connection to whoever started this process.

use std::io;

use pipewright_os::link;

use crate::channel::Channel;
use crate::error::{Error, ErrorKind};
use crate::host::VARIABLE;
use crate::options::Options;

/// The channel to the process that started this one with [`Channel::start`].
///
/// # Errors
/// [`Start`](ErrorKind::Start): it was started in another way; and as [`Channel::start`].
pub fn channel<S, R>(options: &Options) -> Result<Channel<S, R>, Error> {
    let end = link::inherited(VARIABLE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::Start),
        _ => Error::caused(ErrorKind::Start, error),
    })?;
    Channel::connected_as_worker(end, options)
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
    let mut channel: Channel = channel(options)?;
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    loop {
        let asked = channel.recv().and_then(|message| message.read_into(&mut question));
        let answered = asked.and_then(|()| {
            answer.clear();
            handler(&question, &mut answer);
            channel.send_bytes(&answer)
        });
        match answered {
            Ok(()) => {}
            Err(error) if *error.kind() == ErrorKind::Closed => {
                return channel.close().map(drop);
            }
            Err(error) if error.is_disconnect() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
