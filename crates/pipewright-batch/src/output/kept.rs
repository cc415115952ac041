//! Outputs that have not been handed over, in files beside the log: if the batch dies, a resumed one prints them.
//!
//! The end of a job is in the log before its output is printed, which may take long: a slow reader, or an order to
//! keep. So the output goes into a file first, and is printed from there. The files are `LOG-output-1` and so on, for
//! their owner only. One is removed when all of it was handed over.
//!
//! A file begins with a mark and the identity of the batch. A record is a header of 32 bytes and the output: the letter
//! `R`, the stream (0, 1), 1 once it was handed over, five zeros, the number of the job, the number of bytes, and their
//! sum xor a constant. Numbers are little-endian.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright::Source;
use pipewright_os::base::files;
use pipewright_os::base::private_file::{self, Distrust, Facts};

use super::content::{SpoolFile, write_all_at};
use super::options::{OutputError, OutputErrorKind};

const MARK: &[u8; 8] = b"PWbout1\n";
/// The mark, and the identity of the batch.
const FILE_HEADER_BYTES: u64 = 40;
const HEADER_BYTES: u64 = 32;
/// The place where the header says that the output was handed over.
const HANDED_OVER_AT: u64 = 2;
const CHECK: u64 = 0x5057_6f75_7470_7574;

/// The size from which on another file is begun, so that the space of what was printed is given back.
const FILE_BYTES: u64 = 64 << 20;
/// The most files that are open.
const MOST_FILES: usize = 8;
/// The size from which on a file is emptied when all of it was handed over.
const EMPTIED_BYTES: u64 = 1 << 20;

/// The place of the files: beside this log of that batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeepBeside {
    pub(crate) log: PathBuf,
    pub(crate) batch_id: String,
    /// An earlier run may have left files.
    pub(crate) is_resumed: bool,
}

/// The files.
#[derive(Debug)]
pub(super) struct Kept {
    place: KeepBeside,
    /// The log: the files belong to it.
    log: Facts,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Kin>,
    last_number: u32,
}

/// A file, and what is in it.
#[derive(Debug)]
struct Kin {
    file: Arc<OutputFile>,
    bytes: u64,
    /// Records that were not handed over.
    waiting: usize,
}

#[derive(Debug)]
struct OutputFile {
    number: u32,
    path: PathBuf,
    file: File,
}

/// An output in a file.
///
/// # Drop
/// It stays there. [`Kept::handed_over`] lets it go.
pub(super) struct Record {
    file: Arc<OutputFile>,
    /// The place of its header.
    at: u64,
    bytes: u64,
    pub(super) job: u64,
    pub(super) source: Source,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of job {}", self.bytes, self.job)
    }
}

