//! Both sides of a transfer, set up and ready: threads, processes and workers that move blocks or messages. And the
//! measurement of a cell: a warm-up, then as many blocks as fit into its time.
//!
//! Both sides know the number of blocks in advance. The clock starts when both are ready, and stops when the reader
//! has the last byte.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use pipewright::{Child, ChildStderr, ChildStdin, PipeReader, Signal, Stdio};
use pipewright_ipc::{Channel, Options, SharedMemory};
use pipewright_os::host::test_pipe::{self, Conduit, TestPipeKind};
use pipewright_os::process::usage::{self, Spent};

use crate::child::{
    BytePattern, ChildTask, PacketSizes, channel_options, parse_usage_line, request,
};
use crate::host::{Processors, pin};
use crate::plan::{CellError, Sample};
use crate::stats::{Percentiles, ReadSizes};

/// Both sides of a transfer, set up and ready.
pub(crate) trait Rounds {
    /// Moves that many blocks.
    fn round(&mut self, blocks: u64) -> io::Result<Round>;
}

/// The measurement of one round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) elapsed: Duration,
    /// The reads by size; empty if they are not counted.
    pub(crate) reads: ReadSizes,
    /// The times of the single blocks, if each is timed.
    pub(crate) each: Option<Percentiles>,
    /// The CPU time and context switches of both sides; `None`: unknown.
    pub(crate) spent: Option<Spent>,
}

/// The clock of a round, which also counts the CPU time of this process.
#[derive(Debug)]
pub(crate) struct RoundClock {
    before: Option<Spent>,
    start: Instant,
}

impl RoundClock {
    pub(crate) fn start() -> RoundClock {
        // In this order, here and below: looking up the CPU time is a system call, which must not count.
        let before = usage::of_this_process().ok();
        RoundClock { before, start: Instant::now() }
    }

    /// Returns the round until now, without reads.
    pub(crate) fn stop(&self) -> Round {
        let elapsed = self.start.elapsed();
        let after = usage::of_this_process().ok();
        let spent = after.zip(self.before).map(|(after, before)| after - before);
        Round { elapsed, spent, ..Round::default() }
    }
}

/// Adds the CPU time and context switches of two processes.
fn add_usage(ours: Spent, theirs: Spent) -> Spent {
    let switches = ours.switches.zip(theirs.switches).map(|(ours, theirs)| ours + theirs);
    Spent { cpu: ours.cpu + theirs.cpu, switches }
}

impl<R: Rounds + ?Sized> Rounds for Box<R> {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        (**self).round(blocks)
    }
}

/// The warm-up takes this part of the time of a cell.
const WARM_UP_SHARE: u32 = 8;

/// Warms up, then measures for about that long, or exactly `count` blocks.
///
/// The value is in bytes per second, or in seconds if each block is timed: the median of these.
/// `rate` keeps the number of blocks per second for the next series.
pub(crate) fn timed(
    rounds: &mut dyn Rounds,
    block_bytes: u64,
    time: Duration,
    count: Option<u64>,
    rate: &mut Option<f64>,
) -> Result<Sample, CellError> {
    let warm_up = time / WARM_UP_SHARE;
    let mut blocks = match *rate {
        Some(rate) => fitting(rate, warm_up),
        None => 1,
    };
    let blocks = loop {
        let elapsed = rounds.round(blocks).map_err(failed)?.elapsed;
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let found = blocks as f64 / seconds;
        if elapsed >= warm_up / 2 || count.is_some_and(|count| blocks >= count) {
            *rate = Some(found);
            break count.unwrap_or_else(|| fitting(found, time));
        }
        // The first blocks are slow, so approach the number in steps.
        blocks = fitting(found, warm_up).clamp(blocks * 2, blocks * 64);
    };
    let round = rounds.round(blocks).map_err(failed)?;
    let bytes = blocks * block_bytes;
    let speed = bytes as f64 / round.elapsed.as_secs_f64().max(1e-9);
    Ok(Sample {
        value: round.each.map_or(speed, |each| each.p50),
        in_bare_starts: None,
        operations: blocks,
        bytes,
        reads: round.reads,
        each: round.each,
        spent: round.spent,
    })
}

/// Returns the number of blocks that fit into a time.
fn fitting(rate: f64, time: Duration) -> u64 {
    ((rate * time.as_secs_f64()) as u64).max(1)
}

/// Runs a measurement on a thread of its own, which takes its pinning with it when it ends.
pub(crate) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, CellError> + Send,
) -> Result<T, CellError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker
            .join()
            .unwrap_or_else(|_| Err(CellError::Skip("the measurement panicked".to_owned())))
    })
}

