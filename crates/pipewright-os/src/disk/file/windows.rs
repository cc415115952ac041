//! Files on Windows: `FILE_FLAG_OVERLAPPED`, `FILE_FLAG_NO_BUFFERING`, disk space, and completion ports.

use std::fs::{self, Metadata};
use std::ops::Deref;
use std::os::windows::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{io, mem, ptr};

use windows_sys::Win32::Foundation::{
    ERROR_DISK_FULL, ERROR_HANDLE_EOF, ERROR_NOT_ALL_ASSIGNED, ERROR_PRIVILEGE_NOT_HELD,
    ERROR_SUCCESS, GENERIC_READ, GENERIC_WRITE, GetLastError, HANDLE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_MANAGE_VOLUME_NAME,
    SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES, TOKEN_QUERY,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ALLOCATION_INFO, FILE_ATTRIBUTE_COMPRESSED, FILE_ATTRIBUTE_ENCRYPTED,
    FILE_FLAG_NO_BUFFERING, FILE_FLAG_OVERLAPPED, FILE_FLAG_RANDOM_ACCESS,
    FILE_FLAG_SEQUENTIAL_SCAN, FILE_FLAG_WRITE_THROUGH, FILE_GENERIC_WRITE, FILE_SHARE_DELETE,
    FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_STORAGE_INFO, FILE_TYPE_CHAR, FILE_WRITE_DATA,
    FileAllocationInfo, FileStorageInfo, GetFileInformationByHandleEx, GetFileType, ReOpenFile,
    SetFileCompletionNotificationModes, SetFileInformationByHandle, SetFileValidData,
};
use windows_sys::Win32::System::IO::CreateIoCompletionPort;
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};
use windows_sys::Win32::System::WindowsProgramming::FILE_SKIP_COMPLETION_PORT_ON_SUCCESS;
use windows_sys::core::BOOL;

use super::{Access, Alignment, Facts, File, OpenOptions, SyncMode, not_seekable};
use crate::base::handle::size_of_u32;
use crate::base::overlapped::OverlappedIo;
use crate::base::wake::Wake;

pub(super) use super::unsupported::{
    cached_bytes, claim_disk, extents, forget_cache, len, next_hole, nowait_reads, nowait_writes,
    read_cached_at, unwritten_bytes, write_in_place, write_room,
};

/// The open file.
#[derive(Debug)]
pub(super) struct Open {
    // Never use std's methods to read from or write to it: they abort the program if a call on an overlapped
    // file is not complete when it returns (rust-lang/rust#81357).
    file: fs::File,
    /// The access rights and flags that the file was opened with.
    rights: u32,
    flags: u32,
    expose_old_disk_contents: bool,
    port_handles: PortHandles,
}

impl Deref for Open {
    type Target = fs::File;

    fn deref(&self) -> &fs::File {
        &self.file
    }
}

pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<Open> {
    let mut flags = FILE_FLAG_OVERLAPPED;
    if options.direct {
        flags |= FILE_FLAG_NO_BUFFERING;
    }
    if options.sync != SyncMode::None {
        flags |= FILE_FLAG_WRITE_THROUGH;
    }
    match options.access {
        Access::Normal => {}
        Access::Sequential => flags |= FILE_FLAG_SEQUENTIAL_SCAN,
        Access::Random => flags |= FILE_FLAG_RANDOM_ACCESS,
    }
    let open = || options.of_std().custom_flags(flags).open(path);
    let file = if options.expose_old_disk_contents { open_with_privilege(open) } else { open() }?;
    // The same rights as std requests.
    let mut rights = if options.read { GENERIC_READ } else { 0 };
    if options.append {
        rights |= FILE_GENERIC_WRITE & !FILE_WRITE_DATA;
    } else if options.write {
        rights |= GENERIC_WRITE;
    }
    let expose_old_disk_contents = options.expose_old_disk_contents;
    Ok(Open { file, rights, flags, expose_old_disk_contents, port_handles: PortHandles::default() })
}

pub(super) fn require_seekable(found: &Metadata) -> io::Result<()> {
    if found.is_dir() { Err(not_seekable(true)) } else { Ok(()) }
}

thread_local! {
    /// The event of this thread, which waits for one call at a time.
    static DONE: io::Result<Wake> = Wake::new();
}

/// Starts a call and waits for its completion.
fn finish(start: impl FnOnce(&Wake) -> OverlappedIo) -> io::Result<usize> {
    DONE.with(|event| match event {
        Ok(event) => start(event).wait(),
        Err(error) => Err(io::Error::from(error.kind())),
    })
}

