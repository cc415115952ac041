//! Kernel handles, which are never inheritable; queries to the kernel about them, with a time limit; and the users who
//! may open our objects by name.

use std::ffi::c_void;
use std::fs::File;
use std::os::windows::io::{
    AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, IntoRawHandle, OwnedHandle, RawHandle,
};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{io, mem, ptr};

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_SYNCHRONOUS_IO_ALERT, FILE_SYNCHRONOUS_IO_NONALERT, FileModeInformation,
    NtQueryInformationFile,
};
use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_ACCESS_DENIED, ERROR_BROKEN_PIPE,
    ERROR_INVALID_HANDLE, GetHandleInformation, GetLastError, HANDLE, LocalFree,
    RtlNtStatusToDosError,
};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::SECURITY_ATTRIBUTES;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT, FILE_ATTRIBUTE_TAG_INFO,
    FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, FileAttributeTagInfo,
    GetFileInformationByHandleEx, GetFileType,
};
use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;
use windows_sys::Win32::System::Pipes::{GetNamedPipeInfo, PeekNamedPipe};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::{Handle, HandleKind};
use crate::base::error::os_error;
use crate::base::service_thread;

pub(super) struct Owned {
    handle: OwnedHandle,
    /// True if it is a pipe and its calls are overlapped; set once that is known.
    is_overlapped: OnceLock<bool>,
}

impl Owned {
    fn raw(&self) -> RawHandle {
        self.handle.as_raw_handle()
    }
}

impl From<OwnedHandle> for Owned {
    fn from(handle: OwnedHandle) -> Owned {
        Owned { handle, is_overlapped: OnceLock::new() }
    }
}

impl Handle {
    /// Wraps a handle that is known to be synchronous, which saves the query.
    pub(crate) fn of_synchronous(handle: OwnedHandle) -> Handle {
        Handle(Owned { handle, is_overlapped: OnceLock::from(false) })
    }

    #[cfg(test)]
    pub(crate) fn cached_is_overlapped(&self) -> Option<bool> {
        self.0.is_overlapped.get().copied()
    }

    /// Returns true if it is the overlapped end of a pipe. Queried once, with a time limit:
    /// children may be inside calls on the same open file for any length of time.
    #[cfg(any(feature = "process", test))]
    pub(crate) fn is_overlapped(&self) -> bool {
        let is_overlapped_pipe = |handle: BorrowedHandle<'_>| {
            kind_of(handle).is_ok_and(|kind| kind == HandleKind::Pipe) && is_overlapped(handle)
        };
        // No answer: only a synchronous end makes a query wait.
        *self
            .0
            .is_overlapped
            .get_or_init(|| timed_query(self.as_handle(), is_overlapped_pipe).unwrap_or(false))
    }
}

/// The reparse tag of a symbolic link; other tags are mount points, or do not matter here.
const SYMLINK_TAG: u32 = 0xA000_000C;

pub(super) fn kind(handle: &Owned) -> io::Result<HandleKind> {
    let asked = handle.handle.as_handle();
    if handle.is_overlapped.get() == Some(&true) {
        // Overlapped calls do not wait for each other.
        return kind_of(asked);
    }
    // Without an answer, the handle is at least open.
    let unknown = || inheritable(asked).map(|_| HandleKind::Unknown);
    timed_query(asked, kind_of).unwrap_or_else(unknown)
}

pub(crate) fn kind_of(handle: BorrowedHandle<'_>) -> io::Result<HandleKind> {
    // SAFETY: only queries an open handle.
    match unsafe { GetFileType(handle.as_raw_handle()) } {
        FILE_TYPE_DISK => Ok(kind_on_disk(handle)),
        FILE_TYPE_CHAR => Ok(HandleKind::CharDevice),
        FILE_TYPE_PIPE if is_pipe(handle) => Ok(HandleKind::Pipe),
        // The system reports both as a pipe.
        FILE_TYPE_PIPE => Ok(HandleKind::Socket),
        // An event or a process: open, and no file.
        _ => inheritable(handle).map(|_| HandleKind::Unknown),
    }
}

