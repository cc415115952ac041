//! The files of a log: the one that the user names, and those that SQLite and the runner keep beside it.
//!
//! Whoever may write in the folder of a log can make any name there. A `-wal` or `-journal` of his would be read as part of the
//! log, and its commands would run as the user who resumes the batch. So each file is looked at before SQLite opens anything.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::private_file::{
    Distrust, Facts, distrust, open_beside, others_may_write_in, real_path,
};

use super::JournalMode;
use super::error::{LogError, LogErrorKind};

/// The files that SQLite may open beside a log.
pub(super) const OF_SQLITE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The file that the runner locks.
pub(crate) const LOCK: &str = "-lock";

/// Returns the name of a file beside the log.
pub(super) fn beside(log: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(suffix);
    name.into()
}

/// Returns the path that SQLite uses: from the root, because it gives relative ones such as `:memory:` a meaning, and without
/// links, because it looks for the other files beside the target of a link.
pub(super) fn real(path: &Path) -> Result<PathBuf, LogError> {
    real_path(path).map_err(|error| LogError::io(path, error))
}

/// Looks at a log and the files beside it, for a runner. `trusted`: the log of another user, and one that others may write, is
/// used too.
pub(super) fn check_to_run(log: &Path, trusted: bool) -> Result<Facts, LogError> {
    let facts = look(log)?;
    match facts.check_own() {
        Err(reason) if !trusted => return Err(untrusted(log, log, reason)),
        _ => {}
    }
    check_beside(log, &facts)?;
    Ok(facts)
}

/// Looks at a log and the files beside it, for a reader.
pub(super) fn check_to_read(log: &Path) -> Result<Facts, LogError> {
    let facts = look(log)?;
    check_beside(log, &facts)?;
    Ok(facts)
}

fn look(log: &Path) -> Result<Facts, LogError> {
    let facts = Facts::look(log).and_then(|facts| facts.ok_or(io::ErrorKind::NotFound.into()));
    let facts = facts.map_err(|error| LogError::io(log, error))?;
    match facts.is_file() {
        true => Ok(facts),
        false => Err(LogError::new(log, LogErrorKind::NotAFile)),
    }
}

fn check_beside(log: &Path, facts: &Facts) -> Result<(), LogError> {
    OF_SQLITE.iter().chain([&LOCK]).try_for_each(|suffix| find(log, suffix, facts).map(drop))
}

/// Returns the facts of a file beside the log, if it is there and can be trusted.
pub(super) fn find(log: &Path, suffix: &str, facts: &Facts) -> Result<Option<Facts>, LogError> {
    let path = beside(log, suffix);
    let found = Facts::look(&path).map_err(|error| LogError::io(log, error))?;
    if let Some(found) = &found {
        found.check_beside(facts).map_err(|reason| untrusted(log, &path, reason))?;
    }
    Ok(found)
}

/// Checks that a new log would have no old file beside it.
pub(super) fn check_free(log: &Path) -> Result<(), LogError> {
    for suffix in OF_SQLITE {
        let path = beside(log, suffix);
        match Facts::look(&path) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(LogError::new(log, LogErrorKind::Leftover { file: path })),
            Err(error) => return Err(LogError::creation(log, error)),
        }
    }
    Ok(())
}

/// Takes the name of the rollback journal while SQLite opens the log, if another user could make that file in between. SQLite
/// takes an empty one for none.
///
/// # Drop
/// Gives the name free; a fork's copy does not.
pub(super) struct Claim(Option<(PathBuf, Generation)>);

impl Claim {
    pub(super) fn new(log: &Path, facts: &Facts) -> Result<Claim, LogError> {
        let folder = log.parent().unwrap_or(log);
        if !others_may_write_in(folder).map_err(|error| LogError::io(log, error))? {
            return Ok(Claim(None));
        }
        let path = beside(log, "-journal");
        match open_beside(&path, facts) {
            Ok((_, is_new)) => Ok(Claim(is_new.then(|| (path, Generation::current())))),
            Err(error) => Err(opening(log, &path, error)),
        }
    }

    /// Leaves the file to SQLite, which uses it.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((path, _)) = self.0.as_ref().filter(|(_, made_in)| made_in.is_current()) {
            // Ignored: SQLite removes it when it has used it.
            let _ = fs::remove_file(path);
        }
    }
}

/// Checks the files that SQLite has opened, or made, beside the log. In a folder where others cannot remove files of this user,
/// nobody can put another file in the place of one that is found here.
pub(super) fn check_opened(
    log: &Path,
    facts: &Facts,
    mode: Option<JournalMode>,
) -> Result<(), LogError> {
    check_beside(log, facts)?;
    let is_needed = matches!(mode, Some(JournalMode::WriteAhead));
    for suffix in ["-wal", "-shm"] {
        if is_needed && find(log, suffix, facts)?.is_none() {
            return Err(LogError::io(
                log,
                io::Error::other(format!("its file {suffix} was removed")),
            ));
        }
    }
    Ok(())
}

/// Opens a file beside the log. `None`: it is not there.
pub(super) fn open(log: &Path, suffix: &str, facts: &Facts) -> Result<Option<File>, LogError> {
    if find(log, suffix, facts)?.is_none() {
        return Ok(None);
    }
    let path = beside(log, suffix);
    open_beside(&path, facts)
        .map(|(file, _)| Some(file))
        .map_err(|error| opening(log, &path, error))
}

/// Returns the error of the opening of a file beside the log.
pub(super) fn opening(log: &Path, path: &Path, error: io::Error) -> LogError {
    match distrust(&error) {
        Some(reason) => untrusted(log, path, reason),
        None => LogError::creation(log, error),
    }
}

fn untrusted(log: &Path, file: &Path, reason: Distrust) -> LogError {
    LogError::new(
        log,
        LogErrorKind::Untrusted { file: file.to_owned(), reason: reason.to_string() },
    )
}
