//! When a worker is replaced though it works.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use pipewright::Command;

use super::options::PoolOptions;
use super::worker::Worker;

/// The files that workers are made of, as they were when the first was started.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    marks: Vec<Mark>,
    /// Which state of them is current: one more with each change.
    pub(super) version: u64,
    looked: Option<Instant>,
}

/// How a file is told from its replacement.
type Mark = Option<(u64, SystemTime, Option<SystemTime>)>;

/// They are looked at once in so long at most.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

impl Files {
    pub(super) fn of(command: &Command, options: &PoolOptions) -> Files {
        let mut paths = options.watched_files.clone();
        if options.replace_when_changed {
            let folders = env::var_os("PATH").unwrap_or_default();
            paths.extend(executable(command.get_program(), &folders));
        }
        let marks = paths.iter().map(|path| mark(path)).collect();
        Files { paths, marks, version: 0, looked: None }
    }

    /// Until when nobody has to look again.
    pub(super) fn fresh_until(&self) -> Option<Instant> {
        if self.paths.is_empty() {
            return None;
        }
        Some(self.looked.map_or_else(Instant::now, |looked| looked + LOOK_PAUSE))
    }

    /// Looks whether they have changed.
    pub(super) fn look(&mut self, now: Instant) {
        let is_early = self.looked.is_some_and(|then| now < then + LOOK_PAUSE);
        if self.paths.is_empty() || is_early {
            return;
        }
        self.looked = Some(now);
        let marks: Vec<Mark> = self.paths.iter().map(|path| mark(path)).collect();
        // One that is away for a moment is about to be replaced.
        let has_changed = |(new, old): (&Mark, &Mark)| new.is_some() && new != old;
        if marks.iter().zip(&self.marks).any(has_changed) {
            self.marks = marks;
            self.version += 1;
        }
    }
}

/// The file that a program's name stands for, with those folders in `PATH`.
fn executable(program: &OsStr, folders: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    // What it may be called: a dot in the name begins no ending that could be left out (`worker.py`).
    let mut with_ending = program.to_owned();
    with_ending.push(env::consts::EXE_SUFFIX);
    env::split_paths(folders)
        .flat_map(|folder| [folder.join(program), folder.join(&with_ending)])
        .find(|file| file.is_file())
}

fn mark(path: &Path) -> Mark {
    let metadata = fs::metadata(path).ok()?;
    // The second time tells a copy that has kept the first one, where the filesystem has it.
    Some((metadata.len(), metadata.modified().ok()?, metadata.created().ok()))
}

impl PoolOptions {
    /// Whether a worker that has answered all its calls is to be replaced.
    pub(super) fn is_used_up(&self, worker: &Worker, files: &Files, now: Instant) -> bool {
        let age = now.saturating_duration_since(worker.started);
        self.max_jobs.is_some_and(|most| worker.jobs.get() >= most)
            || self.max_age.is_some_and(|most| age >= most)
            || worker.version != files.version
            || worker.has_grown
    }

    /// How many calls more a worker may be given. One that is to be replaced gets none, or its calls would never end.
    pub(super) fn room(&self, worker: &Worker, files: &Files, now: Instant) -> usize {
        let calls = worker.calls.len();
        // Its first it gets in any case: with an age of zero, nobody would answer anything.
        let is_new = worker.jobs.get() == 0 && calls == 0;
        if worker.version != files.version || (!is_new && self.is_used_up(worker, files, now)) {
            return 0;
        }
        let left =
            self.max_jobs.map_or(u64::MAX, |most| most.max(1).saturating_sub(worker.jobs.get()));
        self.each().min(usize::try_from(left).unwrap_or(usize::MAX)).saturating_sub(calls)
    }

    /// Whether callers may talk to workers themselves: not where something is looked at after each call, or told
    /// with it.
    pub(super) fn may_lend(&self) -> bool {
        let rules = self.max_jobs.is_some() || self.max_age.is_some();
        let looks = self.max_rss_bytes.is_some() || self.reset_timeout.is_some();
        !rules && !looks && self.on_line.is_none()
    }

    /// Whether a worker uses too much memory. A question to the system: asked after each call, and only where it is
    /// a rule.
    pub(super) fn has_grown(&self, worker: &Worker) -> bool {
        let grown =
            |most| worker.child.child_handle().rss_bytes().is_some_and(|bytes| bytes > most);
        self.max_rss_bytes.is_some_and(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_in_a_name_is_part_of_it() {
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
