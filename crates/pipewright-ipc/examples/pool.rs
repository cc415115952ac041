//! Work for several processors, in a pool of workers: the hashes of buffers.
//!
//! `cargo run --release -p pipewright-ipc --example pool`

use std::env;
use std::error::Error;
use std::time::Instant;

use pipewright::Command;
use pipewright_ipc::{Options, Pool, PoolOptions, Request, worker};

const BUFFERS: u8 = 64;
const BUFFER_BYTES: usize = 4 << 20;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The pool starts this program once more for each worker.
    if worker::is_worker() {
        return work();
    }
    let start = Instant::now();
    let expected: Vec<u64> =
        (0..BUFFERS).map(|number| hash(&buffer(number, BUFFER_BYTES))).collect();
    println!("in this process: {:.3} s", start.elapsed().as_secs_f64());
    for workers in [1, 2, 4] {
        let start = Instant::now();
        let hashes = hash_all(Command::new(env::current_exe()?), workers, BUFFERS, BUFFER_BYTES)?;
        println!("{workers} worker(s): {:.3} s", start.elapsed().as_secs_f64());
        assert_eq!(hashes, expected);
    }
    Ok(())
}

/// Hashes this many buffers in the workers.
pub(crate) fn hash_all(
    command: Command,
    workers: usize,
    buffers: u8,
    bytes: usize,
) -> Result<Vec<u64>, Box<dyn Error>> {
    let options = PoolOptions {
        min_workers: workers,
        max_workers: workers,
        // The next buffer is there when the worker has finished one.
        calls_per_worker: 2,
        ..PoolOptions::default()
    };
    let pool = Pool::new(command, options)?;
    let mut calls = Vec::new();
    for number in 0..buffers {
        // Idempotent: a lost worker costs nothing but time.
        calls.push(pool.begin(Request::new(buffer(number, bytes)).idempotent())?);
    }
    let mut hashes = Vec::new();
    for call in calls {
        hashes.push(u64::from_le_bytes(call.wait()?[..].try_into()?));
    }
    pool.shut_down();
    Ok(hashes)
}

/// Runs the worker.
pub(crate) fn work() -> Result<(), Box<dyn Error>> {
    worker::serve(&Options::default(), |buffer, answer| {
        answer.extend_from_slice(&hash(buffer).to_le_bytes());
    })?;
    Ok(())
}

pub(crate) fn buffer(number: u8, bytes: usize) -> Vec<u8> {
    vec![number; bytes]
}

/// FNV-1a: one multiplication for each byte, each dependent on the one before.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
