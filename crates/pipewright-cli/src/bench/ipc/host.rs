//! The host: our end of a channel to a worker, which is this very program.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use pipewright_ipc::{Channel, Options, SharedMemory};
use pipewright_os::process::usage;

use super::super::histogram::Reads;
use super::super::pattern::Pattern;
use super::super::peer::{Act, parse_spent};
use super::super::place::Place;
use super::super::plan::Failed;
use super::super::rounds::{Round, Rounds, both};
use super::super::trips::Echo;
use super::packets::Packets;
use super::worker;

/// How messages go, and how they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Way {
    /// Through shared memory; the receiver has its own copy.
    Shared,
    /// Through shared memory; the receiver reads them where they are.
    InPlace,
    /// Through shared memory; who waits sleeps at once.
    Sleeping,
    /// Through the socket.
    Inline,
}

/// What both sides want of the connection.
pub(super) fn options(spins: bool) -> Options {
    let options = Options::default();
    if spins { options } else { Options { spin: Duration::ZERO, ..options } }
}

/// A worker that does that.
fn start(way: Way, act: &Act) -> Result<Channel, Failed> {
    let mut command = act.command()?;
    // With a group of its own Ctrl-C does not reach it: it ends with the channel.
    command.own_group();
    let shared_memory = if way == Way::Inline { SharedMemory::Off } else { SharedMemory::Required };
    let options = Options { shared_memory, ..options(way != Way::Sleeping) };
    Ok(Channel::start(&mut command, &options)?)
}

/// A worker that sends, and we.
pub(in crate::bench) struct OneWay {
    channel: Channel,
    way: Way,
    expected: Pattern,
    packets: Packets,
    buffer: Vec<u8>,
}

impl fmt::Debug for OneWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneWay").field("way", &self.way).finish_non_exhaustive()
    }
}

impl OneWay {
    pub(in crate::bench) fn start(
        way: Way,
        place: Place,
        packets: Packets,
        verify: bool,
    ) -> Result<OneWay, Failed> {
        let channel = start(way, &Act::IpcSend { packets, processor: place.writer, verify })?;
        let longest = packets.longest();
        let expected = Pattern::new(longest, verify);
        Ok(OneWay { channel, way, expected, packets, buffer: vec![1; longest] })
    }

    /// Takes the next message, and gives its length.
    fn take(&mut self, place: u64) -> io::Result<usize> {
        let message = self.channel.recv().map_err(io::Error::other)?;
        let length = message.len();
        if self.way == Way::InPlace {
            let mut sum = 0_u64;
            let (mut at, expected, mut right) = (place, &self.expected, Ok(()));
            let shown = message.lease().for_each_chunk(|chunk| {
                sum = sum.wrapping_add(sum_of(chunk));
                if right.is_ok() {
                    right = expected.check(at, chunk);
                }
                at += chunk.len() as u64;
            });
            black_box(sum);
            shown.map_err(io::Error::other)?;
            right?;
        } else {
            message.read_into(&mut self.buffer).map_err(io::Error::other)?;
            self.expected.check(place, &self.buffer)?;
        }
        Ok(length)
    }
}

/// Every byte is read, as by somebody who does something with it.
fn sum_of(bytes: &[u8]) -> u64 {
    let number = |word: &[u8]| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(number(word)))
}

impl Rounds for OneWay {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        self.channel.send_bytes(&worker::order(blocks)).map_err(io::Error::other)?;
        let (mut place, mut reads) = (0, Reads::default());
        for block in 0..blocks {
            let length = self.take(place)?;
            if length != self.packets.length(block) {
                let words = format!("message {block} is not as long as it was");
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            place += length as u64;
            reads.add(1, length);
        }
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        let answer = self.channel.recv().and_then(|message| message.bytes());
        let answer = answer.map_err(io::Error::other)?;
        let theirs = parse_spent(&String::from_utf8_lossy(&answer));
        let ours = after.zip(before).map(|(after, before)| after - before);
        let spent = ours.zip(theirs).map(|(ours, theirs)| both(ours, theirs));
        Ok(Round { elapsed, reads, each: None, spent })
    }
}

/// A worker that sends back what it gets.
pub(in crate::bench) struct Channelled(Channel);

impl Channelled {
    pub(in crate::bench) fn start(way: Way, place: Place) -> Result<Channelled, Failed> {
        let spins = way != Way::Sleeping;
        start(way, &Act::IpcEcho { processor: place.writer, spins }).map(Channelled)
    }
}

impl Echo for Channelled {
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()> {
        self.0.send_bytes(block).map_err(io::Error::other)?;
        let message = self.0.recv().map_err(io::Error::other)?;
        message.read_into(back).map_err(io::Error::other)
    }
}
