//! Files and folders that nobody else may change: their creation, the facts that tell them, and a lock on one.
//!
//! A user who may write in a folder decides what its names mean. A file there is trusted for its owner, its rights and
//! its number of names, never for its name. All code that opens a file beside a name of the user asks here.

mod folder;
mod lock;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use folder::{FolderId, OpenFolder};
pub use lock::{PrivateLock, lock_open_file};

/// Creates a file that only its owner can read and write, and opens it for writing.
///
/// # Platform
/// Unix: `open` with `O_EXCL` and mode 0600. Windows: the rights are those that the folder gives.
///
/// # Errors
/// The file exists, or cannot be created.
///
/// ```
/// # use pipewright_os::base::private_file::create_new;
/// let path = std::env::temp_dir().join(format!("private-{}", std::process::id()));
/// create_new(&path)?;
/// assert!(create_new(&path).is_err());
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    imp::set_private(options.read(true).write(true).create_new(true));
    options.open(path)
}

/// Creates a file that a user has named, or empties it. `is_private`: only its owner, who is this user, can read and
/// write it from now on. Otherwise the process's mask decides.
///
/// # Platform
/// Unix: mode 0600 or 0666. Windows: the rights are those that the folder gives.
///
/// # Errors
/// It cannot be created, keeps other rights, or cannot be trusted: then the error has a [`Distrust`]. It may be a link
/// that another user has made ([`check_link`]) or, if it is to be private, his file.
///
/// ```
/// # use pipewright_os::base::private_file::create;
/// let path = std::env::temp_dir().join(format!("private-named-{}", std::process::id()));
/// create(&path, false)?;
/// create(&path, true)?;
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create(path: &Path, is_private: bool) -> io::Result<File> {
    if !is_private {
        return open(path, OpenOptions::new().write(true).create(true).truncate(true));
    }
    let file = open_as_it_is(path, true)?;
    empty(&file, true)?;
    Ok(file)
}

/// Opens a file as [`create`] does, but leaves it as it is: its contents, and the rights of one that was there.
///
/// # Errors
/// As [`create`].
pub fn open_as_it_is(path: &Path, is_private: bool) -> io::Result<File> {
    match is_private {
        true => imp::open_private(path),
        false => open(path, OpenOptions::new().write(true).create(true).truncate(false)),
    }
}

/// Empties a file that [`open_as_it_is`] has opened, and gives it the rights that [`create`] does.
///
/// # Errors
/// It cannot be emptied, or keeps other rights.
pub fn empty(file: &File, is_private: bool) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    if is_private {
        // Before anything is written to one that was there.
        imp::make_private(file)?;
    }
    file.set_len(0)
}

/// Opens a file that a user has named as the options say, but not through a link that [`check_link`] refuses.
///
/// # Platform
/// Unix: `O_NOFOLLOW`, unless there was a link that may be followed, so that no other can be put in its place. The
/// custom flags of the options are lost. Windows: a plain open.
///
/// # Errors
/// It cannot be opened, or is such a link: then the error has a [`Distrust`].
///
/// ```
/// # use pipewright_os::base::private_file::open;
/// let path = std::env::temp_dir().join(format!("private-opened-{}", std::process::id()));
/// open(&path, std::fs::OpenOptions::new().create(true).append(true))?;
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if !checked_link(path)? {
        imp::set_no_follow(options);
    }
    options.open(path)
}

/// Checks that neither a name nor a folder in its path is a link that another user has put where others may make names:
/// in `/tmp`, or in a folder of his. Then he would choose what is written over.
///
/// # Platform
/// Unix: the link of root is trusted, too. Linux alone can do this (`fs.protected_symlinks`), in sticky folders.
/// Windows: does nothing.
///
/// # Errors
/// There is such a link: the error has a [`Distrust`]. Or the folder cannot be looked at.
pub fn check_link(path: &Path) -> io::Result<()> {
    checked_link(path).map(drop)
}

