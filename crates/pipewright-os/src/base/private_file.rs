//! Files that only their owner can read.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

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
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
