//! The file to read and write: created when it is first needed, and unlinked at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pipewright_disk::{DiskFile, Engine, EngineOptions, ErrorKind, FileOptions, Result, SyncMode};

use crate::plan::CellError;
use crate::stats::Random;
use crate::units::bytes;

/// The way to open the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenMode {
    /// Through the page cache.
    Cached,
    /// Past the page cache.
    Direct,
    /// Through the page cache; each write waits for the disk.
    Synced,
}

/// A file that all cells share.
///
/// It is unlinked as soon as it is open, so nothing is left of it however this process ends.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
    pub(super) bytes: u64,
    made: OnceLock<std::result::Result<ScratchFiles, String>>,
}

/// The same file, opened in each way.
#[derive(Debug)]
struct ScratchFiles {
    cached: DiskFile,
    synced: DiskFile,
    /// The file, or the reason why it cannot be opened like this.
    direct: std::result::Result<DiskFile, String>,
    // Dropped last.
    _name: UnlinkOnDrop,
}

/// The name of a file, unlinked on drop.
#[derive(Debug)]
struct UnlinkOnDrop(PathBuf);

impl UnlinkOnDrop {
    fn unlink(&self) {
        // Ignored: it is gone already, or the drop tries again.
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for UnlinkOnDrop {
    fn drop(&mut self) {
        self.unlink();
    }
}

impl Scratch {
    pub(super) fn new(folder: &Path, bytes: u64) -> Scratch {
        Scratch { folder: folder.to_owned(), bytes, made: OnceLock::new() }
    }

    /// Returns the file, opened in that way.
    pub(super) fn file(&self, access: OpenMode) -> std::result::Result<DiskFile, CellError> {
        let made = self.made.get_or_init(|| {
            self.make().map_err(|error| {
                let (size, folder) = (bytes(self.bytes), self.folder.display());
                format!("cannot create a file of {size} in \"{folder}\": {error}")
            })
        });
        let files = made.as_ref().map_err(|reason| CellError::Skip(reason.clone()))?;
        match access {
            OpenMode::Cached => Ok(files.cached.clone()),
            OpenMode::Synced => Ok(files.synced.clone()),
            OpenMode::Direct => files.direct.clone().map_err(CellError::Skip),
        }
    }

    fn make(&self) -> Result<ScratchFiles> {
        let path = self.folder.join(format!(".pipewright-bench-{}", std::process::id()));
        let options = || DiskFile::options().read(true).write(true);
        let cached = options().create_new(true).open(&path)?;
        let name = UnlinkOnDrop(path);
        let again = |options: FileOptions| options.open(&name.0);
        let synced = again(options().sync(SyncMode::Data))?;
        let direct = again(options().direct(true)).map_err(|error| error.to_string());
        // Windows removes it when it is closed.
        name.unlink();
        fill(&cached, self.bytes)?;
        Ok(ScratchFiles { cached, synced, direct, _name: name })
    }
}

/// Writes random data, which filesystems cannot compress, and syncs it to the disk.
fn fill(file: &DiskFile, bytes: u64) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut engine = Engine::new(EngineOptions { depth: 1, ..EngineOptions::default() })?;
    // Fails early on a full disk. Not every filesystem can preallocate.
    match engine.preallocate(file, 0, bytes).result {
        Err(error) if *error.kind() == ErrorKind::Unsupported => {}
        preallocated => drop(preallocated?),
    }
    let mut buffer = file.buffer(PIECE_BYTES)?;
    let mut random = Random::new(1);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    let mut offset = 0;
    while offset < bytes {
        let done = engine.write_all_at(file, buffer, offset);
        done.result?;
        buffer = done.buffer;
        offset += PIECE_BYTES as u64;
    }
    engine.sync_all(file).result?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_no_name_while_it_is_used_and_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path(), 2 << 20);
        let there = || fs::read_dir(folder.path()).unwrap().count();
        let file = scratch.file(OpenMode::Cached).map_err(|error| format!("{error:?}")).unwrap();
        assert_eq!(file.len().unwrap(), 2 << 20);
        // Windows removes names when files are closed.
        if cfg!(unix) {
            assert_eq!(there(), 0);
        }
        drop((file, scratch));
        assert_eq!(there(), 0);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let found = Scratch::new(&missing, 1 << 20).file(OpenMode::Cached);
        let Err(CellError::Skip(reason)) = found else { panic!("{found:?}") };
        assert!(reason.starts_with("cannot create a file of 1 MiB in "), "{reason}");
        assert!(reason.contains("missing"), "{reason}");
    }
}