fn kind_on_disk(handle: BorrowedHandle<'_>) -> HandleKind {
    let mut info = FILE_ATTRIBUTE_TAG_INFO { FileAttributes: 0, ReparseTag: 0 };
    // SAFETY: a live struct of the class that is named, and its size.
    let known = unsafe {
        GetFileInformationByHandleEx(
            handle.as_raw_handle(),
            FileAttributeTagInfo,
            (&raw mut info).cast::<c_void>(),
            size_of_u32::<FILE_ATTRIBUTE_TAG_INFO>(),
        )
    };
    let has = |attribute| info.FileAttributes & attribute != 0;
    if known == 0 {
        // A file system without attributes has only files.
        HandleKind::File
    } else if has(FILE_ATTRIBUTE_REPARSE_POINT) && info.ReparseTag == SYMLINK_TAG {
        // Only a handle opened with FILE_FLAG_OPEN_REPARSE_POINT refers to the link itself.
        HandleKind::Symlink
    } else if has(FILE_ATTRIBUTE_DIRECTORY) {
        HandleKind::Directory
    } else {
        HandleKind::File
    }
}

/// Returns true if an object that the system reports as a pipe is one, and no socket.
fn is_pipe(handle: BorrowedHandle<'_>) -> bool {
    let raw = handle.as_raw_handle();
    let none = ptr::null_mut::<u32>();
    // SAFETY: an open handle, and null pointers, which the call permits.
    let known = unsafe { GetNamedPipeInfo(raw, none, none, none, none) };
    // SAFETY: no arguments. The server's writing end may deny the query.
    if known != 0 || unsafe { GetLastError() } == ERROR_ACCESS_DENIED {
        return true;
    }
    // SAFETY: an open handle, and null pointers, which the call permits.
    let peeked = unsafe { PeekNamedPipe(raw, ptr::null_mut(), 0, none, none, none) };
    // SAFETY: no arguments.
    peeked != 0 || unsafe { GetLastError() } == ERROR_BROKEN_PIPE
}

/// Returns true if a child that inherits all inheritable handles would get it.
pub(crate) fn inheritable(handle: BorrowedHandle<'_>) -> io::Result<bool> {
    let mut flags = 0;
    // SAFETY: an open handle, or an error; and a live integer.
    match unsafe { GetHandleInformation(handle.as_raw_handle(), &raw mut flags) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(flags & windows_sys::Win32::Foundation::HANDLE_FLAG_INHERIT != 0),
    }
}

pub(super) fn duplicate(handle: &Owned) -> io::Result<Owned> {
    let is_overlapped = handle.is_overlapped.clone();
    Ok(Owned { handle: copy_of(handle.raw(), false)?, is_overlapped })
}

/// Duplicates a handle, regardless of its owner.
pub(crate) fn copy_of(handle: HANDLE, inheritable: bool) -> io::Result<OwnedHandle> {
    let mut copy = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is never closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: handle values. The call fails for a handle that is not open.
    let copied = unsafe {
        let how = DUPLICATE_SAME_ACCESS;
        DuplicateHandle(own, handle, own, &raw mut copy, 0, i32::from(inheritable), how)
    };
    if copied == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, and owned by nothing else.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

pub(super) fn copy_of_number(number: i32) -> io::Result<Owned> {
    // Other values are pseudo handles, which refer to the calling process or thread.
    if number <= 0 {
        return Err(io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32));
    }
    copy_of(ptr::without_provenance_mut(number as usize), false).map(Owned::from)
}

pub(super) fn number(handle: &Owned) -> i64 {
    number_of(handle.raw())
}

pub(crate) fn number_of(handle: RawHandle) -> i64 {
    handle.addr() as i64
}

/// Returns the size of a struct, in the type that system calls expect.
pub(crate) const fn size_of_u32<T>() -> u32 {
    mem::size_of::<T>() as u32
}