pub(super) fn read_at(open: &Open, to: &mut [u8], offset: u64) -> io::Result<usize> {
    let (file, start, room) = (open.as_raw_handle(), to.as_mut_ptr(), to.len());
    // SAFETY: the call is complete before this returns. Until then the file is open, and the memory is
    // borrowed here.
    let read = finish(|event| unsafe { OverlappedIo::read_at(file, event, start, room, offset) });
    match read {
        Err(error) if error.raw_os_error() == Some(ERROR_HANDLE_EOF as i32) => Ok(0),
        result => result,
    }
}

pub(super) fn write_at(open: &Open, from: &[u8], offset: u64) -> io::Result<usize> {
    let (file, start, count) = (open.as_raw_handle(), from.as_ptr(), from.len());
    // SAFETY: as for a read.
    finish(|event| unsafe { OverlappedIo::write_at(file, event, start, count, offset) })
}

pub(super) fn sync_all(file: &fs::File) -> io::Result<()> {
    file.sync_all()
}

pub(super) fn sync_data(file: &fs::File) -> io::Result<()> {
    file.sync_data()
}

pub(super) fn may_have_unwritten_data(file: &fs::File) -> bool {
    // SAFETY: an open file.
    unsafe { GetFileType(file.as_raw_handle()) != FILE_TYPE_CHAR }
}

pub(super) fn alignment(file: &fs::File) -> io::Result<Alignment> {
    let mut info = FILE_STORAGE_INFO::default();
    let bytes = mem::size_of::<FILE_STORAGE_INFO>() as u32;
    // SAFETY: an open file, and a buffer of the named size.
    let result = unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileStorageInfo,
            (&raw mut info).cast(),
            bytes,
        )
    };
    let sector = info.LogicalBytesPerSector as usize;
    if result == 0 || !sector.is_power_of_two() {
        // Wine does not report it.
        return Ok(Alignment::ASSUMED);
    }
    Ok(Alignment { memory: sector, offset: sector, reported: true, direct: None })
}

pub(super) fn facts(file: &File) -> io::Result<Facts> {
    let attributes = file.0.metadata()?.file_attributes();
    Ok(Facts {
        length: file.len()?,
        compressed: Some(attributes & FILE_ATTRIBUTE_COMPRESSED != 0),
        encrypted: Some(attributes & FILE_ATTRIBUTE_ENCRYPTED != 0),
        ..Facts::default()
    })
}

pub(super) fn is_same_open(_: &Open, _: &fs::File) -> io::Result<bool> {
    Ok(true)
}

pub(super) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(one.canonicalize()? == other.canonicalize()?)
}

// Disk space for a file: `FileAllocationInfo`, `FileEndOfFileInfo`, `SetFileValidData`.

pub(super) fn allocate(open: &Open, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let place = i64::try_from(end).map_err(|_| io::ErrorKind::InvalidInput)?;
    if end <= len(open)? {
        // Both calls would truncate the file.
        return Ok(());
    }
    let room = FILE_ALLOCATION_INFO { AllocationSize: place };
    // SAFETY: an open file, and a struct of the named kind and size.
    let given = unsafe {
        SetFileInformationByHandle(
            open.as_raw_handle(),
            FileAllocationInfo,
            (&raw const room).cast(),
            size_of_u32::<FILE_ALLOCATION_INFO>(),
        )
    };
    if given == 0 {
        let error = io::Error::last_os_error();
        // If the call itself is missing (Wine), the next one allocates the space.
        if error.raw_os_error() == Some(ERROR_DISK_FULL as i32) {
            return Err(error);
        }
    }
    open.set_len(end)?;
    if !open.expose_old_disk_contents {
        return Ok(());
    }
    let allowed = VolumePrivilege::allow()?;
    // SAFETY: an open file.
    let is_valid = unsafe { SetFileValidData(open.as_raw_handle(), place) };
    let failed = (is_valid == 0).then(io::Error::last_os_error);
    drop(allowed);
    failed.map_or(Ok(()), Err)
}

/// Opens a file with the privilege enabled, if this process has it. `SetFileValidData` refuses a file that was
/// opened without it, even if the privilege is enabled by then.
fn open_with_privilege<T>(open: impl FnOnce() -> T) -> T {
    // Ignored: if the privilege is missing, the call reports it.
    let allowed = VolumePrivilege::allow();
    let opened = open();
    drop(allowed);
    opened
}

