//! The end of a test that hangs, with everything that it has started.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

use super::super::pace;

/// Ends the process with a message if it is not dropped in time.
///
/// A failed assertion would not do: the thread of the test waits for a child.
pub(in super::super) struct Watchdog {
    sender: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the calling test for `seconds`, on a machine that is not slow.
    pub(in super::super) fn start(seconds: u64) -> Watchdog {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
        let limit = pace::millis(seconds * 1000);
        let thread = thread::spawn(move || {
            if receiver.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name} has taken {limit:?}, and is ended");
                std::process::abort();
            }
        });
        Watchdog { sender: Some(sender), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.sender.take());
        // Ignored: the thread does not panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
