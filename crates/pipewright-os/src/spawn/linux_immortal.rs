//! A thread that never ends, to start children that are killed when their parent does.
//!
//! The kernel sends the parent-death signal when the *thread* that made the child ends
//! (prctl(2)): a child started from a worker thread would die with it, in the middle of a healthy
//! program (It4innovations/hyperqueue#823, nekename/OpenDeck#329).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

type Work = Box<dyn FnOnce() + Send + 'static>;

static SPAWNER: Mutex<Option<SyncSender<Work>>> = Mutex::new(None);

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
    if let Some(sender) = &*spawner {
        return Ok(sender.clone());
    }
    let (sender, requests) = sync_channel::<Work>(0);
    std::thread::Builder::new().name("pipewright-spawn".to_owned()).stack_size(256 << 10).spawn(
        move || {
            // The static keeps a sender for ever, so this loop has no end.
            while let Ok(work) = requests.recv() {
                // A panic would end the thread, and with it every child that it ever started.
                // Ignored: the caller sees that no answer comes.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        },
    )?;
    *spawner = Some(sender.clone());
    Ok(sender)
}

fn gone() -> io::Error {
    io::Error::other("the thread that starts children is gone")
}
