//! The files of a log before SQLite opens them: which of them can be trusted, what is no log, and damage that no crash
//! can leave.
//!
//! A user who may write in the folder of a log can make any name there. Their `-wal` or `-journal` would be read as
//! part of the log, and its commands would run as the user who resumes the batch. So each file is looked at before
//! SQLite opens anything.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::private_file::{
    self, Distrust, Facts, distrust, open_beside, others_may_write_in, real_path,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::JournalMode;
use super::error::{LogError, LogErrorKind};
use super::runner::Runner;
use super::sqlite::{self, APPLICATION_ID, STEPS, prepare};

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

/// Returns the path that SQLite uses: from the root, because it gives relative ones such as `:memory:` a meaning, and
/// without links, because it looks for the other files beside the target of a link.
pub(super) fn real(path: &Path) -> Result<PathBuf, LogError> {
    real_path(path).map_err(|error| LogError::io(path, error))
}

/// Looks at a log and the files beside it, for a runner. `trusted`: the log of another user, and one that others may
/// write, is used too.
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

/// Takes the name of the rollback journal while SQLite opens the log, if another user could make that file in between.
/// SQLite takes an empty one for none.
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

/// Checks the files that SQLite has opened, or made, beside the log. In a folder where others cannot remove files of
/// this user, nobody can replace a file that is found here.
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

// A file that may be a log, looked at without a change of it or of the files beside it.

/// Checks that the file is a log that this version understands, without a change of it or of its locks.
pub(super) fn check_file(path: &Path) -> Result<(), LogError> {
    let connection = open_immutable(path).map_err(|error| open_error(path, error))?;
    let sqlite = |error| LogError::sqlite(path, error);
    // A move of the write-ahead log into the file that was cut short leaves a first page that counts more pages than
    // there are. SQLite then takes the count from the write-ahead log. It allows the difference where the schema may be
    // edited.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).map_err(sqlite)?;
    connection.pragma_update(None, "writable_schema", true).map_err(sqlite)?;
    check_header(&connection, path)
}

/// Refuses a name of a log whose write-ahead log is beside another of its names.
pub(super) fn check_names(path: &Path, found: &Facts) -> Result<(), LogError> {
    let wal = find(path, "-wal", found)?.map_or(0, |wal| wal.bytes());
    if found.names() <= 1 || wal > 0 {
        return Ok(());
    }
    let connection = open_immutable(path).map_err(|error| open_error(path, error))?;
    match Runner::last(&connection) {
        Ok(runner) if runner.as_ref().is_none_or(|runner| runner.has_ended) => Ok(()),
        // While the log moves into the file, that is not whole.
        _ => Err(LogError::new(path, LogErrorKind::OtherName)),
    }
}

/// Opens a file as if it were on a read-only medium: without locks, and without the files beside it.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(immutable_uri(path), flags)?;
    prepare(&connection)?;
    Ok(connection)
}

/// Returns the name of a file for SQLite, with each byte that has a meaning in it escaped. The path is absolute.
fn immutable_uri(path: &Path) -> String {
    // The name of the machine, between two and the third slash, is empty.
    let mut uri = String::from("file://");
    // A path of Windows may begin with a letter.
    if path.as_os_str().as_encoded_bytes().first().is_some_and(u8::is_ascii_alphabetic) {
        uri.push('/');
    }
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            byte if byte.is_ascii_alphanumeric() || b"/._-:".contains(byte) => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Checks whose file it is. The first page has it, and is never only in the write-ahead log: see [`create`].
pub(super) fn check_header(connection: &Connection, path: &Path) -> Result<(), LogError> {
    let sqlite = |error| LogError::sqlite(path, error);
    let pages: i64 =
        connection.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(sqlite)?;
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sqlite)?;
    let version = sqlite::version(connection).map_err(sqlite)?;
    // A new log gets its name when it is whole.
    if pages == 0 {
        return Err(LogError::new(path, LogErrorKind::Corrupt));
    }
    if application != APPLICATION_ID {
        return Err(LogError::new(path, LogErrorKind::NotALog));
    }
    if version < 1 {
        return Err(LogError::new(path, LogErrorKind::Corrupt));
    }
    if version > STEPS.len() as i64 {
        return Err(LogError::new(path, LogErrorKind::Newer { version }));
    }
    Ok(())
}

