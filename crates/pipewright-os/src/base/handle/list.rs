//! The open handles of this process.

#[cfg(all(windows, any(feature = "process", test)))]
pub(crate) use imp::count as own_handle_count;
#[cfg(all(windows, test))]
pub(crate) use imp::wait_for_fewer as wait_for_fewer_handles;

use std::io;

use super::HandleKind;

/// An open handle of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenHandle {
    /// Its number.
    pub number: i64,
    /// The kind of object that it refers to.
    pub kind: HandleKind,
    /// The name of that object, if it has one.
    pub target: Option<String>,
    /// True if it is inherited by a child whose start lists no handles, and by a program that replaces
    /// this process.
    pub inheritable: bool,
}

/// Returns the open handles of this process, ordered by number.
///
/// # Platform
/// Linux: `/proc/self/fd`. macOS: `proc_pidinfo(PROC_PIDLISTFDS)`, and the names by `F_GETPATH`.
/// Windows: `NtQueryInformationProcess`, or `NtQuerySystemInformation` if that is not supported;
/// the target of a handle that is not a file is its type. A pipe end in a synchronous read on another
/// thread can delay this call until the read ends.
///
/// # Errors
/// The list cannot be read.
pub fn open_handles() -> io::Result<Vec<OpenHandle>> {
    imp::open_handles()
}

// `/proc/self/fd`.
#[cfg(target_os = "linux")]
mod imp {
    use std::os::fd::AsFd;
    use std::{fs, io};

    use super::OpenHandle;
    use crate::base::handle::{is_close_on_exec, kind_of_number};

    pub(super) fn open_handles() -> io::Result<Vec<OpenHandle>> {
        let dir = fs::File::open("/proc/self/fd")?;
        // The list also contains the descriptor of the directory, which is open only for this call.
        let own = std::os::fd::AsRawFd::as_raw_fd(&dir);
        let mut reader = rustix::fs::Dir::read_from(dir.as_fd())?;
        let mut numbers = Vec::new();
        while let Some(entry) = reader.read() {
            let entry = entry?;
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
            numbers.extend(number.filter(|number| *number != own));
        }
        drop(reader);
        numbers.sort_unstable();
        Ok(numbers.into_iter().filter_map(describe).collect())
    }

    /// Describes a handle. `None`: it has been closed meanwhile (the second descriptor of the directory
    /// itself). The next call may find another handle under that number: nothing is done to it.
    fn describe(number: i32) -> Option<OpenHandle> {
        let kind = kind_of_number(number).ok()?;
        let close_on_exec = is_close_on_exec(number).ok()?;
        let target = fs::read_link(format!("/proc/self/fd/{number}")).ok();
        Some(OpenHandle {
            number: i64::from(number),
            kind,
            target: target.map(|target| target.to_string_lossy().into_owned()),
            inheritable: !close_on_exec,
        })
    }
}

// `proc_pidinfo(PROC_PIDLISTFDS)`.
#[cfg(target_os = "macos")]
mod imp {
    use std::ffi::OsString;
    use std::io;
    use std::os::unix::ffi::OsStringExt as _;

    use super::OpenHandle;
    use crate::base::handle::{HandleKind, is_close_on_exec, kind_of_number};

    pub(super) fn open_handles() -> io::Result<Vec<OpenHandle>> {
        let mut handles = handles().ok_or_else(io::Error::last_os_error)?;
        handles.sort_unstable();
        Ok(handles.into_iter().filter_map(|(number, kind)| describe(number, kind)).collect())
    }

    /// Describes a handle. `None`: it has been closed meanwhile. The next call may find another handle
    /// under that number: nothing is done to it.
    fn describe(number: i32, kind: libc::c_int) -> Option<OpenHandle> {
        let close_on_exec = is_close_on_exec(number).ok()?;
        let is_file = kind == libc::PROX_FDTYPE_VNODE;
        let path = is_file.then(|| path_of(number)).flatten();
        Some(OpenHandle {
            number: i64::from(number),
            // fstat reports a kqueue as a pipe.
            kind: match kind {
                libc::PROX_FDTYPE_KQUEUE => HandleKind::Unknown,
                _ => kind_of_number(number).unwrap_or(HandleKind::Unknown),
            },
            target: path.map(|path| OsString::from_vec(path).to_string_lossy().into_owned()),
            inheritable: !close_on_exec,
        })
    }

    /// Returns the path of the object that the descriptor refers to.
    fn path_of(number: i32) -> Option<Vec<u8>> {
        let mut path = vec![0_u8; libc::PATH_MAX as usize];
        // SAFETY: an integer, for which the call fails if it is not open, and room for a path.
        let result = unsafe { libc::fcntl(number, libc::F_GETPATH, path.as_mut_ptr()) };
        path.truncate(path.iter().position(|byte| *byte == 0)?);
        (result != -1).then_some(path)
    }

