//! Logs that tests watch and lead: they look at each commit, and decide when the writer takes a step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::*;
use crate::journal::past::past_job;
use crate::journal::rows::Counts;
use crate::journal::writer::{MOST_BYTES, Queue};

type Watcher = Arc<Mutex<dyn FnMut(&Connection) + Send>>;

static WATCHERS: Mutex<Option<HashMap<PathBuf, Watcher>>> = Mutex::new(None);

/// Calls the function after each commit of that log, on the thread that writes it.
pub(crate) fn watch(log: &Path, watcher: impl FnMut(&Connection) + Send + 'static) {
    let watcher: Watcher = Arc::new(Mutex::new(watcher));
    let mut all = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    all.get_or_insert_default().insert(log.to_owned(), watcher);
}

pub(crate) fn forget(log: &Path) {
    let mut all = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    all.get_or_insert_default().remove(log);
}

/// Returns true if somebody looks at the log.
pub(crate) fn is_watched(log: &Path) -> bool {
    let all = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    all.as_ref().is_some_and(|all| all.contains_key(log))
}

static SYNCED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Notes a folder that is on disk.
pub(in crate::journal) fn note_synced(folder: &Path) {
    SYNCED.lock().unwrap_or_else(PoisonError::into_inner).push(folder.to_owned());
}

/// Returns the folders below that one that are on disk, and forgets them.
pub(crate) fn take_synced(below: &Path) -> Vec<PathBuf> {
    let mut all = SYNCED.lock().unwrap_or_else(PoisonError::into_inner);
    let (taken, kept) = all.drain(..).partition(|folder| folder.starts_with(below));
    *all = kept;
    taken
}

pub(in crate::journal) fn note(log: &Path, connection: &Connection) {
    let all = WATCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    let watcher = all.as_ref().and_then(|all| all.get(log)).map(Arc::clone);
    drop(all);
    if let Some(watcher) = watcher {
        watcher.lock().unwrap_or_else(PoisonError::into_inner)(connection);
    }
}

/// Holds the writer of a log that is watched: its changes are committed by [`step`](Queue::step) alone, and at the end.
pub(in crate::journal) fn led(mut queue: Queue, log: &Path) -> Queue {
    if is_watched(log) {
        queue.interval = Duration::ZERO;
        queue.lock().is_held = true;
    }
    queue
}

/// The result of a wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::journal) enum Flushed {
    Durable,
    Failing,
    WriterEnded,
}

impl Queue {
    /// Commits everything that was put in. `each`: from now on each group as it is put in, too.
    pub(in crate::journal) fn step(&self, each: bool) {
        let mut state = self.lock();
        while !(state.is_idle && state.pending.is_empty() || state.failing || state.writer_ended) {
            state.is_held = false;
            self.work.notify_one();
            let waited = self.progress.wait_timeout(state, Duration::from_micros(50));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (state.is_held, state.is_stepped) = (true, each);
    }

    /// Commits what was put in, if each group is to be committed as it is.
    pub(in crate::journal) fn step_if_led(&self) {
        if self.lock().is_stepped {
            self.step(true);
        }
    }

    /// Waits until everything is durable, or the log fails.
    pub(in crate::journal) fn flush(&self) -> Flushed {
        let mut state = self.lock();
        let until = state.put;
        loop {
            if state.durable >= until {
                return Flushed::Durable;
            }
            if state.writer_ended {
                return Flushed::WriterEnded;
            }
            if state.failing {
                return Flushed::Failing;
            }
            state = self.progress.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns true if the next [`put`](Queue::put) waits.
    pub(in crate::journal) fn is_full(&self) -> bool {
        let state = self.lock();
        !state.failing && state.pending.bytes() >= MOST_BYTES
    }
}

impl Journal {
    /// Submits, and waits until everything is durable.
    ///
    /// # Errors
    /// The log fails at the moment. The changes are kept, and will be written when it works again. The error itself is
    /// a report.
    pub(crate) fn flush(&mut self) -> Result<(), LogError> {
        self.submit();
        match self.queue.flush() {
            Flushed::Durable => Ok(()),
            Flushed::Failing => Err(LogError::new(&self.path, LogErrorKind::Failing)),
            Flushed::WriterEnded => Err(LogError::new(&self.path, LogErrorKind::WriterEnded)),
        }
    }

    /// Commits everything that was submitted, in a log that is watched. `each`: from now on each submission at once,
    /// too.
    pub(crate) fn step(&self, each: bool) {
        self.queue.step(each);
    }
}

impl Counts {
    /// Returns the number of jobs in this state. The class of a failure does not matter.
    pub(crate) fn of(&self, state: JobState) -> u64 {
        self.states.get(state.name()).copied().unwrap_or(0)
    }
}

impl Past {
    /// Returns the jobs that were interrupted, among them the `once` jobs that are unknown now.
    pub(crate) fn interrupted(&self) -> impl Iterator<Item = PastJob> {
        let jobs = self.entries.0.iter().map(past_job);
        jobs.filter(|job| matches!(job.state, JobState::Interrupted | JobState::UNKNOWN))
    }
}
