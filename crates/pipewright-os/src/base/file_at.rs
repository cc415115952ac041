//! Reads and writes at an offset of a file.

use std::fs::File;
use std::io;

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
/// # use pipewright_os::base::file_at::{read_at, write_at};
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
