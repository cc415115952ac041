//! Filesystems whose files are on another machine.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::path::Path;

/// Returns true if the system tells that the files below that path are on another machine.
///
/// Memory that is shared through such a file is not shared with other machines, and locks may not hold.
///
/// # Platform
/// Linux: `statfs`: NFS, SMB, AFS, Ceph, Lustre, GPFS, 9P and others. A filesystem in user space (FUSE) counts as remote, except
/// the kinds that are known to be local; the kind is read from `/proc/self/mountinfo`. macOS: `statfs`, without `MNT_LOCAL`.
/// Windows: `GetDriveTypeW` for the volume of the path.
///
/// # Errors
/// The path does not exist, or the system refuses to tell.
///
/// ```
/// # use pipewright_os::host::network_filesystem::is_network_filesystem;
/// assert!(is_network_filesystem("no such folder".as_ref()).is_err());
/// ```
#[doc(alias = "statfs")]
pub fn is_network_filesystem(path: &Path) -> io::Result<bool> {
    imp::is_network_filesystem(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_an_error() {
        let error = is_network_filesystem("no such folder/at all".as_ref()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_existing_folder_has_an_answer() {
        // Either answer is right: a developer's folder may be mounted from elsewhere.
        is_network_filesystem(&std::env::temp_dir()).unwrap();
    }
}
