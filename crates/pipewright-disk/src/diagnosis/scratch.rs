//! The file that a test reads or writes: that of the caller, or one of our own that is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pipewright_os::disk::file::{Filesystem, claim_disk, write_in_place};

use super::{DiagnoseOptions, Test, Work};
use crate::{Access, DiskFile, Error, ErrorKind, Result};

/// What is diagnosed.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// The file to read; `None`: one of our own.
    file: Option<PathBuf>,
    folder: PathBuf,
    /// It is a disk, and what is beside it is not on it.
    is_device: bool,
    /// It may be written to.
    write_existing: bool,
    /// How long a file of our own is.
    bytes: u64,
    block_bytes: u64,
    /// Files of our own are written in place.
    in_place: bool,
}

/// A file for a test, which is removed afterwards where it is ours.
#[derive(Debug)]
pub(super) struct TestFile {
    pub(super) file: DiskFile,
    /// How much of it is read or written.
    pub(super) bytes: u64,
    /// It is the caller's, and has to be what it was.
    pub(super) is_existing_file: bool,
    _temporary: Option<RemoveOnDrop>,
    /// Nobody mounts it meanwhile.
    _claimed: Option<fs::File>,
}

#[derive(Debug)]
struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // Ignored: it is gone, or it stays. Nobody is left to be told.
        let _ = fs::remove_file(&self.0);
    }
}

impl Target {
    pub(super) fn new(
        path: &Path,
        found: &fs::Metadata,
        options: &DiagnoseOptions,
    ) -> Result<Target> {
        let block_bytes = options.block_bytes as u64;
        let bytes = (options.requests as u64).saturating_mul(block_bytes);
        let mut target = Target {
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

    /// The same, with files of our own that are written in place; `None`: what is written to is the caller's.
    pub(super) fn without_copy_on_write(&self) -> Option<Target> {
        (!self.write_existing).then(|| Target { in_place: true, ..self.clone() })
    }

    /// The file as a test wants it.
    pub(super) fn open(&self, test: Test) -> Result<TestFile> {
        // Else what is read ahead for one request would be there for the next.
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
                // A write of a block would make it longer.
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
                "it is a disk: name a folder of the filesystem on it",
            );
            return Err(Error::system("make a file beside", Some(path), elsewhere));
        }
        let path = self.unused_name();
        let made = fs::File::create_new(&path);
        let made = made.map_err(|error| Error::system("make", Some(&path), error))?;
        let temporary = RemoveOnDrop(path.clone());
        let mut options = options.write(test.work.is_write());
        if test.work == Work::Preallocated {
            options = options.preallocate(self.bytes);
        }
        if self.in_place {
            // While it is empty: afterwards nothing of it changes.
            let asked = write_in_place(&made);
            asked.map_err(|error| {
                Error::system("do away with copies on write of", Some(&path), error)
            })?;
        }
        let file = options.open(&path)?;
        // Now, before anything is written: what has no name is not left behind, whatever ends this program.
        // Ignored: where a file that is open keeps its name, it loses it afterwards.
        let _ = fs::remove_file(&path);
        let prepared = self.prepare(made, test.work);
        prepared.map_err(|error| Error::system("prepare", Some(&path), error))?;
        if test.work == Work::Read || test.direct {
            // As a file that has not been read for a while. A write past the cache that has to throw out what is
            // in it goes to a thread of the kernel (kiocb_invalidate_pages).
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
                // Nothing that a filesystem could compress away.
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

/// A disk with a filesystem that is in use is not written over, not even with what it has.
fn claim(path: &Path) -> Result<fs::File> {
    claim_disk(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            let busy = io::Error::new(error.kind(), "it is mounted, or a part of another disk");
            Error::system("overwrite", Some(path), busy)
        }
        _ => Error::system("overwrite", Some(path), error),
    })
}

/// Bytes without a pattern.
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