/// Returns true if there is a link that may be followed.
fn checked_link(path: &Path) -> io::Result<bool> {
    // `link/` and `link/.` are looked at as `link`: the system would look at what it leads to.
    let path: &Path = &path.components().collect::<PathBuf>();
    let above = path.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty());
    above.map(may_be_followed).collect::<io::Result<Vec<bool>>>()?;
    may_be_followed(path)
}

/// Returns true for a link that may be followed, and false for what is none.
fn may_be_followed(path: &Path) -> io::Result<bool> {
    // Where nothing can be looked at, the open finds the reason.
    let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_symlink);
    let Some(found) = found else { return Ok(false) };
    let maker = imp::owner(&found).map(|(user, _)| user);
    let Some(maker) = maker.filter(|user| *user != 0 && !imp::is_this_user(*user)) else {
        return Ok(true);
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match others_may_write_in(folder.unwrap_or(Path::new(".")))? {
        true => Err(Distrust::LinkOfOther(maker).into()),
        false => Ok(true),
    }
}

/// Creates a folder that only its owner can use. Succeeds if it exists, is one of this user, and nobody else may write
/// in it.
///
/// # Platform
/// Unix: mode 0700. Windows: the rights are those that the folder above gives.
///
/// # Errors
/// The folder cannot be created, or what has the name cannot be trusted: then the error has a [`Distrust`].
///
/// ```
/// # use pipewright_os::base::private_file::create_folder;
/// let path = std::env::temp_dir().join(format!("private-folder-{}", std::process::id()));
/// create_folder(&path)?;
/// create_folder(&path)?;
/// # std::fs::remove_dir(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_folder(path: &Path) -> io::Result<()> {
    match imp::create_folder(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // A link to a folder is followed: its target is looked at.
            Facts::of(&fs::metadata(path)?).check_folder().map_err(io::Error::from)
        }
        made => made,
    }
}

/// Opens a folder of that name that only this user can use, the same one for all of his programs until the machine
/// restarts, and creates it if it is missing. Returns its path, too.
///
/// The open folder is looked at, and not what has the name: another one may be there by then.
///
/// # Platform
/// Unix: `/tmp/NAME-USER`, with the number of the user; `TMPDIR` does not count, because programs have different ones.
/// Windows: in the folder for temporary files, which each user has.
///
/// # Errors
/// It cannot be created or opened (a link is not followed), or cannot be trusted: then the error has a [`Distrust`].
pub fn temporary_folder(name: &str) -> io::Result<(PathBuf, OpenFolder)> {
    let path = imp::temporary_folder(name);
    match imp::create_folder(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let folder = OpenFolder::open(&path)?;
    folder.facts()?.check_folder()?;
    Ok((path, folder))
}

/// The facts of a file or folder that say who may change it.
///
/// # Platform
/// Windows: only the kind and the length. Who may change a file there is decided by the rights of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    is_file: bool,
    is_folder: bool,
    bytes: u64,
    links: u64,
    /// The user and the group, where files have them.
    owner: Option<(u32, u32)>,
    others_may_write: bool,
    rights: u32,
    /// The file itself, where the system tells that.
    id: Option<(u64, u64)>,
}

/// The reason why a file or folder is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// It is a link, a pipe, a device or a folder.
    NotAFile,
    /// It is no folder.
    NotAFolder,
    /// Another user owns it.
    OtherOwner(u32),
    /// Another user has made the link.
    LinkOfOther(u32),
    /// Other users may write to it.
    OthersMayWrite,
    /// It has that many names. Another one may be in a folder of somebody else.
    Names(u64),
}

