//! The output of a job.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pipewright_os::base::error::{OneLine, Quoted};
use pipewright_os::base::private_file::OpenFolder;

use super::LogView;
use crate::journal::LogError;
use crate::journal::read::JobQuery;
use crate::journal::rows::JobRow;

/// The reason why the output of a job cannot be shown.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutputQueryError {
    /// The log cannot be read.
    Log(LogError),
    /// No job has that number, name or identity.
    NoSuchJob(String),
    /// Several jobs have that number or name, or an identity that begins so.
    Ambiguous(String),
    /// The log has no output of the job: the batch had no output directory, and the job wrote nothing to stderr.
    NoOutput(u64),
    /// A file cannot be read, or the writer failed.
    Io {
        /// The file. `None`: the writer failed.
        path: Option<PathBuf>,
        /// The system's error.
        source: io::Error,
    },
}

impl LogView {
    /// Writes the output of a job, which is named by its number, its name, or the first digits of its identity: the
    /// files of the output directory, or else the last lines that the log has.
    ///
    /// # Errors
    /// No single job has that name, the log has no output of it, or a file cannot be copied.
    pub fn write_output(
        &self,
        job: &str,
        stdout: &mut impl Write,
        stderr: &mut impl Write,
    ) -> Result<(), OutputQueryError> {
        let found = self.find(job)?;
        let attempts = self.log.attempts_of(found.row).map_err(OutputQueryError::Log)?;
        let Some(last) = attempts.last() else {
            return Err(OutputQueryError::NoOutput(found.number));
        };
        if let Some(folder) = &last.output_path {
            let folder = Path::new(folder);
            copy(folder, "stdout", stdout)?;
            return copy(folder, "stderr", stderr);
        }
        match &last.stderr_tail {
            Some(tail) if !tail.is_empty() => {
                let written = writeln!(stderr, "{}", tail.trim_end_matches('\n'));
                written.map_err(|source| OutputQueryError::Io { path: None, source })
            }
            _ => Err(OutputQueryError::NoOutput(found.number)),
        }
    }

    fn find(&self, job: &str) -> Result<JobRow, OutputQueryError> {
        let mut queries = vec![JobQuery::Name(job)];
        queries.extend(job.parse().ok().map(JobQuery::Number));
        if job.len() >= 4 && job.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            queries.push(JobQuery::Identity(job));
        }
        for query in queries {
            let mut found = self.log.find(query, 2).map_err(OutputQueryError::Log)?;
            match (found.pop(), found.is_empty()) {
                (Some(job), true) => return Ok(job),
                (Some(_), false) => return Err(OutputQueryError::Ambiguous(job.to_owned())),
                (None, _) => {}
            }
        }
        Err(OutputQueryError::NoSuchJob(job.to_owned()))
    }
}

fn copy(folder: &Path, name: &str, writer: &mut impl Write) -> Result<(), OutputQueryError> {
    let failed = |source| OutputQueryError::Io { path: Some(folder.join(name)), source };
    // A job can have put a pipe in the place of the file.
    let opened = OpenFolder::open(folder).and_then(|folder| folder.open_to_read(name));
    let mut file = opened.map_err(failed)?;
    io::copy(&mut file, writer).map_err(failed)?;
    writer.flush().map_err(|source| OutputQueryError::Io { path: None, source })
}

impl fmt::Display for OutputQueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputQueryError::Log(error) => write!(f, "{error}"),
            OutputQueryError::NoSuchJob(job) => {
                write!(
                    f,
                    "no job of the log has the number, name or identity {}",
                    Quoted(job.as_ref())
                )
            }
            OutputQueryError::Ambiguous(job) => {
                write!(
                    f,
                    "several jobs of the log have the number or name {}, or an identity that begins so: name one by the digits of its identity",
                    OneLine(job)
                )
            }
            OutputQueryError::NoOutput(number) => {
                write!(
                    f,
                    "the log has no output of job {number}: run the batch with --output-dir to keep it"
                )
            }
            OutputQueryError::Io { path: Some(path), source } => {
                let (path, source) = (Quoted(path.as_os_str()), source.to_string());
                write!(f, "cannot copy {path}: {}", OneLine(&source))
            }
            OutputQueryError::Io { path: None, source } => {
                write!(f, "cannot write the output: {}", OneLine(&source.to_string()))
            }
        }
    }
}

impl std::error::Error for OutputQueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OutputQueryError::Log(error) => Some(error),
            OutputQueryError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
