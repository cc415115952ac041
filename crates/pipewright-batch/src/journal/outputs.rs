//! Outputs on disk before the ends that refer to them.

use std::io;
use std::path::{Path, PathBuf};

use pipewright_os::base::error::OneLine;
use pipewright_os::base::files::{Filesystem, sync_file, sync_folder};

use super::changes::Changes;

/// A job that succeeded, and whose output is not on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostOutput {
    /// The number in this run.
    pub(crate) job: u64,
    /// The reason, on one line.
    pub(crate) reason: String,
}

/// Puts the folders of jobs on disk.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// The directory of the last folders, and its filesystem if that can be synced as a whole.
    filesystem: Option<(PathBuf, Option<Filesystem>)>,
}

impl Outputs {
    /// Puts the outputs on disk to which these changes refer. A success without its output is none: its job runs again in a resumed
    /// batch, or is unknown.
    pub(crate) fn sync(&mut self, changes: &mut Changes) -> Vec<LostOutput> {
        let folders = changes.take_outputs();
        if folders.is_empty() || self.sync_all(&folders).is_ok() {
            return Vec::new();
        }
        let synced = folders.iter().map(|(attempt, folder)| (*attempt, sync_one(folder)));
        let failed = synced.filter_map(|(attempt, synced)| Some((attempt, synced.err()?)));
        let failed: Vec<(u64, io::Error)> = failed.collect();
        let lose = |(attempt, error): (u64, io::Error)| {
            let reason = format!("its output is not on disk: {}", OneLine(&error.to_string()));
            let job = changes.lose_output(attempt, &reason)?;
            Some(LostOutput { job, reason })
        };
        failed.into_iter().filter_map(lose).collect()
    }

    /// Puts all of them on disk at once. An error: that is not possible, or one of them is lost.
    fn sync_all(&mut self, folders: &[(u64, PathBuf)]) -> io::Result<()> {
        let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
        let parent = |folder: &Path| folder.parent().map(Path::to_owned);
        let first = folders.first().and_then(|(_, folder)| parent(folder));
        let directory = first.ok_or_else(unsupported)?;
        // The folders that an earlier version named may be elsewhere.
        if folders.iter().any(|(_, folder)| folder.parent() != Some(&directory)) {
            return Err(unsupported());
        }
        let is_known = self.filesystem.as_ref().is_some_and(|(known, _)| *known == directory);
        if !is_known {
            let filesystem = Filesystem::of(&directory);
            self.filesystem = Some((directory, filesystem));
        }
        let filesystem = self.filesystem.as_ref().and_then(|(_, filesystem)| filesystem.as_ref());
        filesystem.ok_or_else(unsupported)?.sync()?;
        #[cfg(test)]
        folders.iter().for_each(|(_, folder)| super::watched::note_synced(folder));
        Ok(())
    }
}

/// Puts the files of a folder on disk, the folder, and its name.
fn sync_one(folder: &Path) -> io::Result<()> {
    for name in ["stdout", "stderr", "job.json"] {
        match sync_file(&folder.join(name)) {
            // An attempt that is tried again has no facts, and one that was not started no files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            synced => synced?,
        }
    }
    sync_folder(folder)?;
    folder.parent().map_or(Ok(()), sync_folder)?;
    #[cfg(test)]
    super::watched::note_synced(folder);
    Ok(())
}
