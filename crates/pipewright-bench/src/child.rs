//! The child process: the running program again, started with a hidden argument and a task; and what both
//! sides of a transfer know.
//!
//! [`run_if_child`] looks for that argument before the program does anything else, so that such a child costs as
//! little as possible. The argument is not for people.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use pipewright::{Command, console_in, console_out};
use pipewright_ipc::{Channel, ErrorKind, Options, worker};
use pipewright_os::process::usage::{self, Spent};

use crate::Error;
use crate::host::pin;

/// The hidden argument.
const ARGUMENT: &str = "__bench-peer";

/// Does the task of a child process of a benchmark and returns its result; `None`: this process is not one.
///
/// Call it first in `main`, and exit if it returns a result. Benchmarks start the running program for processes
/// that write, read and answer.
///
/// # Errors
///
/// Wrong arguments, and a failed read or write.
#[must_use]
pub fn run_if_child() -> Option<Result<(), Error>> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    let words: Vec<OsString> = args.collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let task = ChildTask::parse(&words).ok_or(io::ErrorKind::InvalidInput.into());
    Some(task.and_then(run).map_err(Error::Child))
}

/// The task of a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChildTask {
    /// Exit.
    Exit,
    /// For each number read from stdin, write that many blocks to stdout, then the used CPU time to stderr.
    Write { block_bytes: usize, processor: Option<usize>, verify: bool },
    /// Print that many lines, with one write each or with one for all.
    Lines { count: usize, one_write: bool },
    /// Write that many bytes.
    Flood { bytes: u64 },
    /// Copy stdin to stdout, block by block.
    Echo { block_bytes: usize, processor: Option<usize> },
    /// For each request from a channel, send that many messages, then the used CPU time.
    IpcSend { packets: PacketSizes, processor: Option<usize>, verify: bool },
    /// Send back each message from a channel.
    IpcEcho { processor: Option<usize>, spins: bool },
}

impl ChildTask {
    /// Returns a command that does it.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(program()?);
        command.arg(ARGUMENT).args(self.words());
        Ok(command)
    }

    /// Returns a command of std that does it.
    pub(crate) fn bare_command(&self) -> io::Result<std::process::Command> {
        let mut command = std::process::Command::new(program()?);
        command.arg(ARGUMENT).args(self.words());
        Ok(command)
    }

    fn words(&self) -> Vec<String> {
        fn words(name: &str, values: &[&dyn ToString]) -> Vec<String> {
            let values = values.iter().map(|value| value.to_string());
            std::iter::once(name.to_owned()).chain(values).collect()
        }
        let on = |processor: &Option<usize>| processor.map_or("-".to_owned(), |it| it.to_string());
        match self {
            ChildTask::Exit => words("exit", &[]),
            ChildTask::Write { block_bytes, processor, verify } => {
                words("write", &[block_bytes, &on(processor), verify])
            }
            ChildTask::Lines { count, one_write } => words("lines", &[count, one_write]),
            ChildTask::Flood { bytes } => words("flood", &[bytes]),
            ChildTask::Echo { block_bytes, processor } => {
                words("echo", &[block_bytes, &on(processor)])
            }
            ChildTask::IpcSend { packets: PacketSizes { bytes, mixed }, processor, verify } => {
                words("ipc-send", &[bytes, mixed, &on(processor), verify])
            }
            ChildTask::IpcEcho { processor, spins } => words("ipc-echo", &[&on(processor), spins]),
        }
    }

    fn parse(words: &[&str]) -> Option<ChildTask> {
        fn on(word: &str) -> Option<Option<usize>> {
            if word == "-" { Some(None) } else { word.parse().ok().map(Some) }
        }
        Some(match words {
            ["exit"] => ChildTask::Exit,
            ["write", block, processor, verify] => ChildTask::Write {
                block_bytes: block.parse().ok()?,
                processor: on(processor)?,
                verify: verify.parse().ok()?,
            },
            ["lines", count, one_write] => {
                ChildTask::Lines { count: count.parse().ok()?, one_write: one_write.parse().ok()? }
            }
            ["flood", bytes] => ChildTask::Flood { bytes: bytes.parse().ok()? },
            ["echo", block, processor] => {
                ChildTask::Echo { block_bytes: block.parse().ok()?, processor: on(processor)? }
            }
            ["ipc-send", bytes, mixed, processor, verify] => ChildTask::IpcSend {
                packets: PacketSizes { bytes: bytes.parse().ok()?, mixed: mixed.parse().ok()? },
                processor: on(processor)?,
                verify: verify.parse().ok()?,
            },
            ["ipc-echo", processor, spins] => {
                ChildTask::IpcEcho { processor: on(processor)?, spins: spins.parse().ok()? }
            }
            _ => return None,
        })
    }
}

