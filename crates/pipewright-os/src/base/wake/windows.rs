//! A manual-reset event.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::System::Threading::{
    CreateEventW, ResetEvent, SetEvent, WaitForSingleObject,
};

use crate::base::event::EventSource;

#[derive(Debug)]
pub(crate) struct Wake(OwnedHandle);

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        // SAFETY: no attributes (so it is not inheritable), no name; manual reset, initially not
        // set.
        let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        if event.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made by the call above, and owned by nothing else.
        Ok(Wake(unsafe { OwnedHandle::from_raw_handle(event) }))
    }

    pub(crate) fn raise(&self) {
        // Ignored: an open event cannot fail. SAFETY: it is open.
        let _ = unsafe { SetEvent(self.0.as_raw_handle()) };
    }

    pub(crate) fn lower(&self) {
        // Ignored: as above. SAFETY: as above.
        let _ = unsafe { ResetEvent(self.0.as_raw_handle()) };
    }

    pub(crate) fn is_raised(&self) -> bool {
        is_signalled(self.0.as_handle())
    }
}

/// Returns true if a waitable handle is signalled: an event is set, a process has ended.
pub(crate) fn is_signalled(handle: BorrowedHandle<'_>) -> bool {
    // SAFETY: an open handle, and a timeout of 0.
    unsafe { WaitForSingleObject(handle.as_raw_handle(), 0) == WAIT_OBJECT_0 }
}

impl AsHandle for super::Wake {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.0.as_handle()
    }
}

pub(super) fn source(wake: &super::Wake) -> EventSource<'_> {
    EventSource::Signalled(wake.as_handle())
}
