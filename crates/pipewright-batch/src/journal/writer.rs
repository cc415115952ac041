//! The thread that writes the log: the queue from the driver, group commits, outputs on disk before the ends that refer
//! to them, and the reports that come back.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use pipewright_os::base::error::OneLine;
use pipewright_os::base::files::{Filesystem, sync_file, sync_folder};

use super::changes::Changes;
use super::error::LogError;
use super::sqlite::Store;
use super::{Report, Waker};

/// The memory of waiting changes from which on the driver waits for the disk.
pub(super) const MOST_BYTES: usize = 8 << 20;

/// The shortest time from the start of a commit to the start of the next one, unless an intent is awaited.
///
/// A commit of one row takes 0.1 ms of processor time, and a row in a large commit takes 0.01 ms. Short jobs therefore
/// share commits. A longer interval saves little, and a killed runner would lose more.
const INTERVAL: Duration = Duration::from_millis(10);

/// The memory of waiting changes that end the wait for the interval.
const ENOUGH_BYTES: usize = 1 << 20;

/// The queue. The driver puts changes in, the writer takes all of them at once.
pub(super) struct Queue {
    pub(super) state: Mutex<State>,
    /// Work for the writer: changes, or the end.
    pub(super) work: Condvar,
    /// Progress for the driver: room, a commit, or a failure.
    pub(super) progress: Condvar,
    waker: Waker,
    /// Puts outputs on disk, before the ends that belong to them.
    keeper: OnceLock<Arc<dyn Fn() + Send + Sync>>,
    pub(super) interval: Duration,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pending: Changes,
    /// Groups that were put in, and those of them that are durable.
    pub(super) put: u64,
    pub(super) durable: u64,
    taken: u64,
    reports: VecDeque<Report>,
    pub(super) failing: bool,
    closing: bool,
    /// The writer waits for changes, and not for the time of the next commit.
    pub(super) is_idle: bool,
    /// The earliest time of the next commit.
    next_commit: Option<Instant>,
    pub(super) writer_ended: bool,
    /// Nothing is committed until it is asked for, so that a test plays the same game again.
    pub(super) is_held: bool,
    /// While it is held: each group is committed as soon as it is put in.
    #[cfg(test)]
    pub(super) is_stepped: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(waker: Waker) -> Queue {
        let (state, work, progress) = Default::default();
        Queue { state, work, progress, waker, keeper: OnceLock::new(), interval: INTERVAL }
    }

    /// Puts changes in. Waits while too much is pending, unless the log fails: then the jobs that run are the bound.
    pub(super) fn put(&self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.lock();
        while state.pending.bytes() >= MOST_BYTES && !state.failing && !state.writer_ended {
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.pending.append(changes);
        state.put += 1;
        // A wake for each change would cost more than the change.
        let wakes = state.is_idle || state.is_urgent();
        drop(state);
        if wakes {
            self.work.notify_one();
        }
        #[cfg(test)]
        self.step_if_led();
    }

    pub(super) fn keep_outputs(&self, keeper: Arc<dyn Fn() + Send + Sync>) {
        // Ignored: there is one.
        let _ = self.keeper.set(keeper);
    }

    /// Puts outputs on disk, for a commit.
    fn outputs_to_disk(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper();
        }
    }

    pub(super) fn next_report(&self) -> Option<Report> {
        self.lock().reports.pop_front()
    }

    /// Returns true if the log fails, and more is pending than would be accepted otherwise.
    pub(super) fn is_overdue(&self) -> bool {
        let state = self.lock();
        state.failing && state.pending.bytes() >= MOST_BYTES
    }

    /// Tells the writer to end.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// Waits for changes and for the time of the next commit, and takes all changes. `None`: there are none, and the
    /// writer is to end.
    pub(super) fn take(&self) -> Option<Changes> {
        let mut state = self.lock();
        while !state.closing && (state.is_held || !state.is_urgent()) {
            let left = state.next_commit.map(|at| at.saturating_duration_since(Instant::now()));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                let waited = self.work.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else if state.is_held || state.pending.is_empty() {
                state.is_idle = true;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.is_idle = false;
            } else {
                break;
            }
        }
        state.next_commit = Instant::now().checked_add(self.interval);
        (!state.pending.is_empty()).then(|| state.take())
    }

    /// Waits for that time, or until the writer is to end. Returns what was put in meanwhile.
    fn take_after(&self, wait: Duration) -> Changes {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        while !state.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.work.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.take()
    }

    fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Reports results of the writer to the driver. `owes`: some of the changes that were taken are not durable.
    pub(super) fn report(&self, reports: Vec<Report>, owes: bool) {
        let mut state = self.lock();
        if !owes {
            state.durable = state.taken;
        }
        for report in &reports {
            match report {
                Report::Failed(_) => state.failing = true,
                Report::Works => state.failing = false,
                Report::Durable(_) | Report::LostOutput(_) => {}
            }
        }
        let is_news = !reports.is_empty();
        state.reports.extend(reports);
        drop(state);
        self.progress.notify_all();
        if is_news {
            (self.waker)();
        }
    }

