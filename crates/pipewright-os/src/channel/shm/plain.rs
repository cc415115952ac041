//! Memory of this process only, for checkers that don't support shared memory (`ci/sanitize.sh`). Miri has
//! none, and a thread sanitizer takes two mappings of the same memory for two places.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::handle::Handle;
use crate::base::memory::AlignedBuf;
use crate::base::test_hooks::{Forced, is_forced};

/// The objects, by the number of their handle.
static OBJECTS: Mutex<Option<HashMap<RawFd, Arc<AlignedBuf>>>> = Mutex::new(None);

#[derive(Debug)]
pub(super) struct Mapping(Arc<AlignedBuf>);

impl Mapping {
    pub(super) fn start(&self) -> *mut u8 {
        self.0.start().as_ptr()
    }

    /// Returns true: nothing forks under a checker.
    pub(super) fn is_current(&self) -> bool {
        true
    }

    pub(super) fn len(&self) -> usize {
        self.0.capacity()
    }
}

pub(super) fn create(size: usize, _: bool) -> io::Result<(Mapping, Handle)> {
    if is_forced(Forced::NoMemfd) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let memory = Arc::new(AlignedBuf::zeroed(size, super::CONTROL_BYTES)?);
    // Serves only as a unique number.
    let (handle, _) = UnixStream::pair()?;
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    objects.get_or_insert_default().insert(handle.as_raw_fd(), Arc::clone(&memory));
    Ok((Mapping(memory), Handle::from(OwnedFd::from(handle))))
}

pub(super) fn open(handle: &Handle, size: usize, _: bool) -> io::Result<Mapping> {
    let objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = objects.as_ref().and_then(|objects| objects.get(&handle.as_raw_fd()));
    match memory.filter(|memory| memory.capacity() == size) {
        Some(memory) => Ok(Mapping(Arc::clone(memory))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
