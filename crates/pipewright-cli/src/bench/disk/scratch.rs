//! The file that is read and written: made when it is first needed, and without a name from then on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pipewright_disk::{DiskFile, Engine, EngineOptions, ErrorKind, FileOptions, Result, SyncMode};

use super::super::plan::Failed;
use super::super::shuffle::Random;
use super::super::units::bytes;

/// How a file is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Through the cache of the system.
    Cached,
    /// Past it.
    Direct,
    /// Through it; each write waits for the disk.
    Synced,
}

/// A file of that size in that folder, for all cells.
///
/// Its name is gone as soon as it is open, so that nothing is left of it however this process ends.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
    pub(super) bytes: u64,
    made: OnceLock<std::result::Result<Files, String>>,
}

/// The same file, opened in each way.
#[derive(Debug)]
struct Files {
    cached: DiskFile,
    synced: DiskFile,
    /// Or why not.
    direct: std::result::Result<DiskFile, String>,
    // Dropped last.
    _name: Name,
}

/// A name that is taken away.
#[derive(Debug)]
struct Name(PathBuf);

impl Name {
    fn take_away(&self) {
        // Ignored: it is gone already, or is tried once more at the end.
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.take_away();
    }
}

impl Scratch {
    pub(super) fn new(folder: &Path, bytes: u64) -> Scratch {
        Scratch { folder: folder.to_owned(), bytes, made: OnceLock::new() }
    }

    /// The file, opened like that.
    pub(super) fn file(&self, access: Access) -> std::result::Result<DiskFile, Failed> {
        let made = self.made.get_or_init(|| {
            self.make().map_err(|error| {
                let (size, folder) = (bytes(self.bytes), self.folder.display());
                format!("cannot make a file of {size} in \"{folder}\": {error}")
            })
        });
        let files = made.as_ref().map_err(|why| Failed::Skip(why.clone()))?;
        match access {
            Access::Cached => Ok(files.cached.clone()),
            Access::Synced => Ok(files.synced.clone()),
            Access::Direct => files.direct.clone().map_err(Failed::Skip),
        }
    }

    fn make(&self) -> Result<Files> {
        let path = self.folder.join(format!(".pipewright-bench-{}", std::process::id()));
        let options = || DiskFile::options().read(true).write(true);
        let cached = options().create_new(true).open(&path)?;
        let name = Name(path);
        let again = |options: FileOptions| options.open(&name.0);
        let synced = again(options().sync(SyncMode::Data))?;
        let direct = again(options().direct(true)).map_err(|error| error.to_string());
        // Windows takes it away when it is closed.
        name.take_away();
        fill(&cached, self.bytes)?;
        Ok(Files { cached, synced, direct, _name: name })
    }
}

/// Every block is on the disk, and nothing that a filesystem could compress away.
fn fill(file: &DiskFile, bytes: u64) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut engine = Engine::new(EngineOptions { depth: 1, ..EngineOptions::default() })?;
    // A disk that has no room for it says so before it is full. Not every filesystem can.
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
    fn nothing_is_seen_of_the_file_while_it_is_used_and_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(folder.path(), 2 << 20);
        let there = || fs::read_dir(folder.path()).unwrap().count();
        let file = scratch.file(Access::Cached).map_err(|error| format!("{error:?}")).unwrap();
        assert_eq!(file.len().unwrap(), 2 << 20);
        // Windows takes names away when files are closed.
        if cfg!(unix) {
            assert_eq!(there(), 0);
        }
        drop((file, scratch));
        assert_eq!(there(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let found = Scratch::new(&missing, 1 << 20).file(Access::Cached);
        let Err(Failed::Skip(why)) = found else { panic!("{found:?}") };
        assert!(why.starts_with("cannot make a file of 1 MiB in "), "{why}");
        assert!(why.contains("missing"), "{why}");
    }
}