/// Returns the running program. Cached, so that looking it up is not part of a measured start.
fn program() -> io::Result<&'static PathBuf> {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    match PROGRAM.get() {
        Some(program) => Ok(program),
        None => {
            let found = std::env::current_exe()?;
            Ok(PROGRAM.get_or_init(|| found))
        }
    }
}

// The tasks, as the child does them.

fn run(task: ChildTask) -> io::Result<()> {
    // Not std's stdout, which buffers lines and copies.
    let mut out = File::from(console_out()?);
    match task {
        ChildTask::Exit => Ok(()),
        ChildTask::Write { block_bytes, processor, verify } => {
            pin(processor)?;
            write_blocks(&mut out, block_bytes, verify)
        }
        ChildTask::Lines { count, one_write } => print_lines(&mut out, count, one_write),
        ChildTask::Flood { bytes } => flood(&mut out, bytes),
        ChildTask::Echo { block_bytes, processor } => {
            pin(processor)?;
            echo(&mut File::from(console_in()?), &mut out, block_bytes)
        }
        ChildTask::IpcSend { packets, processor, verify } => {
            pin(processor)?;
            send_messages(packets, verify)
        }
        ChildTask::IpcEcho { processor, spins } => {
            pin(processor)?;
            echo_messages(spins)
        }
    }
}

fn write_blocks(out: &mut File, block_bytes: usize, verify: bool) -> io::Result<()> {
    let sent = BytePattern::new(block_bytes, verify);
    for line in io::stdin().lock().lines() {
        let blocks: u64 = line?.trim().parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        let before = usage::of_this_process()?;
        for block in 0..blocks {
            out.write_all(sent.at(block * block_bytes as u64, block_bytes))?;
        }
        let spent = usage::of_this_process()? - before;
        writeln!(io::stderr(), "{}", usage_line(spent))?;
    }
    Ok(())
}

