//! The folder of a job: its files, the facts in `job.json`, and the files that a node writes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fmt, mem};

use pipewright::Source;
use pipewright_os::base::error::OneLine;
use pipewright_os::base::files;
use pipewright_os::base::private_file::{self, FolderId, OpenFolder};
use serde::Serialize;

use super::JobInfo;
use super::attempt::{Finished, Tail};
use super::options::{OutputError, OutputErrorKind};
use crate::executor::{NodeFiles, NodeOutput, OutputSink};
use crate::job::JobId;
use crate::vocabulary::AttemptEnd;

const FACTS: &str = "job.json";
/// The name under which the facts are written, before they get their own.
pub(super) const NEW_FACTS: &str = "job.json.new";

/// The folder of a job, during an attempt.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Another user may own the output directory, and replace this folder by a link.
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

// The facts about an attempt, in `job.json`.

/// The facts about the last attempt of a job. Later versions only add fields, as those of all reports do.
#[derive(Debug, Serialize)]
pub(super) struct Facts<'a> {
    schema: &'static str,
    number: u64,
    id: String,
    name: Option<&'a str>,
    command: &'a str,
    attempt: u32,
    outcome: &'static str,
    exit_code: Option<i32>,
    signal: Option<String>,
    /// The reason why it could not be started, or was lost.
    error: Option<&'a str>,
    started_unix_seconds: f64,
    elapsed_seconds: f64,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    /// True if the files have less than the attempt wrote.
    truncated: bool,
    leftovers_killed: u32,
}

impl<'a> Facts<'a> {
    pub(super) fn new(job: &'a JobInfo, end: &'a AttemptEnd, output: &Finished) -> Facts<'a> {
        let started = end.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Facts {
            schema: "pipewright.job/1",
            number: end.key.job,
            id: job.id.to_string(),
            name: job.name.as_deref(),
            command: &job.command,
            attempt: end.key.attempt,
            outcome: end.outcome.name(),
            exit_code: end.outcome.code(),
            signal: end.outcome.signal_name(),
            error: end.outcome.reason(),
            started_unix_seconds: started.as_secs_f64(),
            elapsed_seconds: end.elapsed.as_secs_f64(),
            user_seconds: seconds(end.user),
            system_seconds: seconds(end.system),
            peak_rss_bytes: end.peak_rss_bytes,
            stdout_bytes: output.stdout_bytes,
            stderr_bytes: output.stderr_bytes,
            truncated: output.is_truncated,
            leftovers_killed: end.leftovers_killed,
        }
    }
}

// Files of output that another machine writes: the writer there, and the check here.

const STREAMS: [Source; 2] = [Source::Stdout, Source::Stderr];

/// The writer of an attempt's [`NodeFiles`], for the executor of the node that runs it.
#[derive(Debug, Clone)]
pub struct NodeWriter(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    folder: PathBuf,
    /// `None` after an error.
    files: [Option<File>; 2],
    max_bytes: u64,
    /// The files are put on disk before the end is reported.
    is_durable: bool,
    tail: Tail,
    output: NodeOutput,
}

impl NodeWriter {
    /// Creates the files, in a folder that exists. An attempt on another node that was given up may still have those of
    /// the same name open: they are replaced, not shared.
    ///
    /// # Errors
    /// [`OutputErrorKind::Folder`].
    pub fn create(files: NodeFiles) -> Result<NodeWriter, OutputError> {
        let mut created = [None, None];
        for (stream, file) in STREAMS.into_iter().zip(&mut created) {
            let name = file_name(stream);
            let created = create_new(&files.folder, name);
            *file = Some(created.map_err(|error| failed(files.folder.join(name), error))?);
        }
        Ok(NodeWriter(Arc::new(Mutex::new(State {
            folder: files.folder,
            files: created,
            max_bytes: files.max_bytes.unwrap_or(u64::MAX),
            is_durable: files.is_durable,
            tail: Tail::default(),
            output: NodeOutput::default(),
        }))))
    }

    /// Returns the sink of the attempt's output.
    #[must_use]
    pub fn sink(&self) -> Box<dyn OutputSink> {
        Box::new(Sink(self.clone()))
    }

