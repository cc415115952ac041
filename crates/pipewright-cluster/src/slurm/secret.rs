//! The file with the workers' secret, which no command line and no script shows.

use std::io::Write as _;
use std::path::Path;

use tempfile::NamedTempFile;

use super::error::SlurmError;

/// A file that only this user can read. Dropping it removes it.
///
/// # Platform
/// Unix: mode 0600, from its creation on. Windows: the folder decides who can read it.
#[derive(Debug)]
pub(crate) struct SecretFile(NamedTempFile);

impl SecretFile {
    /// Writes a secret to a new file in a folder that all nodes see.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub(crate) fn create(folder: &Path, secret: &[u8]) -> Result<SecretFile, SlurmError> {
        let create = || {
            let mut file = tempfile::Builder::new().prefix(".pipewright-").tempfile_in(folder)?;
            file.write_all(secret)?;
            // A node of a network filesystem sees what has left this one.
            file.as_file().sync_all()?;
            Ok(SecretFile(file))
        };
        create().map_err(SlurmError::Secret)
    }

    /// Returns the path, for the command line of the workers.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}