/// The privilege that `SetFileValidData` requires, enabled while the file is opened and during the call.
///
/// # Drop
/// Disables the privilege, unless it was enabled before: it applies to the whole process, which may run other
/// code.
struct VolumePrivilege {
    token: OwnedHandle,
    before: TOKEN_PRIVILEGES,
    /// Held by one thread at a time. Otherwise a second thread that found the privilege enabled would lose it when the
    /// first one disables it.
    _exclusive: MutexGuard<'static, ()>,
}

impl Drop for VolumePrivilege {
    fn drop(&mut self) {
        // Ignored: the same token enabled it. SAFETY: an open token, and a list of what was changed, which may
        // be empty.
        let _ = unsafe { adjust(&self.token, &self.before, ptr::null_mut()) };
    }
}

impl VolumePrivilege {
    /// Enables the privilege, if this process has it.
    fn allow() -> io::Result<VolumePrivilege> {
        static LOCK: Mutex<()> = Mutex::new(());
        let exclusive = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, right) = token_and_privilege()?;
        let rights = TOKEN_PRIVILEGES { PrivilegeCount: 1, Privileges: [right] };
        let mut before = TOKEN_PRIVILEGES::default();
        // SAFETY: an open token, a list of one entry, and a live place for as many.
        let adjusted = unsafe { adjust(&token, &rights, &raw mut before) };
        // The call succeeds even if the process lacks the privilege, and reports that only here.
        // SAFETY: no arguments.
        match unsafe { GetLastError() } {
            ERROR_SUCCESS if adjusted != 0 => {
                Ok(VolumePrivilege { token, before, _exclusive: exclusive })
            }
            ERROR_NOT_ALL_ASSIGNED => Err(crate::base::error::os_error(ERROR_PRIVILEGE_NOT_HELD)),
            error => Err(crate::base::error::os_error(error)),
        }
    }
}

/// # Safety
/// `before` is null or has space for a list of one entry.
unsafe fn adjust(
    token: &OwnedHandle,
    rights: &TOKEN_PRIVILEGES,
    before: *mut TOKEN_PRIVILEGES,
) -> BOOL {
    let (room, mut length) = (size_of_u32::<TOKEN_PRIVILEGES>(), 0);
    // SAFETY: an open token, a live list, a live number, and the rest as promised by the caller.
    unsafe {
        AdjustTokenPrivileges(token.as_raw_handle(), 0, rights, room, before, &raw mut length)
    }
}

fn token_and_privilege() -> io::Result<(OwnedHandle, LUID_AND_ATTRIBUTES)> {
    let mut token = ptr::null_mut();
    // SAFETY: no arguments.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: this process, and a live place.
    let opened =
        unsafe { OpenProcessToken(process, TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &raw mut token) };
    if opened == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by the call above, and owned by nobody else.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    let mut right = LUID_AND_ATTRIBUTES { Attributes: SE_PRIVILEGE_ENABLED, ..Default::default() };
    // SAFETY: this machine, a name that ends with a zero, and a live place.
    let found =
        unsafe { LookupPrivilegeValueW(ptr::null(), SE_MANAGE_VOLUME_NAME, &raw mut right.Luid) };
    if found == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((token, right))
}

// The completion ports of a file. Each open file can be bound to one port, permanently.

/// The bindings of a file to completion ports.
#[derive(Debug, Default)]
struct PortHandles(Mutex<Vec<PortHandle>>);

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the privilege is enabled. `None` if this process does not have it.
    fn is_on() -> Option<bool> {
        let (token, right) = token_and_privilege().unwrap();
        let rights = TOKEN_PRIVILEGES { PrivilegeCount: 1, Privileges: [right] };
        let mut before = TOKEN_PRIVILEGES::default();
        // SAFETY: an open token, a list of one entry, and a live place for as many.
        let adjusted = unsafe { adjust(&token, &rights, &raw mut before) };
        // SAFETY: no arguments.
        let error = unsafe { GetLastError() };
        // SAFETY: as above, and no place for the previous state.
        let restored = unsafe { adjust(&token, &before, ptr::null_mut()) };
        assert!(adjusted != 0 && restored != 0, "{}", io::Error::last_os_error());
        // Only changed privileges are listed (Wine lists all).
        let [listed] = before.Privileges;
        let was_on = before.PrivilegeCount == 0 || listed.Attributes & SE_PRIVILEGE_ENABLED != 0;
        (error == ERROR_SUCCESS).then_some(was_on)
    }

    #[test]
    fn privilege_is_enabled_only_while_a_file_is_opened() {
        let before = is_on();
        if before.is_none() {
            return crate::base::skipped::skipped(
                crate::base::skipped::Need::Windows,
                "this user does not have the right",
            );
        }
        assert_eq!(open_with_privilege(is_on), Some(true));
        assert_eq!(is_on(), before);
    }
}
