//! Owners, rights and names of files.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Gid, Uid, accessat, fchown};
use rustix::process::geteuid;

use super::{Distrust, open};

pub(super) fn set_private(options: &mut OpenOptions) {
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
}

/// Makes the open follow no link, and not wait for the other side of a pipe.
pub(super) fn set_careful(options: &mut OpenOptions) {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
}

pub(super) fn set_no_follow(options: &mut OpenOptions) {
    options.custom_flags(libc::O_NOFOLLOW);
}

pub(super) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = open(path, options.write(true).create(true).truncate(false).mode(0o600))?;
    let found = file.metadata()?;
    if found.is_file() {
        if !is_this_user(found.uid()) {
            // He could give others the rights again, also where this is root.
            return Err(Distrust::OtherOwner(found.uid()).into());
        }
        // Before anything is written to one that was there.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    } else if found.file_type().is_fifo() && !is_this_user(found.uid()) && found.uid() != 0 {
        // He reads it.
        return Err(Distrust::OtherOwner(found.uid()).into());
    }
    Ok(file)
}

pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

pub(super) fn links(found: &Metadata) -> u64 {
    found.nlink()
}

pub(super) fn owner(found: &Metadata) -> Option<(u32, u32)> {
    Some((found.uid(), found.gid()))
}

/// Returns true if the group or all users may write. With an access list, the bits of the group are the most that it gives.
pub(super) fn others_may_write(found: &Metadata) -> bool {
    found.mode() & 0o022 != 0
}

pub(super) fn is_this_user(user: u32) -> bool {
    geteuid().as_raw() == user
}

/// Gives a file of root to another user.
pub(super) fn give_to(file: &File, owner: Option<(u32, u32)>) -> io::Result<()> {
    match owner {
        Some((user, group)) if geteuid().is_root() && user != 0 => {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            Ok(fchown(file, Some(user), Some(group))?)
        }
        _ => Ok(()),
    }
}

pub(super) fn real_path(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        real => return real,
    }
    // Nothing has the name, or a link there leads to nothing: it stays, and is not followed.
    let Some(name) = path.file_name() else { return std::path::absolute(path) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name))
}

pub(super) fn check_access(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS)?)
}

pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some filesystems have nothing to flush there. A folder that may not be read cannot be flushed.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        flushed => flushed,
    }
}
