//! The folder of a job in the output directory: its stdout, its stderr and the facts about its last attempt.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pipewright::Source;

use super::error::{OutputError, OutputErrorKind};
use super::facts::Facts;
use crate::job::JobId;

const FACTS: &str = "job.json";
/// The name under which the facts are written, before they get their own.
pub(super) const NEW_FACTS: &str = "job.json.new";

/// The folder of a job, during an attempt.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: [OutputFile; 2],
}

/// The file of a stream.
#[derive(Debug)]
enum OutputFile {
    /// There is none yet.
    New,
    Open(File),
    /// A write failed, or the file could not be created. The rest is lost.
    Failed,
}

/// Returns the name of a job's folder. It sorts by number, and is the same in a later run if the input is.
pub(super) fn name(number: u64, id: JobId) -> String {
    format!("{number:06}-{id}")
}

/// Returns the name of the file of a stream.
pub(super) fn file_name(stream: Source) -> &'static str {
    match stream {
        Source::Stdout => "stdout",
        Source::Stderr => "stderr",
    }
}

impl Folder {
    /// Makes the folder for an attempt, or empties that of an earlier one.
    pub(super) fn begin(path: PathBuf) -> Result<Folder, OutputError> {
        let begun = match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                // The facts go first: they never stand beside the output of another attempt.
                [FACTS, NEW_FACTS, "stdout", "stderr"]
                    .into_iter()
                    .try_for_each(|name| remove_file(&path.join(name)))
            }
            // The directory was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(&path),
            made => made,
        };
        match begun {
            Ok(()) => Ok(Folder { path, files: [OutputFile::New, OutputFile::New] }),
            Err(error) => Err(failed(path, error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes to the file of the stream. After an error the rest of that stream is lost.
    pub(super) fn write(&mut self, stream: Source, bytes: &[u8]) -> Result<(), OutputError> {
        let Some(mut file) = self.file(stream)? else { return Ok(()) };
        match file.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.files[stream as usize] = OutputFile::Failed;
                Err(failed(self.path.join(file_name(stream)), error))
            }
        }
    }

    /// Returns the file of the stream, or `None` after an error.
    fn file(&mut self, stream: Source) -> Result<Option<&File>, OutputError> {
        let file = &mut self.files[stream as usize];
        if let OutputFile::New = file {
            let path = self.path.join(file_name(stream));
            // `begin` has removed that of an earlier attempt: what is there was written by the node.
            *file = match OpenOptions::new().append(true).create(true).open(&path) {
                Ok(file) => OutputFile::Open(file),
                Err(error) => {
                    *file = OutputFile::Failed;
                    return Err(failed(path, error));
                }
            };
        }
        match file {
            OutputFile::Open(file) => Ok(Some(file)),
            OutputFile::New | OutputFile::Failed => Ok(None),
        }
    }

    /// Makes the files of streams without bytes, and writes the facts. They appear whole or not at all.
    pub(super) fn finish(mut self, facts: &Facts<'_>) -> Result<PathBuf, (PathBuf, OutputError)> {
        let mut finish = || {
            self.file(Source::Stdout)?;
            self.file(Source::Stderr)?;
            write_facts(&self.path, facts).map_err(|error| failed(self.path.join(FACTS), error))
        };
        match finish() {
            Ok(()) => Ok(self.path),
            Err(error) => Err((self.path, error)),
        }
    }

    /// Leaves the folder without facts, to be emptied by the next attempt.
    pub(super) fn into_path(self) -> PathBuf {
        self.path
    }
}

fn write_facts(folder: &Path, facts: &Facts<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(facts)?;
    text.push(b'\n');
    let new = folder.join(NEW_FACTS);
    fs::write(&new, text)?;
    fs::rename(new, folder.join(FACTS))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn failed(path: PathBuf, error: io::Error) -> OutputError {
    OutputError::new(OutputErrorKind::Folder(path), error)
}
