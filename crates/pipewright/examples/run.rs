//! Run a program without capturing its output, and get its exit status.
//!
//! `cargo run --example run`

use std::error::Error;
use std::time::Duration;

use pipewright::{Command, Outcome};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // The child inherits stdio. A non-zero exit is not an error.
    let status = Command::new("sh").args(["-c", "echo output of the child; exit 5"]).status()?;
    println!("it exited with {:?}", status.code());

    // The same, but a non-zero exit is an error.
    Command::new("true").run()?;

    // With a timeout: the child and its descendants get SIGTERM, and SIGKILL after the grace.
    let mut command = Command::new("sleep");
    command.arg("60").timeout(Duration::from_millis(100)).kill_grace(Duration::from_millis(100));
    let status = command.status()?;
    println!("stopped: {status}");

    // To get the reason for the end and not only the status, use the light handle.
    let process = Command::new("sleep").arg("60").start()?;
    let end = process.wait_or_kill_on_timeout(Duration::from_millis(100))?;
    assert_eq!(end.outcome, Some(Outcome::TimedOut));
    println!("killed by us: {}", end.was_killed());
    Ok(())
}
