//! A cell of another library: the same messages, the same checks, the same processors.

mod iceoryx;
mod servo;

use std::time::Instant;

use pipewright::{Child, Command};
use pipewright_bench::stats::median;

use crate::Result;
use crate::cell::{check, pin, stamp, sum_of};

/// One side of a connection.
trait Endpoint {
    fn send(&mut self, body: &[u8]) -> Result<()>;
    /// Receives the next message and passes it to the function, in the library's own memory.
    fn receive(&mut self, with_message: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// The arguments of a cell: `LIBRARY MODE VARIANT SIZE COUNT`.
struct CellArgs<'a> {
    library: &'a str,
    mode: &'a str,
    variant: &'a str,
    size: usize,
    count: u64,
}

impl CellArgs<'_> {
    fn parse(arguments: &[String]) -> Result<CellArgs<'_>> {
        let [library, mode, variant, size, count] = arguments else {
            return Err("usage: LIBRARY MODE VARIANT SIZE COUNT".into());
        };
        Ok(CellArgs { library, mode, variant, size: size.parse()?, count: count.parse()? })
    }

    fn warm_up(&self) -> u64 {
        self.count / 20
    }
}

/// Runs the cell, and prints nanoseconds.
pub(crate) fn host(arguments: &[String]) -> Result<()> {
    let cell = CellArgs::parse(arguments)?;
    pin(0)?;
    let start = |name: &str| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["peer-worker", name]).args(arguments).kill_on_drop();
        Ok(command.spawn()?)
    };
    let (mut side, worker): (Box<dyn Endpoint>, Child) = match cell.library {
        "iceoryx2" => iceoryx::host(cell.size, start)?,
        "ipc-channel" => servo::bytes_host(start)?,
        "ipc-channel-memory" => servo::memory_host(start)?,
        other => return Err(format!("unknown library {other}").into()),
    };
    let mut body = vec![7; cell.size];
    let mut samples = Vec::new();
    for number in 0..cell.count {
        let start = Instant::now();
        stamp(&mut body, number);
        side.send(&body)?;
        if cell.mode == "round" {
            side.receive(&mut |received| check(received, number, cell.size))?;
            samples.push(start.elapsed().as_nanos() as f64);
        }
    }
    if cell.mode == "round" {
        let measured = samples.get(cell.warm_up() as usize..).unwrap_or_default();
        println!("{:.1}", median(measured).ok_or("nothing was measured")?);
    }
    // In the other modes the worker prints the time.
    match worker.wait()?.success() {
        true => Ok(()),
        false => Err("the worker failed".into()),
    }
}

/// Runs the worker of a cell.
pub(crate) fn worker(arguments: &[String]) -> Result<()> {
    let [name, arguments @ ..] = arguments else { return Err("usage: NAME CELL...".into()) };
    let cell = CellArgs::parse(arguments)?;
    pin(1)?;
    let mut side: Box<dyn Endpoint> = match cell.library {
        "iceoryx2" => iceoryx::worker(name, cell.size)?,
        "ipc-channel" => servo::bytes_worker(name)?,
        _ => servo::memory_worker(name)?,
    };
    let mut own = Vec::with_capacity(cell.size);
    if cell.mode == "round" {
        for _ in 0..cell.count {
            side.receive(&mut |received| {
                own.clear();
                own.extend_from_slice(received);
                Ok(())
            })?;
            side.send(&own)?;
        }
        return Ok(());
    }
    let mut start = Instant::now();
    let mut sum = 0_u64;
    for number in 0..cell.count {
        if number == cell.warm_up() {
            start = Instant::now();
        }
        side.receive(&mut |received| match (cell.mode, cell.variant) {
            ("sum", _) => {
                sum = sum.wrapping_add(sum_of(received));
                Ok(())
            }
            (_, "copied") => {
                own.clear();
                own.extend_from_slice(received);
                check(&own, number, cell.size)
            }
            _ => check(received, number, cell.size),
        })?;
    }
    if cell.mode == "sum" && sum == 0 {
        return Err("nothing was read".into());
    }
    println!("{:.1}", start.elapsed().as_nanos() as f64 / (cell.count - cell.warm_up()) as f64);
    Ok(())
}
