//! A cell of pipewright: a host on CPU 0 and a worker on CPU 1, which check every message.

use std::io::Read as _;
use std::time::{Duration, Instant};

use pipewright::Command;
use pipewright_bench::stats::median;
use pipewright_ipc::{Channel, Message, Options, SharedMemory, worker as ipc_worker};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Result;

/// The arguments of a cell: `MODE VARIANT SIZE COUNT`.
struct CellArgs {
    mode: String,
    variant: String,
    size: u64,
    count: u64,
}

impl CellArgs {
    fn parse(arguments: &[String]) -> Result<CellArgs> {
        let [mode, variant, size, count] = arguments else {
            return Err("usage: MODE VARIANT SIZE COUNT".into());
        };
        let cell = CellArgs {
            mode: mode.clone(),
            variant: variant.clone(),
            size: size.parse()?,
            count: count.parse()?,
        };
        Ok(cell)
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        match self.variant.as_str() {
            "inline" => options.shared_memory = SharedMemory::Off,
            "sleeping" => options.spin = Duration::ZERO,
            // A record has at most half of a ring's bytes. The long spin keeps one side awake while the other copies.
            "whole" | "steps" => {
                options.ring_bytes = 4 << 20;
                options.spin = Duration::from_millis(5);
            }
            // Room for a message that is being made and one that is being read.
            "loaned-wide" => options.ring_bytes = self.size as usize * 4,
            _ => {}
        }
        if let Some(ring) = std::env::var("IPC_RING").ok().and_then(|text| text.parse().ok()) {
            options.ring_bytes = ring;
        }
        options
    }

    /// Returns the length of a message. Most packets of a build are small, most bytes are in large ones.
    fn length(&self, number: u64) -> usize {
        let length = match (self.mode.as_str(), number * 7 % 20) {
            ("build", 0..14) => self.size * 23 / 100,
            ("build", 14..19) => self.size * 173 / 100,
            ("build", _) => self.size * 807 / 100,
            _ => self.size,
        };
        length as usize
    }

    fn warm_up(&self) -> u64 {
        self.count / 20
    }
}

pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

pub(crate) fn stamp(body: &mut [u8], number: u64) {
    let number = number.to_ne_bytes();
    if let Some(first) = body.first_chunk_mut() {
        *first = number;
    }
    if let Some(last) = body.last_chunk_mut() {
        *last = number;
    }
}

pub(crate) fn check(body: &[u8], number: u64, length: usize) -> Result<()> {
    let stamp = number.to_ne_bytes();
    let stamped = body.first_chunk() == Some(&stamp) && body.last_chunk() == Some(&stamp);
    let middle = |part: usize| body.get(length / 4 * part).is_some_and(|byte| *byte == 7);
    if body.len() != length || !stamped || (length > 64 && !(1..4).all(middle)) {
        return Err(format!("message {number} is wrong").into());
    }
    Ok(())
}

pub(crate) fn sum_of(bytes: &[u8]) -> u64 {
    let number = |word: &[u8]| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    bytes.chunks_exact(8).fold(0, |sum, word| sum.wrapping_add(number(word)))
}

/// Runs the cell, and prints nanoseconds.
pub(crate) fn host(arguments: &[String]) -> Result<()> {
    let cell = CellArgs::parse(arguments)?;
    pin(0)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").args(arguments);
    let mut channel: Channel = Channel::start(&mut command, &cell.options())?;
    let nanos = match cell.mode.as_str() {
        "round" => round_trips(&cell, &mut channel)?,
        _ => {
            send_all(&cell, &mut channel)?;
            String::from_utf8(channel.recv()?.bytes()?)?
        }
    };
    println!("{nanos}");
    if std::env::var_os("IPC_STATS").is_some() {
        eprintln!("{:#?}", channel.stats());
    }
    channel.close()?;
    Ok(())
}

fn send_all(cell: &CellArgs, channel: &mut Channel) -> Result<()> {
    let longest = (0..20).map(|number| cell.length(number)).max().unwrap_or(0);
    let mut buffer = vec![7; longest];
    for number in 0..cell.count {
        let length = cell.length(number);
        let body = buffer.get_mut(..length).unwrap_or_default();
        if cell.variant.starts_with("loaned") {
            let mut loan = channel.reserve(length)?;
            // Writes every byte once, as a program does that builds the message in place.
            loan.fill(7);
            stamp(&mut loan, number);
            loan.send()?;
            continue;
        }
        if cell.variant == "filled" {
            let mut at = 0;
            channel.send_filled(length, |piece| {
                piece.fill(7);
                let stamp = number.to_ne_bytes();
                if at == 0 {
                    piece[..stamp.len()].copy_from_slice(&stamp);
                }
                at += piece.len();
                if at == length {
                    let last = piece.len() - stamp.len();
                    piece[last..].copy_from_slice(&stamp);
                }
            })?;
            continue;
        }
        stamp(body, number);
        match cell.mode.as_str() {
            "batch" => channel.queue_bytes(body)?,
            _ => channel.send_bytes(body)?,
        }
        if cell.mode == "build" {
            stamp(body, 0x0707_0707_0707_0707);
        }
    }
    channel.flush()?;
    Ok(())
}

