//! Wakers of the members of a run of many: each notes that its member is due, and wakes the task that polls all.
//!
//! A task is woken without being told what for. If each wake-up meant a look at all, a thousand
//! children would cost a thousand looks for every line of one of them.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// The task that goes on with all of them.
#[derive(Debug)]
pub(super) struct TaskWaker(Mutex<Waker>);

/// Of one of them: it is due when something has come for it.
#[derive(Debug)]
pub(super) struct MemberWaker {
    due: AtomicBool,
    task: Arc<TaskWaker>,
}

impl Default for TaskWaker {
    fn default() -> TaskWaker {
        TaskWaker(Mutex::new(Waker::noop().clone()))
    }
}

impl TaskWaker {
    /// To be called before any turn is taken: who comes from then on wakes this task. `true`: it is another one than
    /// the last time, maybe in another runtime, and has to look at everyone.
    pub(super) fn is_polled(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker();
        if waker.will_wake(cx.waker()) {
            return false;
        }
        let old = mem::replace(&mut *waker, cx.waker().clone());
        drop(waker);
        // Only now: dropping another's waker may call anything.
        drop(old);
        true
    }

    fn waker(&self) -> MutexGuard<'_, Waker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberWaker {
    /// Everyone is due at first.
    pub(super) fn new(task: &Arc<TaskWaker>) -> Arc<MemberWaker> {
        Arc::new(MemberWaker { due: AtomicBool::new(true), task: Arc::clone(task) })
    }

    /// Makes it due, by whoever goes on with all of them.
    pub(super) fn set(&self) {
        self.due.store(true, Ordering::Release);
    }

    /// Whether it is due; it is no longer.
    pub(super) fn take(&self) -> bool {
        self.due.swap(false, Ordering::AcqRel)
    }
}

impl Wake for MemberWaker {
    fn wake(self: Arc<MemberWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<MemberWaker>) {
        // Where it was due already, the task has been woken and has not come by yet.
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
    fn the_task_is_woken_once_for_a_turn_and_the_last_one_to_poll_is_the_task() {
        let (task, [first, second]) =
            (Arc::<TaskWaker>::default(), [(); 2].map(|()| Arc::new(Count::default())));
        let [one, other] = [(); 2].map(|()| MemberWaker::new(&task));
        let counts = || [&first, &second].map(|count| count.0.load(Ordering::Relaxed));
        assert!(one.take() && other.take(), "everyone is due at first");

        let poll =
            |count: &Arc<Count>| task.is_polled(&Context::from_waker(&Arc::clone(count).into()));
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
