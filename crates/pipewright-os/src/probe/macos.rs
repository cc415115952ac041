//! `libproc`, and one careful call for each facility.

pub(super) use super::told::processors;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

use rustix::fs::Access;

use super::told::{facility, open_files, processes, value};
use super::{Facility, OpenHandle};
use crate::exit::kqueue::Watch;
use crate::handle::{HandleKind, is_close_on_exec, kind_of_number};
use crate::tree::libproc::{self, Started};

pub(super) fn open_handles() -> io::Result<Vec<OpenHandle>> {
    let mut handles = libproc::handles().ok_or_else(io::Error::last_os_error)?;
    handles.sort_unstable();
    Ok(handles.into_iter().filter_map(|(number, kind)| describe(number, kind)).collect())
}

/// `None`: it was closed meanwhile. The number may be another handle's in the next call: nothing is done to
/// it.
fn describe(number: i32, kind: libc::c_int) -> Option<OpenHandle> {
    let goes_at_exec = is_close_on_exec(number).ok()?;
    let is_file = kind == libc::PROX_FDTYPE_VNODE;
    let path = is_file.then(|| path_of(number)).flatten();
    Some(OpenHandle {
        number: i64::from(number),
        // fstat calls a kqueue a pipe.
        kind: match kind {
            libc::PROX_FDTYPE_KQUEUE => HandleKind::Unknown,
            _ => kind_of_number(number).unwrap_or(HandleKind::Unknown),
        },
        target: path.map(|path| OsString::from_vec(path).to_string_lossy().into_owned()),
        inheritable: !goes_at_exec,
    })
}

/// The path of what has that number now.
fn path_of(number: i32) -> Option<Vec<u8>> {
    let mut path = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: a number, which is an error of the call where it is not open, and room for a path.
    let result = unsafe { libc::fcntl(number, libc::F_GETPATH, path.as_mut_ptr()) };
    path.truncate(path.iter().position(|byte| *byte == 0)?);
    (result != -1).then_some(path)
}

pub(super) fn facilities() -> Vec<Facility> {
    vec![
        facility(
            "kqueue",
            kqueue(),
            "waiting for the end of a process: without it it is looked at",
        ),
        facility(
            "libproc",
            libproc_works(),
            "finding the descendants of a child: without it a kill reaches the child and its group",
        ),
        facility(
            "guard",
            shell(),
            "ending a child with its program: /bin/sh waits for the end of it",
        ),
        value("open handles", open_files(), "how many handles this process may have open"),
        value("processes", processes(), "how many processes this user may have"),
        value("kernel", kernel(), "macOS 10.15 (Darwin 19) is the oldest that is supported"),
    ]
}

fn kqueue() -> io::Result<String> {
    Watch::of(std::process::id()).map(|_| String::new())
}

fn libproc_works() -> io::Result<String> {
    let own = Started::of(std::process::id());
    own.map(|_| String::new()).ok_or_else(io::Error::last_os_error)
}

fn shell() -> io::Result<String> {
    rustix::fs::access("/bin/sh", Access::EXEC_OK)?;
    Ok("/bin/sh".to_owned())
}

fn kernel() -> String {
    // SAFETY: an utsname is plain bytes, for which all zeroes is a value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: a live struct.
    if unsafe { libc::uname(&raw mut names) } != 0 {
        return io::Error::last_os_error().to_string();
    }
    let release = names.release.map(|byte| byte as u8);
    let release = release.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(release).into_owned()
}
