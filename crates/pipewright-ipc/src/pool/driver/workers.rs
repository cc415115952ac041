//! The end of a pool's workers, what becomes of their calls, and the files whose change replaces workers.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use pipewright::{Command, ExitStatus, OutOfMemory};

use super::PoolDriver;
use crate::error::{Error, ErrorKind};
use crate::pool::mailbox::QueuedCall;
use crate::pool::options::PoolOptions;
use crate::pool::worker::Worker;
use crate::trace;

/// The most workers of a call that may end before it is sent to them. After that the call is lost: the next worker
/// would not take it either.
const MAX_RETURNS: u32 = 16;

impl PoolDriver {
    /// Removes workers that have ended, and ends their calls or gives them to other workers.
    pub(super) fn remove_ended_workers(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(worker) = self.workers.get(at) {
            if worker.has_ended() {
                let worker = self.workers.swap_remove(at);
                self.handle_end(worker, now);
                continue;
            }
            if worker.is_abandoned() && !worker.calls.is_empty() {
                self.end_calls_of_abandoned(at);
            }
            at += 1;
        }
    }

    /// Ends the calls of a worker that was killed and does not end.
    fn end_calls_of_abandoned(&mut self, at: usize) {
        let Some(worker) = self.workers.get_mut(at) else { return };
        let (_, stderr_tail) = worker.finish(self.options.on_line.as_ref());
        let fault = worker.fault.as_ref().map(Error::share);
        let (pid, has_served) = (worker.child.id(), worker.has_served);
        let out_of_memory = worker.child.out_of_memory();
        let end = WorkerEnd { pid, has_served, status: None, stderr_tail, fault, out_of_memory };
        let calls = take_calls(worker);
        self.end_calls(calls, &end);
    }

    fn handle_end(&mut self, mut worker: Worker, now: Instant) {
        let (status, stderr_tail) = worker.finish(self.options.on_line.as_ref());
        let mut fault = worker.fault.take();
        if !worker.was_killed {
            // The exit status is enough.
            fault = fault.filter(|fault| !fault.is_disconnect());
        }
        let (pid, has_served) = (worker.child.id(), worker.has_served);
        let out_of_memory = worker.child.out_of_memory();
        let end = WorkerEnd { pid, has_served, status, stderr_tail, fault, out_of_memory };
        let error = (!worker.is_retired).then(|| end.error(1));
        trace::worker_ended(&trace::WorkerEnded {
            worker: worker.number,
            pid: end.pid,
            jobs: worker.jobs.get(),
            status,
            stderr_tail: &end.stderr_tail,
            reason: error.as_ref(),
        });
        if !worker.is_retired {
            if worker.has_served {
                self.counters.died.add_one();
                if worker.jobs.get() == 0 {
                    self.starts.crashes += 1;
                    self.back_off(now, self.starts.crashes);
                }
            } else {
                self.note_failed_start(now, &end.error(1));
            }
        }
        let calls = take_calls(&mut worker);
        self.end_calls(calls, &end);
    }

    /// Ends the calls of a worker, or gives them to other workers: true for each that it may have executed.
    fn end_calls(&mut self, calls: Vec<(QueuedCall, bool)>, end: &WorkerEnd) {
        for (mut call, was_sent) in calls {
            call.attempts -= u32::from(!was_sent);
            call.returns += u32::from(!was_sent);
            let may_retry =
                call.idempotent && !call.has_reported && call.attempts <= self.options.retries;
            if (!was_sent && call.returns <= MAX_RETURNS) || may_retry {
                if was_sent {
                    self.counters.retries.add_one();
                }
                // At the front, because it has waited already.
                self.waiting.push_front(call);
            } else {
                self.counters.lost.add_one();
                call.end(Err(end.error(call.attempts)));
            }
        }
    }
}

/// Takes the open calls of a worker that has ended. Cancelled ones are dropped. True: the call was sent.
fn take_calls(worker: &mut Worker) -> Vec<(QueuedCall, bool)> {
    let calls = std::mem::take(&mut worker.calls);
    let open = calls.into_iter().filter(|active| !active.is_cancelled);
    open.map(|active| (worker.withdraw(active.call.id), active.call))
        .map(|(was_unsent, call)| (call, !was_unsent))
        .collect()
}

/// The end of a worker, for the errors of its calls.
struct WorkerEnd {
    pid: u32,
    /// The handshake was complete: calls may have been lost.
    has_served: bool,
    status: Option<ExitStatus>,
    stderr_tail: String,
    fault: Option<Error>,
    out_of_memory: Option<OutOfMemory>,
}

impl WorkerEnd {
    /// Returns the error of a call of this worker, the last of `attempts` workers that had it.
    fn error(&self, attempts: u32) -> Error {
        let WorkerEnd { pid, has_served, status, stderr_tail, fault, out_of_memory } = self;
        if !has_served {
            return self.without_handshake();
        }
        let (status, stderr_tail) = (*status, stderr_tail.clone());
        let out_of_memory = *out_of_memory;
        let kind = ErrorKind::Lost { pid: *pid, status, stderr_tail, attempts, out_of_memory };
        match fault {
            Some(fault) => Error::caused(kind, fault.share()),
            None => Error::new(kind),
        }
    }

    fn without_handshake(&self) -> Error {
        let WorkerEnd { pid, status, stderr_tail, fault, .. } = self;
        let no_handshake =
            |status, cause| Error::no_handshake((*pid, status), stderr_tail.clone(), cause);
        match fault {
            None => no_handshake(*status, None),
            // The status would be that of the kill by this process.
            Some(fault) if fault.is_disconnect() => no_handshake(None, None),
            Some(fault) if fault.is_timeout() => no_handshake(None, Some(fault)),
            Some(fault) => fault.share(),
        }
    }
}

// The rules by which a working worker is replaced.

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