impl Facts {
    /// Looks at what has that name. A link is not followed. `None`: nothing has it.
    ///
    /// # Errors
    /// The file exists, or may exist, and cannot be looked at.
    ///
    /// ```
    /// # use pipewright_os::base::private_file::{Facts, create_new};
    /// let path = std::env::temp_dir().join(format!("private-facts-{}", std::process::id()));
    /// assert_eq!(Facts::look(&path)?, None);
    /// create_new(&path)?;
    /// let facts = Facts::look(&path)?.unwrap();
    /// assert!(facts.check_own().is_ok() && facts.check_beside(&facts).is_ok());
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn look(path: &Path) -> io::Result<Option<Facts>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Facts::of(&found))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks at an open file.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of_file(file: &File) -> io::Result<Facts> {
        file.metadata().map(|found| Facts::of(&found))
    }

    fn of(found: &fs::Metadata) -> Facts {
        Facts {
            is_file: found.is_file(),
            is_folder: found.is_dir(),
            bytes: found.len(),
            links: imp::links(found),
            owner: imp::owner(found),
            others_may_write: imp::others_may_write(found),
            rights: imp::rights(found),
            id: imp::id(found),
        }
    }

    /// Returns true if the other one is surely another file.
    #[must_use]
    pub fn is_another(&self, other: &Facts) -> bool {
        self.id.zip(other.id).is_some_and(|(this, other)| this != other)
    }

    /// Returns true for a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Returns the length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of names.
    #[must_use]
    pub fn names(&self) -> u64 {
        self.links
    }

    /// Returns what its owner, its group and all users may do, for
    /// [`create_with_rights`](OpenFolder::create_with_rights) of another machine too.
    ///
    /// # Platform
    /// Unix: the lower nine bits of its mode. Windows: 0666.
    #[must_use]
    pub fn rights(&self) -> u32 {
        self.rights
    }

    /// Returns true if files that this process makes are not those of its owner. (Root gives them to him.)
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.owner.is_some_and(|(user, _)| !imp::is_this_user(user) && !imp::is_this_user(0))
    }

    /// Checks that it is a regular file of this user, to which nobody else may write.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check_own(&self) -> Result<(), Distrust> {
        if !self.is_file {
            return Err(Distrust::NotAFile);
        }
        self.check_user()
    }

    /// Checks that it is a folder of this user, in which nobody else may write.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check_folder(&self) -> Result<(), Distrust> {
        if !self.is_folder {
            return Err(Distrust::NotAFolder);
        }
        self.check_user()
    }

    fn check_user(&self) -> Result<(), Distrust> {
        match self.owner {
            Some((user, _)) if !imp::is_this_user(user) => Err(Distrust::OtherOwner(user)),
            _ if self.others_may_write => Err(Distrust::OthersMayWrite),
            _ => Ok(()),
        }
    }

    /// Checks a file that belongs to `main`: a regular file with one name, of the owner of `main` or of this user.
    /// Others may write to it only if they may write to `main`.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check_beside(&self, main: &Facts) -> Result<(), Distrust> {
        let user = self.owner.map(|(user, _)| user);
        match user {
            _ if !self.is_file => Err(Distrust::NotAFile),
            Some(user)
                if !imp::is_this_user(user) && main.owner.is_none_or(|(main, _)| main != user) =>
            {
                Err(Distrust::OtherOwner(user))
            }
            _ if self.others_may_write && !main.others_may_write => Err(Distrust::OthersMayWrite),
            _ if self.links > 1 => Err(Distrust::Names(self.links)),
            _ => Ok(()),
        }
    }
}

/// Opens a file that belongs to `main`, or creates it with mode 0600. Returns true with one that it has created. The
/// bytes of the file are not touched.
///
/// A link is not followed, and an open of a pipe does not wait. The file of root beside that of another user gets the
/// owner of
/// `main`, so that he can use it later.
///
/// # Errors
/// It cannot be opened, or not be trusted: then the error has a [`Distrust`].
///
/// ```
/// # use pipewright_os::base::private_file::{Facts, create_new, open_beside};
/// let path = std::env::temp_dir().join(format!("private-beside-{}", std::process::id()));
/// let main = Facts::of_file(&create_new(&path)?)?;
/// let beside = path.with_extension("lock");
/// assert!(open_beside(&beside, &main)?.1);
/// assert!(!open_beside(&beside, &main)?.1);
/// # std::fs::remove_file(path)?;
/// # std::fs::remove_file(beside)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn open_beside(path: &Path, main: &Facts) -> io::Result<(File, bool)> {
    match create_beside(path, main) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            open_existing_beside(path, main).map(|file| (file, false))
        }
        created => created.map(|file| (file, true)),
    }
}

