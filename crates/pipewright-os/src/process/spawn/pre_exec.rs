//! Closures that a forked child runs before its program is loaded.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::imp::{FORK, Fork};

/// A closure of `pre_exec`.
pub(crate) type Closure = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

/// The closures of `pre_exec`, in order; usually none.
///
/// A child that has closures is forked. The first closure adds the code for that by a pointer, so that
/// programs which never add one do not contain it. Clones share the closures.
#[derive(Clone, Default)]
pub struct PreExec(Option<Arc<Hooks>>);

struct Hooks {
    closures: Mutex<Vec<Closure>>,
    fork: Fork,
}

/// The locked closures. They are locked before a fork, so that the child itself holds the lock.
pub(in crate::process::spawn) struct Locked<'a> {
    pub(in crate::process::spawn) closures: MutexGuard<'a, Vec<Closure>>,
    #[cfg_attr(target_os = "macos", expect(dead_code, reason = "the code for it is always there"))]
    pub(in crate::process::spawn) fork: Fork,
}

impl PreExec {
    /// Adds a closure, after the others.
    ///
    /// # Safety
    /// The closure must be fit to run in a forked child of a process with several threads: see
    /// [`std::os::unix::process::CommandExt::pre_exec`].
    pub unsafe fn push(&mut self, closure: Closure) {
        let hooks = self
            .0
            .get_or_insert_with(|| Arc::new(Hooks { closures: Mutex::default(), fork: FORK }));
        hooks.closures.lock().unwrap_or_else(PoisonError::into_inner).push(closure);
    }

    /// Returns true if there is no closure.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_none()
    }

    /// Takes the closures out.
    pub(crate) fn take(&self) -> Vec<Closure> {
        self.lock().map(|mut locked| std::mem::take(&mut *locked.closures)).unwrap_or_default()
    }

    /// Locks the closures; `None` if there are none.
    pub(in crate::process::spawn) fn lock(&self) -> Option<Locked<'_>> {
        let hooks = self.0.as_deref()?;
        let closures = hooks.closures.lock().unwrap_or_else(PoisonError::into_inner);
        (!closures.is_empty()).then_some(Locked { closures, fork: hooks.fork })
    }
}

/// Runs the closures in order, up to the first that fails. Returns its error number, or `EINVAL` if it has
/// none.
pub(in crate::process::spawn) fn run(closures: &mut [Closure]) -> Result<(), i32> {
    for closure in closures {
        closure().map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))?;
    }
    Ok(())
}

/// A guard that aborts when a panic drops it: a forked child must not unwind into the code of its parent.
pub(in crate::process::spawn) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl fmt::Debug for PreExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.lock().map_or(0, |locked| locked.closures.len());
        write!(f, "PreExec({count} closures)")
    }
}
