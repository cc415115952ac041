//! Files of output that another machine writes: the writer there, and the check here.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright::Source;
use pipewright_os::base::error::OneLine;
use pipewright_os::base::files;
use pipewright_os::base::private_file::OpenFolder;

use super::error::{OutputError, OutputErrorKind};
use super::folder::{NEW_FACTS, file_name};
use super::tail::Tail;
use crate::executor::{NodeFiles, NodeOutput, OutputSink};

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
    /// The files are put on disk before the end is told.
    is_durable: bool,
    tail: Tail,
    output: NodeOutput,
}

impl NodeWriter {
    /// Creates the files, in a folder that exists. An attempt on another node that was given up may still have those of the same
    /// name open: they are replaced, not shared.
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
pub(super) fn check(folder: &Path, output: &NodeOutput, max_bytes: u64) -> Result<(), OutputError> {
    if let Some(error) = &output.error {
        return Err(failed(folder.to_owned(), io::Error::other(OneLine(error).to_string())));
    }
    let check = || {
        STREAMS.into_iter().zip([output.stdout_bytes, output.stderr_bytes]).try_for_each(
            |(stream, bytes)| check_length(folder, file_name(stream), bytes.min(max_bytes)),
        )
    };
    check().or_else(|_| {
        // A client of NFS may remember for seconds that there was no such file. It asks again after a change of the folder.
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

fn failed(path: PathBuf, error: io::Error) -> OutputError {
    OutputError::new(OutputErrorKind::Folder(path), error)
}
