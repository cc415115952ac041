//! A cell of a pool: sequential calls, the same requests over a channel to the same worker, or the whole life of a
//! worker with one request.

use std::time::{Duration, Instant};

use pipewright::Command;
use pipewright_bench::stats::median;
use pipewright_ipc::{Channel, Options, Pool, PoolOptions, SharedMemory, worker as ipc_worker};

use crate::Result;
use crate::cell::{check, pin, stamp};

/// The arguments of a cell: `VARIANT SIZE COUNT`.
struct CellArgs<'a> {
    variant: &'a str,
    size: usize,
    count: u64,
}

impl CellArgs<'_> {
    fn parse(arguments: &[String]) -> Result<CellArgs<'_>> {
        let [variant, size, count] = arguments else {
            return Err("usage: VARIANT SIZE COUNT".into());
        };
        Ok(CellArgs { variant, size: size.parse()?, count: count.parse()? })
    }

    fn options(&self) -> Options {
        let spin = Options::default().spin;
        let spin = if self.variant.ends_with("sleeping") { Duration::ZERO } else { spin };
        let shared_memory = match self.variant.ends_with("inline") {
            true => SharedMemory::Off,
            false => SharedMemory::Auto,
        };
        let prefault = !self.variant.ends_with("lazy");
        Options { spin, shared_memory, prefault, ..Options::default() }
    }
}

/// Runs the cell, and prints nanoseconds.
pub(crate) fn host(arguments: &[String]) -> Result<()> {
    let cell = CellArgs::parse(arguments)?;
    pin(0)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("pool-worker").args(arguments);
    if cell.variant.starts_with("start") {
        return measure(&cell, &mut |number, body| {
            let mut channel: Channel = Channel::start(&mut command, &cell.options())?;
            channel.send_bytes(body)?;
            check(&channel.recv()?.bytes()?, number, body.len())?;
            channel.close()?;
            Ok(())
        });
    }
    if cell.variant.starts_with("channel") {
        let mut channel: Channel = Channel::start(&mut command, &cell.options())?;
        let mut received = Vec::new();
        return measure(&cell, &mut |number, body| {
            channel.send_bytes(body)?;
            channel.recv()?.read_into(&mut received)?;
            check(&received, number, body.len())
        });
    }
    let options = PoolOptions { channel: cell.options(), max_workers: 1, ..PoolOptions::default() };
    let pool = Pool::new(command, options)?;
    measure(&cell, &mut |number, body| {
        let reply = match cell.variant {
            "pool-begun" => pool.begin(&*body)?.wait()?,
            _ => pool.call(&*body)?,
        };
        check(&reply, number, body.len())
    })
}

fn measure(cell: &CellArgs<'_>, ask: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut body = vec![7; cell.size];
    let mut samples = Vec::new();
    for number in 0..cell.count {
        let start = Instant::now();
        stamp(&mut body, number);
        ask(number, &mut body)?;
        samples.push(start.elapsed().as_nanos() as f64);
    }
    let measured = samples.get(cell.count as usize / 20..).unwrap_or_default();
    println!("{:.1}", median(measured).ok_or("nothing was measured")?);
    Ok(())
}

/// Runs the worker of a cell.
pub(crate) fn worker(arguments: &[String]) -> Result<()> {
    let cell = CellArgs::parse(arguments)?;
    pin(1)?;
    let echo = |request: &[u8], reply: &mut Vec<u8>| reply.extend_from_slice(request);
    Ok(ipc_worker::serve(&cell.options(), echo)?)
}
