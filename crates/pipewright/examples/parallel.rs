//! Run many programs at once, one per thread: starts take no lock, and no child inherits another's pipes.
//!
//! `cargo run --example parallel`

use std::error::Error;
use std::thread;

use pipewright::Command;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let run = |number| Command::new("echo").arg(format!("run {number}")).capture();
    let runs: Vec<_> = (0..8).map(|number| thread::spawn(move || run(number))).collect();
    for (number, run) in runs.into_iter().enumerate() {
        let capture = run.join().map_err(|_| "a thread panicked")??;
        assert_eq!(capture.stdout, format!("run {number}\n"));
        print!("{}", capture.stdout);
    }
    Ok(())
}
