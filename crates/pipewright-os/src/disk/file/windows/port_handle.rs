//! The completion ports of a file. Each open file can be bound to one port, permanently.

use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, ReOpenFile,
    SetFileCompletionNotificationModes,
};
use windows_sys::Win32::System::IO::CreateIoCompletionPort;
use windows_sys::Win32::System::WindowsProgramming::FILE_SKIP_COMPLETION_PORT_ON_SUCCESS;

use super::super::File;
use super::Open;

/// The bindings of a file to completion ports.
#[derive(Debug, Default)]
pub(super) struct PortHandles(Mutex<Vec<PortHandle>>);

#[derive(Debug)]
struct PortHandle {
    port: Weak<OwnedHandle>,
    /// The reopened file. `None`: the file itself is bound.
    reopened: Option<OwnedHandle>,
    /// True if completions are posted even for calls that completed inline.
    posts_inline: bool,
}

impl File {
    /// Returns a handle for overlapped calls whose completions are posted to the port. It is open as long as
    /// the file and the port are. Also returns true if completions are posted for calls that completed inline.
    pub(crate) fn overlapped(&self, port: &Arc<OwnedHandle>) -> io::Result<(HANDLE, bool)> {
        let open = &*self.0;
        // No code panics while it holds this lock.
        let mut handles = open.port_handles.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |handle: &&PortHandle| std::ptr::eq(handle.port.as_ptr(), Arc::as_ptr(port));
        if let Some(handle) = handles.iter().find(is_ours) {
            return Ok((raw_handle(open, handle), handle.posts_inline));
        }
        // The ports of dropped engines have nothing in flight.
        handles.retain(|handle| handle.port.strong_count() > 0 || handle.reopened.is_none());
        let handle = make(open, port)?;
        let made = (raw_handle(open, &handle), handle.posts_inline);
        handles.push(handle);
        Ok(made)
    }
}

fn raw_handle(open: &Open, handle: &PortHandle) -> HANDLE {
    handle.reopened.as_ref().map_or(open.as_raw_handle(), |reopened| reopened.as_raw_handle())
}

fn make(open: &Open, port: &Arc<OwnedHandle>) -> io::Result<PortHandle> {
    let mut reopened = None;
    let mut file = open.as_raw_handle();
    if add(file, port).is_err() {
        // The file is bound to another port already.
        let new = reopen(open)?;
        file = new.as_raw_handle();
        add(file, port)?;
        reopened = Some(new);
    }
    let skip = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS as u8;
    // SAFETY: an open file.
    let skips = unsafe { SetFileCompletionNotificationModes(file, skip) } != 0;
    Ok(PortHandle { port: Arc::downgrade(port), reopened, posts_inline: !skips })
}

fn add(file: HANDLE, port: &OwnedHandle) -> io::Result<()> {
    // SAFETY: an open file and an open port.
    let added = unsafe { CreateIoCompletionPort(file, port.as_raw_handle(), 0, 0) };
    if added.is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn reopen(open: &Open) -> io::Result<OwnedHandle> {
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: an open file.
    let new = unsafe { ReOpenFile(open.as_raw_handle(), open.rights, share, open.flags) };
    if new == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by the call above, and owned by nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(new) })
}
