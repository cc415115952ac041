//! A new log: made whole under another name, durable, and only then visible.
//!
//! A creation that is killed leaves no log. So an empty file, or one without tables, is always a damaged log, and is never taken
//! for a batch that has not begun.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use pipewright_os::base::private_file::{self, Facts};
use rusqlite::Connection;
use tempfile::{Builder, NamedTempFile};

use super::error::LogError;
use super::open::{Earlier, write_beginning};
use super::runner::Runner;
use super::schema::{self, STEPS};
use super::{RunFacts, files};

/// A whole log without its name.
///
/// # Drop
/// Removes the file.
pub(super) struct NewLog {
    file: NamedTempFile,
    pub(super) facts: Facts,
    pub(super) batch_id: String,
}

impl NewLog {
    /// Makes the file of a log in the folder of its path, with the beginning of its first run.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub(super) fn make(path: &Path, facts: &RunFacts) -> Result<NewLog, LogError> {
        let (batch_id, image) = image(facts).map_err(|error| LogError::sqlite(path, error))?;
        let write = || {
            let mut prefix = OsString::from(".");
            prefix.push(path.file_name().unwrap_or_default());
            prefix.push("-new-");
            let folder = path.parent().unwrap_or(path);
            let mut file = Builder::new().prefix(&prefix).tempfile_in(folder)?;
            file.write_all(&image)?;
            file.as_file().sync_all()?;
            let facts = Facts::of_file(file.as_file())?;
            Ok(NewLog { file, facts, batch_id })
        };
        write().map_err(|error| LogError::creation(path, error))
    }

    /// Gives the log its name.
    ///
    /// # Errors
    /// Something has it, or the folder cannot be written. Then nothing has the name that did not have it before.
    pub(super) fn publish(self, path: &Path) -> Result<(), LogError> {
        let folder = path.parent().unwrap_or(path);
        name(self.file, path)
            .and_then(|()| private_file::sync_folder(folder).inspect_err(|_| remove(path)))
            .map_err(|error| LogError::creation(path, error))
    }
}

/// Returns the identity of a batch, and the bytes of its log.
fn image(facts: &RunFacts) -> rusqlite::Result<(String, Vec<u8>)> {
    let mut connection = Connection::open_in_memory()?;
    schema::migrate(&mut connection, &STEPS)?;
    let runner = Runner::this(1);
    let id = write_beginning(&mut connection, &runner, facts, None, &Earlier::default())?;
    let image = connection.serialize("main")?.to_vec();
    Ok((id, image))
}

/// Gives the file its name, unless something has it.
fn name(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let failed = match file.persist_noclobber(path) {
        Ok(_) => return Ok(()),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(failed.error);
        }
        Err(failed) => failed,
    };
    // This filesystem has neither second names nor a rename that replaces nothing. A file that takes the name first excludes
    // others. A kill now leaves an empty file, which is refused.
    private_file::create_new(path)?;
    failed.file.persist(path).map(drop).map_err(|failed| {
        remove(path);
        failed.error
    })
}

/// Removes a log that is of no use, and first what SQLite made beside it: without the log that would be in the way of the next
/// creation.
pub(super) fn remove(path: &Path) {
    // Ignored: the first error is the one to report.
    for suffix in files::OF_SQLITE {
        let _ = fs::remove_file(files::beside(path, suffix));
    }
    let _ = fs::remove_file(path);
}