/// Adds the system's reason to an error of SQLite that only says that a file cannot be opened.
pub(super) fn open_error(path: &Path, error: rusqlite::Error) -> LogError {
    let error = LogError::sqlite(path, error);
    if *error.kind() != LogErrorKind::Open {
        return error;
    }
    // It is not opened for that: to close it would release the locks of SQLite in this process.
    match private_file::check_access(path) {
        Err(reason) => LogError::io(path, reason),
        Ok(()) => error,
    }
}

// Damage of a write-ahead log that no crash can leave.
//
// SQLite reads a write-ahead log up to the first frame that is not valid, because a crash leaves such frames at its
// end. Damage in the middle looks the same to it, and everything behind would be lost in silence. The difference: a
// transaction is written after the one before it has been flushed to the disk. So a crash spoils frames of the last
// transaction only, and a frame that continues one whose transaction is committed proves that everything before was
// there. Each frame has a checksum that goes on from that of the frame before it, which shows what continues what.
//
// A frame that is missing at the end is no damage: a power cut removes it before the commit is reported. The header, of
// 32 bytes, is taken to be written whole or not at all.

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;

/// Returns true if the file is damaged in a way that no crash explains.
pub(super) fn is_damaged_wal(file: File) -> io::Result<bool> {
    // The header is flushed before the first frame is written.
    if file.metadata()?.len() <= HEADER_BYTES as u64 {
        return Ok(false);
    }
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header)?;
    let Some(wal) = Header::parse(&header) else { return Ok(true) };
    let mut bytes = vec![0; FRAME_HEADER_BYTES + wal.page_bytes];
    let mut before =
        Frame { written_sums: wal.sums, right_sums: wal.sums, is_valid: true, is_commit: false };
    while read_whole(&mut reader, &mut bytes)? {
        let (frame, continues) = wal.frame(&bytes, &before);
        if continues && before.is_commit && !before.is_valid {
            return Ok(true);
        }
        before = frame;
    }
    Ok(false)
}

/// The header of the file.
struct Header {
    is_big_endian: bool,
    page_bytes: usize,
    salt: [u8; 8],
    sums: (u32, u32),
}

/// The part of a frame on which the next one depends.
struct Frame {
    /// The checksum in it.
    written_sums: (u32, u32),
    /// The checksum of its contents, which goes on from that of the frame before it.
    right_sums: (u32, u32),
    /// It and all frames before it are as they were written.
    is_valid: bool,
    /// It ends a transaction.
    is_commit: bool,
}

impl Header {
    /// `None`: it is not as it was written.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let magic = number(bytes, 0);
        let page_bytes = number(bytes, 8) as usize;
        let is_big_endian = magic == MAGIC | 1;
        let sums = (number(bytes, 24), number(bytes, 28));
        let is_valid = magic & !1 == MAGIC
            && number(bytes, 4) == VERSION
            && page_bytes.is_power_of_two()
            && (512..=65536).contains(&page_bytes)
            && checksum(is_big_endian, (0, 0), bytes.get(..24)?) == sums;
        let salt = bytes.get(16..24)?.try_into().ok()?;
        is_valid.then_some(Header { is_big_endian, page_bytes, salt, sums })
    }

    /// Returns the frame, and true if it was written after the one before it.
    fn frame(&self, bytes: &[u8], before: &Frame) -> (Frame, bool) {
        let (head, page) = bytes.split_at(FRAME_HEADER_BYTES);
        let written_sums = (number(head, 16), number(head, 20));
        let after = |sums| {
            let sums = checksum(self.is_big_endian, sums, head.get(..8).unwrap_or_default());
            checksum(self.is_big_endian, sums, page)
        };
        let right_sums = after(before.written_sums);
        let is_of_file = head.get(8..16) == Some(&self.salt) && number(head, 0) != 0;
        let continues =
            is_of_file && (right_sums == written_sums || after(before.right_sums) == written_sums);
        let is_valid = before.is_valid && is_of_file && right_sums == written_sums;
        let is_commit = number(head, 4) != 0;
        (Frame { written_sums, right_sums, is_valid, is_commit }, continues)
    }
}

/// Reads the whole buffer. False: the file ends before.
fn read_whole(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}

/// Continues a checksum as SQLite defines it.
fn checksum(is_big_endian: bool, (mut one, mut two): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap_or_default();
        if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    for pair in bytes.chunks_exact(8) {
        let (first, second) = pair.split_at(4);
        one = one.wrapping_add(word(first)).wrapping_add(two);
        two = two.wrapping_add(word(second)).wrapping_add(one);
    }
    (one, two)
}
