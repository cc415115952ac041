//! Lifetimes of children: as long as this process, as long as the handle, forgotten, or detached.
//!
//! `cargo run --example lifetime`

use std::error::Error;

use pipewright::{Command, ProcessHandle, Scope};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Killed when this process ends, however it ends.
    let helper = Command::new("sleep").arg("60").kill_on_parent_exit(Scope::Child).spawn()?;
    println!("{} ends with this process", helper.id());
    helper.kill()?;
    println!("killed earlier: {}", helper.wait()?);

    // Killed when its handle is dropped.
    let guarded = Command::new("sleep").arg("60").kill_on_drop().spawn()?;
    println!("{} is killed on drop", guarded.id());
    drop(guarded);

    // Forgotten: no handle, no zombie, null stdio.
    let pid = Command::new("true").start_and_forget()?;
    println!("{pid} was started");

    // Outlives this process: it has its own session, which Ctrl-C and the end of the terminal do not
    // reach. Any program that knows the pid can open it.
    let pid = Command::new("sleep").arg("60").detached().start_and_forget()?;
    let found = ProcessHandle::open(pid)?;
    println!("{pid} would outlive this process; killed: {}", found.kill()?);
    found.wait()?;
    Ok(())
}
