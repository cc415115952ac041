//! The worker: sends so many messages when it is told to, or sends back what it gets.

use std::io;

use pipewright_ipc::{Channel, Error, ErrorKind, Options, worker};
use pipewright_os::process::usage;

use super::super::pattern::Pattern;
use super::super::peer::show_spent;
use super::packets::Packets;

/// How many messages are wanted, in eight bytes.
pub(super) fn order(messages: u64) -> [u8; 8] {
    messages.to_le_bytes()
}

/// For each order that comes sends so many messages of that length, and then what that took.
pub(in crate::bench) fn send(packets: Packets, verify: bool) -> io::Result<()> {
    let sent = Pattern::new(packets.longest(), verify);
    let mut channel: Channel = worker::channel(&Options::default()).map_err(io::Error::other)?;
    until_the_end(|| {
        let order = channel.recv()?.bytes()?;
        let messages = order.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let before = usage::of_this_process()?;
        let mut place = 0;
        for message in 0..messages {
            let length = packets.length(message);
            channel.send_bytes(sent.at(place, length))?;
            place += length as u64;
        }
        let spent = usage::of_this_process()? - before;
        channel.send_bytes(show_spent(spent).as_bytes())
    })
}

/// Sends each message back.
pub(in crate::bench) fn echo(spins: bool) -> io::Result<()> {
    let mut channel: Channel = worker::channel(&super::options(spins)).map_err(io::Error::other)?;
    let mut message = Vec::new();
    until_the_end(|| {
        channel.recv()?.read_into(&mut message)?;
        channel.send_bytes(&message)
    })
}

/// The host ends it by going away.
fn until_the_end(mut step: impl FnMut() -> Result<(), Error>) -> io::Result<()> {
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
