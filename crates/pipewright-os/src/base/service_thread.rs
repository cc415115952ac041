//! Threads of our own in somebody else's program.

use std::ffi::CStr;
use std::io;
use std::thread;

#[cfg(unix)]
use crate::base::signal::AllBlocked;

/// Stacks of threads that do little.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread that takes no signal: a program that blocks one everywhere, to take it with
/// `sigwait`, must not be ended by it through a thread that it does not know of.
///
/// # Errors
/// No room for another thread.
pub fn start(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start_boxed(name, thread::Builder::new().stack_size(STACK_BYTES), Box::new(work))
}

/// The same, with as much of a stack as any thread has: for code of somebody else.
///
/// # Errors
/// As [`start`].
pub fn start_with_room(
    name: &'static CStr,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    start_boxed(name, thread::Builder::new(), Box::new(work))
}

/// One copy of what it takes to start a thread, for all of them.
fn start_boxed(
    name: &'static CStr,
    builder: thread::Builder,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<()> {
    // A new thread has the signal mask of the one that starts it (pthread_create(3)).
    #[cfg(unix)]
    let _blocked = AllBlocked::new();
    let named = move || {
        // The name that debuggers show. Ignored: the thread works without one.
        #[cfg(target_os = "linux")]
        let _ = rustix::thread::set_name(name);
        #[cfg(target_os = "macos")]
        // SAFETY: a C string; the thread is the one that runs.
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
