//! The folder of a job in the output directory: its stdout, its stderr and the facts about its last attempt.

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};

use pipewright::Source;
use pipewright_os::base::files;
use pipewright_os::base::private_file::{self, FolderId, OpenFolder};

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
    /// Another user may own the output directory, and put a link in the place of this folder.
    id: FolderId,
    is_private: bool,
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

pub(super) fn file_name(stream: Source) -> &'static str {
    match stream {
        Source::Stdout => "stdout",
        Source::Stderr => "stderr",
    }
}

impl Folder {
    /// Makes the folder for an attempt, or empties that of an earlier one.
    pub(super) fn begin(path: PathBuf, is_private: bool) -> Result<Folder, OutputError> {
        let begin = || {
            let made = match OpenFolder::create(&path, is_private) {
                // The directory was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    path.parent().map_or(Ok(()), fs::create_dir_all)?;
                    OpenFolder::create(&path, is_private)
                }
                made => made,
            };
            let folder = match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let folder = OpenFolder::open(&path)?;
                    if let (true, Some(found)) = (is_private, private_file::Facts::look(&path)?) {
                        // Its owner would put files of his there, and read what is written to them.
                        found.check_folder()?;
                    }
                    // The facts go first: they never stand beside the output of another attempt.
                    for name in [FACTS, NEW_FACTS, "stdout", "stderr"] {
                        folder.remove(name)?;
                    }
                    folder
                }
                made => made.and_then(|()| OpenFolder::open(&path))?,
            };
            folder.id()
        };
        match begin() {
            Ok(id) => {
                Ok(Folder { path, id, is_private, files: [OutputFile::New, OutputFile::New] })
            }
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Opens the folder that [`begin`](Self::begin) has left.
    fn open(&self) -> io::Result<OpenFolder> {
        let folder = OpenFolder::open(&self.path)?;
        match folder.id()? == self.id {
            true => Ok(folder),
            false => Err(io::Error::other("another folder was put in its place")),
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
        if let OutputFile::New = self.files[stream as usize] {
            self.files[stream as usize] = match self.create(file_name(stream)) {
                Ok(file) => OutputFile::Open(file),
                Err(error) => {
                    self.files[stream as usize] = OutputFile::Failed;
                    return Err(failed(self.path.join(file_name(stream)), error));
                }
            };
        }
        match &self.files[stream as usize] {
            OutputFile::Open(file) => Ok(Some(file)),
            OutputFile::New | OutputFile::Failed => Ok(None),
        }
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let folder = self.open()?;
        match folder.create_new(name, self.is_private) {
            // `begin` has removed that of an earlier attempt: what is there was written by the node.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = folder.open_to_append(name)?;
                if self.is_private {
                    private_file::Facts::of_file(&file)?.check_own()?;
                }
                Ok(file)
            }
            created => created,
        }
    }

    fn write_facts(&self, facts: &Facts<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(facts)?;
        text.push(b'\n');
        let folder = self.open()?;
        // The check of a node's files leaves one.
        folder.remove(NEW_FACTS)?;
        let mut file = folder.create_new(NEW_FACTS, self.is_private)?;
        file.write_all(&text)?;
        files::close(file)?;
        folder.rename(NEW_FACTS, FACTS)
    }

    /// Closes the file of the stream. Only then a network filesystem may tell that there was no room.
    fn close(&mut self, stream: Source) -> Result<(), OutputError> {
        match mem::replace(&mut self.files[stream as usize], OutputFile::Failed) {
            OutputFile::Open(file) => {
                files::close(file).map_err(|error| failed(self.path.join(file_name(stream)), error))
            }
            OutputFile::New | OutputFile::Failed => Ok(()),
        }
    }

    /// Makes the files of streams without bytes, and writes the facts. They appear whole or not at all.
    pub(super) fn finish(mut self, facts: &Facts<'_>) -> Result<PathBuf, (PathBuf, OutputError)> {
        let mut finish = || {
            for stream in [Source::Stdout, Source::Stderr] {
                self.file(stream)?;
                self.close(stream)?;
            }
            self.write_facts(facts).map_err(|error| failed(self.path.join(FACTS), error))
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

fn failed(path: PathBuf, error: io::Error) -> OutputError {
    OutputError::new(OutputErrorKind::Folder(path), error)
}
