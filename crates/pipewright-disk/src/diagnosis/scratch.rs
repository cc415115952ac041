//! The files that tests read and write: the caller's, or temporary ones that are removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pipewright_os::disk::file::{Filesystem, claim_disk, is_same_open, write_in_place};

use super::{DiagnoseOptions, Test, Work};
use crate::{Access, DiskFile, Error, ErrorKind, FileOptions, Result};

/// The file or folder to diagnose.
#[derive(Debug, Clone)]
pub(super) struct DiagnosisTarget {
    /// The file to read. `None`: a temporary one.
    file: Option<PathBuf>,
    folder: PathBuf,
    /// True for a disk: files in the same folder are not on it.
    is_device: bool,
    /// True if the file may be overwritten.
    write_existing: bool,
    /// The length of a temporary file.
    bytes: u64,
    block_bytes: u64,
    /// True if temporary files are written in place, without copy-on-write.
    in_place: bool,
}

/// An open file for one test.
#[derive(Debug)]
pub(super) struct TestFile {
    pub(super) file: DiskFile,
    /// The number of bytes to read or write.
    pub(super) bytes: u64,
    /// True for the caller's file, whose contents have to stay the same.
    pub(super) is_existing_file: bool,
    _temporary: Option<RemoveOnDrop>,
    /// Keeps other processes from mounting the disk.
    _claimed: Option<fs::File>,
}

#[derive(Debug)]
struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // Ignored: the file is gone already or cannot be removed, and a drop cannot report an error.
        let _ = fs::remove_file(&self.0);
    }
}

impl DiagnosisTarget {
    pub(super) fn new(
        path: &Path,
        found: &fs::Metadata,
        options: &DiagnoseOptions,
    ) -> Result<DiagnosisTarget> {
        let block_bytes = options.block_bytes as u64;
        let bytes = (options.requests as u64).saturating_mul(block_bytes);
        let mut target = DiagnosisTarget {
            file: None,
            folder: path.to_owned(),
            is_device: false,
            write_existing: options.write_existing,
            bytes,
            block_bytes,
            in_place: false,
        };
        if found.is_dir() {
            return Ok(target);
        }
        let file = DiskFile::options().read(true).open(path)?;
        if file.is_empty()? {
            // A device without an end has no length either.
            let is_disk = file.facts().filesystem == Some(Filesystem::Device);
            let has_end = found.is_file() || is_disk;
            let kind = if has_end { ErrorKind::Empty } else { ErrorKind::NotSeekable };
            return Err(Error::new("diagnose", Some(path), kind));
        }
        target.folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        (target.file, target.is_device) = (Some(path.to_owned()), !found.is_file());
        Ok(target)
    }

    /// Returns a target whose temporary files are written in place. `None` if the caller's file is written to.
    pub(super) fn without_copy_on_write(&self) -> Option<DiagnosisTarget> {
        (!self.write_existing).then(|| DiagnosisTarget { in_place: true, ..self.clone() })
    }

