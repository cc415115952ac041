//! Unnamed sections of memory that only this process can map for writing.

use std::ffi::c_void;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr::{self, NonNull};
use std::{io, mem};

use windows_sys::Win32::Foundation::{DuplicateHandle, HANDLE, INVALID_HANDLE_VALUE, NTSTATUS};
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, FILE_MAP_WRITE, MEM_COMMIT, MEM_MAPPED,
    MEMORY_BASIC_INFORMATION, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READONLY,
    PAGE_READWRITE, SEC_COMMIT, SEC_IMAGE, SEC_RESERVE, SECTION_QUERY, UnmapViewOfFile,
    VirtualQuery,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use super::call_error::in_call;
use crate::base::handle::{Handle, SecurityDescriptor};

/// The access list of a section. No user may open it, not even the owner, who could otherwise change the list.
/// The owner may only read the list.
///
/// `S-1-3-4` is OWNER RIGHTS: an entry for it replaces the rights that an owner has by default.
const NOBODY: &str = "D:P(A;;RC;;;S-1-3-4)";

/// Mapped memory.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: memory belongs to no thread. The types that own a mapping decide who may write it.
unsafe impl Send for Mapping {}
// SAFETY: a shared mapping is used only for atomic operations and for copies out of it.
unsafe impl Sync for Mapping {}

pub(super) fn create(size: usize, prefault: bool) -> io::Result<(Mapping, Handle)> {
    let section = section(size)?;
    let mapping = Mapping::of(section.as_handle(), size, FILE_MAP_READ | FILE_MAP_WRITE)?;
    // Pass on a different handle, because the section itself can be mapped for writing.
    let readable = readable(&section)?;
    if prefault {
        mapping.touch();
    }
    Ok((mapping, Handle::from(readable)))
}

/// Maps a section of another process. Accepts only committed memory: a section backed by a file may lose its
/// pages, and reserved memory has none, so that touching either could end this process. Committed memory
/// stays, and nobody can shrink it.
pub(super) fn open(handle: &Handle, size: usize, prefault: bool) -> io::Result<Mapping> {
    let info = SectionInfo::of(handle.as_handle())?;
    if info.kind & (SEC_FILE | SEC_IMAGE | SEC_RESERVE | SEC_COMMIT) != SEC_COMMIT {
        return Err(wrong("it is a file mapping, or not committed"));
    }
    if u64::try_from(info.bytes).ok() != Some(size as u64) {
        return Err(wrong("its size is not the announced one"));
    }
    let mapping = Mapping::of(handle.as_handle(), size, FILE_MAP_READ)?;
    mapping.check()?;
    if prefault {
        mapping.touch();
    }
    Ok(mapping)
}

/// Creates a section of committed memory. If there is not enough memory, this is an error here and not a fault
/// later.
fn section(size: usize) -> io::Result<OwnedHandle> {
    // Otherwise the holder of a read-only handle could duplicate it with write access, as the same user owns
    // the object.
    let nobody = SecurityDescriptor::from_sddl(NOBODY)?;
    let attributes = nobody.attributes();
    let (high, low) = ((size as u64 >> 32) as u32, size as u32);
    // SAFETY: no file; live attributes; a size; no name.
    let section = unsafe {
        let how = PAGE_READWRITE | SEC_COMMIT;
        CreateFileMappingW(INVALID_HANDLE_VALUE, &raw const attributes, how, high, low, ptr::null())
    };
    if section.is_null() {
        return Err(in_call("CreateFileMappingW")(io::Error::last_os_error()));
    }
    // SAFETY: created by the call above, and owned by nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(section) })
}

/// Returns a read-only handle of the section.
fn readable(section: &OwnedHandle) -> io::Result<OwnedHandle> {
    let mut copy = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: an open handle and a live place.
    let copied = unsafe {
        let rights = FILE_MAP_READ | SECTION_QUERY;
        DuplicateHandle(own, section.as_raw_handle(), own, &raw mut copy, rights, 0, 0)
    };
    if copied == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: created by the call above, and owned by nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

/// The properties of a section (`SECTION_BASIC_INFORMATION`).
#[repr(C)]
#[derive(Debug)]
struct SectionInfo {
    _base: *mut c_void,
    kind: u32,
    bytes: i64,
}

/// The flag of a section that is backed by a file. (It is in the system's headers, but not in the bindings.)
const SEC_FILE: u32 = 0x0080_0000;

#[link(name = "ntdll.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn NtQuerySection(
        section: HANDLE,
        class: i32,
        info: *mut SectionInfo,
        room: usize,
        length: *mut usize,
    ) -> NTSTATUS;
}

impl SectionInfo {
    fn of(section: BorrowedHandle<'_>) -> io::Result<SectionInfo> {
        let mut info = SectionInfo { _base: ptr::null_mut(), kind: 0, bytes: 0 };
        let (room, none) = (mem::size_of::<SectionInfo>(), ptr::null_mut());
        // SAFETY: an open handle, and a live struct of the class (0) and its size.
        let status =
            unsafe { NtQuerySection(section.as_raw_handle(), 0, &raw mut info, room, none) };
        if status < 0 { Err(wrong("it is not a section that can be queried")) } else { Ok(info) }
    }
}

impl Mapping {
    /// Maps the first `length` bytes of the section.
    fn of(section: BorrowedHandle<'_>, length: usize, rights: u32) -> io::Result<Mapping> {
        // SAFETY: an open handle; a new view at an unused address, so nothing of ours changes.
        let view = unsafe { MapViewOfFile(section.as_raw_handle(), rights, 0, 0, length) };
        let start = NonNull::new(view.Value.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Mapping { start, length })
    }

    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns true: Windows processes don't fork.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        true
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Checks that all of it is readable: touching an unreadable page would end this process.
    fn check(&self) -> io::Result<()> {
        let mut seen = 0;
        while seen < self.length {
            // SAFETY: inside the mapping.
            let place = unsafe { self.start().add(seen) };
            let part = part_at(place)?;
            let there = (part.State, part.Type, part.Protect);
            if there != (MEM_COMMIT, MEM_MAPPED, PAGE_READONLY) || part.RegionSize == 0 {
                return Err(wrong("it is not committed"));
            }
            seen += part.RegionSize;
        }
        Ok(())
    }

    /// Touches every page, so that it is mapped now.
    fn touch(&self) {
        for page in (0..self.length).step_by(super::CONTROL_BYTES) {
            // SAFETY: inside the mapping.
            let place = unsafe { self.start().add(page) };
            let byte = place.cast::<std::sync::atomic::AtomicU8>();
            // SAFETY: mapped as long as this is, and touched only by atomic operations.
            std::hint::black_box(unsafe { &*byte }.load(std::sync::atomic::Ordering::Relaxed));
        }
    }
}

fn part_at(place: *const u8) -> io::Result<MEMORY_BASIC_INFORMATION> {
    let mut part = MEMORY_BASIC_INFORMATION::default();
    // SAFETY: an address, and a live struct of that size.
    let info = unsafe { VirtualQuery(place.cast(), &raw mut part, mem::size_of_val(&part)) };
    if info == 0 { Err(io::Error::last_os_error()) } else { Ok(part) }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: self.start().cast() };
        // Ignored: unmapping an existing view cannot fail. SAFETY: created by `of`, and no longer borrowed.
        let _ = unsafe { UnmapViewOfFile(view) };
    }
}

fn wrong(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("shared memory was refused: {words}"))
}