/// Creates a file that belongs to `main`, as [`create_new`] does. That of root beside the file of another user gets its
/// owner.
///
/// # Errors
/// As for [`create_new`].
pub fn create_beside(path: &Path, main: &Facts) -> io::Result<File> {
    let file = create_new(path)?;
    imp::give_to(&file, main.owner)?;
    Ok(file)
}

/// Opens a file that belongs to `main`, as [`open_beside`] does, to read and write it.
///
/// # Errors
/// It is missing, cannot be opened, or not be trusted: then the error has a [`Distrust`].
pub fn open_existing_beside(path: &Path, main: &Facts) -> io::Result<File> {
    // Before it is opened, because that has an effect on some devices.
    if let Some(found) = Facts::look(path)? {
        found.check_beside(main)?;
    }
    let mut options = OpenOptions::new();
    imp::set_careful(options.read(true).write(true));
    let file = options.open(path)?;
    Facts::of_file(&file)?.check_beside(main)?;
    Ok(file)
}

/// Returns true if another user than this one and root may make names in that folder, or false if the system cannot
/// tell.
///
/// # Errors
/// The folder cannot be looked at.
pub fn others_may_write_in(folder: &Path) -> io::Result<bool> {
    let facts = Facts::of(&fs::metadata(folder)?);
    Ok(facts.others_may_write
        || facts.owner.is_some_and(|(user, _)| user != 0 && !imp::is_this_user(user)))
}

/// Returns the path with every link in it followed, also those to a name that does not exist yet at its end.
///
/// # Platform
/// Windows: the path from the root; links stay.
///
/// # Errors
/// A folder in the path does not exist, or cannot be searched.
///
/// ```
/// # use pipewright_os::base::private_file::real_path;
/// # use std::path::Path;
/// assert!(real_path(Path::new("new"))?.is_absolute());
/// assert!(real_path(Path::new("no folder/new")).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    imp::real_path(path)
}

/// Checks that this user may read a file, without an open: to close a file releases all locks of POSIX that this
/// process holds on it.
///
/// # Platform
/// Unix: `faccessat` with the effective ids. Windows: opens the file.
///
/// # Errors
/// The reason why it cannot be read.
pub fn check_access(path: &Path) -> io::Result<()> {
    imp::check_access(path)
}

/// Makes the names in a folder durable.
///
/// # Platform
/// Unix: `fsync` of the folder, where its filesystem has one and this user may read it. Windows: does nothing, because
/// NTFS writes names in order.
///
/// # Errors
/// The folder cannot be opened or flushed.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    imp::sync_folder(folder)
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distrust::NotAFile => f.write_str("is not a regular file"),
            Distrust::NotAFolder => f.write_str("is not a folder"),
            Distrust::OtherOwner(user) => write!(f, "belongs to user {user}"),
            Distrust::LinkOfOther(user) => {
                write!(f, "its path has a link that user {user} has made: name the link's target")
            }
            Distrust::OthersMayWrite => f.write_str("can be written by other users"),
            Distrust::Names(count) => write!(f, "has {count} names"),
        }
    }
}

impl std::error::Error for Distrust {}

impl From<Distrust> for io::Error {
    fn from(reason: Distrust) -> io::Error {
        io::Error::new(ErrorKind::PermissionDenied, reason)
    }
}

/// Returns the [`Distrust`] in an error of this module.
///
/// ```
/// # use pipewright_os::base::private_file::{Distrust, distrust};
/// let error = std::io::Error::from(Distrust::OthersMayWrite);
/// assert_eq!(distrust(&error), Some(Distrust::OthersMayWrite));
/// ```
#[must_use]
pub fn distrust(error: &io::Error) -> Option<Distrust> {
    error.get_ref()?.downcast_ref().copied()
}

// Owners, rights and names of files.
#[cfg(unix)]
mod imp {
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