fn failed(error: io::Error) -> CellError {
    match error.kind() {
        io::ErrorKind::InvalidData => CellError::Corrupt(error.to_string()),
        _ => CellError::Skip(error.to_string()),
    }
}

/// One thread that writes a block and reads it back: `pipespeed2` of the article of 2001.
#[derive(Debug)]
pub(crate) struct OneThread {
    conduit: Conduit,
    block_bytes: usize,
    sent: BytePattern,
    buffer: Vec<u8>,
}

/// A thread that writes and one that reads: `pipespeed2t` of the article of 2001.
#[derive(Debug)]
pub(crate) struct TwoThreads {
    /// Reader and writer, lent to the two threads for a round. Closed if one of them fails, so that the other one
    /// fails too instead of waiting forever.
    ends: Option<(File, File)>,
    processors: Processors,
    block_bytes: usize,
    sent: BytePattern,
    reader: StreamReader,
}

impl OneThread {
    pub(crate) fn new(conduit: Conduit, block_bytes: usize, verify: bool) -> OneThread {
        OneThread {
            conduit,
            block_bytes,
            sent: BytePattern::new(block_bytes, verify),
            buffer: vec![1; block_bytes],
        }
    }
}

impl Rounds for OneThread {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let Conduit { reader, writer, .. } = &mut self.conduit;
        let clock = RoundClock::start();
        for block in 0..blocks {
            let place = block * self.block_bytes as u64;
            writer.write_all(self.sent.at(place, self.block_bytes))?;
            reader.read_exact(&mut self.buffer)?;
            self.sent.check(place, &self.buffer)?;
        }
        Ok(Round { reads: ReadSizes::of(blocks, self.block_bytes), ..clock.stop() })
    }
}

impl TwoThreads {
    pub(crate) fn new(
        conduit: Conduit,
        processors: Processors,
        block_bytes: usize,
        verify: bool,
    ) -> TwoThreads {
        TwoThreads {
            ends: Some((conduit.reader, conduit.writer)),
            processors,
            block_bytes,
            sent: BytePattern::new(block_bytes, verify),
            reader: StreamReader::new(block_bytes, verify),
        }
    }
}

impl Rounds for TwoThreads {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let (mut reader, writer) = self.ends.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let bytes = blocks * self.block_bytes as u64;
        let (sent, block_bytes, on) = (&self.sent, self.block_bytes, self.processors.writer);
        let ready = Barrier::new(2);
        let (taken, written) = thread::scope(|scope| {
            let write = || {
                let pinned = pin(on);
                ready.wait();
                pinned?;
                send(writer, sent, block_bytes, blocks)
            };
            let writing = thread::Builder::new().spawn_scoped(scope, write)?;
            ready.wait();
            let clock = RoundClock::start();
            let taken = self.reader.take(&mut reader, bytes);
            let taken = taken.map(|reads| (Round { reads, ..clock.stop() }, reader));
            let written = writing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            io::Result::Ok((taken, written))
        })?;
        // An error of the writer is the cause, and the end of the stream its consequence; except that a reader which
        // finds wrong bytes closes the stream itself.
        match (taken, written) {
            (Err(error), _) if error.kind() == io::ErrorKind::InvalidData => Err(error),
            (_, Err(error)) | (Err(error), Ok(_)) => Err(error),
            (Ok((round, reader)), Ok(writer)) => {
                self.ends = Some((reader, writer));
                Ok(round)
            }
        }
    }
}

/// Writes that many blocks, and returns the writer.
fn send(mut writer: File, sent: &BytePattern, block_bytes: usize, blocks: u64) -> io::Result<File> {
    for block in 0..blocks {
        writer.write_all(sent.at(block * block_bytes as u64, block_bytes))?;
    }
    Ok(writer)
}

/// Reads a stream, and checks what it reads.
#[derive(Debug)]
struct StreamReader {
    buffer: Vec<u8>,
    expected: BytePattern,
}

impl StreamReader {
    fn new(buffer_bytes: usize, verify: bool) -> StreamReader {
        StreamReader {
            buffer: vec![1; buffer_bytes],
            expected: BytePattern::new(buffer_bytes, verify),
        }
    }