/// Sends the message. The variant `whole` copies all of it before it notifies the other side.
fn send(cell: &CellArgs, channel: &mut Channel, body: &[u8]) -> Result<()> {
    if cell.variant == "whole" {
        let mut loan = channel.reserve(body.len())?;
        loan.copy_from_slice(body);
        return Ok(loan.send()?);
    }
    Ok(channel.send_bytes(body)?)
}

/// Checks a message as [`check`] does, but in place: it copies only the checked bytes.
fn check_in_place(message: Message<'_>, number: u64, length: usize) -> Result<()> {
    let mut lease = message.lease();
    let stamp = number.to_ne_bytes();
    let (mut first, mut last) = ([0; 8], [0; 8]);
    lease.read_exact(&mut first)?;
    let mut is_right = lease.left() + first.len() == length;
    for part in 1..4 {
        let mut byte = [0];
        lease.skip(length / 4 * part - (length - lease.left()))?;
        lease.read_exact(&mut byte)?;
        is_right &= byte == [7];
    }
    lease.skip(lease.left() - last.len())?;
    lease.read_exact(&mut last)?;
    if !is_right || first != stamp || last != stamp {
        return Err(format!("message {number} is wrong").into());
    }
    Ok(())
}

fn round_trips(cell: &CellArgs, channel: &mut Channel) -> Result<String> {
    let mut buffer = vec![7; cell.length(0)];
    let mut received = Vec::new();
    let mut samples = Vec::new();
    for number in 0..cell.count {
        let start = Instant::now();
        stamp(&mut buffer, number);
        send(cell, channel, &buffer)?;
        let answer = channel.recv()?;
        if cell.variant == "seen" {
            check_in_place(answer, number, buffer.len())?;
        } else {
            answer.read_into(&mut received)?;
            check(&received, number, buffer.len())?;
        }
        samples.push(start.elapsed().as_nanos() as f64);
    }
    let measured = samples.get(cell.warm_up() as usize..).unwrap_or_default();
    let median = median(measured).ok_or("nothing was measured")?;
    Ok(format!("{median:.1}"))
}

/// Runs the worker of a cell.
pub(crate) fn worker(arguments: &[String]) -> Result<()> {
    let cell = CellArgs::parse(arguments)?;
    pin(1)?;
    let mut channel: Channel = ipc_worker::channel(&cell.options())?;
    let mut received = Vec::new();
    if cell.mode == "round" {
        for _ in 0..cell.count {
            channel.recv()?.read_into(&mut received)?;
            send(&cell, &mut channel, &received)?;
        }
    } else {
        let mut start = Instant::now();
        let mut sum = 0_u64;
        for number in 0..cell.count {
            if number == cell.warm_up() {
                start = Instant::now();
            }
            let message = channel.recv()?;
            if cell.variant == "peeked" {
                let mut first = [0; 8];
                message.lease().read_exact(&mut first)?;
                if u64::from_ne_bytes(first) != number {
                    return Err(format!("message {number} is wrong").into());
                }
                continue;
            }
            if cell.variant == "chunks" {
                sum = sum.wrapping_add(sum_of_chunks(message)?);
                continue;
            }
            if cell.variant == "folded" {
                let add = |sum: u64, block: &[u8]| sum.wrapping_add(sum_of(block));
                sum = message.lease().fold(sum, add)?;
                continue;
            }
            message.read_into(&mut received)?;
            check(&received, number, cell.length(number))?;
            if cell.mode == "sum" {
                sum = sum.wrapping_add(sum_of(&received));
            }
        }
        if cell.mode == "sum" && sum == 0 {
            return Err("nothing was read".into());
        }
        let nanos = start.elapsed().as_nanos() as f64 / (cell.count - cell.warm_up()) as f64;
        channel.send_bytes(format!("{nanos:.1}").as_bytes())?;
    }
    if std::env::var_os("IPC_STATS").is_some() {
        eprintln!("worker: {:#?}", channel.stats());
    }
    channel.close()?;
    Ok(())
}

fn sum_of_chunks(message: Message<'_>) -> Result<u64> {
    let mut sum = 0_u64;
    message.lease().for_each_chunk(|chunk| sum = sum.wrapping_add(sum_of(chunk)))?;
    Ok(sum)
}