    /// Closes the files, and returns the facts for [`OutputSink::written`]. The attempt has ended.
    #[must_use]
    pub fn finish(self) -> NodeOutput {
        let mut state = self.lock();
        for (stream, file) in STREAMS.into_iter().zip(mem::take(&mut state.files)) {
            let Some(file) = file else { continue };
            let synced = if state.is_durable { file.sync_all() } else { Ok(()) };
            let closed = synced.and(files::close(file));
            state.note(stream, closed);
        }
        if state.is_durable && state.output.error.is_none() {
            let synced = files::sync_folder(&state.folder);
            state.note(Source::Stdout, synced);
        }
        let tail = std::mem::take(&mut state.tail).into_text();
        NodeOutput { tail, ..std::mem::take(&mut state.output) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic the output is incomplete, and its parts are still in order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a file that nobody else has open.
fn create_new(folder: &Path, name: &str) -> io::Result<File> {
    let folder = OpenFolder::open(folder)?;
    folder.remove(name)?;
    // The folder of a private job keeps others out.
    folder.create_new(name, false)
}

impl State {
    fn write(&mut self, stream: Source, bytes: &[u8]) {
        self.tail.push(stream, bytes);
        let count = match stream {
            Source::Stdout => &mut self.output.stdout_bytes,
            Source::Stderr => &mut self.output.stderr_bytes,
        };
        let room = usize::try_from(self.max_bytes.saturating_sub(*count)).unwrap_or(usize::MAX);
        *count += bytes.len() as u64;
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.output.is_truncated |= kept.len() < bytes.len();
        let file = &mut self.files[stream as usize];
        let written = file.as_mut().map_or(Ok(()), |file| file.write_all(kept));
        if written.is_err() {
            *file = None;
        }
        self.note(stream, written);
    }

    /// Notes an error of a file.
    fn note(&mut self, stream: Source, result: io::Result<()>) {
        if let Err(error) = result {
            self.output.is_truncated = true;
            let error = failed(self.folder.join(file_name(stream)), error);
            self.output.error.get_or_insert(error.to_string());
        }
    }
}

/// The sink of an attempt on a node.
struct Sink(NodeWriter);

impl OutputSink for Sink {
    fn write(&mut self, stream: Source, bytes: &[u8]) {
        self.0.lock().write(stream, bytes);
    }

    fn is_live(&self) -> bool {
        false
    }

    fn files(&self) -> usize {
        2
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

/// Compares the files here with what a node says that it wrote.
///
/// # Errors
/// [`OutputErrorKind::Folder`]: the node could not write them, or they have another length here.
pub(super) fn check_node_files(
    folder: &Path,
    output: &NodeOutput,
    max_bytes: u64,
) -> Result<(), OutputError> {
    if let Some(error) = &output.error {
        return Err(failed(folder.to_owned(), io::Error::other(OneLine(error).to_string())));
    }
    let check = || {
        STREAMS.into_iter().zip([output.stdout_bytes, output.stderr_bytes]).try_for_each(
            |(stream, bytes)| check_length(folder, file_name(stream), bytes.min(max_bytes)),
        )
    };
    check().or_else(|_| {
        // A client of NFS may remember for seconds that there was no such file. It asks again after a change of the
        // folder.
        let _ = create_new(folder, NEW_FACTS);
        check()
    })
}

/// Compares the length of a file. One that is missing has no bytes.
fn check_length(folder: &Path, name: &str, expected: u64) -> Result<(), OutputError> {
    let path = folder.join(name);
    // A client of NFS asks for the length when a file is opened.
    let opened = OpenFolder::open(folder).and_then(|folder| folder.open_to_read(name));
    let bytes = match opened.and_then(|file| file.metadata()) {
        Ok(facts) => facts.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(path, error)),
    };
    if bytes == expected {
        return Ok(());
    }
    let reason = format!(
        "the node wrote {expected} bytes, and {bytes} are here: is the directory on a file system that they share?"
    );
    Err(failed(path, io::Error::other(reason)))
}
