//! Run a program and have what it says: as text, within a time, with everything about its end.
//!
//! `cargo run --example capture`

use std::error::Error;
use std::time::Duration;

use pipewright::{Command, Outcome};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Both streams, read together: neither can fill up and hold the other.
    let mut command = Command::new("sh");
    let capture = command.args(["-c", "echo to stdout; echo to stderr >&2; exit 3"]).capture()?;
    print!("stdout: {}stderr: {}", capture.stdout, capture.stderr);
    println!("exit code: {:?}, after {:?}", capture.status.code(), capture.elapsed);

    // A time that is up is no error: what was said until then is there.
    let mut command = Command::new("sh");
    command.args(["-c", "echo half of it; sleep 60; echo never"]);
    let capture = command.timeout(Duration::from_millis(200)).capture()?;
    assert_eq!(capture.outcome, Outcome::TimedOut);
    println!("{}: {:?} was said before", capture.outcome, capture.stdout.trim_end());

    // Ended by a signal of somebody else: the status tells which.
    let capture = Command::new("sh").args(["-c", "kill -9 $$"]).capture()?;
    assert_eq!((capture.outcome, capture.status.code()), (Outcome::Signaled, None));
    println!("{}", capture.status);

    // Bytes instead of text.
    let output = Command::new("head").args(["-c", "4", "/dev/zero"]).output()?;
    println!("bytes: {:?}", output.stdout);

    // Only the text, and an error that says why where there is none.
    println!("read: {}", Command::new("echo").arg("hi").read()?);
    if let Err(error) = Command::new("ls").arg("/no/such/directory").read() {
        println!("error: {error}");
    }
    Ok(())
}
