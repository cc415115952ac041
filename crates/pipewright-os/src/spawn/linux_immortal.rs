//! A thread that never ends, to start children that are killed when their parent does.
//!
//! The kernel sends the parent-death signal when the *thread* that made the child ends
//! (prctl(2)): a child started from a worker thread would die with it, in the middle of a healthy
//! program (It4innovations/hyperqueue#823, nekename/OpenDeck#329). What a child inherits of the
//! thread that starts it (affinity, scheduling, per-thread namespaces) it has from this one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::helper;

type Work = Box<dyn FnOnce() + Send + 'static>;

static SPAWNER: Mutex<Option<Spawner>> = Mutex::new(None);

struct Spawner {
    /// Whose thread it is: after a fork the child has this value and not the thread.
    process: u32,
    requests: SyncSender<Work>,
}

/// Runs `work` on the immortal thread and waits for its answer.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let (answer, answered) = sync_channel(1);
    let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        // Ignored: the receiver waits below until this has been sent or dropped.
        let _ = answer.send(work());
    });
    // SAFETY: only the lifetime changes. This function does not return before the closure has run
    // or been dropped: `recv` ends when the closure's sender has sent or is gone.
    let boxed: Work = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Work>(boxed) };
    sender()?.send(boxed).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())
}

fn sender() -> io::Result<SyncSender<Work>> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some(spawner) = spawner.as_ref().filter(|spawner| spawner.process == process) {
        return Ok(spawner.requests.clone());
    }
    let (sender, requests) = sync_channel::<Work>(0);
    helper::start("pipewright-spawn", move || {
        // The static keeps a sender for ever, so this loop has no end.
        while let Ok(work) = requests.recv() {
            // A panic would end the thread, and with it every child that it ever started.
            // Ignored: the caller sees that no answer comes.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    })?;
    *spawner = Some(Spawner { process, requests: sender.clone() });
    Ok(sender)
}

fn gone() -> io::Error {
    io::Error::other("the thread that starts children is gone")
}
