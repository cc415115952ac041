//! The files of a node's jobs, at the host. A thread sends them and one stores them: the worker has one thread for
//! both, which may wait for either of these.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use std::{fmt, io};

use pipewright_batch::{AttemptKey, SentFile};
use pipewright_os::base::error::Quoted;

use super::{Store, read_parts};
use crate::error::RemoteError;
use crate::outbox::{Lane, Outbox};
use crate::wire::{FilePart, Text, ToWorker};

/// The files that an attempt gets.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) key: AttemptKey,
    pub(crate) files: Vec<SentFile>,
    /// The directory of the attempt there.
    pub(crate) current_dir: Option<PathBuf>,
    /// Nobody wants them once this is gone.
    pub(crate) wanted: Weak<()>,
}

/// The files that an attempt has left.
#[derive(Debug)]
pub(crate) struct Fetching {
    pub(crate) key: AttemptKey,
    pub(crate) files: VecDeque<PathBuf>,
    pub(crate) current_dir: Option<PathBuf>,
    pub(crate) is_durable: bool,
    pub(crate) wanted: Weak<()>,
}

/// The files of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Files {
    Sent,
    Fetched,
}

/// Reports that the files of an attempt have arrived, or the reason why one has not.
pub(crate) type Tell = Arc<dyn Fn(AttemptKey, Files, Option<String>) + Send + Sync>;

/// The files of the jobs of one connection.
pub(crate) struct HostFiles {
    outbox: Arc<Outbox>,
    state: Arc<Waiting>,
    tell: Tell,
    threads: Mutex<Threads>,
}

/// The threads, which start with the first file.
#[derive(Debug, Default)]
struct Threads {
    sends: Option<mpsc::Sender<Sending>>,
    parts: Option<mpsc::Sender<FilePart>>,
    storing: Option<JoinHandle<()>>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug)]
struct State {
    /// The attempts whose files the worker has not said to be stored.
    sent: VecDeque<AttemptKey>,
    /// The last answer was that they are.
    are_stored: bool,
    /// The attempts whose files are asked for.
    fetched: VecDeque<Fetching>,
    /// The files that have not ended.
    expected: usize,
    /// The time at which a part arrived or was sent.
    moved: Instant,
    is_closed: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            sent: VecDeque::new(),
            are_stored: false,
            fetched: VecDeque::new(),
            expected: 0,
            moved: Instant::now(),
            is_closed: false,
        }
    }
}

impl fmt::Debug for HostFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFiles").finish_non_exhaustive()
    }
}

impl HostFiles {
    pub(crate) fn new(outbox: Arc<Outbox>, tell: Tell) -> HostFiles {
        HostFiles { outbox, state: Arc::default(), tell, threads: Mutex::default() }
    }

    /// Sends the files of an attempt, after those before. A report follows.
    pub(crate) fn send(&self, send: Sending) -> io::Result<()> {
        let mut threads = self.threads();
        if threads.sends.is_none() && !threads.is_closed {
            let (sender, sends) = mpsc::channel();
            let (outbox, waiting) = (Arc::clone(&self.outbox), Arc::clone(&self.state));
            let tell = Arc::clone(&self.tell);
            let name = "sent files".to_owned();
            thread::Builder::new().name(name).stack_size(256 << 10).spawn(move || {
                send_all(&sends, &outbox, &waiting, &tell);
            })?;
            threads.sends = Some(sender);
        }
        // Ignored: of a closed connection the attempts are lost.
        let _ = threads.sends.as_ref().map(|sends| sends.send(send));
        Ok(())
    }

    /// Asks for the files of an attempt. A report follows.
    pub(crate) fn fetch(&self, fetch: Fetching) -> Result<(), RemoteError> {
        let mut threads = self.threads();
        if threads.parts.is_none() && !threads.is_closed {
            let (sender, parts) = mpsc::channel();
            let (outbox, waiting) = (Arc::clone(&self.outbox), Arc::clone(&self.state));
            let tell = Arc::clone(&self.tell);
            let name = "fetched files".to_owned();
            let builder = thread::Builder::new().name(name).stack_size(256 << 10);
            threads.storing =
                Some(builder.spawn(move || store_all(&parts, &outbox, &waiting, &tell))?);
            threads.parts = Some(sender);
        }
        drop(threads);
        let there = fetch.files.iter().map(|file| there(fetch.current_dir.as_deref(), file));
        let message = ToWorker::Fetch(there.map(Text::of).collect());
        let mut state = self.state.state();
        state.moved = Instant::now();
        state.expected += fetch.files.len();
        state.fetched.push_back(fetch);
        // In the order of the queue.
        self.outbox.send(&message)
    }

    /// Takes a part of a file of the node.
    ///
    /// # Errors
    /// It was not asked for, or is more than was allowed.
    pub(crate) fn arrived(&self, part: FilePart) -> Result<(), RemoteError> {
        if !self.outbox.arrived(Lane::Fetched, part.cost()) {
            return Err(RemoteError::Garbled("more of a file than was allowed"));
        }
        let mut state = self.state.state();
        state.moved = Instant::now();
        if state.expected == 0 {
            return Err(RemoteError::Garbled("a file that was not asked for"));
        }
        state.expected -= usize::from(matches!(part, FilePart::End(_)));
        drop(state);
        // Ignored: it ends with the connection.
        let _ = self.threads().parts.as_ref().map(|parts| parts.send(part));
        Ok(())
    }

