//! Let a child inherit one more handle besides its stdio, and no other.
//!
//! `cargo run --example inherit`

use std::error::Error;
use std::fs::File;
use std::io::Read;

use pipewright::{Command, Handle, PipeOptions};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A pipe for the child to write to. An argument tells the child the number of its end.
    let (mut reader, writer) = pipewright::pipe(PipeOptions::default())?;
    let writer = Handle::from(writer);
    let mut command = Command::new("sh");
    command.args(["-c", "echo through the pipe >&\"$1\"", "sh"]).arg(writer.number().to_string());
    command.inherit(writer).run()?;
    // The command keeps its handles open, and the reader sees no end while a writer is open.
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    print!("{text}");

    // Under a chosen number.
    let mut command = Command::new("sh");
    command.args(["-c", "head -n 1 <&7"]).inherit_fd_as(File::open("/etc/passwd")?, 7);
    println!("{}", command.read()?);

    // The child has stdio and the listed handles. It inherits no other handle, however that was opened.
    let _unlisted = File::open("/etc/passwd")?;
    let mut command = Command::new("sh");
    let script = "for fd in $(seq 3 20); do if [ -e /proc/$$/fd/$fd ]; then echo $fd; fi; done";
    command.args(["-c", script]).inherit_fd_as(pipewright::null()?, 9);
    println!("besides stdio, the child has: {}", command.read()?);

    // A mistake in the list is an error that names the entry.
    let mut command = Command::new("true");
    command.inherit_fd_as(pipewright::null()?, 9).inherit_fd_as(pipewright::null()?, 9);
    if let Err(error) = command.run() {
        println!("{error}");
    }
    Ok(())
}
