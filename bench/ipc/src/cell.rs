//! One cell of pipewright's own: a host on CPU 0, a worker on CPU 1, and every message checked.

use std::io::Read as _;
use std::time::{Duration, Instant};

use pipewright::Command;
use pipewright_bench::stats::median;
use pipewright_ipc::{Channel, Message, Options, SharedMemory, worker as ipc_worker};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Result;

/// What a cell does: `MODE WAY SIZE COUNT`.
struct Cell {
    mode: String,
    way: String,
    size: u64,
    count: u64,
}

impl Cell {
    fn parse(arguments: &[String]) -> Result<Cell> {
        let [mode, way, size, count] = arguments else { return Err("MODE WAY SIZE COUNT".into()) };
        let cell = Cell {
            mode: mode.clone(),
            way: way.clone(),
            size: size.parse()?,
            count: count.parse()?,
        };
        Ok(cell)
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        match self.way.as_str() {
            "inline" => options.shared_memory = SharedMemory::Off,
            "sleeping" => options.spin = Duration::ZERO,
            // A record has room for half of a ring. Nobody shall fall asleep while the other one copies.
            "whole" | "steps" => {
                options.ring_bytes = 4 << 20;
                options.spin = Duration::from_millis(5);
            }
            _ => {}
        }
        if let Some(ring) = std::env::var("IPC_RING").ok().and_then(|text| text.parse().ok()) {
            options.ring_bytes = ring;
        }
        options
    }

    /// The packets of a build: most are small, most bytes are in large ones.
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
    let cell = Cell::parse(arguments)?;
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

fn send_all(cell: &Cell, channel: &mut Channel) -> Result<()> {
    let longest = (0..20).map(|number| cell.length(number)).max().unwrap_or(0);
    let mut buffer = vec![7; longest];
    for number in 0..cell.count {
        let length = cell.length(number);
        let body = buffer.get_mut(..length).unwrap_or_default();
        if cell.way == "loaned" {
            let mut loan = channel.reserve(length)?;
            // As somebody who makes the message there: every byte is written once.
            loan.fill(7);
            stamp(&mut loan, number);
            loan.send()?;
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

/// Copies the message, all of it before the other side hears of it if that is the way.
fn send(cell: &Cell, channel: &mut Channel, body: &[u8]) -> Result<()> {
    if cell.way == "whole" {
        let mut loan = channel.reserve(body.len())?;
        loan.copy_from_slice(body);
        return Ok(loan.send()?);
    }
    Ok(channel.send_bytes(body)?)
}

/// As [`check`], of a message that is not copied: what is not looked at stays where it is.
fn look(message: Message<'_>, number: u64, length: usize) -> Result<()> {
    let mut lease = message.lease();
    let stamp = number.to_ne_bytes();
    let (mut first, mut last) = ([0; 8], [0; 8]);
    lease.read_exact(&mut first)?;
    let mut right = lease.left() + first.len() == length;
    for part in 1..4 {
        let mut byte = [0];
        lease.skip(length / 4 * part - (length - lease.left()))?;
        lease.read_exact(&mut byte)?;
        right &= byte == [7];
    }
    lease.skip(lease.left() - last.len())?;
    lease.read_exact(&mut last)?;
    if !right || first != stamp || last != stamp {
        return Err(format!("message {number} is wrong").into());
    }
    Ok(())
}

fn round_trips(cell: &Cell, channel: &mut Channel) -> Result<String> {
    let mut buffer = vec![7; cell.length(0)];
    let mut came = Vec::new();
    let mut samples = Vec::new();
    for number in 0..cell.count {
        let start = Instant::now();
        stamp(&mut buffer, number);
        send(cell, channel, &buffer)?;
        let answer = channel.recv()?;
        if cell.way == "seen" {
            look(answer, number, buffer.len())?;
        } else {
            answer.read_into(&mut came)?;
            check(&came, number, buffer.len())?;
        }
        samples.push(start.elapsed().as_nanos() as f64);
    }
    let measured = samples.get(cell.warm_up() as usize..).unwrap_or_default();
    let median = median(measured).ok_or("nothing was measured")?;
    Ok(format!("{median:.1}"))
}

/// The other side of a cell.
pub(crate) fn worker(arguments: &[String]) -> Result<()> {
    let cell = Cell::parse(arguments)?;
    pin(1)?;
    let mut channel: Channel = ipc_worker::channel(&cell.options())?;
    let mut came = Vec::new();
    if cell.mode == "round" {
        for _ in 0..cell.count {
            channel.recv()?.read_into(&mut came)?;
            send(&cell, &mut channel, &came)?;
        }
    } else {
        let mut start = Instant::now();
        let mut sum = 0_u64;
        for number in 0..cell.count {
            if number == cell.warm_up() {
                start = Instant::now();
            }
            let message = channel.recv()?;
            if cell.way == "peeked" {
                let mut first = [0; 8];
                message.lease().read_exact(&mut first)?;
                if u64::from_ne_bytes(first) != number {
                    return Err(format!("message {number} is wrong").into());
                }
                continue;
            }
            if cell.way == "chunks" {
                sum = sum.wrapping_add(add_up(message)?);
                continue;
            }
            if cell.way == "folded" {
                let add = |sum: u64, block: &[u8]| sum.wrapping_add(sum_of(block));
                sum = message.lease().fold(sum, add)?;
                continue;
            }
            message.read_into(&mut came)?;
            check(&came, number, cell.length(number))?;
            if cell.mode == "sum" {
                sum = sum.wrapping_add(sum_of(&came));
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

fn add_up(message: Message<'_>) -> Result<u64> {
    let mut sum = 0_u64;
    message.lease().for_each_chunk(|chunk| sum = sum.wrapping_add(sum_of(chunk)))?;
    Ok(sum)
}
