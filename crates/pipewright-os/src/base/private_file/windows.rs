//! Files whose rights their folder decides.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn set_private(_: &mut OpenOptions) {}

pub(super) fn set_careful(_: &mut OpenOptions) {}

pub(super) fn set_no_follow(_: &mut OpenOptions) {}

pub(super) fn create_private(path: &Path) -> io::Result<File> {
    File::create(path)
}

pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

pub(super) fn links(_: &Metadata) -> u64 {
    1
}

pub(super) fn owner(_: &Metadata) -> Option<(u32, u32)> {
    None
}

pub(super) fn others_may_write(_: &Metadata) -> bool {
    false
}

pub(super) fn is_this_user(_: u32) -> bool {
    true
}

pub(super) fn give_to(_: &File, _: Option<(u32, u32)>) -> io::Result<()> {
    Ok(())
}

pub(super) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if let Some(folder) = path.parent() {
        fs::metadata(folder)?;
    }
    Ok(path)
}

pub(super) fn check_access(path: &Path) -> io::Result<()> {
    File::open(path).map(drop)
}

pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
