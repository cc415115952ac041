//! A folder that is known by what it is, not by its name: a user who may write in the folder above can put another one,
//! or a link, in its place.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;

use super::{Distrust, Facts, checked_link, real_path};

/// The identity of a folder, while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderId(imp::Id);

/// An open folder. Links in it are not followed, and no pipe in it is waited for.
///
/// # Platform
/// Unix: a descriptor, and `openat`, `unlinkat` and `renameat`. Windows: the path.
///
/// ```
/// # use pipewright_os::base::private_file::OpenFolder;
/// # use std::io::Write as _;
/// let path = std::env::temp_dir().join(format!("open-folder-{}", std::process::id()));
/// OpenFolder::create(&path, true)?;
/// let folder = OpenFolder::open(&path)?;
/// folder.create_new("new", true)?.write_all(b"text")?;
/// folder.rename("new", "old")?;
/// assert!(folder.create_new("old", true).is_err());
/// assert_eq!(folder.open_to_append("old")?.metadata()?.len(), 4);
/// assert_eq!(OpenFolder::open(&path)?.id()?, folder.id()?);
/// folder.remove("old")?;
/// folder.remove("old")?;
/// # std::fs::remove_dir(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OpenFolder(imp::Folder);

impl OpenFolder {
    /// Creates a folder, for all users as the process's mask says, or for this user alone.
    ///
    /// # Errors
    /// Something has the name, or the folder above cannot be written.
    pub fn create(path: &Path, is_private: bool) -> io::Result<()> {
        imp::create(path, is_private)
    }

    /// Opens a folder. A link to one is refused.
    ///
    /// # Errors
    /// It is missing, no folder, or cannot be opened.
    pub fn open(path: &Path) -> io::Result<OpenFolder> {
        imp::Folder::open(path).map(OpenFolder)
    }

    /// Opens a folder that a user has named. A link to one is followed, but not one that
    /// [`check_link`](super::check_link) refuses.
    ///
    /// # Errors
    /// It is missing, no folder, or cannot be opened, or there is such a link: then the error has a [`Distrust`].
    pub fn open_named(path: &Path) -> io::Result<OpenFolder> {
        match checked_link(path)? {
            true => OpenFolder::open(&real_path(path)?),
            false => OpenFolder::open(path),
        }
    }

    /// Looks at the folder.
    ///
    /// # Errors
    /// The error of the system.
    pub fn facts(&self) -> io::Result<Facts> {
        self.0.metadata().map(|found| Facts::of(&found))
    }

    /// Returns its identity.
    ///
    /// # Errors
    /// The error of the system.
    pub fn id(&self) -> io::Result<FolderId> {
        self.0.id().map(FolderId)
    }

    /// Creates a file, and opens it to append.
    ///
    /// # Errors
    /// Something has the name, or the file cannot be created.
    pub fn create_new(&self, name: impl AsRef<OsStr>, is_private: bool) -> io::Result<File> {
        self.0.create_new(name.as_ref(), is_private)
    }

    /// Creates a file with the rights of another one, as far as the process's mask allows them, and opens it to append.
    ///
    /// # Platform
    /// Windows: the rights are those that the folder gives.
    ///
    /// # Errors
    /// Something has the name, or the file cannot be created.
    pub fn create_with_rights(&self, name: impl AsRef<OsStr>, rights: u32) -> io::Result<File> {
        self.0.create_with_rights(name.as_ref(), rights)
    }

    /// Creates a file that all users may read from its first moment on, and only its owner write, whatever the mask
    /// says.
    ///
    /// # Platform
    /// Unix: mode 0644, where the filesystem keeps modes. The process has no mask meanwhile: no other thread may create
    /// files. Windows: the rights are those that the folder gives.
    ///
    /// # Errors
    /// Something has the name, or the folder cannot be written.
    pub fn create_readable(&self, name: &str) -> io::Result<File> {
        self.0.create_readable(name)
    }

    /// Opens a regular file to append. It has one name: another one may be of a file that somebody else could not
    /// write.
    ///
    /// # Errors
    /// It is missing, something else ([`Distrust`]), or cannot be opened.
    pub fn open_to_append(&self, name: &str) -> io::Result<File> {
        let file = regular(self.0.open_to_append(name)?)?;
        match Facts::of_file(&file)?.names() {
            0 | 1 => Ok(file),
            names => Err(Distrust::Names(names).into()),
        }
    }

    /// Opens a regular file to read.
    ///
    /// # Errors
    /// It is missing, something else ([`Distrust`]), or cannot be opened.
    pub fn open_to_read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        regular(self.0.open_to_read(name.as_ref())?)
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match self.0.remove(name.as_ref()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives a file another name, and replaces what has it.
    ///
    /// # Errors
    /// It is missing, or the folder cannot be written.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        self.0.rename(from.as_ref(), to.as_ref())
    }
}

