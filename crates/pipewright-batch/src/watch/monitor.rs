//! A value that one thread changes and another waits for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A value, its lock, and the threads that wait for a change.
#[derive(Debug, Default)]
pub(super) struct Monitor<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub(super) fn new(value: T) -> Monitor<T> {
        Monitor { value: Mutex::new(value), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        // Each step leaves it consistent.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Locks the value and waits while the condition holds, but no longer than until that time.
    pub(super) fn lock_while(
        &self,
        until: Option<Instant>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'_, T> {
        let mut value = self.lock();
        while condition(&mut value) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            value = match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let waited = self.changed.wait_timeout(value, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(value).unwrap_or_else(PoisonError::into_inner),
            };
        }
        value
    }
}