fn print_lines(out: &mut File, count: usize, one_write: bool) -> io::Result<()> {
    // The same lines as in the comparisons with other libraries: 8.9 bytes on average.
    let lines = (0..count).map(|number| format!("line {number}\n"));
    if one_write {
        return out.write_all(lines.collect::<String>().as_bytes());
    }
    for line in lines {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn flood(out: &mut File, bytes: u64) -> io::Result<()> {
    const BLOCK_BYTES: usize = 64 << 10;
    let block = vec![b'x'; BLOCK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(BLOCK_BYTES as u64) as usize;
        out.write_all(&block[..count])?;
        left -= count as u64;
    }
    Ok(())
}

/// Sends back each block until the input ends.
pub(crate) fn echo(from: &mut File, to: &mut File, block_bytes: usize) -> io::Result<()> {
    let mut block = vec![1; block_bytes];
    loop {
        match from.read_exact(&mut block) {
            Ok(()) => to.write_all(&block)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

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
fn send_messages(packets: PacketSizes, verify: bool) -> io::Result<()> {
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
fn echo_messages(spins: bool) -> io::Result<()> {
    let mut channel: Channel =
        worker::channel(&channel_options(spins)).map_err(io::Error::other)?;
    let mut message = Vec::new();
    until_closed(|| {
        channel.recv()?.read_into(&mut message)?;
        channel.send_bytes(&message)
    })
}

/// Repeats a step until the host closes the channel.
fn until_closed(mut step: impl FnMut() -> Result<(), pipewright_ipc::Error>) -> io::Result<()> {
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

// What both sides know: the line with the CPU time, the lengths of messages, and the bytes of a stream.

/// Returns the CPU time and context switches of a child in a line.
fn usage_line(spent: Spent) -> String {
    let switches = spent.switches.map_or("-".to_owned(), |switches| switches.to_string());
    format!("{} {switches}", spent.cpu.as_nanos())
}

/// Parses that line.
pub(crate) fn parse_usage_line(line: &str) -> Option<Spent> {
    let (nanos, switches) = line.trim().split_once(' ')?;
    Some(Spent { cpu: Duration::from_nanos(nanos.parse().ok()?), switches: switches.parse().ok() })
}

/// Messages of one length, or of the lengths in a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketSizes {
    /// The length; for mixed lengths the average.
    pub(crate) bytes: usize,
    pub(crate) mixed: bool,
}

impl PacketSizes {
    /// Messages that all have one length.
    pub(crate) fn all_of(bytes: usize) -> PacketSizes {
        PacketSizes { bytes, mixed: false }
    }

    /// Returns the length of a message.
    pub(crate) fn length(self, number: u64) -> usize {
        if !self.mixed {
            return self.bytes;
        }
        // In hundredths of the average: 14 of 20 are small, one is large.
        let share = match number * 7 % 20 {
            0..14 => 23,
            14..19 => 173,
            _ => 813,
        };
        self.bytes * share / 100
    }

    /// Returns the length of the longest message.
    pub(crate) fn longest(self) -> usize {
        (0..20).map(|number| self.length(number)).max().unwrap_or(self.bytes)
    }
}

/// A prime, so that a lost or repeated block of any usual size is noticed.
const PERIOD: usize = 251;

/// The bytes of a stream, from any offset.
#[derive(Debug)]
pub(crate) struct BytePattern {
    bytes: Vec<u8>,
    /// The bytes depend on their offset. Writers then send from unaligned addresses.
    verify: bool,
}

impl BytePattern {
    /// Creates a pattern for blocks of at most that many bytes.
    pub(crate) fn new(block_bytes: usize, verify: bool) -> BytePattern {
        // Written now: memory that is first touched during the measurement costs page faults.
        let bytes = (0..block_bytes + PERIOD).map(|place| (place % PERIOD) as u8).collect();
        BytePattern { bytes, verify }
    }

    /// Returns the bytes to send at an offset of the stream.
    pub(crate) fn at(&self, place: u64, count: usize) -> &[u8] {
        let start = if self.verify { (place % PERIOD as u64) as usize } else { 0 };
        self.bytes.get(start..start + count).unwrap_or_default()
    }

    /// Checks the bytes received at an offset. Does nothing without a pattern.
    pub(crate) fn check(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.verify || self.at(place, bytes.len()) == bytes {
            return Ok(());
        }
        let differ = self.at(place, bytes.len()).iter().zip(bytes).position(|(a, b)| a != b);
        let at = place + differ.unwrap_or(0) as u64;
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("byte {at} differs from what was sent"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_parsed_from_its_own_command_line() {
        for task in [
            ChildTask::Exit,
            ChildTask::Write { block_bytes: 4096, processor: Some(3), verify: true },
            ChildTask::Write { block_bytes: 1, processor: None, verify: false },
            ChildTask::Lines { count: 1000, one_write: false },
            ChildTask::Flood { bytes: 1 << 40 },
            ChildTask::Echo { block_bytes: 64, processor: Some(0) },
            ChildTask::IpcSend { packets: PacketSizes::all_of(100), processor: None, verify: true },
            ChildTask::IpcEcho { processor: Some(1), spins: false },
        ] {
            let words = task.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(ChildTask::parse(&words), Some(task));
        }
        assert_eq!(ChildTask::parse(&["write", "x", "-", "true"]), None);
        assert_eq!(ChildTask::parse(&[]), None);
    }

    #[test]
    fn a_usage_line_is_parsed_as_it_was_written() {
        let spent = Spent { cpu: Duration::from_nanos(1500), switches: Some(7) };
        for spent in [spent, Spent { switches: None, ..spent }] {
            assert_eq!(parse_usage_line(&usage_line(spent)), Some(spent));
        }
        assert_eq!(parse_usage_line("1500 7\n"), Some(spent));
        assert_eq!(parse_usage_line("pipewright: no\n"), None);
        assert_eq!(parse_usage_line(""), None);
    }

    #[test]
    fn mixed_messages_have_the_stated_average_length() {
        let packets = PacketSizes { bytes: 86_784, mixed: true };
        let total: usize = (0..5000).map(|number| packets.length(number)).sum();
        assert!((total / 5000).abs_diff(86_784) < 100, "{total}");
        assert_eq!((total + 500_000) / 1_000_000, 434);
        assert!(packets.longest() > 8 * 86_784);
        assert_eq!(PacketSizes::all_of(7).longest(), 7);
    }

    #[test]
    fn sent_bytes_are_expected_at_any_split() {
        let sent = BytePattern::new(1000, true);
        let read = BytePattern::new(4096, true);
        let stream: Vec<u8> =
            (0..20).flat_map(|block| sent.at(block * 1000, 1000).to_vec()).collect();
        let mut place = 0;
        for count in [1, 2, 4096, 333, 4000, 1] {
            read.check(place, &stream[place as usize..][..count]).unwrap();
            place += count as u64;
        }
    }

    #[test]
    fn lost_repeated_and_changed_bytes_are_found() {
        let pattern = BytePattern::new(8192, true);
        for lost in [1_u64, 512, 4096, 65_536, 1 << 20] {
            assert!(pattern.check(0, pattern.at(lost, 4096)).is_err(), "{lost}");
        }
        let mut bytes = pattern.at(10_000, 100).to_vec();
        bytes[7] ^= 1;
        let error = pattern.check(10_000, &bytes).unwrap_err();
        assert_eq!(error.to_string(), "byte 10007 differs from what was sent");
        // Without a pattern nothing is checked.
        BytePattern::new(8192, false).check(0, &bytes).unwrap();
    }
}
