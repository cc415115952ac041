//! The traffic of a build: one host, four workers, 434 MB in 5,000 packets to them and 120 MB in 1,664 packets back,
//! through a socket and through shared memory.
//!
//! `cargo run --release -p pipewright-ipc --example build`

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use pipewright::Command;
use pipewright_ipc::{Channel, Direction, Options, SharedMemory, worker};

const WORKERS: usize = 4;

/// The number of packets of each direction, and their average length in bytes.
const THERE: (u64, usize) = (5_000, 87_062);
const BACK: (u64, usize) = (1_664, 73_175);

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The host starts this program once more for each worker.
    if worker::is_worker() {
        return work();
    }
    println!(
        "direction        lane          packets   MB      s   MB/s  system calls  shared frames"
    );
    for (name, shared_memory) in
        [("socket", SharedMemory::Off), ("shared memory", SharedMemory::Auto)]
    {
        let way = Options { shared_memory, ..Options::default() };
        for (direction, done) in ["host to workers", "workers to host"]
            .iter()
            .zip(build(&way, || Command::new(own_path()))?)
        {
            let (megabytes, seconds) = (done.bytes as f64 / 1e6, done.took.as_secs_f64());
            let rate = megabytes / seconds;
            println!(
                "{direction:<16} {name:<13} {:7} {megabytes:4.0} {seconds:6.3} {rate:6.0} {:13} {:14}",
                done.packets, done.system_calls, done.shared_frames
            );
        }
    }
    Ok(())
}

fn own_path() -> std::path::PathBuf {
    env::current_exe().unwrap_or_default()
}

/// The traffic of one direction.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    /// The host's system calls.
    pub(crate) system_calls: u64,
    /// The number of the host's frames that went through shared memory.
    pub(crate) shared_frames: u64,
}

impl Traffic {
    fn of(
        packets: u64,
        bytes: u64,
        took: Duration,
        ways: impl Iterator<Item = Direction>,
    ) -> Traffic {
        let (mut system_calls, mut shared_frames) = (0, 0);
        for way in ways {
            system_calls += way.system_calls;
            shared_frames += way.shared_frames;
        }
        Traffic { packets, bytes, took, system_calls, shared_frames }
    }
}

/// Starts the workers, sends their packets, and receives theirs.
pub(crate) fn build(
    options: &Options,
    command: impl Fn() -> Command,
) -> Result<[Traffic; 2], Box<dyn Error>> {
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(Channel::<(), ()>::start(&mut command(), options)?);
    }
    let mut packets = Packets::new();

    let start = Instant::now();
    for number in 0..THERE.0 {
        let channel = workers.get_mut(number as usize % WORKERS).ok_or("a worker")?;
        channel.send_bytes(packets.packet(number, THERE))?;
    }
    // Each worker reports the bytes that it received: only then have they arrived.
    let mut arrived = 0;
    for channel in &mut workers {
        channel.send_bytes(&[])?;
        let count = channel.recv()?.bytes()?;
        arrived += u64::from_le_bytes(count.as_slice().try_into()?);
    }
    let there = start.elapsed();
    let there = Traffic::of(THERE.0, arrived, there, workers.iter().map(|it| it.stats().sent));

    let start = Instant::now();
    let (mut received, mut bytes) = (Vec::new(), 0);
    for channel in &mut workers {
        channel.send_bytes(&[])?;
    }
    for number in 0..BACK.0 {
        let channel = workers.get_mut(number as usize % WORKERS).ok_or("a worker")?;
        channel.recv()?.read_into(&mut received)?;
        packets.check(number / WORKERS as u64, BACK, &received)?;
        bytes += received.len() as u64;
    }
    let took = start.elapsed();
    let back = Traffic::of(BACK.0, bytes, took, workers.iter().map(|it| it.stats().received));
    for channel in workers {
        channel.close()?;
    }
    Ok([there, back])
}

/// Runs the worker: receives packets up to an empty one, reports their bytes, and sends its own packets on request.
pub(crate) fn work() -> Result<(), Box<dyn Error>> {
    let mut channel: Channel = worker::channel(&Options::default())?;
    let (mut packet, mut bytes) = (Vec::new(), 0);
    let mut packets = Packets::new();
    loop {
        channel.recv()?.read_into(&mut packet)?;
        let Some(first) = packet.first_chunk() else { break };
        packets.check(u64::from_le_bytes(*first), THERE, &packet)?;
        bytes += packet.len() as u64;
    }
    channel.send_bytes(&bytes.to_le_bytes())?;
    channel.recv()?.read_into(&mut packet)?;
    for number in 0..BACK.0 / WORKERS as u64 {
        channel.send_bytes(packets.packet(number, BACK))?;
    }
    channel.close()?;
    Ok(())
}

/// Distinguishable packets: most are small, most bytes are in large ones.
struct Packets(Vec<u8>);

impl Packets {
    fn new() -> Packets {
        Packets((0..1 << 20).map(|at: u32| (at % 251) as u8).collect())
    }

    fn length(number: u64, average: usize) -> usize {
        match number * 7 % 20 {
            0..14 => average * 23 / 100,
            14..19 => average * 173 / 100,
            _ => average * 807 / 100,
        }
    }

    /// Returns the packet of this number, which starts with the number.
    fn packet(&mut self, number: u64, (_, average): (u64, usize)) -> &[u8] {
        self.0[..8].copy_from_slice(&number.to_le_bytes());
        &self.0[..Packets::length(number, average)]
    }

    fn check(&mut self, number: u64, kind: (u64, usize), packet: &[u8]) -> Result<(), String> {
        if packet == self.packet(number, kind) {
            return Ok(());
        }
        Err(format!("packet {number} has wrong contents"))
    }
}
