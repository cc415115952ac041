//! Wait for, signal and kill processes through a light handle, including processes started elsewhere.
//!
//! `cargo run --example process_handle`

use std::error::Error;
use std::time::Duration;

use pipewright::{CancelToken, Command, Outcome, ProcessHandle, Signal};

const SHORT: Duration = Duration::from_millis(50);

fn sleeper() -> Result<ProcessHandle, pipewright::Error> {
    ProcessHandle::start(Command::new("sleep").arg("60"))
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Wait for the end: a code, or a signal.
    let process = ProcessHandle::start(Command::new("sh").args(["-c", "exit 3"]))?;
    println!("{} ended: {:?}", process.pid(), process.wait()?.status);

    // Wait for a while, then ask the process to end.
    let process = sleeper()?;
    assert_eq!(process.try_wait_for(SHORT)?, None);
    println!("signalled: {}", process.signal(Signal::TERM)?);
    let end = process.wait()?;
    println!("ended by {:?}", end.status.and_then(|status| status.terminating_signal()));
    println!("signalled again: {}", process.signal(Signal::TERM)?);

    // Wait for a while, then kill the process. The outcome shows whether that was necessary.
    let end = sleeper()?.wait_or_kill_on_timeout(SHORT)?;
    assert_eq!(end.outcome, Some(Outcome::TimedOut));
    println!("killed by us: {}", end.was_killed());
    let quick = ProcessHandle::start(&mut Command::new("true"))?;
    println!(
        "killed by us: {}",
        quick.wait_or_kill_on_timeout(Duration::from_secs(60))?.was_killed()
    );

    // Wait until another thread cancels.
    let token = CancelToken::new();
    let process = sleeper()?;
    let end = std::thread::scope(|scope| {
        scope.spawn(|| token.cancel());
        process.wait_or_kill_on_cancel(&token)
    })?;
    println!("outcome: {:?}", end.outcome);

    // Any process, by its pid. From then on, a later process with the same pid is never mistaken
    // for it.
    let started = sleeper()?;
    let opened = ProcessHandle::open(started.pid())?;
    println!("running: {}, killed: {}", opened.try_wait()?.is_none(), opened.kill()?);
    println!("{:?}", started.wait()?.outcome);
    Ok(())
}
