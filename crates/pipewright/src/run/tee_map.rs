//! Passes a child's stream on with changes, through another tee.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::base::wait::Slot;

use super::tee::{Tee, open_tee};
use super::tee_with::OpenTeeWith;
use crate::outcome::Source;
use crate::output::TeeFailed;

/// Returns a function that opens tees to a stream of this process. They share the closure.
pub(crate) fn open_tee_map<F: FnMut(&[u8]) -> Vec<u8> + Send + 'static>(
    to: Source,
    map: F,
) -> OpenTeeWith {
    let map = Arc::new(Mutex::new(map));
    Arc::new(move || Box::new(MappedTee { map: Arc::clone(&map), inner: open_tee(to) }))
}

/// A tee that changes what it passes on.
struct MappedTee<F> {
    map: Arc<Mutex<F>>,
    inner: Box<dyn Tee>,
}

impl<F: FnMut(&[u8]) -> Vec<u8> + Send> Tee for MappedTee<F> {
    fn write(&mut self, bytes: &[u8]) {
        // The closure is the caller's: after a panic it is called as before.
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let mapped = map(bytes);
        drop(map);
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

impl<F> fmt::Debug for MappedTee<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MappedTee").field(&self.inner).finish()
    }
}
