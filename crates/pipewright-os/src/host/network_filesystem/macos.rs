//! `statfs`.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn is_network_filesystem(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a path that ends with a zero, and room for the struct.
    if unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it in; all zeroes was a value before.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_flags & libc::MNT_LOCAL as u32 == 0)
}