    /// Reads that many bytes, and counts the reads.
    fn take(&mut self, source: &mut impl Read, bytes: u64) -> io::Result<ReadSizes> {
        let (mut place, mut reads) = (0, ReadSizes::default());
        while place < bytes {
            let count = source.read(&mut self.buffer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.expected.check(place, &self.buffer[..count])?;
            place += count as u64;
            reads.add(1, count);
        }
        if place == bytes { Ok(reads) } else { Err(too_many()) }
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "more bytes were read than written")
}

// Two processes: a child writes, this process reads; through a given conduit, or through a pipe of the library.

/// A child that writes on request.
#[derive(Debug)]
pub(crate) struct TwoProcesses {
    source: PayloadSource,
    control: ChildStdin,
    answers: BufReader<ChildStderr>,
    reader: StreamReader,
    block_bytes: usize,
    _child: EndedOnDrop,
}

/// A child that is killed and waited for on drop. Otherwise a thread of the library would wait for it, during the next
/// measurement.
#[derive(Debug)]
struct EndedOnDrop(Child);

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        // Ignored: it has exited.
        let _ = self.0.signal(Signal::KILL);
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
enum PayloadSource {
    Conduit(File),
    Library(PipeReader),
}

impl Read for PayloadSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            PayloadSource::Conduit(file) => file.read(buffer),
            PayloadSource::Library(pipe) => pipe.read(buffer),
        }
    }
}

/// The buffer size for a pipe of the library: what most programs read with.
const LIBRARY_READ_BYTES: usize = 64 << 10;

impl TwoProcesses {
    /// Starts the child. It writes to `conduit`, or for `None` to a pipe of the library.
    pub(crate) fn start(
        conduit: Option<Conduit>,
        processors: Processors,
        block_bytes: usize,
        verify: bool,
    ) -> io::Result<TwoProcesses> {
        let task = ChildTask::Write { block_bytes, processor: processors.writer, verify };
        let mut command = task.command()?;
        // In its own process group Ctrl-C does not reach it: it exits at the end of its input.
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).own_group();
        let reader = match conduit {
            Some(Conduit { reader, writer, .. }) => {
                command.stdout(writer);
                Some(reader)
            }
            None => {
                command.stdout(Stdio::piped());
                None
            }
        };
        let mut child = command.spawn().map_err(io::Error::other)?;
        // It still holds the writing end. If the child dies, the stream has to end.
        drop(command);
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let control = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stderr.take().ok_or_else(missing)?);
        let (source, read_bytes) = match reader {
            Some(reader) => (PayloadSource::Conduit(reader), block_bytes),
            None => {
                let pipe = child.stdout.take().ok_or_else(missing)?;
                (PayloadSource::Library(pipe), block_bytes.max(LIBRARY_READ_BYTES))
            }
        };
        let reader = StreamReader::new(read_bytes, verify);
        Ok(TwoProcesses {
            source,
            control,
            answers,
            reader,
            block_bytes,
            _child: EndedOnDrop(child),
        })
    }

    /// Reads the CPU time that the child reports.
    fn answer(&mut self) -> io::Result<Spent> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        parse_usage_line(&line).ok_or_else(|| {
            let words = line.trim();
            // Its own message, if it failed.
            io::Error::other(if words.is_empty() { "the child has exited" } else { words })
        })
    }
}

impl Rounds for TwoProcesses {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        let bytes = blocks * self.block_bytes as u64;
        let request = format!("{blocks}\n");
        let clock = RoundClock::start();
        self.control.write_all(request.as_bytes())?;
        let taken = self.reader.take(&mut self.source, bytes);
        let round = clock.stop();
        let reads = match taken {
            // The child's message has the reason.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.answer().err().unwrap_or(error));
            }
            taken => taken?,
        };
        let child = self.answer()?;
        Ok(Round { reads, spent: round.spent.map(|ours| add_usage(ours, child)), ..round })
    }
}

// Round trips: a block is sent and comes back, and each trip is timed.

/// A connection to a process that sends back what it receives.
pub(crate) trait Echo {
    /// Sends a block, and waits until all of it has come back.
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()>;
}

/// Round trips of blocks of one size, one after the other.
#[derive(Debug)]
pub(crate) struct RoundTrips<E> {
    echo: E,
    sent: BytePattern,
    block_bytes: usize,
    back: Vec<u8>,
}

impl<E: Echo> RoundTrips<E> {
    pub(crate) fn new(echo: E, block_bytes: usize) -> RoundTrips<E> {
        let sent = BytePattern::new(block_bytes, true);
        RoundTrips { echo, sent, block_bytes, back: vec![1; block_bytes] }
    }
}

