//! The worker of a channel: sends messages on request, or sends back each message.

use std::io;
use std::time::Duration;

use pipewright_ipc::{Channel, Error, ErrorKind, Options, worker};
use pipewright_os::process::usage;

use super::packets::PacketSizes;
use super::usage_line::usage_line;
use crate::pattern::BytePattern;

/// Returns the options of both sides of the connection.
pub(crate) fn channel_options(spins: bool) -> Options {
    let options = Options::default();
    if spins { options } else { Options { spin: Duration::ZERO, ..options } }
}

/// Returns a request for that many messages, in eight bytes.
pub(crate) fn request(messages: u64) -> [u8; 8] {
    messages.to_le_bytes()
}

/// For each request, sends that many messages, then the used CPU time.
pub(super) fn send(packets: PacketSizes, verify: bool) -> io::Result<()> {
    let sent = BytePattern::new(packets.longest(), verify);
    let mut channel: Channel = worker::channel(&Options::default()).map_err(io::Error::other)?;
    until_closed(|| {
        let request = channel.recv()?.bytes()?;
        let messages = request.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let before = usage::of_this_process()?;
        let mut place = 0;
        for message in 0..messages {
            let length = packets.length(message);
            channel.send_bytes(sent.at(place, length))?;
            place += length as u64;
        }
        let spent = usage::of_this_process()? - before;
        channel.send_bytes(usage_line(spent).as_bytes())
    })
}

/// Sends back each message.
pub(super) fn echo(spins: bool) -> io::Result<()> {
    let mut channel: Channel =
        worker::channel(&channel_options(spins)).map_err(io::Error::other)?;
    let mut message = Vec::new();
    until_closed(|| {
        channel.recv()?.read_into(&mut message)?;
        channel.send_bytes(&message)
    })
}

/// Repeats a step until the host closes the channel.
fn until_closed(mut step: impl FnMut() -> Result<(), Error>) -> io::Result<()> {
    loop {
        match step() {
            Ok(()) => {}
            Err(error) if *error.kind() == ErrorKind::Closed || error.is_disconnect() => {
                return Ok(());
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}