fn regular(file: File) -> io::Result<File> {
    match Facts::of_file(&file)?.is_file() {
        true => Ok(file),
        false => Err(Distrust::NotAFile.into()),
    }
}

#[cfg(unix)]
mod imp {
    use std::ffi::OsStr;
    use std::fs::{DirBuilder, File, Metadata, Permissions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
    use rustix::process::umask;

    pub(super) type Id = (u64, u64);

    #[derive(Debug)]
    pub(super) struct Folder(File);

    /// Follows no link, waits for no other side of a pipe, and takes no terminal.
    const CAREFUL: OFlags =
        OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

    pub(super) fn create(path: &Path, is_private: bool) -> io::Result<()> {
        DirBuilder::new().mode(if is_private { 0o700 } else { 0o777 }).create(path)
    }

    impl Folder {
        pub(super) fn open(path: &Path) -> io::Result<Folder> {
            let flags = CAREFUL | OFlags::DIRECTORY | OFlags::RDONLY;
            Ok(Folder(openat(CWD, path, flags, Mode::empty())?.into()))
        }

        pub(super) fn metadata(&self) -> io::Result<Metadata> {
            self.0.metadata()
        }

        pub(super) fn id(&self) -> io::Result<Id> {
            self.metadata().map(|found| (found.dev(), found.ino()))
        }

        pub(super) fn create_new(&self, name: &OsStr, is_private: bool) -> io::Result<File> {
            self.create_with_rights(name, if is_private { 0o600 } else { 0o666 })
        }

        pub(super) fn create_with_rights(&self, name: &OsStr, rights: u32) -> io::Result<File> {
            let flags = CAREFUL | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND;
            // A mode of macOS has 16 bits.
            let mode = Mode::from_bits_truncate((rights & 0o777) as _);
            Ok(openat(&self.0, name, flags, mode)?.into())
        }

        pub(super) fn create_readable(&self, name: &str) -> io::Result<File> {
            let flags = CAREFUL | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND;
            let mask = umask(Mode::empty());
            let created = openat(&self.0, name, flags, Mode::from_raw_mode(0o644));
            umask(mask);
            let file = File::from(created?);
            if file.metadata()?.mode() & 0o777 != 0o644 {
                // The folder has a list of rights for new files. Ignored: a filesystem without modes has its own rules,
                // and an open tells whom they leave out.
                let _ = file.set_permissions(Permissions::from_mode(0o644));
            }
            Ok(file)
        }

        pub(super) fn open_to_append(&self, name: &str) -> io::Result<File> {
            let flags = CAREFUL | OFlags::WRONLY | OFlags::APPEND;
            Ok(openat(&self.0, name, flags, Mode::empty())?.into())
        }

        pub(super) fn open_to_read(&self, name: &OsStr) -> io::Result<File> {
            Ok(openat(&self.0, name, CAREFUL | OFlags::RDONLY, Mode::empty())?.into())
        }

        pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
            Ok(unlinkat(&self.0, name, AtFlags::empty())?)
        }

        pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
            Ok(renameat(&self.0, from, &self.0, to)?)
        }
    }
}

#[cfg(windows)]
mod imp {
    use std::ffi::OsStr;
    use std::fs::{self, File, Metadata, OpenOptions};
    use std::io;
    use std::path::{Path, PathBuf};

    pub(super) type Id = ();

    #[derive(Debug)]
    pub(super) struct Folder(PathBuf);

    pub(super) fn create(path: &Path, _: bool) -> io::Result<()> {
        fs::create_dir(path)
    }

    impl Folder {
        pub(super) fn open(path: &Path) -> io::Result<Folder> {
            match fs::symlink_metadata(path)?.is_dir() {
                true => Ok(Folder(path.to_owned())),
                false => Err(io::ErrorKind::NotADirectory.into()),
            }
        }

        pub(super) fn metadata(&self) -> io::Result<Metadata> {
            fs::symlink_metadata(&self.0)
        }

        pub(super) fn id(&self) -> io::Result<Id> {
            Ok(())
        }

        pub(super) fn create_new(&self, name: &OsStr, _: bool) -> io::Result<File> {
            OpenOptions::new().append(true).create_new(true).open(self.0.join(name))
        }

        pub(super) fn create_with_rights(&self, name: &OsStr, _: u32) -> io::Result<File> {
            self.create_new(name, false)
        }

        pub(super) fn create_readable(&self, name: &str) -> io::Result<File> {
            self.create_new(name.as_ref(), false)
        }

        pub(super) fn open_to_append(&self, name: &str) -> io::Result<File> {
            OpenOptions::new().append(true).open(self.0.join(name))
        }

        pub(super) fn open_to_read(&self, name: &OsStr) -> io::Result<File> {
            File::open(self.0.join(name))
        }

        pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
            fs::remove_file(self.0.join(name))
        }

        pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
            fs::rename(self.0.join(from), self.0.join(to))
        }
    }
}
