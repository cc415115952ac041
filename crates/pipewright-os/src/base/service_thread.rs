//! Starts the library's own threads inside another program.

use std::ffi::CStr;
use std::io;
use std::thread;

#[cfg(unix)]
use crate::base::signal::AllBlocked;

/// The stack size of threads that do little.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that blocks all signals. A program may block a signal in all of its threads to
/// take it with `sigwait`; a thread that it does not know of must not receive that signal and end
/// the process.
///
/// # Errors
/// The system cannot start another thread.
pub fn start(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start_boxed(name, thread::Builder::new().stack_size(STACK_BYTES), Box::new(work))
}

/// Starts the same kind of thread with a default stack, for code of the caller.
///
/// # Errors
/// As [`start`].
pub fn start_with_default_stack(
    name: &'static CStr,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    start_boxed(name, thread::Builder::new(), Box::new(work))
}

/// Starts a thread. Not generic, so that programs contain this code once.
fn start_boxed(
    name: &'static CStr,
    builder: thread::Builder,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<()> {
    // A new thread inherits the signal mask of its creator (pthread_create(3)).
    #[cfg(unix)]
    let _blocked = AllBlocked::new();
    let named = move || {
        // The name that debuggers show. Ignored: the thread works without one.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::set_name(name);
        #[cfg(target_os = "macos")]
        // SAFETY: a C string, and the calling thread.
        unsafe {
            libc::pthread_setname_np(name.as_ptr())
        };
        #[cfg(not(any(target_os = "linux", target_os = "macos")))]
        let _ = name;
        work();
    };
    #[cfg(windows)]
    let builder = builder.name(name.to_string_lossy().into_owned());
    builder.spawn(named).map(drop)
}
