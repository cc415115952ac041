//! A cell of a worker in another language: round trips over a channel, as in a cell of a worker in Rust.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pipewright::Command;
use pipewright_bench::stats::median;
use pipewright_ipc::{Channel, Options, SharedMemory};

use crate::Result;
use crate::cell::{check, pin, stamp};

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// The path of the compiled worker in C.
fn compiled() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("ipc-client-c"))
}

/// Compiles the worker in C.
pub(crate) fn build() -> Result<()> {
    let mut command = Command::new("cc");
    command.args(["-O2", "-I"]).arg(clients().join("c"));
    command.arg(clients().join("c/tests/worker.c")).arg("-o").arg(compiled()?);
    Ok(command.run()?)
}

/// Runs the cell `LANGUAGE SIZE COUNT`, and prints nanoseconds. `LANGUAGE-inline` goes without shared memory.
pub(crate) fn host(arguments: &[String]) -> Result<()> {
    let [variant, size, count] = arguments else { return Err("usage: LANGUAGE SIZE COUNT".into()) };
    let (size, count): (usize, u64) = (size.parse()?, count.parse()?);
    pin(0)?;
    let language = variant.strip_suffix("-inline");
    let mut options = Options::default();
    if language.is_some() {
        options.shared_memory = SharedMemory::Off;
    }
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]);
    match language.unwrap_or(variant) {
        "rust" => command.arg(std::env::current_exe()?).args(["pool-worker", "channel", "1", "1"]),
        "c" => command.arg(compiled()?).arg("echo"),
        "python" => {
            command.arg("python3").arg(clients().join("python/tests/worker.py")).arg("echo")
        }
        "node" => command.arg("node").arg(clients().join("node/tests/worker.mjs")).arg("echo"),
        other => return Err(format!("unknown language {other}").into()),
    };
    let mut channel: Channel = Channel::start(&mut command, &options)?;
    let (mut body, mut received, mut samples) = (vec![7; size], Vec::new(), Vec::new());
    for number in 0..count {
        let start = Instant::now();
        stamp(&mut body, number);
        channel.send_bytes(&body)?;
        channel.recv()?.read_into(&mut received)?;
        check(&received, number, size)?;
        samples.push(start.elapsed().as_nanos() as f64);
    }
    let measured = samples.get(count as usize / 20..).unwrap_or_default();
    println!("{:.1}", median(measured).ok_or("nothing was measured")?);
    if std::env::var_os("IPC_STATS").is_some() {
        eprintln!("{:#?}", channel.stats());
    }
    channel.close()?;
    Ok(())
}
