//! The search for the program: the first candidate that can be loaded.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::ptr;

use rustix::fs::{Access, AtFlags, CWD, FileType};

use crate::process::spawn::{Group, Plan, SpawnError, Step};

/// Tries the candidates in the way execvp(3) goes through PATH, and `load`s. Allocates nothing, so that a
/// forked child can call it too.
///
/// # Safety
/// `candidates` is an array of C strings that ends with NULL.
pub(super) unsafe fn first<T>(
    candidates: *const *const c_char,
    searches: bool,
    load: impl Fn(*const c_char) -> Result<T, i32>,
) -> Result<T, i32> {
    let mut forbidden = false;
    let mut next = candidates;
    loop {
        // SAFETY: not past the NULL at the end.
        let path = unsafe { *next };
        if path.is_null() {
            return Err(if forbidden { libc::EACCES } else { libc::ENOENT });
        }
        // SAFETY: the NULL at the end is still ahead, or is next.
        next = unsafe { next.add(1) };
        // SAFETY: a C string.
        if searches && unsafe { libc::access(path, libc::X_OK) } != 0 {
            // access(2) answers for the real user; only the exec shows what the effective user may do.
            if errno() != libc::EACCES {
                continue;
            }
        }
        match load(path) {
            Ok(loaded) => return Ok(loaded),
            Err(errno) if !searches => return Err(errno),
            Err(libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {}
            // A later candidate may be allowed; if none is, this is the error to report.
            Err(libc::EACCES) => forbidden = true,
            Err(errno) => return Err(errno),
        }
    }
}

pub(super) fn errno() -> i32 {
    // SAFETY: no argument; the location is this thread's.
    let location = unsafe { libc::__error() };
    // SAFETY: a live int of this thread's.
    unsafe { *location }
}

/// The candidates as absolute paths, resolved from the child's working directory.
#[derive(Debug)]
pub(super) struct Absolute {
    /// The paths that some of the pointers refer to; never changed once the pointers exist.
    _paths: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Absolute {
    /// Resolves the candidates, which must stay as long as the result does.
    pub(super) fn new(dir: &Path, candidates: *const *const c_char) -> io::Result<Absolute> {
        let mut paths = Vec::new();
        let mut pointers = Vec::new();
        let mut next = candidates;
        loop {
            // SAFETY: an array of C strings that ends with NULL, and not past that.
            let candidate = unsafe { *next };
            if candidate.is_null() {
                break;
            }
            // SAFETY: the NULL at the end is still ahead, or is next.
            next = unsafe { next.add(1) };
            // SAFETY: as above.
            let bytes = unsafe { CStr::from_ptr(candidate) }.to_bytes();
            if bytes.first() == Some(&b'/') {
                pointers.push(candidate);
                continue;
            }
            let path = std::path::absolute(dir)?.join(OsStr::from_bytes(bytes));
            let path = CString::new(path.into_os_string().into_vec())?;
            pointers.push(path.as_ptr());
            paths.push(path);
        }
        pointers.push(ptr::null());
        Ok(Absolute { _paths: paths, pointers })
    }

    pub(super) fn candidates(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// Finds the step that failed: the call has one error number for all of them.
pub(super) fn failed_step(plan: &Plan<'_>, errno: i32) -> SpawnError {
    let error = io::Error::from_raw_os_error(errno);
    if let Some(error) = plan.current_dir.and_then(working_dir_error) {
        return SpawnError::new(Step::CurrentDir, error);
    }
    let step = match errno {
        // The limit on processes (fork(2)).
        libc::EAGAIN => Step::Create,
        // From setpgid(2).
        libc::EPERM | libc::EINVAL | libc::ESRCH if matches!(plan.unix.group, Group::Join(_)) => {
            Step::Group
        }
        _ => Step::Exec,
    };
    SpawnError::new(step, error)
}

/// Returns the error that a change to that directory gives, if it gives one.
fn working_dir_error(dir: &Path) -> Option<io::Error> {
    match rustix::fs::stat(dir) {
        Err(error) => return Some(error.into()),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
            return Some(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        Ok(_) => {}
    }
    let may_enter = rustix::fs::accessat(CWD, dir, Access::EXEC_OK, AtFlags::EACCESS);
    may_enter.err().map(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn relative_candidates_are_resolved_from_the_childs_directory() {
        let strings = [c"/bin/cc", c"./cc", c"../x/cc"];
        let mut array: Vec<*const c_char> = strings.iter().map(|it| it.as_ptr()).collect();
        array.push(ptr::null());
        let made = Absolute::new(Path::new("/some where"), array.as_ptr()).unwrap();
        let mut found = Vec::new();
        for pointer in made.pointers.iter().take(strings.len()) {
            // SAFETY: C strings; the NULL at the end is not among them.
            found.push(PathBuf::from(unsafe { CStr::from_ptr(*pointer) }.to_str().unwrap()));
        }
        assert_eq!(found, ["/bin/cc", "/some where/cc", "/some where/../x/cc"].map(PathBuf::from));
    }
}
