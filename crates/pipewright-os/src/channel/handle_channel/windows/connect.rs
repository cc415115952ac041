//! Channels whose two ends are both in this process.
//!
//! Handles go from one end to the other in a queue. Numbers would work too, but a process that later gets the other
//! end could then name handles of this process.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::windows::io::{AsRawHandle as _, OwnedHandle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use windows_sys::Win32::Storage::FileSystem::{FileNameInfo, GetFileInformationByHandleEx};

use crate::base::handle::Handle;

/// The pairs by the names of their pipes. The names are random, so a name identifies its pipe.
static LOCAL_PAIRS: Mutex<BTreeMap<PipeName, Weak<LocalPair>>> = Mutex::new(BTreeMap::new());

type PipeName = Vec<u32>;

#[derive(Debug)]
pub(super) struct LocalPair {
    name: PipeName,
    is_complete: AtomicBool,
    /// The handles in transit to each end.
    queues: [Mutex<VecDeque<Handle>>; 2],
}

/// One of the two ends.
#[derive(Debug)]
pub(super) struct PairEnd {
    pair: Arc<LocalPair>,
    at: usize,
}

impl LocalPair {
    /// Registers a new end. `None` if the name of its pipe is unknown.
    pub(super) fn begin(file: &OwnedHandle) -> Option<PairEnd> {
        let name = name_of(file)?;
        let queues = Default::default();
        let pair = Arc::new(LocalPair { name: name.clone(), is_complete: false.into(), queues });
        local_pairs().insert(name, Arc::downgrade(&pair));
        Some(PairEnd { pair, at: 0 })
    }

    /// Returns the other end, if the first one was created in this process.
    pub(super) fn join(file: &OwnedHandle) -> Option<PairEnd> {
        let name = name_of(file)?;
        let known = local_pairs().get(&name).and_then(Weak::upgrade);
        let pair = known.filter(|it| !it.is_complete.swap(true, Ordering::SeqCst))?;
        Some(PairEnd { pair, at: 1 })
    }
}

impl Drop for LocalPair {
    fn drop(&mut self) {
        local_pairs().remove(&self.name);
    }
}

impl PairEnd {
    /// Returns true if both ends are in this process.
    pub(super) fn is_complete(&self) -> bool {
        self.pair.is_complete.load(Ordering::SeqCst)
    }

    pub(super) fn give(&self, handles: Vec<Handle>) {
        self.queue(1 - self.at).extend(handles);
    }

    pub(super) fn take(&self, count: usize) -> io::Result<Vec<Handle>> {
        let mut queue = self.queue(self.at);
        let received: Vec<Handle> = (0..count).map_while(|_| queue.pop_front()).collect();
        match received.len() == count {
            true => Ok(received),
            false => {
                let message = "the message announced handles that did not arrive";
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
        }
    }

    fn queue(&self, at: usize) -> MutexGuard<'_, VecDeque<Handle>> {
        let [first, second] = &self.pair.queues;
        let queue = if at == 0 { first } else { second };
        // The list is consistent at any time.
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn local_pairs() -> MutexGuard<'static, BTreeMap<PipeName, Weak<LocalPair>>> {
    // As above.
    LOCAL_PAIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of a pipe, which is the same at both ends.
fn name_of(file: &OwnedHandle) -> Option<PipeName> {
    // The length in bytes, then the name. Our names are short.
    let mut buffer: PipeName = vec![0; 128];
    let room = size_of_val(buffer.as_slice()) as u32;
    // SAFETY: an open handle, and a live buffer of that size with the alignment that the class requires.
    let known = unsafe {
        let to = buffer.as_mut_ptr().cast();
        GetFileInformationByHandleEx(file.as_raw_handle(), FileNameInfo, to, room)
    };
    (known != 0 && buffer.first().is_some_and(|bytes| *bytes > 0)).then_some(buffer)
}
