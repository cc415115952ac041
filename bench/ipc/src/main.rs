//! The cost of messages between a host and a worker, in interleaved rounds of every peer, with ratios to a ring in C.
//!
//! `ipc [CASE...] [--rounds N] [--quick]` runs the cases. `ipc cell MODE VARIANT SIZE COUNT` runs one cell of
//! pipewright's channel, `ipc pool VARIANT SIZE COUNT` one of its pool, `ipc client LANGUAGE SIZE COUNT` one of a
//! worker in another language, and `ipc peer LIBRARY MODE VARIANT SIZE COUNT` one of another library (feature `peers`).

mod case;
mod cell;
mod client;
#[cfg(feature = "peers")]
mod peer;
mod pool;
mod rounds;

use std::error::Error;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ipc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first() {
        match first.as_str() {
            "cell" => return cell::host(rest),
            "worker" => return cell::worker(rest),
            "client" => return client::host(rest),
            "pool" => return pool::host(rest),
            "pool-worker" => return pool::worker(rest),
            #[cfg(feature = "peers")]
            "peer" => return peer::host(rest),
            #[cfg(feature = "peers")]
            "peer-worker" => return peer::worker(rest),
            _ => {}
        }
    }
    if cfg!(debug_assertions) {
        return Err("only release builds are measured: use cargo run --release -p ipc".into());
    }
    rounds::measure(&arguments)
}
