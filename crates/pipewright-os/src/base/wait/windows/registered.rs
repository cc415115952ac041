//! A registered wait: the system's own threads wait for one handle, on behalf of the process.

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
/// Unregisters the wait; no callback is running when it returns.
#[derive(Debug)]
pub(in crate::base::wait) struct RegisteredWait {
    registered: HANDLE,
    /// Dropped after the registration. The system's thread has a pointer to it until then.
    context: Arc<CallbackContext>,
}

// SAFETY: the registration belongs to the process, and any thread may unregister it.
unsafe impl Send for RegisteredWait {}
// SAFETY: a shared reference only reads an atomic flag.
unsafe impl Sync for RegisteredWait {}

#[derive(Debug)]
struct CallbackContext {
    is_signalled: AtomicBool,
    event: Arc<Wake>,
}

impl RegisteredWait {
    /// Registers the wait.
    ///
    /// # Errors
    /// No more threads or no memory available.
    ///
    /// # Safety
    /// The handle stays open until this is dropped.
    pub(in crate::base::wait) unsafe fn new(
        handle: BorrowedHandle<'_>,
        event: &Arc<Wake>,
    ) -> io::Result<RegisteredWait> {
        let context = Arc::new(CallbackContext {
            is_signalled: AtomicBool::new(false),
            event: Arc::clone(event),
        });
        let mut registered = ptr::null_mut();
        let how = WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE;
        let pointer = Arc::as_ptr(&context).cast::<c_void>();
        // SAFETY: an open handle, which stays open as the caller promises; the context lives until
        // the registration ends, and is only used by shared reference.
        let done = unsafe {
            RegisterWaitForSingleObject(
                &raw mut registered,
                handle.as_raw_handle(),
                Some(on_signalled),
                pointer,
                INFINITE,
                how,
            )
        };
        match done {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(RegisteredWait { registered, context }),
        }
    }

    /// Returns true if the handle was reported. It will not be reported again.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "tasks ask"))]
    pub(in crate::base::wait) fn is_signalled(&self) -> bool {
        self.context.is_signalled.load(Ordering::Acquire)
    }
}

impl Drop for RegisteredWait {
    fn drop(&mut self) {
        // Also waits for a running callback, which raises the event. Ignored: unregistering a
        // registered wait cannot fail. SAFETY: registered, and not yet unregistered.
        let _ = unsafe { UnregisterWaitEx(self.registered, INVALID_HANDLE_VALUE) };
    }
}

unsafe extern "system" fn on_signalled(context: *mut c_void, _: bool) {
    // SAFETY: it lives until the wait is unregistered, which waits for this callback.
    let context = unsafe { &*context.cast::<CallbackContext>() };
    context.is_signalled.store(true, Ordering::Release);
    context.event.raise();
}