impl<E: Echo> Rounds for RoundTrips<E> {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        // For more trips the vector grows, which makes a few of them a little slower.
        const MOST_FORESEEN: u64 = 1 << 20;
        let mut times = Vec::with_capacity(blocks.min(MOST_FORESEEN) as usize);
        let clock = RoundClock::start();
        for number in 0..blocks {
            let block = self.sent.at(number, self.block_bytes);
            let begin = Instant::now();
            self.echo.trip(block, &mut self.back)?;
            times.push(begin.elapsed().as_secs_f64());
            if self.back.len() != self.block_bytes {
                let words = "the reply has another length than the request";
                return Err(io::Error::new(io::ErrorKind::InvalidData, words));
            }
        }
        let round = clock.stop();
        // Only the last one, after the clock has stopped.
        self.sent.check(blocks.saturating_sub(1), &self.back)?;
        Ok(Round { each: Percentiles::of(times), ..round })
    }
}

/// A child that copies its stdin to its stdout.
#[derive(Debug)]
pub(crate) struct StreamEcho {
    to: File,
    from: File,
    _child: EndedOnDrop,
}

impl StreamEcho {
    /// Starts the child with two conduits of that kind, or with one socket, which works both ways.
    pub(crate) fn start(
        kind: TestPipeKind,
        processors: Processors,
        block_bytes: usize,
    ) -> io::Result<StreamEcho> {
        let task = ChildTask::Echo { block_bytes, processor: processors.writer };
        let mut command = task.command()?;
        // In its own process group Ctrl-C does not reach it: it exits at the end of its input.
        command.own_group();
        let first = test_pipe::open(kind, None)?;
        let (to, from) = if kind == TestPipeKind::Socket {
            command.stdin(first.writer.try_clone()?).stdout(first.writer);
            (first.reader.try_clone()?, first.reader)
        } else {
            let second = test_pipe::open(kind, None)?;
            command.stdin(first.reader).stdout(second.writer);
            (first.writer, second.reader)
        };
        let child = command.spawn().map_err(io::Error::other)?;
        Ok(StreamEcho { to, from, _child: EndedOnDrop(child) })
    }
}

impl Echo for StreamEcho {
    fn trip(&mut self, block: &[u8], back: &mut Vec<u8>) -> io::Result<()> {
        self.to.write_all(block)?;
        self.from.read_exact(back)
    }
}

// Messages through a channel: this process is the host, and starts itself as the worker.

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
        let clock = RoundClock::start();
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
        let round = clock.stop();
        let answer = self.channel.recv().and_then(|message| message.bytes());
        let answer = answer.map_err(io::Error::other)?;
        let theirs = parse_usage_line(&String::from_utf8_lossy(&answer));
        let spent = round.spent.zip(theirs).map(|(ours, theirs)| add_usage(ours, theirs));
        Ok(Round { reads, spent, ..round })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A million blocks a second, after a slow start.
    struct Steady(Vec<u64>);

    impl Rounds for Steady {
        fn round(&mut self, blocks: u64) -> io::Result<Round> {
            self.0.push(blocks);
            let late = if self.0.len() == 1 { Duration::from_micros(100) } else { Duration::ZERO };
            let elapsed = Duration::from_micros(blocks) + late;
            Ok(Round { elapsed, ..Round::default() })
        }
    }

    #[test]
    fn a_cell_fills_its_time_however_long_a_block_takes() {
        let (mut rate, mut rounds) = (None, Steady(Vec::new()));
        let time = Duration::from_millis(80);
        let sample = timed(&mut rounds, 10, time, None, &mut rate);
        let Ok(sample) = sample else { panic!("{sample:?}") };
        assert!((70_000..90_000).contains(&sample.operations), "{sample:?}");
        assert_eq!(sample.bytes, sample.operations * 10);
        assert!((sample.value / 1e7 - 1.0).abs() < 0.01, "{sample:?}");
        // The second time the rate is known: one round to warm up, one to measure.
        let mut again = Steady(vec![0]);
        timed(&mut again, 10, time, None, &mut rate).map_err(|_| ()).unwrap();
        assert_eq!(again.0.len(), 3, "{:?}", again.0);
    }

    #[test]
    fn a_given_number_of_blocks_is_measured() {
        for count in [1, 3, 500_000] {
            let mut rounds = Steady(Vec::new());
            let sample = timed(&mut rounds, 1, Duration::from_millis(8), Some(count), &mut None);
            assert_eq!(sample.map(|it| it.operations).ok(), Some(count));
            assert_eq!(rounds.0.last(), Some(&count));
        }
    }
}
