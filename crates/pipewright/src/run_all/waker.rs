//! Wakers for the members of a set of runs: each marks its member as due, and wakes the task that polls all of them.
//!
//! A wake-up does not tell the task its cause. If each one meant polling all members, every line of one of a thousand
//! children would cost a thousand polls.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// The waker of the task that polls all members.
#[derive(Debug)]
pub(super) struct TaskWaker(Mutex<Waker>);

/// The waker of one member, which is due when one of its events has arrived.
#[derive(Debug)]
pub(super) struct CommandWaker {
    due: AtomicBool,
    task: Arc<TaskWaker>,
}

impl Default for TaskWaker {
    fn default() -> TaskWaker {
        TaskWaker(Mutex::new(Waker::noop().clone()))
    }
}

impl TaskWaker {
    /// Sets the task to wake. Call it before any member is polled: events from then on wake this task. Returns true if it is
    /// another task than before, maybe in another runtime, which has to poll all members.
    pub(super) fn set_waker(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker();
        if waker.will_wake(cx.waker()) {
            return false;
        }
        let old = mem::replace(&mut *waker, cx.waker().clone());
        drop(waker);
        // Outside the lock: dropping a foreign waker may call anything.
        drop(old);
        true
    }

    fn waker(&self) -> MutexGuard<'_, Waker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandWaker {
    /// Creates a waker whose member is due.
    pub(super) fn new(task: &Arc<TaskWaker>) -> Arc<CommandWaker> {
        Arc::new(CommandWaker { due: AtomicBool::new(true), task: Arc::clone(task) })
    }

    /// Marks the member as due, without waking the task.
    pub(super) fn set(&self) {
        self.due.store(true, Ordering::Release);
    }

    /// Returns true if the member was due, and clears that.
    pub(super) fn take(&self) -> bool {
        self.due.swap(false, Ordering::AcqRel)
    }
}

impl Wake for CommandWaker {
    fn wake(self: Arc<CommandWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<CommandWaker>) {
        // If it was already due, the task has been woken and has not polled it yet.
        if !self.due.swap(true, Ordering::AcqRel) {
            let waker = self.task.waker().clone();
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_task_is_woken_once_per_poll_and_it_is_the_last_one_that_polled() {
        let (task, [first, second]) =
            (Arc::<TaskWaker>::default(), [(); 2].map(|()| Arc::new(Count::default())));
        let [one, other] = [(); 2].map(|()| CommandWaker::new(&task));
        let counts = || [&first, &second].map(|count| count.0.load(Ordering::Relaxed));
        assert!(one.take() && other.take(), "all are due at first");

        let poll =
            |count: &Arc<Count>| task.set_waker(&Context::from_waker(&Arc::clone(count).into()));
        assert!(poll(&first) && !poll(&first));
        let waker = Waker::from(Arc::clone(&one));
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(counts(), [1, 0]);
        assert!(one.take() && !one.take() && !other.take());

        assert!(poll(&second));
        waker.wake();
        Waker::from(other).wake();
        assert_eq!(counts(), [1, 2]);
    }
}
