//! Programs that may have been started as workers: one that asks, `is-worker=WHOSE`, and one that starts workers of
//! itself and never asks, `forgets=KIND,DEPTH,FILE`.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::pin::pin;
use std::task::{Context, Waker};

use pipewright::Command;
use pipewright_ipc::{Channel, Error, Options, Pool, PoolOptions, Request, SharedMemory, worker};
use pipewright_tests::pace;

/// Prints if this process is a worker; with an argument, a child of that kind prints it.
pub(crate) fn is_worker(whose: &str) -> io::Result<()> {
    let answer = match whose {
        "" => format!("{}\n", worker::is_worker()),
        kind => child_is_worker(kind)?,
    };
    io::stdout().write_all(answer.as_bytes())
}

/// Returns the output of a child that was started in that way.
pub(crate) fn child_is_worker(kind: &str) -> io::Result<String> {
    let puppet = std::env::current_exe()?;
    match kind {
        "pipewright" => Ok(Command::new(puppet).arg("is-worker").read()? + "\n"),
        "std" => {
            let output = std::process::Command::new(puppet).arg("is-worker").output()?;
            String::from_utf8(output.stdout).map_err(io::Error::other)
        }
        other => Err(io::Error::other(format!("unknown kind of child: {other}"))),
    }
}

/// The depth at which no process starts another one, so that a failing run ends too.
const DEEPEST: u32 = 3;

/// Appends its depth to the file, and starts workers of its own.
pub(crate) fn forgets(value: &str) -> io::Result<()> {
    let mut parts = value.splitn(3, ',');
    let mut part = || parts.next().unwrap_or_default();
    let (kind, depth, file) = (part(), part(), part());
    let depth: u32 = depth.parse().map_err(io::Error::other)?;
    let mut list = OpenOptions::new().append(true).create(true).open(file)?;
    list.write_all(format!("{depth}\n").as_bytes())?;
    if depth >= DEEPEST {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(format!("forgets={kind},{},{file}", depth + 1));
    let options = Options { shared_memory: SharedMemory::Off, ..Options::default() };
    match kind {
        "pool" => pool(command, options)?,
        "channel" => drop(Channel::<(), ()>::start(&mut command, &options)?),
        "channel-async" => {
            let start = pin!(Channel::<(), ()>::start_async(&mut command, &options));
            // Polled once: the call has to fail before it waits.
            let _ = start.poll(&mut Context::from_waker(Waker::noop())).map_ok(drop)?;
        }
        other => return Err(io::Error::other(format!("unknown kind of host: {other}"))),
    }
    Ok(())
}

fn pool(command: Command, channel: Options) -> Result<(), Error> {
    let options = PoolOptions { max_workers: 1, start_attempts: 2, channel, ..Default::default() };
    let pool = Pool::new(command, options)?;
    pool.call(Request::new("x").timeout(pace::seconds(20))).map(drop)
}
