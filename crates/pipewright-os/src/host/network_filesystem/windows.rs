//! `GetDriveTypeW` for the volume of a path.

use std::io;
use std::os::windows::ffi::OsStrExt;
use std::path::Path;

use windows_sys::Win32::Storage::FileSystem::{GetDriveTypeW, GetVolumePathNameW};
use windows_sys::Win32::System::WindowsProgramming::DRIVE_REMOTE;

pub(super) fn is_network_filesystem(path: &Path) -> io::Result<bool> {
    // The call below takes any path, so a missing one is found here.
    let path = std::path::absolute(path)?;
    path.metadata()?;
    let name: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    // The volume is a beginning of the path, with a backslash at its end.
    let mut volume = vec![0_u16; name.len() + 1];
    let room = u32::try_from(volume.len()).unwrap_or(u32::MAX);
    // SAFETY: a path that ends with a zero, and a live buffer with its size.
    if unsafe { GetVolumePathNameW(name.as_ptr(), volume.as_mut_ptr(), room) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the name of a volume, which ends with a zero.
    Ok(unsafe { GetDriveTypeW(volume.as_ptr()) } == DRIVE_REMOTE)
}
