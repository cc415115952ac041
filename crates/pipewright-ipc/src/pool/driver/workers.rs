//! The workers of a pool: their start, their retirement and replacement, and the handling of their end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use pipewright::{Command, ExitStatus, OutOfMemory};

use super::PoolDriver;
use crate::error::{Error, ErrorKind, Peer};
use crate::pool::mailbox::QueuedCall;
use crate::pool::options::PoolOptions;
use crate::pool::worker::{Worker, WorkerPhase};
use crate::trace;

/// The shortest backoff. Without one, the thread would spend all its time on starts that fail.
const MIN_BACKOFF: Duration = Duration::from_millis(1);

/// The most workers of a call that may end before it is sent to them. After that the call is lost: the next worker
/// would not take it either.
const MAX_RETURNS: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct StartHistory {
    /// The number of starts.
    started: u64,
    /// The number of failed starts since the last success.
    failures: u32,
    /// The error of the last failed start.
    last_error: Option<Error>,
    /// The number of workers that ended without a reply, since the last reply.
    crashes: u32,
    /// The earliest time of the next start.
    not_before: Option<Instant>,
}

impl StartHistory {
    /// Records a reply.
    pub(super) fn note_success(&mut self) {
        (self.failures, self.crashes, self.last_error) = (0, 0, None);
    }
}

impl PoolDriver {
    /// Starts and retires workers.
    pub(super) fn adjust_workers(&mut self, now: Instant) {
        if self.shutdown.is_some() {
            self.shut_down_workers(now);
            if self.waiting.is_empty() {
                return;
            }
            // Calls that wait are served by fresh workers, also now.
            self.retire_used_up(now);
        } else {
            self.files.check(now);
            self.retire_used_up(now);
            self.retire_idle(now);
        }
        let most = self.options.max_workers.max(1);
        loop {
            let mut alive = 0;
            let mut free = 0;
            for worker in
                self.workers.iter().filter(|it| !matches!(it.phase, WorkerPhase::Leaving(..)))
            {
                alive += 1;
                free += self.options.room_for_calls(worker, &self.files, now);
            }
            let is_wanted = alive < self.min_workers() || self.waiting.len() > free;
            let is_early = self.starts.not_before.is_some_and(|time| now < time);
            // The backoff of the next start begins when that worker has ended.
            let has_failed = self.workers.iter().any(Worker::has_failed_early);
            // Those that are leaving still have their memory and their descriptors.
            let has_room = alive < most && self.workers.len() < most.saturating_mul(2);
            if !has_room || !is_wanted || is_early || has_failed {
                return;
            }
            self.start_one(now);
        }
    }

    /// Returns the number of workers to keep.
    fn min_workers(&self) -> usize {
        if self.shutdown.is_some() { 0 } else { self.options.min_workers }
    }

    fn start_one(&mut self, now: Instant) {
        self.starts.started += 1;
        let (number, kept) = (self.starts.started, self.options.kept_output_bytes);
        match Worker::start(
            (number, self.files.version),
            &mut self.command,
            &self.options.channel,
            kept,
        ) {
            Ok(worker) => {
                trace::worker_started(worker.number, worker.child.id());
                self.counters.started.add_one();
                self.workers.push(worker);
            }
            Err(error) => self.note_failed_start(now, &error),
        }
    }

    /// Records a failed start. After several of them, the waiting calls end with its error.
    fn note_failed_start(&mut self, now: Instant, error: &Error) {
        trace::worker_not_started(error);
        self.counters.failed_starts.add_one();
        self.starts.failures += 1;
        self.back_off(now, self.starts.failures);
        self.starts.last_error = Some(error.share());
        let nobody_serves = !self.workers.iter().any(Worker::is_serving);
        if self.starts.failures >= self.options.start_attempts && nobody_serves {
            for call in self.waiting.drain(..) {
                call.end(Err(error.share()));
            }
        }
    }

    /// Returns the error of a call that timed out before a worker was free, with the reason if there is no worker.
    pub(super) fn no_worker_in_time(&self) -> Error {
        let kind = ErrorKind::TimedOut { waiting_for: "a worker", peer: Peer::Nobody };
        match &self.starts.last_error {
            Some(reason) if !self.workers.iter().any(Worker::is_in_service) => {
                Error::caused(kind, reason.share())
            }
            _ => Error::new(kind),
        }
    }

    fn back_off(&mut self, now: Instant, times: u32) {
        let doubled = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = self.options.backoff.saturating_mul(doubled).min(self.options.max_backoff);
        self.starts.not_before = now.checked_add(pause.max(MIN_BACKOFF));
    }

    /// Retires workers that have to be replaced.
    fn retire_used_up(&mut self, now: Instant) {
        for worker in self.workers.iter_mut().filter(|it| it.is_serving()) {
            if worker.calls.is_empty() && self.options.needs_replacement(worker, &self.files, now) {
                self.counters.retired.add_one();
                worker.retire(self.options.shutdown);
            }
        }
    }

    /// Retires workers that were idle for too long.
    fn retire_idle(&mut self, now: Instant) {
        let Some(timeout) = self.options.idle_timeout else { return };
        let mut left = self.workers.iter().filter(|it| it.is_in_service()).count();
        let mut idle: Vec<&mut Worker> =
            self.workers.iter_mut().filter(|it| it.is_serving() && it.calls.is_empty()).collect();
        idle.sort_by_key(|it| it.last_used);
        for worker in idle {
            let is_over = now.saturating_duration_since(worker.last_used) >= timeout;
            if left > self.options.min_workers && is_over {
                left -= 1;
                self.counters.retired.add_one();
                worker.retire(self.options.shutdown);
            }
        }
    }

    /// Retires workers without calls, and all of them once the time for calls is over.
    fn shut_down_workers(&mut self, now: Instant) {
        let Some((schedule, until)) = self.shutdown else { return };
        let is_over = until.is_some_and(|until| until <= now);
        if is_over {
            self.waiting.clear();
            self.shutdown = Some((schedule, None));
        }
        for worker in &mut self.workers {
            if is_over {
                for active in worker.calls.drain(..) {
                    active.call.end(Err(Error::new(ErrorKind::ShutDown)));
                }
            }
            if worker.calls.is_empty() && self.waiting.is_empty() {
                worker.retire(schedule);
            }
        }
    }

    /// Returns the next time after `now` at which workers have to be started or retired. (Not after the current time: a
    /// deadline that has passed since `now` would be missed, and no event would report it.)
    pub(super) fn adjustment_deadline(&self, now: Instant) -> Option<Instant> {
        let in_service = self.workers.iter().filter(|it| it.is_in_service());
        // A borrowed connection may come back at any moment, unnoticed.
        let since = |it: &Worker| if it.is_lent() { now } else { it.last_used };
        let oldest = in_service.clone().filter(|it| it.calls.is_empty()).map(since).min();
        let serving = in_service.count();
        let idle = match (oldest, self.options.idle_timeout) {
            (Some(since), Some(timeout)) if serving > self.options.min_workers => {
                since.checked_add(timeout)
            }
            _ => None,
        };
        let old = self.options.max_age.and_then(|most| {
            let idle = self.workers.iter().filter(|it| it.is_serving() && it.calls.is_empty());
            idle.map(|it| it.started).min()?.checked_add(most)
        });
        let is_wanted = !self.waiting.is_empty() || serving < self.min_workers();
        let start = self.starts.not_before.filter(|time| is_wanted && *time > now);
        idle.into_iter().chain(old).chain(start).min()
    }

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
