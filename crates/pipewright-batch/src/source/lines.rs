//! Lines: values for a template, commands, and lines for the shell.

use std::sync::Arc;

use super::delimited::Delimited;
use super::error::{InputError, InputErrorKind};
use super::jobs::ReadJobs;
use super::words;
use crate::job::{Job, Record, Template, os_string};

/// Lines that are values for a template.
pub(super) struct Lines {
    records: Delimited,
    template: Arc<Template>,
}

/// Lines that are commands.
pub(super) struct Commands(Delimited);

pub(super) struct ShellLines(Delimited);

impl Lines {
    pub(super) fn new(records: Delimited, template: Arc<Template>) -> Lines {
        Lines { records, template }
    }
}

impl Commands {
    pub(super) fn new(records: Delimited) -> Commands {
        Commands(records)
    }
}

impl ShellLines {
    pub(super) fn new(records: Delimited) -> ShellLines {
        ShellLines(records)
    }
}

impl ReadJobs for Lines {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        let Some(value) = self.records.next_record()? else { return Ok(None) };
        let record = Record::new(value);
        match self.template.job(self.records.count(), record) {
            Ok(job) => Ok(Some(job.on_line(self.records.line()))),
            Err(error) => Err(self.records.error(error)),
        }
    }
}

impl ReadJobs for Commands {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        while let Some(line) = self.0.next_record()? {
            match command(line) {
                Ok(Some(job)) => return Ok(Some(job.on_line(self.0.line()))),
                Ok(None) => {}
                Err(kind) => return Err(self.0.error(kind)),
            }
        }
        Ok(None)
    }
}

/// Makes a job of the words of a line. `None`: it has none.
fn command(line: &[u8]) -> Result<Option<Job>, InputErrorKind> {
    refuse_nul(line)?;
    let mut words = words::split(line)?.into_iter().map(os_string);
    let Some(program) = words.next() else { return Ok(None) };
    let program = program?;
    if program.is_empty() {
        return Err(InputErrorKind::EmptyProgram);
    }
    let args = words.collect::<Result<Vec<_>, _>>()?;
    Ok(Some(Job::new(program).args(args)))
}

impl ReadJobs for ShellLines {
    fn next_job(&mut self) -> Result<Option<Job>, InputError> {
        while let Some(line) = self.0.next_record()? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let job = refuse_nul(line).and_then(|()| Ok(Job::shell(os_string(line.to_vec())?)));
            return match job {
                Ok(job) => Ok(Some(job.on_line(self.0.line()))),
                Err(kind) => Err(self.0.error(kind)),
            };
        }
        Ok(None)
    }
}

fn refuse_nul(line: &[u8]) -> Result<(), InputErrorKind> {
    if line.contains(&0) { Err(InputErrorKind::NulByte) } else { Ok(()) }
}
