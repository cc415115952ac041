//! The jobs of a log.

use std::io;
use std::path::{Path, PathBuf};
use std::vec;

use super::InputName;
use super::ReadJobs;
use super::error::{InputError, InputErrorKind, Position};
use crate::job::Job;
use crate::journal::LogError;
use crate::journal::read::{Log, Numbered};

/// Jobs that are read at a time. A reader holds up the writer of some logs, so these are few.
const AT_ONCE: usize = 128;

/// The jobs of a log, in the order of its input.
pub(super) struct LoggedJobs {
    path: PathBuf,
    /// `None` before the first job.
    log: Option<(Log, vec::IntoIter<Numbered>)>,
    read: vec::IntoIter<Job>,
}

impl LoggedJobs {
    pub(super) fn new(path: &Path) -> LoggedJobs {
        LoggedJobs { path: path.to_owned(), log: None, read: Vec::new().into_iter() }
    }

    fn read(&mut self) -> Result<Option<Job>, LogError> {
        if let Some(job) = self.read.next() {
            return Ok(Some(job));
        }
        let (log, numbered) = match &mut self.log {
            Some(open) => open,
            none => {
                let log = Log::open_to_continue(&self.path)?;
                let numbered = log.numbered()?.into_iter();
                none.insert((log, numbered))
            }
        };
        let next: Vec<Numbered> = numbered.by_ref().take(AT_ONCE).collect();
        self.read = log.stored(&next)?.into_iter();
        Ok(self.read.next())
    }
}

impl ReadJobs for LoggedJobs {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        self.read().map_err(|error| {
            let name = InputName::Log(self.path.clone());
            let source = io::Error::other(error);
            InputError::io(&name, InputErrorKind::Read, Position::Unknown, source)
        })
    }
}