    pub(super) fn make_private(file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(0o600))
    }

    pub(super) fn open_private(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = open(path, options.write(true).create(true).truncate(false).mode(0o600))?;
        let found = file.metadata()?;
        if found.is_file() {
            if !is_this_user(found.uid()) {
                // He could give others the rights again, also where this is root.
                return Err(Distrust::OtherOwner(found.uid()).into());
            }
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

    pub(super) fn id(found: &Metadata) -> Option<(u64, u64)> {
        Some((found.dev(), found.ino()))
    }

    pub(super) fn owner(found: &Metadata) -> Option<(u32, u32)> {
        Some((found.uid(), found.gid()))
    }

    /// Returns true if the group or all users may write. With an access list, the bits of the group are the most that
    /// it gives.
    pub(super) fn others_may_write(found: &Metadata) -> bool {
        found.mode() & 0o022 != 0
    }

    pub(super) fn rights(found: &Metadata) -> u32 {
        found.mode() & 0o777
    }

    pub(super) fn temporary_folder(name: &str) -> PathBuf {
        PathBuf::from(format!("/tmp/{name}-{}", geteuid().as_raw()))
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
}

// Files whose rights their folder decides.
#[cfg(windows)]
mod imp {
    use std::fs::{self, File, Metadata, OpenOptions};
    use std::io;
    use std::path::{Path, PathBuf};

    pub(super) fn set_private(_: &mut OpenOptions) {}

    pub(super) fn set_careful(_: &mut OpenOptions) {}

    pub(super) fn set_no_follow(_: &mut OpenOptions) {}

    pub(super) fn make_private(_: &File) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn open_private(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(false).open(path)
    }

    pub(super) fn create_folder(path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    pub(super) fn links(_: &Metadata) -> u64 {
        1
    }

    pub(super) fn id(_: &Metadata) -> Option<(u64, u64)> {
        None
    }

    pub(super) fn owner(_: &Metadata) -> Option<(u32, u32)> {
        None
    }

    pub(super) fn others_may_write(_: &Metadata) -> bool {
        false
    }

    pub(super) fn rights(_: &Metadata) -> u32 {
        0o666
    }

    pub(super) fn temporary_folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(name)
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
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};

    use super::*;
    use crate::base::skipped::{Need, skipped};

    #[test]
    fn the_temporary_folder_is_one_for_all_programs_of_a_user() {
        let name = format!("pipewright-test-{}", std::process::id());
        let (path, open) = temporary_folder(&name).unwrap();
        assert!(path.starts_with("/tmp"), "{path:?}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let (again, open_again) = temporary_folder(&name).unwrap();
        assert_eq!((again, open_again.id().unwrap()), (path.clone(), open.id().unwrap()));
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let error = temporary_folder(&name).unwrap_err();
        assert!(error.to_string().contains("can be written by other users"), "{error}");
        // A link is not followed, also to a folder of this user's.
        let moved = path.with_extension("moved");
        fs::rename(&path, &moved).unwrap();
        fs::set_permissions(&moved, Permissions::from_mode(0o700)).unwrap();
        symlink(&moved, &path).unwrap();
        temporary_folder(&name).unwrap_err();
        fs::remove_file(path).unwrap();
        fs::remove_dir(moved).unwrap();
    }

    #[test]
    fn a_link_of_another_user_is_refused_however_its_name_is_written() {
        let folder = std::env::temp_dir().join(format!("private-links-{}", std::process::id()));
        create_folder(&folder).unwrap();
        let (link, target) = (folder.join("link"), folder.join("target"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &link).unwrap();
        let names = ["link", "link/", "link//", "link/.", "./link/./"];
        for name in names {
            let open = OpenFolder::open_named(&folder.join(name)).unwrap();
            assert_eq!(open.id().unwrap(), OpenFolder::open(&target).unwrap().id().unwrap());
        }
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        match lchown(&link, Some(65_533), Some(65_533)) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                skipped(Need::Root, "needs root, to make a link of another user");
            }
            made => {
                made.unwrap();
                for name in names {
                    let error = check_link(&folder.join(name)).unwrap_err();
                    assert!(error.to_string().contains("user 65533 has made"), "{name}: {error}");
                    OpenFolder::open_named(&folder.join(name)).unwrap_err();
                }
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