impl AsHandle for Handle {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.handle.as_handle()
    }
}

impl AsRawHandle for Handle {
    fn as_raw_handle(&self) -> RawHandle {
        self.0.raw()
    }
}

impl IntoRawHandle for Handle {
    fn into_raw_handle(self) -> RawHandle {
        self.0.handle.into_raw_handle()
    }
}

impl FromRawHandle for Handle {
    unsafe fn from_raw_handle(handle: RawHandle) -> Self {
        // SAFETY: the caller passes an open handle that has no other owner.
        Handle::from(unsafe { OwnedHandle::from_raw_handle(handle) })
    }
}

impl From<OwnedHandle> for Handle {
    fn from(handle: OwnedHandle) -> Self {
        Handle(Owned::from(handle))
    }
}

impl From<Handle> for OwnedHandle {
    fn from(handle: Handle) -> Self {
        handle.0.handle
    }
}

impl From<Handle> for File {
    fn from(handle: Handle) -> Self {
        File::from(handle.0.handle)
    }
}

/// Implements the conversion from the types of the standard library that own one handle and release
/// it. Sockets are not among them: another call closes them.
macro_rules! from_owner {
    ($($owner:ty),* $(,)?) => {$(
        impl From<$owner> for Handle {
            fn from(owner: $owner) -> Self {
                Handle::from(OwnedHandle::from(owner))
            }
        }
    )*};
}

from_owner!(File, std::process::ChildStdin, std::process::ChildStdout, std::process::ChildStderr,);

#[cfg(feature = "os_pipe")]
from_owner!(os_pipe::PipeReader, os_pipe::PipeWriter);

#[cfg(pipewright_std_pipes)]
#[expect(clippy::incompatible_msrv, reason = "the build script has looked at the version")]
mod std_pipes {
    use super::*;

    from_owner!(std::io::PipeReader, std::io::PipeWriter);
}

/// Returns true if the handle is overlapped and several calls on it can be left to the kernel in
/// sequence.
///
/// False for every file on a disk, whatever its mode: an overlapped file has no current offset, so
/// each call would begin at the start again. The kernel refuses calls that state no offset.
pub(crate) fn is_overlapped(handle: BorrowedHandle<'_>) -> bool {
    let mut mode = 0_u32;
    // SAFETY: the class returns an integer of that type.
    let queried = unsafe { query(handle, FileModeInformation, &raw mut mode) };
    let waits = mode & (FILE_SYNCHRONOUS_IO_ALERT | FILE_SYNCHRONOUS_IO_NONALERT) != 0;
    // SAFETY: an open handle.
    queried.is_ok() && !waits && unsafe { GetFileType(handle.as_raw_handle()) } != FILE_TYPE_DISK
}

/// Queries the kernel about an open file.
///
/// # Safety
/// The class returns a value of type `T`.
pub(crate) unsafe fn query<T>(
    handle: BorrowedHandle<'_>,
    class: i32,
    to: *mut T,
) -> io::Result<()> {
    let mut block = IO_STATUS_BLOCK::default();
    let (to, size) = (to.cast::<c_void>(), size_of_u32::<T>());
    // SAFETY: an open handle and a live block; the caller promises the rest.
    let status =
        unsafe { NtQueryInformationFile(handle.as_raw_handle(), &raw mut block, to, size, class) };
    if status >= 0 {
        return Ok(());
    }
    // SAFETY: an integer argument.
    Err(os_error(unsafe { RtlNtStatusToDosError(status) }))
}

/// The time limit. An answer takes microseconds: after this, assume another thread is blocked on
/// the handle.
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// Runs a query about a handle that another process may be using. `None`: it has not returned in time, or could not be
/// started.
///
/// The kernel makes one call at a time on an open file that is synchronous. While a child is inside
/// such a call, because its output is not read, a query for the kind of that file (`GetFileType`)
/// waits for the child (joyent/libuv#1313). A program that starts a second child with the same
/// stderr before it reads from either would wait too. So a separate thread makes the query, and it
/// alone waits if need be.
pub(crate) fn timed_query<T: Send + 'static>(
    handle: BorrowedHandle<'_>,
    query: impl FnOnce(BorrowedHandle<'_>) -> T + Send + 'static,
) -> Option<T> {
    run_within(TIME_LIMIT, handle, query)
}

