//! Passes a child's stream on with changes, through another tee.

use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::base::wait::Slot;

use super::tee::Tee;
use crate::output::TeeFailed;

/// Changes each chunk before it is passed on.
pub(crate) type MapChunk =
    Arc<Mutex<dyn FnMut(&[u8]) -> Vec<u8> + Send + UnwindSafe + RefUnwindSafe>>;

/// A tee that changes what it passes on.
pub(crate) struct MappedTee {
    pub(crate) map: MapChunk,
    pub(crate) inner: Box<dyn Tee>,
}

impl Tee for MappedTee {
    fn write(&mut self, bytes: &[u8]) {
        // The closure is the caller's: after a panic it is called as before.
        let mapped = self.map.lock().unwrap_or_else(PoisonError::into_inner)(bytes);
        if !mapped.is_empty() {
            self.inner.write(&mapped);
        }
    }

    fn has_pending(&self) -> bool {
        self.inner.has_pending()
    }

    fn submit(&mut self) -> Slot<'static> {
        self.inner.submit()
    }

    fn note_written(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        self.inner.note_written(writer, result);
    }

    fn give_up(&mut self) {
        self.inner.give_up();
    }

    fn failed(&self) -> Option<TeeFailed> {
        self.inner.failed()
    }
}

impl fmt::Debug for MappedTee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MappedTee").field(&self.inner).finish()
    }
}
