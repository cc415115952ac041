//! Capture output as text or bytes, with a timeout and the facts about the end of the run.
//!
//! `cargo run --example capture`

use std::error::Error;
use std::time::Duration;

use pipewright::{Command, Outcome};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Both streams are read at the same time, so neither can fill up and block the child.
    let mut command = Command::new("sh");
    let capture = command.args(["-c", "echo to stdout; echo to stderr >&2; exit 3"]).capture()?;
    print!("stdout: {}stderr: {}", capture.stdout, capture.stderr);
    println!("exit code: {:?}, after {:?}", capture.status.code(), capture.elapsed);

    // A timeout is not an error: the output so far is in the result.
    let mut command = Command::new("sh");
    command.args(["-c", "echo half of it; sleep 60; echo never"]);
    let capture = command.timeout(Duration::from_millis(200)).capture()?;
    assert_eq!(capture.outcome, Outcome::TimedOut);
    println!("{}, after the output {:?}", capture.outcome, capture.stdout.trim_end());

    // Ended by a signal that another process sent: the status has the signal.
    let capture = Command::new("sh").args(["-c", "kill -9 $$"]).capture()?;
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::Signaled, None));
    println!("{}", capture.status);

    // Bytes instead of text.
    let output = Command::new("head").args(["-c", "4", "/dev/zero"]).output()?;
    println!("bytes: {:?}", output.stdout);

    // Only stdout as text, or an error with the reason.
    println!("read: {}", Command::new("echo").arg("hi").read()?);
    if let Err(error) = Command::new("ls").arg("/no/such/directory").read() {
        println!("error: {error}");
    }
    Ok(())
}
