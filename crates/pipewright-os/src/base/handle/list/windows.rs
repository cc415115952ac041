//! The handles of this process, as the kernel lists them.

use std::io;
use std::mem;
use std::os::windows::io::{AsRawHandle, BorrowedHandle};
use std::process;
use std::ptr;
use std::slice;

use windows_sys::Wdk::Foundation::{NtQueryObject, ObjectTypeInformation};
use windows_sys::Wdk::System::SystemInformation::NtQuerySystemInformation;
use windows_sys::Wdk::System::Threading::{NtQueryInformationProcess, ProcessHandleInformation};
use windows_sys::Win32::Foundation::{
    NTSTATUS, OBJ_INHERIT, RtlNtStatusToDosError, STATUS_INFO_LENGTH_MISMATCH,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_NAME_NORMALIZED, FILE_TYPE_DISK, GetFileType, GetFinalPathNameByHandleW,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;
#[cfg(any(feature = "process", test))]
use windows_sys::Win32::System::Threading::GetProcessHandleCount;
use windows_sys::Win32::System::WindowsProgramming::PUBLIC_OBJECT_TYPE_INFORMATION;

use super::OpenHandle;
use crate::base::errno::os_error;
use crate::base::handle::{HandleKind, ask, kind_of};

/// Both lists begin with their length and a word that is reserved, and have entries of this many
/// words on a 64-bit system.
const HEAD_WORDS: usize = 2;
const ENTRY_WORDS: usize = 5;
/// Of all handles of the system: `SystemExtendedHandleInformation`.
const EVERY_HANDLE: i32 = 64;
/// So large is no list; a machine that asks for more is not asked again.
const MOST_WORDS: usize = 32 << 20;

pub(super) fn open_handles() -> io::Result<Vec<OpenHandle>> {
    let mut listed = listed()?;
    listed.sort_unstable();
    Ok(listed.into_iter().filter_map(describe).collect())
}

/// Numbers and attributes.
fn listed() -> io::Result<Vec<(usize, u32)>> {
    if mem::size_of::<usize>() != 8 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    own_list().or_else(|_| everyones_list())
}

/// Returns how many there are.
#[cfg(any(feature = "process", test))]
pub(crate) fn count() -> io::Result<u32> {
    let mut count = 0;
    // SAFETY: no arguments; a pseudo handle, which nobody closes.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: our own process, and a live number.
    match unsafe { GetProcessHandleCount(own, &raw mut count) } {
        0 => Err(io::Error::last_os_error()),
        // No process has none: Wine does not count.
        _ if count == 0 => listed().map(|listed| listed.len() as u32),
        _ => Ok(count),
    }
}

/// `PROCESS_HANDLE_SNAPSHOT_INFORMATION`.
fn own_list() -> io::Result<Vec<(usize, u32)>> {
    // SAFETY: no arguments; a pseudo handle, which nobody closes.
    let own = unsafe { GetCurrentProcess() };
    let words = list_of(&mut |to, size, needed| {
        // SAFETY: our own process, and memory of that size.
        unsafe { NtQueryInformationProcess(own, ProcessHandleInformation, to.cast(), size, needed) }
    })?;
    Ok(entries(&words).map(|entry| (entry[0], entry[4] as u32)).collect())
}

/// From those of everybody (`SYSTEM_HANDLE_INFORMATION_EX`): before Windows 8, and Wine.
fn everyones_list() -> io::Result<Vec<(usize, u32)>> {
    let words = list_of(&mut |to, size, needed| {
        // SAFETY: memory of that size.
        unsafe { NtQuerySystemInformation(EVERY_HANDLE, to.cast(), size, needed) }
    })?;
    let own = process::id() as usize;
    let ours = entries(&words).filter(|entry| entry[1] == own);
    Ok(ours.map(|entry| (entry[2], entry[4] as u32)).collect())
}

fn entries(words: &[usize]) -> impl Iterator<Item = [usize; ENTRY_WORDS]> {
    let count = words.first().copied().unwrap_or(0);
    let entries = words.get(HEAD_WORDS..).unwrap_or_default().chunks_exact(ENTRY_WORDS);
    entries.take(count).filter_map(|entry| entry.try_into().ok())
}

/// Asks with more and more room, until that is enough.
fn list_of(ask: &mut dyn FnMut(*mut usize, u32, *mut u32) -> NTSTATUS) -> io::Result<Vec<usize>> {
    let mut words = vec![0_usize; 4 << 10];
    loop {
        let mut needed = 0;
        let size = mem::size_of_val(words.as_slice()) as u32;
        match ask(words.as_mut_ptr(), size, &raw mut needed) {
            STATUS_INFO_LENGTH_MISMATCH if words.len() < MOST_WORDS => {
                // And room for those that are opened meanwhile.
                words = vec![0; (words.len() * 2).max(needed as usize / 8 + 1024)];
            }
            status if status >= 0 => return Ok(words),
            // SAFETY: a number.
            status => return Err(os_error(unsafe { RtlNtStatusToDosError(status) })),
        }
    }
}

/// `None`: it was closed meanwhile.
fn describe((number, attributes): (usize, u32)) -> Option<OpenHandle> {
    let raw = ptr::without_provenance_mut(number);
    // SAFETY: only asked about; a number that is not open is an error of each call.
    let handle = unsafe { BorrowedHandle::borrow_raw(raw) };
    let type_name = type_name(handle)?;
    let is_file = type_name == "File";
    // Other types are not asked what kind of file they are. Somebody may be inside of a call on a file, as a
    // read that waits, and whoever asks about it waits for that call.
    let asked =
        |handle: BorrowedHandle<'_>| kind_of(handle).ok().map(|kind| (kind, path_of(handle)));
    let (kind, target) = match is_file {
        true => ask::about(handle, asked).unwrap_or(Some((HandleKind::Unknown, None)))?,
        false => (HandleKind::Unknown, Some(type_name)),
    };
    let inheritable = attributes & OBJ_INHERIT != 0;
    Some(OpenHandle { number: number as i64, kind, target, inheritable })
}

/// What type of object it is: `File`, `Event`, `Process`.
fn type_name(handle: BorrowedHandle<'_>) -> Option<String> {
    let mut buffer = [0_usize; 128];
    let size = mem::size_of_val(&buffer) as u32;
    let to = buffer.as_mut_ptr();
    // SAFETY: an open handle, or an error, and memory of that size.
    let status = unsafe {
        let raw = handle.as_raw_handle();
        NtQueryObject(raw, ObjectTypeInformation, to.cast(), size, ptr::null_mut())
    };
    if status < 0 {
        return None;
    }
    // SAFETY: filled in by the call, or all zeroes; and aligned for it.
    let name = unsafe { (*to.cast::<PUBLIC_OBJECT_TYPE_INFORMATION>()).TypeName };
    if name.Buffer.is_null() {
        return Some(String::new());
    }
    // SAFETY: the name stands behind the struct, in the same buffer; its length is in bytes.
    let name = unsafe { slice::from_raw_parts(name.Buffer, usize::from(name.Length) / 2) };
    Some(String::from_utf16_lossy(name))
}

/// Of what is on a disk. A pipe is not asked: somebody who reads from it would hold this up.
fn path_of(handle: BorrowedHandle<'_>) -> Option<String> {
    let raw = handle.as_raw_handle();
    // SAFETY: asked about an open handle.
    if unsafe { GetFileType(raw) } != FILE_TYPE_DISK {
        return None;
    }
    let mut path = vec![0_u16; 1 << 10];
    loop {
        let room = path.len() as u32;
        // SAFETY: an open handle, and memory for that many.
        let length = unsafe {
            GetFinalPathNameByHandleW(raw, path.as_mut_ptr(), room, FILE_NAME_NORMALIZED)
        };
        match length as usize {
            0 => return None,
            length if length < path.len() => {
                return path.get(..length).map(String::from_utf16_lossy);
            }
            needed => path.resize(needed + 1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::pipe;

    /// Wine has no such lock, and answers.
    #[test]
    fn a_read_that_waits_does_not_hold_up_the_list() {
        let (reader, writer) = pipe::pair(Default::default()).unwrap();
        let number = reader.as_raw_handle().addr() as i64;
        let copy = crate::base::handle::Handle::from(reader.try_clone().unwrap());
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| std::io::Read::read(&mut &reader, &mut [0; 4]).unwrap());
            if let Ok(listed) = open_handles() {
                assert!(listed.iter().any(|open| open.number == number));
            }
            assert!(matches!(copy.kind().unwrap(), HandleKind::Pipe | HandleKind::Unknown));
            // Nor is it asked in vain what another end is.
            drop(pipe::PipeReader::from(std::os::windows::io::OwnedHandle::from(copy)));
            std::io::Write::write_all(&mut &writer, b"x").unwrap();
            assert_eq!(reads.join().unwrap(), 1);
        });
    }

    #[test]
    fn what_is_opened_is_listed_and_not_inheritable() {
        let (reader, writer) = pipe::pair(Default::default()).unwrap();
        let exe = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let listed = match open_handles() {
            Ok(listed) => listed,
            Err(error) => return eprintln!("SKIPPED: no list of handles: {error}"),
        };
        let find = |raw: std::os::windows::io::RawHandle| {
            listed.iter().find(|open| open.number == raw.addr() as i64).unwrap_or_else(|| {
                panic!("{raw:?} is not in {listed:?}");
            })
        };
        for pipe in [find(reader.as_raw_handle()), find(writer.as_raw_handle())] {
            assert_eq!((pipe.kind, pipe.inheritable), (HandleKind::Pipe, false));
        }
        let exe = find(exe.as_raw_handle());
        assert_eq!(exe.kind, HandleKind::File);
        assert!(exe.target.as_ref().unwrap().to_lowercase().ends_with(".exe"), "{exe:?}");
        assert!(listed.iter().all(|open| open.number > 0 && open.number % 4 == 0));
    }
}
