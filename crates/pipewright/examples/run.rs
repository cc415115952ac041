//! Run a program without capturing anything: it uses our streams, and we learn how it ended.
//!
//! `cargo run --example run`

use std::error::Error;
use std::time::Duration;

use pipewright::{Command, Outcome};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // What it says goes where ours goes. A non-zero exit is a value.
    let status = Command::new("sh").args(["-c", "echo said by the child; exit 5"]).status()?;
    println!("it exited with {:?}", status.code());

    // The same, and a non-zero exit is an error.
    Command::new("true").run()?;

    // Not for longer than this; what is left of it then is killed, with all that it started.
    let mut command = Command::new("sleep");
    command.arg("60").timeout(Duration::from_millis(100)).kill_grace(Duration::from_millis(100));
    let status = command.status()?;
    println!("stopped: {status}");

    // Where the reason counts, and not only the status: the light handle tells it.
    let process = Command::new("sleep").arg("60").start()?;
    let end = process.wait_or_kill_on_timeout(Duration::from_millis(100))?;
    assert_eq!(end.outcome, Some(Outcome::TimedOut));
    println!("killed by us: {}", end.was_killed());
    Ok(())
}
