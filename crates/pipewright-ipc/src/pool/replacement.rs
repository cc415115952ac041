//! The rules by which a working worker is replaced.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use pipewright::Command;

use super::options::PoolOptions;
use super::worker::Worker;

/// The files whose change replaces workers.
#[derive(Debug)]
pub(super) struct WatchedFiles {
    paths: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    /// The number of changes so far.
    pub(super) version: u64,
    checked: Option<Instant>,
}

/// The length and times of a file, which distinguish it from its replacement.
type Stamp = Option<(u64, SystemTime, Option<SystemTime>)>;

/// The shortest time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl WatchedFiles {
    pub(super) fn of(command: &Command, options: &PoolOptions) -> WatchedFiles {
        let mut paths = options.watched_files.clone();
        if options.replace_when_changed {
            let folders = env::var_os("PATH").unwrap_or_default();
            paths.extend(executable(command.get_program(), &folders));
        }
        let stamps = paths.iter().map(|path| stamp(path)).collect();
        WatchedFiles { paths, stamps, version: 0, checked: None }
    }

    /// Returns the time of the next check. `None`: never.
    pub(super) fn fresh_until(&self) -> Option<Instant> {
        if self.paths.is_empty() {
            return None;
        }
        Some(self.checked.map_or_else(Instant::now, |checked| checked + CHECK_INTERVAL))
    }

    /// Checks the files for changes.
    pub(super) fn check(&mut self, now: Instant) {
        let is_early = self.checked.is_some_and(|then| now < then + CHECK_INTERVAL);
        if self.paths.is_empty() || is_early {
            return;
        }
        self.checked = Some(now);
        let stamps: Vec<Stamp> = self.paths.iter().map(|path| stamp(path)).collect();
        // A missing file is about to be replaced.
        let has_changed = |(new, old): (&Stamp, &Stamp)| new.is_some() && new != old;
        if stamps.iter().zip(&self.stamps).any(has_changed) {
            self.stamps = stamps;
            self.version += 1;
        }
    }
}

/// Returns the file of a program, searched in these folders of `PATH`.
fn executable(program: &OsStr, folders: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    // Appended, not replaced: a dot in the name (`worker.py`) need not begin an extension.
    let mut with_suffix = program.to_owned();
    with_suffix.push(env::consts::EXE_SUFFIX);
    env::split_paths(folders)
        .flat_map(|folder| [folder.join(program), folder.join(&with_suffix)])
        .find(|file| file.is_file())
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    // The creation time, if the filesystem has it, tells a copy that kept the modification time.
    Some((metadata.len(), metadata.modified().ok()?, metadata.created().ok()))
}

impl PoolOptions {
    /// Returns true if a worker has to be replaced once it has no calls.
    pub(super) fn needs_replacement(
        &self,
        worker: &Worker,
        files: &WatchedFiles,
        now: Instant,
    ) -> bool {
        let age = now.saturating_duration_since(worker.started);
        self.max_jobs.is_some_and(|most| worker.jobs.get() >= most)
            || self.max_age.is_some_and(|most| age >= most)
            || worker.version != files.version
            || worker.exceeds_memory
    }

    /// Returns the number of further calls that a worker may get. It is 0 if the worker has to be replaced: otherwise it
    /// might never be without calls.
    pub(super) fn free_slots(&self, worker: &Worker, files: &WatchedFiles, now: Instant) -> usize {
        let calls = worker.calls.len();
        // Each worker gets its first call: with a maximum age of zero there would be no reply at all.
        let is_new = worker.jobs.get() == 0 && calls == 0;
        if worker.version != files.version
            || (!is_new && self.needs_replacement(worker, files, now))
        {
            return 0;
        }
        let left =
            self.max_jobs.map_or(u64::MAX, |most| most.max(1).saturating_sub(worker.jobs.get()));
        self.calls_at_a_time()
            .min(usize::try_from(left).unwrap_or(usize::MAX))
            .saturating_sub(calls)
    }

    /// Returns true if callers may borrow connections: not if the driver checks something after each call, or reports
    /// output with it.
    pub(super) fn allows_direct_calls(&self) -> bool {
        let limits = self.max_jobs.is_some() || self.max_age.is_some();
        let checks = self.max_rss_bytes.is_some() || self.reset_timeout.is_some();
        !limits && !checks && self.on_line.is_none()
    }

    /// Returns true if a worker uses too much memory. Needs a system call after each call, so it asks only if there is a
    /// limit.
    pub(super) fn exceeds_memory(&self, worker: &Worker) -> bool {
        let exceeds =
            |most| worker.child.child_handle().rss_bytes().is_some_and(|bytes| bytes > most);
        self.max_rss_bytes.is_some_and(exceeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_name_may_contain_a_dot() {
        let folder = env::temp_dir().join(format!("pipewright-rules-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("worker.v2{}", env::consts::EXE_SUFFIX));
        fs::write(&file, "").unwrap();
        let folders = env::join_paths([&folder]).unwrap();
        let found = |name: &str| executable(OsStr::new(name), &folders);
        let answers = [found("worker.v2"), found("worker"), found("worker.v3"), found("dir/file")];
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answers, [Some(file), None, None, Some(PathBuf::from("dir/file"))]);
    }
}
