//! Files: reads and writes at an offset, and files that survive a power cut, whose every error is reported.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Closes a file.
///
/// # Platform
/// Unix: `close`. A network filesystem may tell only now that there was no room, or no quota. Windows: no error is
/// told.
///
/// # Errors
/// Bytes that were written are lost. The file is closed.
///
/// ```
/// # use pipewright_os::base::files;
/// files::close(std::fs::File::open(std::env::current_exe()?)?)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn close(file: File) -> io::Result<()> {
    #[cfg(unix)]
    {
        let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
        // SAFETY: the descriptor was owned by `file`, which gave it away: nobody else closes it.
        if unsafe { libc::close(fd) } != 0 {
            let error = io::Error::last_os_error();
            // The descriptor is closed on Linux and macOS then, too, and no write has failed.
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            };
        }
    }
    #[cfg(windows)]
    drop(file);
    Ok(())
}

/// Puts a file on disk, no matter which process has written it.
///
/// # Platform
/// Linux: `fsync`. macOS: `F_FULLFSYNC`. Windows: `FlushFileBuffers`.
///
/// # Errors
/// It cannot be opened, or bytes of it are lost.
pub fn sync_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.sync_all()
}

/// Puts the names in a folder on disk.
///
/// # Platform
/// Linux: `fsync`. macOS: `F_FULLFSYNC`. Windows: nothing is needed.
///
/// # Errors
/// It cannot be opened, or its changes are lost.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(path)?.sync_all()?;
    #[cfg(windows)]
    let _ = path;
    Ok(())
}

/// A filesystem that puts all of its files on disk in one call, and tells if one of them is lost.
///
/// # Platform
/// Linux from 5.8 on, with ext4, XFS, Btrfs, F2FS, overlayfs or tmpfs: `syncfs`. Older kernels do not tell of errors,
/// and other filesystems do not reach their disk. Elsewhere there is none.
#[derive(Debug)]
pub struct Filesystem(File);

impl Filesystem {
    /// Opens the filesystem of a folder. `None`: its files have to be put on disk one by one.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Filesystem> {
        #[cfg(target_os = "linux")]
        {
            // The numbers are from linux/magic.h.
            const KNOWN: [u32; 6] =
                [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x794c_7630, 0x0102_1994];
            let file = File::open(folder).ok()?;
            let kind = rustix::fs::fstatfs(&file).ok()?.f_type as u32;
            (KNOWN.contains(&kind) && tells_errors()).then_some(Filesystem(file))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = folder;
            None
        }
    }

    /// Puts all files on disk that were written before.
    ///
    /// # Errors
    /// Bytes of a file of that filesystem are lost. It is not known of which one.
    pub fn sync(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        rustix::fs::syncfs(&self.0)?;
        #[cfg(not(target_os = "linux"))]
        self.0.sync_all()?;
        Ok(())
    }
}

/// Returns true if `syncfs` tells of errors: from Linux 5.8 on.
#[cfg(target_os = "linux")]
fn tells_errors() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= (5, 8))
}

/// Reads bytes from an offset, and returns their number; 0 is the end of the file. Several threads may read and write
/// other parts meanwhile.
///
/// # Platform
/// Unix: `pread`; the file's position stays. Windows: `ReadFile` with an offset, which moves the position.
///
/// # Errors
/// The error of the read.
///
/// ```
/// # use pipewright_os::base::files::{read_at, write_at};
/// let path = std::env::temp_dir().join(format!("file-at-doc-{}", std::process::id()));
/// let file = std::fs::File::options().create_new(true).read(true).write(true).open(&path)?;
/// assert_eq!(write_at(&file, b"abcdef", 10)?, 6);
/// let mut bytes = [0; 4];
/// assert_eq!((read_at(&file, &mut bytes, 12)?, &bytes), (4, b"cdef"));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, offset);
    #[cfg(windows)]
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

/// Writes bytes to an offset, and returns their number. The file grows if needed.
///
/// # Platform
/// Unix: `pwrite`; the file's position stays. Windows: `WriteFile` with an offset, which moves the position.
///
/// # Errors
/// The error of the write.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_at(file, bytes, offset);
    #[cfg(windows)]
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_filesystems_are_put_on_disk() {
        let folder = std::env::temp_dir().join(format!("durable-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("file");
        close(File::create(&path).unwrap()).unwrap();
        sync_file(&path).unwrap();
        sync_folder(&folder).unwrap();
        if let Some(filesystem) = Filesystem::of(&folder) {
            filesystem.sync().unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(sync_file(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(Filesystem::of(&folder).is_none());
    }
}