impl Record {
    /// Calls the function with all bytes, in pieces of at most the buffer.
    pub(super) fn read<E>(
        &self,
        buffer: &mut [u8],
        mut work: impl FnMut(io::Result<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        while done < self.bytes {
            let most = usize::try_from(self.bytes - done).unwrap_or(usize::MAX).min(buffer.len());
            let into = buffer.get_mut(..most).unwrap_or_default();
            match files::read_at(&self.file.file, into, self.at + HEADER_BYTES + done) {
                Ok(0) => return work(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    work(Ok(into.get(..count).unwrap_or_default()))?;
                    done += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return work(Err(error)),
            }
        }
        Ok(())
    }
}

fn header(job: u64, source: Source, bytes: u64) -> [u8; 32] {
    let mut header = [0; 32];
    header[0] = b'R';
    header[1] = source as u8;
    header[8..16].copy_from_slice(&job.to_le_bytes());
    header[16..24].copy_from_slice(&bytes.to_le_bytes());
    header[24..].copy_from_slice(&(job.wrapping_add(bytes) ^ CHECK).to_le_bytes());
    header
}

impl Kept {
    /// Opens the place of the files, and returns what an earlier run has left there, in its order.
    ///
    /// # Errors
    /// A file cannot be read, or others may have written to it.
    pub(super) fn open(place: KeepBeside) -> Result<(Kept, Vec<Record>), OutputError> {
        let failed = |path: &Path| {
            let kind = OutputErrorKind::Folder(path.to_owned());
            move |error| OutputError::new(kind, error)
        };
        let log = Facts::look(&place.log).and_then(|log| Ok(log.ok_or(io::ErrorKind::NotFound)?));
        let log = log.map_err(failed(&place.log))?;
        let mut state = State::default();
        let mut left = Vec::new();
        // A folder may have very many files, and a new log has none of these.
        let found = match place.is_resumed {
            true => numbered(&place.log).map_err(failed(&place.log))?,
            false => Vec::new(),
        };
        for (number, path) in found {
            state.last_number = state.last_number.max(number);
            let file = match private_file::open_existing_beside(&path, &log) {
                // Never made by a run of this batch.
                Err(error)
                    if matches!(
                        private_file::distrust(&error),
                        Some(Distrust::OtherOwner(_) | Distrust::NotAFile)
                    ) =>
                {
                    continue;
                }
                file => file.map_err(failed(&path))?,
            };
            let file = Arc::new(OutputFile { number, path, file });
            let (records, bytes) = records(&file, &place.batch_id).map_err(failed(&file.path))?;
            match records {
                // Those of another batch, whose log had this name.
                None => {}
                Some(records) if records.is_empty() => drop(fs::remove_file(&file.path)),
                Some(records) => {
                    state.files.push(Kin { file, bytes, waiting: records.len() });
                    left.extend(records);
                }
            }
        }
        Ok((Kept { place, log, state: Mutex::new(state) }, left))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves at worst a file that is not removed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an output of that many bytes, which the function hands over in pieces.
    ///
    /// # Errors
    /// There is no room, no file can be created, or that of the function.
    pub(super) fn add(
        &self,
        job: u64,
        source: Source,
        bytes: u64,
        read: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<Record> {
        let mut state = self.lock();
        let kin = self.current(&mut state)?;
        let (file, at) = (Arc::clone(&kin.file), kin.bytes);
        let mut piece = header(job, source, bytes).to_vec();
        let mut to = at;
        // The header goes with the first piece: one call for a small output.
        read(&mut |bytes| {
            piece.extend_from_slice(bytes);
            let written = write(&file.file, &piece, to);
            to += piece.len() as u64;
            piece.clear();
            written
        })?;
        kin.bytes = to;
        kin.waiting += 1;
        Ok(Record { file, at, bytes, job, source })
    }

    /// Notes that an output was handed over, or is not wanted any more.
    pub(super) fn handed_over(&self, record: &Record) {
        let mut state = self.lock();
        // An error is ignored: at worst it is printed once more.
        let _ = write(&record.file.file, &[1], record.at + HANDED_OVER_AT);
        let last = state.files.len().saturating_sub(1);
        let number = record.file.number;
        let Some(index) = state.files.iter().position(|kin| kin.file.number == number) else {
            return;
        };
        let Some(kin) = state.files.get_mut(index) else { return };
        kin.waiting -= 1;
        if kin.waiting > 0 {
            return;
        }
        if index < last {
            let kin = state.files.remove(index);
            // Ignored: it holds nothing that a later run would print.
            let _ = fs::remove_file(&kin.file.path);
        } else if kin.bytes >= EMPTIED_BYTES && kin.file.file.set_len(FILE_HEADER_BYTES).is_ok() {
            kin.bytes = FILE_HEADER_BYTES;
        }
    }

    /// Puts on disk what was not handed over. An error is ignored: a power cut may take that output.
    pub(super) fn sync(&self) {
        let files = |state: &State| -> Vec<_> {
            let waiting = state.files.iter().filter(|kin| kin.waiting > 0);
            waiting.map(|kin| Arc::clone(&kin.file)).collect()
        };
        let files = files(&self.lock());
        for file in files {
            let _ = file.file.sync_data();
        }
    }

    /// Removes the files of which all was handed over, and returns the number of outputs that are left.
    pub(super) fn close(&self) -> usize {
        let mut state = self.lock();
        for kin in state.files.iter().filter(|kin| kin.waiting == 0) {
            // Ignored, as above.
            let _ = fs::remove_file(&kin.file.path);
        }
        state.files.retain(|kin| kin.waiting > 0);
        state.files.iter().map(|kin| kin.waiting).sum()
    }

    /// Returns the file for the next output.
    fn current<'a>(&self, state: &'a mut State) -> io::Result<&'a mut Kin> {
        let has_room = |kin: &Kin| kin.bytes < FILE_BYTES;
        let is_full = !state.files.last().is_some_and(has_room);
        if state.files.is_empty() || is_full && state.files.len() < MOST_FILES {
            let (number, path, file) = self.create(state.last_number.saturating_add(1))?;
            let header = [&MARK[..], self.place.batch_id.as_bytes()].concat();
            write(&file, &header, 0)?;
            // Ignored, as in `sync`.
            let _ = self.place.log.parent().map_or(Ok(()), files::sync_folder);
            state.last_number = number;
            let file = Arc::new(OutputFile { number, path, file });
            state.files.push(Kin { file, bytes: header.len() as u64, waiting: 0 });
        }
        state.files.last_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Kept {
    /// Creates a file with that number, or the next one that is free: a log that was removed may have left some.
    fn create(&self, first: u32) -> io::Result<(u32, PathBuf, File)> {
        let mut number = first;
        loop {
            let path = path(&self.place.log, number);
            match private_file::create_beside(&path, &self.log) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.checked_add(1).ok_or(error)?;
                }
                created => return created.map(|file| (number, path, file)),
            }
        }
    }
}

fn write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let file: &dyn SpoolFile = file;
    write_all_at(file, bytes, at).1
}

fn path(log: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(format!("-output-{number}"));
    name.into()
}

/// Returns the files beside a log, by their numbers.
fn numbered(log: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut prefix = log.file_name().unwrap_or_default().to_owned();
    prefix.push("-output-");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let number = name.strip_prefix(prefix.as_encoded_bytes());
        let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads what was not handed over, and the length up to which the file makes sense. `None`: it is that of another
/// batch.
fn records(file: &Arc<OutputFile>, batch_id: &str) -> io::Result<(Option<Vec<Record>>, u64)> {
    let length = file.file.metadata()?.len();
    let mut head = [0; FILE_HEADER_BYTES as usize];
    let is_ours = read_exact_at(&file.file, &mut head, 0)?
        && head.strip_prefix(MARK) == Some(batch_id.as_bytes());
    if !is_ours {
        return Ok((None, 0));
    }
    let (mut found, mut at) = (Vec::new(), FILE_HEADER_BYTES);
    let mut head = [0; HEADER_BYTES as usize];
    // A kill may have cut the last one, whose job has no end in the log.
    while read_exact_at(&file.file, &mut head, at)? {
        let number = |at: usize| {
            let bytes = head.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        let (job, bytes) = (number(8), number(16));
        let is_whole = head[0] == b'R' && number(24) == job.wrapping_add(bytes) ^ CHECK;
        let end = at.saturating_add(HEADER_BYTES).saturating_add(bytes);
        if !is_whole || end > length {
            break;
        }
        let source = if head[1] == 0 { Source::Stdout } else { Source::Stderr };
        if head[HANDED_OVER_AT as usize] == 0 {
            found.push(Record { file: Arc::clone(file), at, bytes, job, source });
        }
        at = end;
    }
    Ok((Some(found), at))
}

/// Fills the buffer from a place in the file. Returns false if the file ends before.
fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match files::read_at(file, rest, at + done as u64) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