    /// Opens or creates the file for a test.
    pub(super) fn open(&self, test: Test) -> Result<TestFile> {
        // Otherwise data read ahead for one request would be in memory for the next.
        let access = if test.asynchronous { Access::Random } else { Access::Normal };
        let options = DiskFile::options().read(true).direct(test.direct).access(access);
        let is_existing =
            test.work == Work::Read || (test.work == Work::Overwrite && self.write_existing);
        if let (Some(path), true) = (&self.file, is_existing) {
            let claimed =
                (self.is_device && test.work.is_write()).then(|| claim(path)).transpose()?;
            let file = options.write(test.work.is_write()).open(path)?;
            let bytes = file.len()?;
            if test.work.is_write() && bytes < self.block_bytes {
                // Writing a block would extend the file.
                let short =
                    ErrorKind::EndOfFile { wanted: self.block_bytes as usize, got: bytes as usize };
                return Err(Error::new("overwrite", Some(path), short));
            }
            return Ok(TestFile {
                file,
                bytes,
                is_existing_file: true,
                _temporary: None,
                _claimed: claimed,
            });
        }
        if let (Some(path), true) = (&self.file, self.is_device) {
            let elsewhere = io::Error::new(
                io::ErrorKind::Unsupported,
                "it is a disk: pass a folder of the filesystem on it instead",
            );
            return Err(Error::system("create a file next to", Some(path), elsewhere));
        }
        let path = self.unused_name();
        let made = fs::File::create_new(&path);
        let made = made.map_err(|error| Error::system("create", Some(&path), error))?;
        let temporary = RemoveOnDrop(path.clone());
        let options = options.write(test.work.is_write());
        if self.in_place {
            // Only an empty file can be switched.
            let result = write_in_place(&made);
            result
                .map_err(|error| Error::system("disable copy-on-write for", Some(&path), error))?;
        }
        let file = reopen(&options, &path, &made)?;
        if test.work == Work::Preallocated && self.bytes > 0 {
            file.os()
                .allocate(0, self.bytes)
                .map_err(|error| Error::system("preallocate", Some(&path), error))?;
        }
        // Before anything is written: a file without a name cannot be left behind, however this program ends.
        // Ignored: where an open file keeps its name, it is removed afterwards.
        let _ = fs::remove_file(&path);
        let prepared = self.prepare(made, test.work);
        prepared.map_err(|error| Error::system("fill", Some(&path), error))?;
        if test.work == Work::Read || test.direct {
            // Make it look like a file that was not read for a while. A direct write that has to evict cached
            // pages is passed to a kernel thread (kiocb_invalidate_pages).
            file.forget_cache()?;
        }
        Ok(TestFile {
            file,
            bytes: self.bytes,
            is_existing_file: false,
            _temporary: Some(temporary),
            _claimed: None,
        })
    }

    fn prepare(&self, mut made: fs::File, work: Work) -> std::io::Result<()> {
        match work {
            Work::Extend | Work::Preallocated => Ok(()),
            Work::Hole => made.set_len(self.bytes),
            Work::Read | Work::Overwrite | Work::Sync => {
                // Data that no filesystem can compress away.
                let noise = noise(1 << 20);
                let mut left = self.bytes as usize;
                while left > 0 {
                    let part = noise.get(..left.min(noise.len())).unwrap_or(&noise);
                    std::io::Write::write_all(&mut made, part)?;
                    left -= part.len();
                }
                made.sync_all()
            }
        }
    }

    fn unused_name(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!(".pipewright-disk-{}-{number}", std::process::id()))
    }
}

/// Opens a new file again, and nothing else: who owns the folder could put a link to another file in its place, which
/// would be overwritten.
fn reopen(options: &FileOptions, path: &Path, made: &fs::File) -> Result<DiskFile> {
    let file = options.open(path)?;
    match is_same_open(file.os(), made) {
        Ok(true) => Ok(file),
        Ok(false) => {
            let other = io::Error::other("another file was put in its place");
            Err(Error::system("create", Some(path), other))
        }
        Err(error) => Err(Error::system("look at", Some(path), error)),
    }
}

/// Claims a disk for exclusive use. A disk whose filesystem is mounted is not overwritten, not even with its
/// own contents.
fn claim(path: &Path) -> Result<fs::File> {
    claim_disk(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            let busy = io::Error::new(error.kind(), "the disk is mounted, or part of another disk");
            Error::system("overwrite", Some(path), busy)
        }
        _ => Error::system("overwrite", Some(path), error),
    })
}

/// Returns pseudo-random bytes.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut words: Vec<u8> =
        std::iter::repeat_with(next).take(bytes.div_ceil(8)).flatten().collect();
    words.truncate(bytes);
    words
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_put_in_the_place_of_a_new_one_is_not_opened() {
        let name = |name: &str| {
            std::env::temp_dir().join(format!("pipewright-scratch-{name}-{}", std::process::id()))
        };
        let (path, other) = (name("new"), name("other"));
        let made = fs::File::create_new(&path).unwrap();
        let options = DiskFile::options().read(true).write(true);
        assert!(reopen(&options, &path, &made).is_ok());
        fs::write(&other, "text").unwrap();
        fs::rename(&other, &path).unwrap();
        let error = reopen(&options, &path, &made).unwrap_err();
        assert!(error.to_string().contains("another file was put in its place"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
