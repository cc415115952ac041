//! Makes a pipe: a named one that nobody else can open, because only it can overlap.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::process;
use std::ptr;
use std::sync::OnceLock;

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
use crate::base::security::{Descriptor, OWNER};

/// What a pipe holds where nobody says otherwise: as much as on Linux.
const USUAL_BYTES: usize = 64 << 10;
/// With less, reader and writer take turns too often (dotnet/runtime#125643).
const LEAST_BYTES: usize = 16 << 10;
/// Of no consequence, as nobody waits for a free instance.
const TIMEOUT_MS: u32 = 120_000;
/// How many names are tried before somebody is believed to take each of them on purpose.
const NAMES: u32 = 8;

pub(super) struct Ends {
    pub(super) read: OwnedHandle,
    pub(super) write: OwnedHandle,
    /// What it holds.
    pub(super) bytes: u32,
}

pub(super) fn pair(options: PipeOptions) -> io::Result<Ends> {
    pair_named(options, &mut random_name)
}

fn pair_named(options: PipeOptions, name: &mut dyn FnMut() -> String) -> io::Result<Ends> {
    let bytes = options.capacity.unwrap_or(USUAL_BYTES).max(LEAST_BYTES);
    let bytes = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The end that is made first is ours as a rule: the one that overlaps.
    let reader_first = options.read == Mode::Async || options.write == Mode::Sync;
    // The rights that the ends of an anonymous pipe have: programs ask for its state, and set it.
    let kind = match reader_first {
        true => Kind {
            made: PIPE_ACCESS_INBOUND | flag(options.read),
            access: GENERIC_WRITE | FILE_READ_ATTRIBUTES,
            opened: flag(options.write),
            bytes,
        },
        false => Kind {
            // Not `PIPE_ACCESS_OUTBOUND`: without the right to read (`FILE_READ_ATTRIBUTES` is part of it) the
            // kernel does not tell how much room there is. Nobody can write in the other direction, as the
            // other end is opened for reading.
            made: PIPE_ACCESS_DUPLEX | flag(options.write),
            access: GENERIC_READ | FILE_WRITE_ATTRIBUTES,
            opened: flag(options.read),
            bytes,
        },
    };
    let (made, opened) = ends_named(&kind, name)?;
    let (read, write) = if reader_first { (made, opened) } else { (opened, made) };
    Ok(Ends { read, write, bytes })
}

/// Makes two ends for both directions, of which each holds so many bytes. Calls on both overlap.
#[cfg(feature = "ipc")]
pub(crate) fn duplex(bytes: u32) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let kind = Kind {
        made: PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED,
        access: GENERIC_READ | GENERIC_WRITE,
        opened: FILE_FLAG_OVERLAPPED,
        bytes,
    };
    ends_named(&kind, &mut random_name)
}

/// How the end is made, and how and for what the other one is opened.
struct Kind {
    made: u32,
    access: u32,
    opened: u32,
    bytes: u32,
}

fn ends_named(
    kind: &Kind,
    name: &mut dyn FnMut() -> String,
) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let mut tries = 1;
    loop {
        let name: Vec<u16> = name().encode_utf16().chain([0]).collect();
        match ends_at(&name, kind) {
            // Somebody has made a pipe of that name before us, or has opened ours before us.
            Err(error) if tries < NAMES && is_taken(&error) => tries += 1,
            done => return done,
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY].iter().any(|taken| code == Some(*taken as i32))
}

fn ends_at(name: &[u16], kind: &Kind) -> io::Result<(OwnedHandle, OwnedHandle)> {
    let attributes = owners()?.attributes();
    let made = made_at(name, kind, &raw const attributes)?;
    let opened = match opened_at(name, kind) {
        // The owner's rights are not ours, as in a container of an app: then it has those of any object.
        Err(error) if error.raw_os_error() == Some(ERROR_ACCESS_DENIED as i32) => {
            drop(made);
            let made = made_at(name, kind, ptr::null())?;
            return Ok((made, opened_at(name, kind)?));
        }
        opened => opened?,
    };
    Ok((made, opened))
}

/// Nobody but its owner may open the pipe. Made once.
fn owners() -> io::Result<&'static Descriptor> {
    static OWNERS: OnceLock<Descriptor> = OnceLock::new();
    if let Some(owners) = OWNERS.get() {
        return Ok(owners);
    }
    let new = Descriptor::of(OWNER)?;
    Ok(OWNERS.get_or_init(|| new))
}

fn made_at(
    name: &[u16],
    kind: &Kind,
    attributes: *const SECURITY_ATTRIBUTES,
) -> io::Result<OwnedHandle> {
    // SAFETY: a name that ends with a zero; attributes that live, or none: so it is not inherited.
    own(unsafe {
        CreateNamedPipeW(
            name.as_ptr(),
            kind.made | FILE_FLAG_FIRST_PIPE_INSTANCE,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            1,
            kind.bytes,
            kind.bytes,
            TIMEOUT_MS,
            attributes,
        )
    })
}

fn opened_at(name: &[u16], kind: &Kind) -> io::Result<OwnedHandle> {
    // Whoever is given the other end may ask who we are, and not act as we.
    let how = kind.opened | SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION;
    let (name, access, none) = (name.as_ptr(), kind.access, ptr::null_mut());
    // SAFETY: a name that ends with a zero, no attributes, so that it is not inherited, and no template.
    own(unsafe { CreateFileW(name, access, 0, ptr::null(), OPEN_EXISTING, how, none) })
}

fn flag(mode: Mode) -> u32 {
    match mode {
        Mode::Sync => 0,
        Mode::Async => FILE_FLAG_OVERLAPPED,
    }
}

/// Owns what a call has opened, if it has.
fn own(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by that call, for nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// A name that cannot be guessed: std keys these hashes from the system's random numbers, and each with
/// another key.
fn random_name() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!(r"\\.\pipe\LOCAL\pipewright-{}-{:016x}{:016x}", process::id(), random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_left_to_whoever_has_it() {
        let [taken, free] = [random_name(), random_name()];
        let squatter = pair_named(PipeOptions::default(), &mut || taken.clone()).unwrap();
        let mut names = vec![free.clone(), taken.clone(), taken.clone()];
        pair_named(PipeOptions::default(), &mut || names.pop().unwrap()).unwrap();
        assert_eq!(names, Vec::<String>::new());
        // Always the same name: an error, and not for ever.
        let mut asked = 0;
        let refused = pair_named(PipeOptions::default(), &mut || {
            asked += 1;
            taken.clone()
        });
        assert!(is_taken(&refused.err().unwrap()));
        assert_eq!(asked, NAMES);
        drop(squatter);
        assert!(pair_named(PipeOptions::default(), &mut || taken.clone()).is_ok());
    }

    #[test]
    fn names_differ() {
        assert_ne!(random_name(), random_name());
    }
}
