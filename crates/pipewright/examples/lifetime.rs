//! How long a program lives: as long as we do, longer, as long as its handle, or nobody cares.
//!
//! `cargo run --example lifetime`

use std::error::Error;

use pipewright::{Command, ProcessHandle, Scope};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Not longer than we live, however we end.
    let helper = Command::new("sleep").arg("60").kill_on_parent_exit(Scope::Child).spawn()?;
    println!("{} ends when we do", helper.id());
    helper.kill()?;
    println!("or earlier: {}", helper.wait()?);

    // Not longer than its handle.
    let guarded = Command::new("sleep").arg("60").kill_on_drop().spawn()?;
    println!("{} ends here", guarded.id());
    drop(guarded);

    // Nobody cares: no handle, no zombie, stdio from and to nowhere.
    let pid = Command::new("true").start_and_forget()?;
    println!("{pid} was started");

    // Longer than we live: a session of its own, which Ctrl-C and the end of the terminal do not
    // reach. Whoever has its number can find it again.
    let pid = Command::new("sleep").arg("60").detached().start_and_forget()?;
    let found = ProcessHandle::open(pid)?;
    println!("{pid} would go on without us; killed: {}", found.kill()?);
    found.wait()?;
    Ok(())
}
