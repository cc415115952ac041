//! `proc_pidinfo(PROC_PIDLISTFDS)`.

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
