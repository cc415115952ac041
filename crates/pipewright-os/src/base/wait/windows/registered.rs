//! One handle that the system's own threads wait for, for everybody in the process.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::io::BorrowedHandle;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Threading::{
    INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD,
    WT_EXECUTEONLYONCE,
};

use crate::base::wake::Wake;

/// A handle that is waited for once, and the event that is raised then.
///
/// # Drop
/// Gives the wait up; no call is under way when it returns.
#[derive(Debug)]
pub(in crate::base::wait) struct Registered {
    registered: HANDLE,
    /// Dropped after that. The system's thread has a pointer to it until then.
    told: Arc<Told>,
}

// SAFETY: the registration is the process's, and any thread may give it up.
unsafe impl Send for Registered {}
// SAFETY: nothing is done with it through a shared reference.
unsafe impl Sync for Registered {}

#[derive(Debug)]
struct Told {
    has_come: AtomicBool,
    event: Arc<Wake>,
}

impl Registered {
    /// # Errors
    /// No room for another thread, or no memory.
    ///
    /// # Safety
    /// The handle stays open until this is dropped.
    pub(in crate::base::wait) unsafe fn new(
        handle: BorrowedHandle<'_>,
        event: &Arc<Wake>,
    ) -> io::Result<Registered> {
        let told = Arc::new(Told { has_come: AtomicBool::new(false), event: Arc::clone(event) });
        let mut registered = ptr::null_mut();
        let how = WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE;
        let context = Arc::as_ptr(&told).cast::<c_void>();
        // SAFETY: an open handle, which stays open as the caller promises; the context is there
        // until the registration has been given up, and is only shared.
        let done = unsafe {
            RegisterWaitForSingleObject(
                &raw mut registered,
                handle.as_raw_handle(),
                Some(tell),
                context,
                INFINITE,
                how,
            )
        };
        match done {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(Registered { registered, told }),
        }
    }

    /// Whether it has been told of: it will not be told of again.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "tasks ask"))]
    pub(in crate::base::wait) fn has_come(&self) -> bool {
        self.told.has_come.load(Ordering::Acquire)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // And waits for a call that is under way, which raises the event. Ignored: what was
        // registered has no error. SAFETY: registered, and not yet given up.
        let _ = unsafe { UnregisterWaitEx(self.registered, INVALID_HANDLE_VALUE) };
    }
}

unsafe extern "system" fn tell(told: *mut c_void, _: bool) {
    // SAFETY: it is there until this is unregistered, which waits for this call.
    let told = unsafe { &*told.cast::<Told>() };
    told.has_come.store(true, Ordering::Release);
    told.event.raise();
}
