//! Reaps children that nobody waits for, drains streams that nobody reads, and runs tasks such as feeding a child, on
//! one thread.
//!
//! The thread starts with the first of these jobs and ends after a second without any. It waits for exactly the
//! processes that it was given: a `waitpid(-1)` would reap the children of other code.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::generation::PerProcess;
use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::service_thread;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;
use pipewright_os::process::child::ChildHandle;

/// A task for the thread. Its methods must not block.
pub(crate) trait BackgroundTask: Send {
    /// Returns the events to wait for next.
    fn slots(&mut self) -> [Slot<'static>; TASK_SLOTS];

    /// Handles the result of the wait. Returns false when the task is done.
    fn resume(&mut self, slots: &mut [Slot<'_>]) -> bool;
}

/// The number of slots of one task.
pub(crate) const TASK_SLOTS: usize = 2;

/// The time that the idle thread waits before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// The pause of the thread after a wait that failed.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// The size of the buffer that a drained stream is read into, again and again.
const SCRATCH_BYTES: usize = 64 << 10;

/// The queue of this process. A fork gets an empty one: it has neither the thread nor the children.
static INBOX: PerProcess<Mutex<ReaperQueue>> = PerProcess::new(Mutex::default);

/// True if the queue is not empty and no thread could be started for it.
static SWEEP: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct ReaperQueue {
    children: Vec<ChildHandle>,
    tasks: Vec<Box<dyn BackgroundTask>>,
    /// Wakes the thread; `None` if there is no thread.
    thread: Option<Arc<Wake>>,
}

/// Reaps the child when it ends.
pub(crate) fn reap(child: ChildHandle) {
    let mut queue = queue();
    queue.children.push(child);
    wake_or_start(&mut queue);
}

/// Reads a stream to its end and discards the bytes.
pub(crate) fn drain(pipe: PipeReader) {
    let mut queue = queue();
    // Pushed even without a thread: the stream then stays open until there is one.
    queue.tasks.push(Box::new(DrainedStream(Some((pipe, Vec::with_capacity(SCRATCH_BYTES))))));
    wake_or_start(&mut queue);
}

/// Runs a task on the thread. The task is created only if there is a thread to run it.
///
/// The task is a trait object, so that only programs with such tasks contain their code.
pub(crate) fn run(task: impl FnOnce() -> Box<dyn BackgroundTask>) {
    let mut queue = queue();
    // Not too late: the thread needs the lock to look at the queue.
    if wake_or_start(&mut queue) {
        queue.tasks.push(task());
    }
}

/// Wakes the thread, so that it polls its tasks.
pub(crate) fn wake() {
    wake_or_start(&mut queue());
}

fn queue() -> MutexGuard<'static, ReaperQueue> {
    // The vectors are consistent between calls, so a panic elsewhere cannot have broken them.
    INBOX.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the thread, or starts it. Returns false if there is no thread.
fn wake_or_start(queue: &mut ReaperQueue) -> bool {
    if let Some(wake) = &queue.thread {
        wake.raise();
        return true;
    }
    match start() {
        Ok(wake) => queue.thread = Some(wake),
        // No room for a thread or a handle, or a sandbox without threads: `sweep` reaps instead.
        Err(_) => SWEEP.store(true, Ordering::Relaxed),
    }
    queue.thread.is_some()
}

/// Reaps ended children on the caller's thread, if there is no reaper thread. Every start calls it, so there are never
/// more zombies than children dropped since the last start.
pub(crate) fn sweep() {
    if SWEEP.load(Ordering::Relaxed) {
        let mut queue = queue();
        queue.children.retain(still_runs);
        let left = !queue.children.is_empty();
        SWEEP.store(left, Ordering::Relaxed);
    }
}

fn start() -> io::Result<Arc<Wake>> {
    let wake = Arc::new(Wake::new()?);
    let for_thread = Arc::clone(&wake);
    service_thread::start(c"pipewright-reap", move || serve(&for_thread))?;
    Ok(wake)
}

/// Runs the thread until it has been idle for [`IDLE`].
fn serve(wake: &Wake) {
    let mut children: Vec<ChildHandle> = Vec::new();
    let mut tasks: Vec<Box<dyn BackgroundTask>> = Vec::new();
    let mut was_idle = false;
    loop {
        {
            let mut queue = queue();
            wake.lower();
            children.append(&mut queue.children);
            tasks.append(&mut queue.tasks);
            if was_idle && children.is_empty() && tasks.is_empty() {
                // Under the lock, so that the next caller starts a new thread.
                queue.thread = None;
                return;
            }
        }
        children.retain(still_runs);
        let idle = children.is_empty() && tasks.is_empty();
        let mut slots: Vec<Slot<'_>> = tasks.iter_mut().flat_map(|task| task.slots()).collect();
        slots.extend(children.iter().map(|it| Slot::Event(it)));
        slots.push(Slot::Event(wake));
        let until = idle.then(|| Instant::now() + IDLE);
        let waited = wait::any(&mut slots, until);
        if waited.is_err() {
            // No memory or no handle for the wait: try again after a pause.
            thread::park_timeout(AFTER_ERROR);
        }
        was_idle = idle && matches!(waited, Ok(0));
        let mut lent = slots.chunks_mut(TASK_SLOTS);
        // In order, so that each task gets its own slots back.
        tasks.retain_mut(|task| task.resume(lent.next().unwrap_or_default()));
    }
}

fn still_runs(child: &ChildHandle) -> bool {
    // An error means that other code has reaped it.
    matches!(child.try_wait(), Ok(None))
}

/// A stream that is read to its end, and a buffer that is overwritten. `None` during a wait and after the end.
struct DrainedStream(Option<(PipeReader, Vec<u8>)>);

impl BackgroundTask for DrainedStream {
    fn slots(&mut self) -> [Slot<'static>; TASK_SLOTS] {
        [self.0.take().map_or(Slot::Off, |(pipe, buffer)| Slot::Read(pipe, buffer)), Slot::Off]
    }

    fn resume(&mut self, slots: &mut [Slot<'_>]) -> bool {
        self.0 = match slots.first_mut().map(mem::take) {
            Some(Slot::Read(pipe, buffer)) => Some((pipe, buffer)),
            Some(Slot::ReadDone(pipe, mut buffer, Ok(count))) if count > 0 => {
                buffer.clear();
                Some((pipe, buffer))
            }
            _ => None,
        };
        self.0.is_some()
    }
}
