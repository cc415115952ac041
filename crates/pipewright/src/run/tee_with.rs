//! Hands a child's stream to a closure of the caller.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::base::wait::Slot;

use super::tee::Tee;
use crate::output::TeeFailed;

/// Opens the tee to a closure, for each run. A trait object, so that only programs with such a tee contain the code. The
/// auto traits are those that `Command` and `Child` had without it.
pub(crate) type OpenTeeWith =
    Arc<dyn Fn() -> Box<dyn Tee> + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// The payload of a panic.
pub(crate) type PanicPayload = Box<dyn Any + Send>;

/// Returns a function that opens tees to this closure. They share it.
pub(crate) fn open_tee_with<F: FnMut(&[u8]) + Send + 'static>(closure: F) -> OpenTeeWith {
    let closure = Arc::new(Mutex::new(closure));
    Arc::new(move || Box::new(ClosureTee { closure: Arc::clone(&closure), panic: None }))
}

/// A tee to a closure.
struct ClosureTee<F> {
    closure: Arc<Mutex<F>>,
    /// The payload of its panic, until the run's state allows it to continue. Unwinding at once would lose the chunk, and
    /// the finished reads of other runs that were waited for together.
    panic: Option<PanicPayload>,
}

impl<F: FnMut(&[u8]) + Send> Tee for ClosureTee<F> {
    fn write(&mut self, bytes: &[u8]) {
        // The closure is the caller's: after a panic it is called as before.
        let mut closure = self.closure.lock().unwrap_or_else(PoisonError::into_inner);
        let called = panic::catch_unwind(AssertUnwindSafe(|| closure(bytes)));
        if let Err(payload) = called {
            self.panic.get_or_insert(payload);
        }
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn take_panic(&mut self) -> Option<PanicPayload> {
        self.panic.take()
    }

    fn has_pending(&self) -> bool {
        false
    }

    fn submit(&mut self) -> Slot<'static> {
        Slot::Off
    }

    fn note_written(&mut self, _: PipeWriter, _: io::Result<usize>) {}

    fn give_up(&mut self) {}

    fn failed(&self) -> Option<TeeFailed> {
        None
    }
}

impl<F> fmt::Debug for ClosureTee<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClosureTee")
    }
}
