//! Spawn a child and read its output: all of it at the end, or line by line as it arrives.
//!
//! `cargo run --example child`

use std::error::Error;
use std::io::Write;

use pipewright::{Command, Stdio};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A child with pipes: write to it, then read both of its streams to the end.
    let mut command = Command::new("sort");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    println!("started {}", child.id());
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(b"pear\napple\n")?;
    }
    let output = child.wait_with_output()?;
    print!("sorted:\n{}", String::from_utf8_lossy(&output.stdout));

    // Lines of both streams, in the order of arrival.
    let mut command = Command::new("sh");
    command.args(["-c", "echo one; echo two >&2; echo three"]);
    let mut lines = command.lines()?;
    for line in lines.by_ref() {
        let line = line?;
        println!("{}: {}", line.source, line.text);
    }
    println!("{}", lines.finish()?.status);

    // Read until the expected line, then kill the child by dropping it.
    let mut command = Command::new("sh");
    command.args(["-c", "echo starting; echo ready; sleep 60"]).kill_on_drop();
    let ready = command.lines()?.any(|line| line.is_ok_and(|line| line.text == "ready"));
    println!("ready: {ready}");
    Ok(())
}