fn run_within<T: Send + 'static>(
    limit: Duration,
    handle: BorrowedHandle<'_>,
    query: impl FnOnce(BorrowedHandle<'_>) -> T + Send + 'static,
) -> Option<T> {
    // A duplicate: the caller may close its handle before the query returns.
    let copy = copy_of(handle.as_raw_handle(), false).ok()?;
    let (sender, receiver) = channel();
    let work = move || {
        let answer = query(copy.as_handle());
        drop(copy);
        // Ignored: the caller has stopped waiting.
        let _ = sender.send(answer);
    };
    service_thread::start(c"pipewright-ask", work).ok()?;
    receiver.recv_timeout(limit).ok()
}

/// Grants access to the owner alone. `S-1-3-4` is OWNER RIGHTS: an entry for it replaces the rights
/// that an owner has without one.
pub(crate) const OWNER_ONLY: &str = "D:P(A;;GA;;;S-1-3-4)";

#[derive(Debug)]
pub(crate) struct SecurityDescriptor(*mut c_void);

// SAFETY: memory of this process, which nothing writes to.
unsafe impl Send for SecurityDescriptor {}
// SAFETY: as above.
unsafe impl Sync for SecurityDescriptor {}

impl SecurityDescriptor {
    /// Parses a descriptor from its text (SDDL).
    ///
    /// # Errors
    /// No memory, or an invalid text.
    pub(crate) fn from_sddl(text: &str) -> io::Result<SecurityDescriptor> {
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let (mut made, size) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a text that ends with a zero, a live pointer, and no place for the size.
        let done = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut made,
                size,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(SecurityDescriptor(made)) }
    }

    /// Returns attributes that are valid while this lives. Handles made with them are not
    /// inheritable.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of_u32::<SECURITY_ATTRIBUTES>(),
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        }
    }
}

impl Drop for SecurityDescriptor {
    fn drop(&mut self) {
        // SAFETY: allocated by the call in `from_sddl`, and freed once.
        unsafe { LocalFree(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::pipe::{Mode, PipeOptions, pair};

    #[test]
    fn a_query_returns_its_answer_or_gives_up_after_the_limit() {
        let null = crate::base::stdio::null().unwrap();
        assert_eq!(timed_query(null.as_handle(), |_| 7), Some(7));
        let (end, ended) = channel::<()>();
        let never = move |_: BorrowedHandle<'_>| ended.recv().is_err();
        assert_eq!(run_within(Duration::from_millis(20), null.as_handle(), never), None);
        drop(end);
    }

    #[test]
    fn only_the_mode_of_foreign_ends_is_queried() {
        for read in [Mode::Sync, Mode::Async] {
            let (reader, writer) = pair(PipeOptions { read, ..PipeOptions::default() }).unwrap();
            let ours = Handle::from(reader);
            assert_eq!(ours.cached_is_overlapped(), (read == Mode::Sync).then_some(false));
            assert_eq!(ours.is_overlapped(), read == Mode::Async);
            let copy = ours.try_clone().unwrap();
            assert_eq!(copy.cached_is_overlapped(), Some(read == Mode::Async));
            let foreign = Handle::from(std::os::windows::io::OwnedHandle::from(copy));
            assert_eq!(
                (foreign.cached_is_overlapped(), foreign.is_overlapped()),
                (None, read == Mode::Async)
            );
            assert_eq!(Handle::from(writer).cached_is_overlapped(), Some(false));
        }
        assert_eq!(crate::base::stdio::null().unwrap().cached_is_overlapped(), Some(false));
    }
}
