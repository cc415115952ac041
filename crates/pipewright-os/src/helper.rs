//! Threads of our own in somebody else's program.

use std::io;
use std::thread;

#[cfg(unix)]
use crate::signal::AllBlocked;

/// Stacks of threads that do little.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that takes no signal: a program that blocks one everywhere, to take it with
/// `sigwait`, must not be ended by it through a thread that it does not know of.
///
/// # Errors
/// No room for another thread.
pub fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A new thread has the signal mask of the one that starts it (pthread_create(3)).
    #[cfg(unix)]
    let _blocked = AllBlocked::new();
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
}