    /// Notes that the writer has ended, so that nobody waits for it.
    pub(super) fn end_writer(&self) {
        self.lock().writer_ended = true;
        self.progress.notify_all();
        (self.waker)();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete before anything that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns true if the changes are to be committed without a wait for the interval.
    fn is_urgent(&self) -> bool {
        self.pending.is_awaited() || self.pending.bytes() >= ENOUGH_BYTES
    }

    fn take(&mut self) -> Changes {
        self.taken = self.put;
        std::mem::take(&mut self.pending)
    }
}

// The thread that writes the log.

/// The name of the thread, for people who look at threads.
const NAME: &str = "pipewright-log";

/// Starts the thread. It ends after [`Queue::close`], and returns the error of what it could not write.
pub(super) fn start_writer<S: Store + Send + 'static>(
    store: S,
    queue: Arc<Queue>,
) -> io::Result<JoinHandle<Result<(), LogError>>> {
    Builder::new().name(NAME.to_owned()).spawn(move || {
        let _ended = Ended(&queue);
        write(Committer::new(store), &queue)
    })
}

/// Wakes those who wait for the writer, even if it panics.
struct Ended<'a>(&'a Queue);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.end_writer();
    }
}

fn write<S: Store>(mut committer: Committer<S>, queue: &Queue) -> Result<(), LogError> {
    while let Some(changes) = queue.take() {
        committer.add(changes);
        queue.outputs_to_disk();
        loop {
            match committer.step() {
                Step::Idle => break,
                Step::Committed(reports) => queue.report(reports, committer.owes()),
                Step::Failed { reports, wait } => {
                    queue.report(reports, true);
                    committer.add(queue.take_after(wait));
                    if queue.is_closing() {
                        let (reports, result) = committer.finish();
                        queue.report(reports, result.is_err());
                        result?;
                    }
                }
            }
        }
    }
    Ok(())
}

// The writer's decisions: which changes are committed next, what is reported, and when a failed commit is repeated.

/// The first wait after a failed commit. Each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A state machine around a store. It has no thread and no clock.
#[derive(Debug)]
pub(crate) struct Committer<S> {
    pub(super) store: S,
    /// A group whose commit has failed. It is repeated unchanged: parts of it may be durable, so that later changes
    /// must not be merged into it.
    attempted: Option<Changes>,
    /// Later changes.
    waiting: Changes,
    outputs: Outputs,
    /// Outputs that are lost, until their group is durable.
    lost: Vec<LostOutput>,
    failing: bool,
    wait: Duration,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing is left to write.
    Idle,
    /// A group is durable.
    Committed(Vec<Report>),
    /// A commit failed, and is to be repeated after that time.
    Failed { reports: Vec<Report>, wait: Duration },
}

impl<S: Store> Committer<S> {
    pub(crate) fn new(store: S) -> Committer<S> {
        Committer {
            store,
            attempted: None,
            waiting: Changes::default(),
            outputs: Outputs::default(),
            lost: Vec::new(),
            failing: false,
            wait: FIRST_WAIT,
        }
    }

    /// Takes changes that follow all earlier ones.
    pub(crate) fn add(&mut self, changes: Changes) {
        self.waiting.append(changes);
    }

    /// Commits the next group.
    pub(crate) fn step(&mut self) -> Step {
        let mut group = self.next_group();
        if group.is_empty() {
            return Step::Idle;
        }
        match self.store.commit(&group) {
            Ok(()) => Step::Committed(self.committed(&mut group)),
            Err(error) => {
                self.attempted = Some(group);
                self.failed(error)
            }
        }
    }

    /// Commits everything, and gives up at the second error in a row.
    pub(crate) fn finish(&mut self) -> (Vec<Report>, Result<(), LogError>) {
        let mut all = Vec::new();
        let mut has_failed = false;
        loop {
            let mut group = self.next_group();
            if group.is_empty() {
                return (all, Ok(()));
            }
            match self.store.commit(&group) {
                Ok(()) => all.extend(self.committed(&mut group)),
                Err(error) => {
                    self.attempted = Some(group);
                    if has_failed {
                        return (all, Err(error));
                    }
                    has_failed = true;
                }
            }
        }
    }

    /// Returns the group that failed, or the next one, with its outputs on disk.
    fn next_group(&mut self) -> Changes {
        self.attempted.take().unwrap_or_else(|| {
            let mut group = std::mem::take(&mut self.waiting);
            // Once: a group that may be durable must not change any more.
            self.lost.extend(self.outputs.sync(&mut group));
            group
        })
    }

    /// Returns true if something is not durable.
    pub(crate) fn owes(&self) -> bool {
        self.attempted.is_some() || !self.waiting.is_empty()
    }

    fn committed(&mut self, group: &mut Changes) -> Vec<Report> {
        let mut reports: Vec<Report> =
            std::mem::take(&mut group.awaited).into_iter().map(Report::Durable).collect();
        reports.extend(self.lost.drain(..).map(Report::LostOutput));
        self.wait = FIRST_WAIT;
        // The log works again only when it holds what it owed.
        if self.failing && self.waiting.is_empty() {
            self.failing = false;
            reports.push(Report::Works);
        }
        reports
    }

    fn failed(&mut self, error: LogError) -> Step {
        let reports = if self.failing { Vec::new() } else { vec![Report::Failed(error)] };
        self.failing = true;
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        Step::Failed { reports, wait }
    }
}

// Outputs on disk before the ends that refer to them.

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
    /// Puts the outputs on disk to which these changes refer. A success without its output is none: its job runs again
    /// in a resumed batch, or is unknown.
    pub(crate) fn sync(&mut self, changes: &mut Changes) -> Vec<LostOutput> {
        let folders = std::mem::take(&mut changes.outputs);
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
