//! Messages through a channel: this process is the host, and starts itself as the worker.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::time::Instant;

use pipewright_ipc::{Channel, Options, SharedMemory};
use pipewright_os::process::usage;

use super::round_trip::Echo;
use crate::child::{ChildTask, PacketSizes, channel_options, parse_usage_line, request};
use crate::host::Processors;
use crate::pattern::BytePattern;
use crate::plan::CellError;
use crate::rounds::{Round, Rounds, add_usage};
use crate::stats::histogram::ReadSizes;

/// The way messages are sent and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageMethod {
    /// Through shared memory, copied out.
    Shared,
    /// Through shared memory, read in place.
    InPlace,
    /// Through shared memory, without spinning before sleeping.
    Sleeping,
    /// Through the socket.
    Inline,
}

/// Starts a worker with a task.
fn start(method: MessageMethod, task: &ChildTask) -> Result<Channel, CellError> {
    let mut command = task.command()?;
    // In its own process group Ctrl-C does not reach it: it exits when the channel is closed.
    command.own_group();
    let shared_memory =
        if method == MessageMethod::Inline { SharedMemory::Off } else { SharedMemory::Required };
    let options = Options { shared_memory, ..channel_options(method != MessageMethod::Sleeping) };
    Ok(Channel::start(&mut command, &options)?)
}

/// A worker that sends messages to this process.
pub(crate) struct OneWay {
    channel: Channel,
    method: MessageMethod,
    expected: BytePattern,
    packets: PacketSizes,
    buffer: Vec<u8>,
}

impl fmt::Debug for OneWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneWay").field("way", &self.method).finish_non_exhaustive()
    }
}

impl OneWay {
    pub(crate) fn start(
        method: MessageMethod,
        processors: Processors,
        packets: PacketSizes,
        verify: bool,
    ) -> Result<OneWay, CellError> {
        let channel =
            start(method, &ChildTask::IpcSend { packets, processor: processors.writer, verify })?;
        let longest = packets.longest();
        let expected = BytePattern::new(longest, verify);
        Ok(OneWay { channel, method, expected, packets, buffer: vec![1; longest] })
    }

    /// Receives the next message, and returns its length.
    fn take(&mut self, place: u64) -> io::Result<usize> {
        let message = self.channel.recv().map_err(io::Error::other)?;
        let length = message.len();
        if self.method == MessageMethod::InPlace {
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

/// Reads every byte, as a program that uses the message does.
fn sum_of(bytes: &[u8]) -> u64 {
    let number = |word: &[u8]| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(number(word)))
}

impl Rounds for OneWay {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let before = usage::of_this_process().ok();
        let start = Instant::now();
        self.channel.send_bytes(&request(blocks)).map_err(io::Error::other)?;
        let (mut place, mut reads) = (0, ReadSizes::default());
        for block in 0..blocks {
            let length = self.take(place)?;
            if length != self.packets.length(block) {
                let words = format!("message {block} has the wrong length");
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
            place += length as u64;
            reads.add(1, length);
        }
        let elapsed = start.elapsed();
        let after = usage::of_this_process().ok();
        let answer = self.channel.recv().and_then(|message| message.bytes());
        let answer = answer.map_err(io::Error::other)?;
        let theirs = parse_usage_line(&String::from_utf8_lossy(&answer));
        let ours = after.zip(before).map(|(after, before)| after - before);
        let spent = ours.zip(theirs).map(|(ours, theirs)| add_usage(ours, theirs));
        Ok(Round { elapsed, reads, each: None, spent })
    }
}

/// A worker that sends back each message.
pub(crate) struct ChannelEcho(Channel);

impl ChannelEcho {
    pub(crate) fn start(
        method: MessageMethod,
        processors: Processors,
    ) -> Result<ChannelEcho, CellError> {
        let spins = method != MessageMethod::Sleeping;
        start(method, &ChildTask::IpcEcho { processor: processors.writer, spins }).map(ChannelEcho)
    }
}

impl Echo for ChannelEcho {
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()> {
        self.0.send_bytes(block).map_err(io::Error::other)?;
        let message = self.0.recv().map_err(io::Error::other)?;
        message.read_into(back).map_err(io::Error::other)
    }
}