    /// Returns the number of each handle of this process, and its type (`PROX_FDTYPE_...`).
    fn handles() -> Option<Vec<(i32, i32)>> {
        let own = std::process::id() as libc::c_int;
        let mut infos = vec![libc::proc_fdinfo { proc_fd: 0, proc_fdtype: 0 }; 64];
        loop {
            let bytes = size_of_val(infos.as_slice());
            // SAFETY: room for that many bytes, in the format of this flavor.
            let filled = unsafe {
                let (list, room) = (libc::PROC_PIDLISTFDS, bytes as libc::c_int);
                libc::proc_pidinfo(own, list, 0, infos.as_mut_ptr().cast(), room)
            };
            let filled = usize::try_from(filled).ok().filter(|filled| *filled > 0)?;
            let count = filled / size_of::<libc::proc_fdinfo>();
            if count < infos.len() {
                infos.truncate(count);
                return Some(infos.iter().map(|it| (it.proc_fd, it.proc_fdtype as i32)).collect());
            }
            infos.resize(infos.len() * 4, libc::proc_fdinfo { proc_fd: 0, proc_fdtype: 0 });
        }
    }
}

// The handles of this process, as the kernel lists them.
#[cfg(windows)]
mod imp {
    use std::os::windows::io::{AsRawHandle, BorrowedHandle};
    use std::{io, mem, process, ptr, slice};

    use windows_sys::Wdk::Foundation::{NtQueryObject, ObjectTypeInformation};
    use windows_sys::Wdk::System::SystemInformation::NtQuerySystemInformation;
    use windows_sys::Wdk::System::Threading::{
        NtQueryInformationProcess, ProcessHandleInformation,
    };
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
    use crate::base::error::os_error;
    use crate::base::handle::{HandleKind, kind_of, timed_query};

    /// The layout of both lists on a 64-bit system: their length and a reserved word, then entries of
    /// this many words.
    const HEADER_WORDS: usize = 2;
    const ENTRY_WORDS: usize = 5;
    /// The class of the list of all handles in the system: `SystemExtendedHandleInformation`.
    const SYSTEM_EXTENDED_HANDLES: i32 = 64;
    /// The size limit of a list. No real list is this large, so a longer one is an error.
    const MAX_WORDS: usize = 32 << 20;

    pub(super) fn open_handles() -> io::Result<Vec<OpenHandle>> {
        let mut listed = listed()?;
        listed.sort_unstable();
        Ok(listed.into_iter().filter_map(describe).collect())
    }

    /// Lists the handles of this process: numbers and attributes.
    fn listed() -> io::Result<Vec<(usize, u32)>> {
        if mem::size_of::<usize>() != 8 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        process_list().or_else(|_| system_list())
    }

