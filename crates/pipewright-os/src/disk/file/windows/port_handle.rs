//! Which completion port hears of the calls on a file: each open file can have one, and for ever.

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

/// The ports of a file.
#[derive(Debug, Default)]
pub(super) struct PortHandles(Mutex<Vec<PortHandle>>);

#[derive(Debug)]
struct PortHandle {
    port: Weak<OwnedHandle>,
    /// The file opened once more; `None`: the file itself.
    reopened: Option<OwnedHandle>,
    /// Also what is done in the call is posted.
    posts_inline: bool,
}

impl File {
    /// A handle of the file for overlapped calls whose ends are posted to that port, which is open for as
    /// long as the file and the port are; and whether the ends of those are that were done in the call.
    pub(crate) fn overlapped(&self, port: &Arc<OwnedHandle>) -> io::Result<(HANDLE, bool)> {
        let open = &*self.0;
        // Nothing in here panics while it holds the lock.
        let mut handles = open.port_handles.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |handle: &&PortHandle| std::ptr::eq(handle.port.as_ptr(), Arc::as_ptr(port));
        if let Some(handle) = handles.iter().find(is_ours) {
            return Ok((raw_handle(open, handle), handle.posts_inline));
        }
        // Engines that are gone have nothing under way.
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
        // It has another port already.
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
    // SAFETY: opened by the call above, for nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(new) })
}