    /// Takes the answer of the node to the files that were sent.
    ///
    /// # Errors
    /// None were.
    pub(crate) fn stored(&self, failure: Option<String>) -> Result<(), RemoteError> {
        let mut state = self.state.state();
        let key = state.sent.pop_front().ok_or(RemoteError::Garbled("files that were not sent"))?;
        (state.moved, state.are_stored) = (Instant::now(), failure.is_none());
        drop(state);
        self.state.answered.notify_all();
        (self.tell)(key, Files::Sent, failure);
        Ok(())
    }

    /// Allows more bytes of files to be sent.
    pub(crate) fn allowed(&self, bytes: u64) {
        self.state.state().moved = Instant::now();
        self.outbox.add_credit(Lane::Sent, bytes);
    }

    /// Returns the time at which a part of a file was sent, stored or arrived.
    pub(crate) fn moved(&self) -> Instant {
        self.state.state().moved
    }

    /// Ends the threads, after the outbox was closed. What has not arrived whole is gone then.
    pub(crate) fn close(&self) {
        let mut threads = self.threads();
        threads.is_closed = true;
        (threads.sends, threads.parts) = (None, None);
        let storing = threads.storing.take();
        drop(threads);
        self.state.state().is_closed = true;
        self.state.answered.notify_all();
        // A panic there has been printed.
        let _ = storing.map(JoinHandle::join);
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        // Each change is whole.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path of a file on the node.
fn there(current_dir: Option<&Path>, file: &Path) -> PathBuf {
    current_dir.map_or_else(|| file.to_owned(), |folder| folder.join(file))
}

/// Sends the files of one attempt after the other.
fn send_all(sends: &mpsc::Receiver<Sending>, outbox: &Outbox, waiting: &Waiting, tell: &Tell) {
    // The shared files that the node has.
    let mut has = HashSet::new();
    while let Ok(Sending { key, files, current_dir, wanted }) = sends.recv() {
        let mut shared = Vec::new();
        let mut failure = None;
        for file in files {
            let path = there(current_dir.as_deref(), &file.path);
            if wanted.strong_count() == 0 || (file.is_shared && has.contains(&path)) {
                continue;
            }
            // A path is never too long.
            let _ = outbox.send(&ToWorker::Path(Text::of(&path)));
            let send = |part: FilePart| {
                waiting.state().moved = Instant::now();
                let cost = part.cost();
                outbox.send_part(Lane::Sent, cost, &ToWorker::File(part))
            };
            let read = read_parts(&file.path, |part| wanted.strong_count() > 0 && send(part));
            if let Err(error) = read {
                let name = Quoted(file.path.as_os_str());
                failure = Some(format!("cannot send {name}: {error}"));
                break;
            }
            shared.extend(file.is_shared.then_some(path));
        }
        match failure {
            // The next file, or the end of the connection, removes what was sent of it.
            _ if wanted.strong_count() == 0 => {
                send_end(outbox);
                continue;
            }
            Some(failure) => {
                send_end(outbox);
                tell(key, Files::Sent, Some(failure));
                continue;
            }
            None => {}
        }
        let mut state = waiting.state();
        state.sent.push_back(key);
        // In the order of the queue. It has no fields.
        let _ = outbox.send(&ToWorker::StoreAll);
        if shared.is_empty() {
            continue;
        }
        // The next attempt relies on them.
        while !state.sent.is_empty() && !state.is_closed {
            state = waiting.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.are_stored {
            has.extend(shared);
        }
    }
}

/// Tells the node that nothing more of an attempt's files follows.
fn send_end(outbox: &Outbox) {
    let end = FilePart::End(Some(String::new()));
    // Ignored: of a closed connection nothing is left.
    let _ = outbox.send_part(Lane::Sent, end.cost(), &ToWorker::File(end));
}

/// Stores the files of one attempt after the other.
fn store_all(parts: &mpsc::Receiver<FilePart>, outbox: &Outbox, waiting: &Waiting, tell: &Tell) {
    let (mut store, mut current, mut failure) = (Store::default(), None::<Fetching>, None);
    while let Ok(part) = parts.recv() {
        let cost = part.cost();
        let Some(mut fetch) = current.take().or_else(|| waiting.state().fetched.pop_front()) else {
            continue;
        };
        let path = fetch.files.front().map_or(Path::new(""), PathBuf::as_path);
        let stored = match part {
            part if fetch.wanted.strong_count() > 0 => {
                store.add(part, path, "fetch", fetch.is_durable)
            }
            // It is as if the file could not be read, so that nothing gets its name.
            FilePart::End(_) => store.add(FilePart::End(Some(String::new())), path, "fetch", false),
            _ => None,
        };
        if let Some(result) = stored {
            fetch.files.pop_front();
            failure = failure.or(result.err());
        }
        waiting.state().moved = Instant::now();
        outbox.allow(Lane::Fetched, cost);
        match fetch.files.is_empty() {
            true => tell(fetch.key, Files::Fetched, failure.take()),
            false => current = Some(fetch),
        }
    }
}