    /// Waits until fewer than that many handles are open. Other tests of the program may have hundreds open for a
    /// moment, and threads keep some a little longer.
    #[cfg(test)]
    pub(crate) fn wait_for_fewer(most: u32) {
        for _ in 0..2000 {
            if count().unwrap() < most {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        panic!("{} handles are open, and should be fewer than {most}", count().unwrap());
    }

    /// Returns the number of open handles.
    #[cfg(any(feature = "process", test))]
    pub(crate) fn count() -> io::Result<u32> {
        let mut count = 0;
        // SAFETY: no arguments; a pseudo handle, which is never closed.
        let own = unsafe { GetCurrentProcess() };
        // SAFETY: this process, and a live integer.
        match unsafe { GetProcessHandleCount(own, &raw mut count) } {
            0 => Err(io::Error::last_os_error()),
            // Wine does not count: every process has handles.
            _ if count == 0 => listed().map(|listed| listed.len() as u32),
            _ => Ok(count),
        }
    }

    /// Lists the handles of this process (`PROCESS_HANDLE_SNAPSHOT_INFORMATION`).
    fn process_list() -> io::Result<Vec<(usize, u32)>> {
        // SAFETY: no arguments; a pseudo handle, which is never closed.
        let own = unsafe { GetCurrentProcess() };
        let words = query_list(&mut |to, size, needed| {
            // SAFETY: this process, and memory of that size.
            unsafe {
                NtQueryInformationProcess(own, ProcessHandleInformation, to.cast(), size, needed)
            }
        })?;
        Ok(entries(&words).map(|entry| (entry[0], entry[4] as u32)).collect())
    }

    /// Picks the handles of this process from the list of the whole system
    /// (`SYSTEM_HANDLE_INFORMATION_EX`): for systems before Windows 8, and Wine.
    fn system_list() -> io::Result<Vec<(usize, u32)>> {
        let words = query_list(&mut |to, size, needed| {
            // SAFETY: memory of that size.
            unsafe { NtQuerySystemInformation(SYSTEM_EXTENDED_HANDLES, to.cast(), size, needed) }
        })?;
        let own = process::id() as usize;
        let ours = entries(&words).filter(|entry| entry[1] == own);
        Ok(ours.map(|entry| (entry[2], entry[4] as u32)).collect())
    }

    fn entries(words: &[usize]) -> impl Iterator<Item = [usize; ENTRY_WORDS]> {
        let count = words.first().copied().unwrap_or(0);
        let entries = words.get(HEADER_WORDS..).unwrap_or_default().chunks_exact(ENTRY_WORDS);
        entries.take(count).filter_map(|entry| entry.try_into().ok())
    }

    /// Repeats a query with ever larger buffers until one is large enough.
    fn query_list(
        query: &mut dyn FnMut(*mut usize, u32, *mut u32) -> NTSTATUS,
    ) -> io::Result<Vec<usize>> {
        let mut words = vec![0_usize; 4 << 10];
        loop {
            let mut needed = 0;
            let size = mem::size_of_val(words.as_slice()) as u32;
            match query(words.as_mut_ptr(), size, &raw mut needed) {
                STATUS_INFO_LENGTH_MISMATCH if words.len() < MAX_WORDS => {
                    // Extra room for handles that are opened meanwhile.
                    words = vec![0; (words.len() * 2).max(needed as usize / 8 + 1024)];
                }
                status if status >= 0 => return Ok(words),
                // SAFETY: an integer argument.
                status => return Err(os_error(unsafe { RtlNtStatusToDosError(status) })),
            }
        }
    }

    /// Describes a handle. `None`: it has been closed meanwhile.
    fn describe((number, attributes): (usize, u32)) -> Option<OpenHandle> {
        let raw = ptr::without_provenance_mut(number);
        // SAFETY: only used for queries, each of which fails if the handle is not open.
        let handle = unsafe { BorrowedHandle::borrow_raw(raw) };
        let type_name = type_name(handle)?;
        let is_file = type_name == "File";
        // Only files are queried for their kind. Another thread may be in a call on one, such as a
        // blocked read, and the query waits for that call.
        let describe_file =
            |handle: BorrowedHandle<'_>| kind_of(handle).ok().map(|kind| (kind, path_of(handle)));
        let (kind, target) = match is_file {
            true => {
                timed_query(handle, describe_file).unwrap_or(Some((HandleKind::Unknown, None)))?
            }
            false => (HandleKind::Unknown, Some(type_name)),
        };
        let inheritable = attributes & OBJ_INHERIT != 0;
        Some(OpenHandle { number: number as i64, kind, target, inheritable })
    }

    /// Returns the type of the object: `File`, `WaitEvent`, `Process`.
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
        // SAFETY: initialized by the call, or all zeroes; and aligned.
        let name = unsafe { (*to.cast::<PUBLIC_OBJECT_TYPE_INFORMATION>()).TypeName };
        if name.Buffer.is_null() {
            return Some(String::new());
        }
        // SAFETY: the name follows the struct in the same buffer; its length is in bytes.
        let name = unsafe { slice::from_raw_parts(name.Buffer, usize::from(name.Length) / 2) };
        Some(String::from_utf16_lossy(name))
    }

    /// Returns the path of an object on a disk. Asks no pipe: a blocked read on it would delay the
    /// answer.
    fn path_of(handle: BorrowedHandle<'_>) -> Option<String> {
        let raw = handle.as_raw_handle();
        // SAFETY: only queries an open handle.
        if unsafe { GetFileType(raw) } != FILE_TYPE_DISK {
            return None;
        }
        let mut path = vec![0_u16; 1 << 10];
        loop {
            let room = path.len() as u32;
            // SAFETY: an open handle, and memory for that many units.
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

        /// Passes on Wine in any case: it has no such lock, and answers.
        #[test]
        fn a_blocked_read_does_not_delay_the_list() {
            let (reader, writer) = pipe::pair(Default::default()).unwrap();
            let number = reader.as_raw_handle().addr() as i64;
            let copy = crate::base::handle::Handle::from(reader.try_clone().unwrap());
            std::thread::scope(|scope| {
                let reads = scope.spawn(|| std::io::Read::read(&mut &reader, &mut [0; 4]).unwrap());
                if let Ok(listed) = open_handles() {
                    assert!(listed.iter().any(|open| open.number == number));
                }
                assert!(matches!(copy.kind().unwrap(), HandleKind::Pipe | HandleKind::Unknown));
                // A query for the mode of the end does not wait either.
                drop(pipe::PipeReader::from(std::os::windows::io::OwnedHandle::from(copy)));
                std::io::Write::write_all(&mut &writer, b"x").unwrap();
                assert_eq!(reads.join().unwrap(), 1);
            });
        }

        #[test]
        fn open_handles_are_listed_as_not_inheritable() {
            let (reader, writer) = pipe::pair(Default::default()).unwrap();
            let exe = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            let listed = match open_handles() {
                Ok(listed) => listed,
                Err(error) => {
                    return crate::base::skipped::skipped(
                        crate::base::skipped::Need::Windows,
                        error,
                    );
                }
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
}
