//! Makes pipes. They are named pipes, because only those can be overlapped, but no other process
//! can open them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::sync::OnceLock;
use std::{process, ptr};

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY, GENERIC_READ, GENERIC_WRITE, HANDLE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Security::SECURITY_ATTRIBUTES;
use windows_sys::Win32::Storage::FileSystem::{
    CreateFileW, FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, FILE_READ_ATTRIBUTES,
    FILE_WRITE_ATTRIBUTES, OPEN_EXISTING, PIPE_ACCESS_DUPLEX, PIPE_ACCESS_INBOUND,
    SECURITY_IDENTIFICATION, SECURITY_SQOS_PRESENT,
};
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE, PIPE_WAIT,
};

use super::super::{Mode, PipeOptions};
use crate::base::handle::{OWNER_ONLY, SecurityDescriptor};

/// The default capacity: as much as on Linux.
const DEFAULT_BYTES: usize = 64 << 10;
/// The minimum capacity. With less, reader and writer take turns too often (dotnet/runtime#125643).
const MIN_BYTES: usize = 16 << 10;
/// The default timeout for clients that wait for a free instance. It has no effect, as there are
/// none.
const TIMEOUT_MS: u32 = 120_000;
/// The number of names to try. After that many failures, another process must be taking them on
/// purpose.
const MAX_TRIES: u32 = 8;

pub(super) struct Ends {
    pub(super) read: OwnedHandle,
    pub(super) write: OwnedHandle,
    /// The capacity of the pipe.
    pub(super) bytes: u32,
}

pub(super) fn pair(options: PipeOptions) -> io::Result<Ends> {
    pair_named(options, &mut random_name)
}

fn pair_named(options: PipeOptions, name: &mut dyn FnMut() -> String) -> io::Result<Ends> {
    let bytes = options.capacity.unwrap_or(DEFAULT_BYTES).max(MIN_BYTES);
    let bytes = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // This process usually keeps the end that is made first: the overlapped one.
    let reader_first = options.read == Mode::Async || options.write == Mode::Sync;
    // The same rights as on the ends of an anonymous pipe: programs query and set its state.
    let options = match reader_first {
        true => EndOptions {
            create_flags: PIPE_ACCESS_INBOUND | flag(options.read),
            open_access: GENERIC_WRITE | FILE_READ_ATTRIBUTES,
            open_flags: flag(options.write),
            bytes,
        },
        false => EndOptions {
            // Not `PIPE_ACCESS_OUTBOUND`: without read access (which includes
            // `FILE_READ_ATTRIBUTES`) the kernel does not report how much room there is. No process
            // can write in the other direction, as the other end is opened for reading only.
            create_flags: PIPE_ACCESS_DUPLEX | flag(options.write),
            open_access: GENERIC_READ | FILE_WRITE_ATTRIBUTES,
            open_flags: flag(options.read),
            bytes,
        },
    };
    let (made, opened) = ends_with_names(&options, name)?;
    let (read, write) = if reader_first { (made, opened) } else { (opened, made) };
    Ok(Ends { read, write, bytes })
}

/// Makes two ends for both directions, each with a buffer of that many bytes. Calls on both are
/// overlapped.
#[cfg(feature = "ipc")]
pub(crate) fn duplex(bytes: u32) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let options = EndOptions {
        create_flags: PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED,
        open_access: GENERIC_READ | GENERIC_WRITE,
        open_flags: FILE_FLAG_OVERLAPPED,
        bytes,
    };
    ends_with_names(&options, &mut random_name)
}

/// The flags with which the first end is created, and the access and flags with which the other is
/// opened.
struct EndOptions {
    create_flags: u32,
    open_access: u32,
    open_flags: u32,
    bytes: u32,
}

fn ends_with_names(
    options: &EndOptions,
    name: &mut dyn FnMut() -> String,
) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let mut tries = 1;
    loop {
        let name: Vec<u16> = name().encode_utf16().chain([0]).collect();
        match ends_with_name(&name, options) {
            // Another process has made a pipe of that name before us, or has opened ours.
            Err(error) if tries < MAX_TRIES && is_taken(&error) => tries += 1,
            done => return done,
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY].iter().any(|taken| code == Some(*taken as i32))
}

fn ends_with_name(name: &[u16], options: &EndOptions) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let attributes = owner_only()?.attributes();
    let made = create_end(name, options, &raw const attributes)?;
    let opened = match open_end(name, options) {
        // The owner's rights are not ours, as in an app container: use the default rights of an
        // object.
        Err(error) if error.raw_os_error() == Some(ERROR_ACCESS_DENIED as i32) => {
            drop(made);
            let made = create_end(name, options, ptr::null())?;
            return Ok((made, open_end(name, options)?));
        }
        opened => opened?,
    };
    Ok((made, opened))
}

/// Returns the descriptor that lets only the owner open the pipe. Made once.
fn owner_only() -> io::Result<&'static SecurityDescriptor> {
    static DESCRIPTOR: OnceLock<SecurityDescriptor> = OnceLock::new();
    if let Some(owner_only) = DESCRIPTOR.get() {
        return Ok(owner_only);
    }
    let new = SecurityDescriptor::from_sddl(OWNER_ONLY)?;
    Ok(DESCRIPTOR.get_or_init(|| new))
}

fn create_end(
    name: &[u16],
    options: &EndOptions,
    attributes: *const SECURITY_ATTRIBUTES,
) -> io::Result<OwnedHandle> {
    // SAFETY: a name that ends with a zero; attributes that live, or none: so it is not
    // inheritable.
    own(unsafe {
        CreateNamedPipeW(
            name.as_ptr(),
            options.create_flags | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            options.bytes,
            options.bytes,
            TIMEOUT_MS,
            attributes,
        )
    })
}

fn open_end(name: &[u16], options: &EndOptions) -> io::Result<OwnedHandle> {
    // The holder of the other end may identify us, but not impersonate us.
    let flags = options.open_flags | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    let (name, access, none) = (name.as_ptr(), options.open_access, ptr::null_mut());
    // SAFETY: a name that ends with a zero, no attributes, so that it is not inheritable, and no
    // template.
    own(unsafe { CreateFileW(name, access, 0, ptr::null(), OPEN_EXISTING, flags, none) })
}

fn flag(mode: Mode) -> u32 {
    match mode {
        Mode::Sync => 0,
        Mode::Async => FILE_FLAG_OVERLAPPED,
    }
}

/// Takes ownership of an opened handle, or returns the error of the call.
fn own(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by that call, and owned by nothing else.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Returns a name that cannot be guessed: std keys these hashes with the system's random numbers,
/// each with another key.
fn random_name() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!(r"\\.\pipe\LOCAL\pipewright-{}-{:016x}{:016x}", process::id(), random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_skipped() {
        let [taken, free] = [random_name(), random_name()];
        let owner = pair_named(PipeOptions::default(), &mut || taken.clone()).unwrap();
        let mut names = vec![free.clone(), taken.clone(), taken.clone()];
        pair_named(PipeOptions::default(), &mut || names.pop().unwrap()).unwrap();
        assert_eq!(names, Vec::<String>::new());
        // Always the same name: an error, and not an endless loop.
        let mut queries = 0;
        let refused = pair_named(PipeOptions::default(), &mut || {
            queries += 1;
            taken.clone()
        });
        assert!(is_taken(&refused.err().unwrap()));
        assert_eq!(queries, MAX_TRIES);
        drop(owner);
        assert!(pair_named(PipeOptions::default(), &mut || taken.clone()).is_ok());
    }

    #[test]
    fn names_differ() {
        assert_ne!(random_name(), random_name());
    }
}
