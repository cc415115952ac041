//! Input of a child: a [`Feed`] is fed by the run while a verb waits, a [`FedInput`] from the start of the child on,
//! even if none does.
//!
//! Bytes that fit into the pipe are written at once. The reaper thread writes the rest of a
//! [`Stdio::bytes`](crate::Stdio::bytes) or [`Stdio::bytes_of`](crate::Stdio::bytes_of). A reader may block, so it gets
//! a thread of its own. Both stop when the child ends.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::service_thread;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::member::Member;
use pipewright_os::process::open::Opened;

use crate::error::OperationError;
use crate::reaper::{self, BackgroundTask, TASK_SLOTS};

/// The number of bytes to read from a reader at a time: the capacity of a pipe.
const CHUNK_BYTES: usize = 64 << 10;

/// The number of bytes of an owner to copy at a time: more than a pipe takes at once.
const PART_BYTES: usize = 256 << 10;

/// Bytes that stay with their owner.
pub(crate) type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Input on its way to a child.
pub(crate) struct Feed {
    pipe: Option<PipeWriter>,
    /// The pipe after its last reader has closed it: only it knows how many bytes that reader has left in it.
    broken: Option<PipeWriter>,
    /// A second handle to the child's end of the pipe. The bytes that the child left unread can be counted only
    /// while a reading handle is open. This handle does not prolong anything: feeding stops when the child ends.
    child_end: Option<PipeReader>,
    /// The bytes being written; `written` of them are done.
    bytes: Arc<Vec<u8>>,
    written: usize,
    /// The owner of the next bytes, and where they begin. A write is of a vector in an `Arc` ([`Slot::Write`]), which
    /// lives and stays where it is until the system has completed it, as on Windows after the call. An owner does not
    /// promise that: it may return another slice each time. So its bytes are copied, a part at a time, and those of a
    /// vector are not.
    owner: Option<(Owner, usize)>,
    /// The source of the next bytes.
    reader: Option<Box<dyn Read + Send>>,
}

impl Feed {
    pub(crate) fn bytes(pipe: PipeWriter, child_end: PipeReader, bytes: Arc<Vec<u8>>) -> Feed {
        let (pipe, child_end) = (Some(pipe), Some(child_end));
        Feed { pipe, broken: None, child_end, bytes, written: 0, owner: None, reader: None }
    }

    /// Feeds the bytes of an owner, a part at a time.
    pub(crate) fn of_owner(pipe: PipeWriter, child_end: PipeReader, owner: Owner) -> Feed {
        let feed = Feed::bytes(pipe, child_end, Arc::default());
        Feed { owner: Some((owner, 0)), ..feed }
    }

    pub(crate) fn reader(
        pipe: PipeWriter,
        child_end: PipeReader,
        reader: Box<dyn Read + Send>,
    ) -> Feed {
        let feed = Feed::bytes(pipe, child_end, Arc::default());
        Feed { reader: Some(reader), ..feed }
    }

    /// Returns the next write, or [`Slot::Off`] if everything is written. The pipe is then closed, so that the
    /// child sees the end of its input.
    pub(crate) fn next(&mut self) -> io::Result<Slot<'static>> {
        if !self.has_more() && self.pipe.is_some() {
            self.refill()?;
        }
        if !self.has_more() {
            self.pipe = None;
        }
        Ok(self.next_write())
    }

    /// Returns the next write of the bytes that are there, or [`Slot::Off`] if none are left.
    fn next_write(&mut self) -> Slot<'static> {
        if self.written == self.bytes.len() {
            self.take_part();
        }
        let write = |pipe| Slot::Write(pipe, Arc::clone(&self.bytes), self.written);
        self.pipe.take_if(|_| self.written < self.bytes.len()).map_or(Slot::Off, write)
    }

    /// Writes as much as the pipe accepts without blocking.
    pub(crate) fn write_now(&mut self) -> io::Result<()> {
        while let Slot::Write(pipe, bytes, from) = self.next_write() {
            match pipe.try_write(bytes.get(from..).unwrap_or(&[])) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pipe = Some(pipe);
                    return Ok(());
                }
                result => self.note(pipe, result)?,
            }
        }
        Ok(())
    }

    /// Takes the pipe back from a write that was abandoned before it wrote anything.
    fn put_back(&mut self, pipe: PipeWriter) {
        self.pipe = Some(pipe);
    }

    /// Returns true if the pipe is open and there are bytes to write.
    fn has_more(&self) -> bool {
        self.pipe.is_some()
            && (self.written < self.bytes.len() || !self.left_with_owner().is_empty())
    }

    /// Returns true if the pipe is open.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Closes the pipe, so that the child sees the end of its input.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
    }

    /// Takes the source of more bytes. Without it, the bytes read so far are all there is.
    fn take_reader(&mut self) -> Option<Box<dyn Read + Send>> {
        self.reader.take()
    }

    /// Gives the source back.
    fn set_reader(&mut self, reader: Box<dyn Read + Send>) {
        self.reader = Some(reader);
    }

    /// Sets the bytes to write next. The previous ones must have been written.
    fn set_bytes(&mut self, bytes: Vec<u8>) {
        self.bytes = Arc::new(bytes);
        self.written = 0;
    }

    /// Closes the second handle to the child's end, so that the pipe breaks when its last reader closes it. The
    /// number of unread bytes is then known only where our own end can report it.
    fn close_child_end(&mut self) {
        self.child_end = None;
    }

    /// Takes the pipe back, with the result of a write.
    pub(crate) fn note(&mut self, pipe: PipeWriter, result: io::Result<usize>) -> io::Result<()> {
        match result {
            Ok(count) => self.written += count,
            // The child does not read the rest. It need not, so this is not an error of the run.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.reader = None;
                self.broken = Some(pipe);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Returns the number of bytes that the child, which has ended, did not read.
    pub(crate) fn unread(mut self) -> u64 {
        let inside = match (&self.child_end, self.pipe.as_ref().or(self.broken.as_ref())) {
            (Some(child_end), _) => {
                // Closed first, which completes the reads of other processes that wait for more. On Windows, every
                // query about a pipe end blocks behind such a read.
                self.pipe = None;
                child_end.available()
            }
            (None, Some(pipe)) => pipe.unread(),
            (None, None) => Ok(0),
        };
        let left = self.bytes.len() - self.written + self.left_with_owner().len();
        (left + inside.unwrap_or(0)) as u64
    }

    fn left_with_owner(&self) -> &[u8] {
        let Some((owner, begin)) = &self.owner else { return &[] };
        (**owner).as_ref().get(*begin..).unwrap_or_default()
    }

    /// Copies the next part of the owner's bytes.
    fn take_part(&mut self) {
        if self.left_with_owner().is_empty() {
            return;
        }
        let mut part = self.take_buffer();
        let left = self.left_with_owner();
        part.clear();
        part.extend_from_slice(left.get(..PART_BYTES).unwrap_or(left));
        if let Some((_, begin)) = &mut self.owner {
            *begin += part.len();
        }
        self.set_bytes(part);
    }

    /// Takes the memory of bytes that have been written, unless the last write still shares it.
    fn take_buffer(&mut self) -> Vec<u8> {
        Arc::try_unwrap(std::mem::take(&mut self.bytes)).unwrap_or_default()
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some(mut reader) = self.reader.take() else { return Ok(()) };
        let mut chunk = self.take_buffer();
        read_chunk(&mut *reader, &mut chunk)?;
        self.reader = Some(reader).filter(|_| !chunk.is_empty());
        self.set_bytes(chunk);
        Ok(())
    }
}

/// Replaces the buffer's content by the next bytes of the reader; empty at its end.
fn read_chunk(reader: &mut dyn Read, chunk: &mut Vec<u8>) -> io::Result<()> {
    chunk.resize(CHUNK_BYTES, 0);
    let count = loop {
        match reader.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => break done?,
        }
    };
    chunk.truncate(count);
    Ok(())
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("pipe", &self.pipe)
            .field("left", &(self.bytes.len() - self.written + self.left_with_owner().len()))
            .field("reader", &self.reader.is_some())
            .finish()
    }
}

const WRITE: &str = "write the input of";
const READ: &str = "read the input for";

/// Input that is fed in the background. Clones share the same input.
///
/// # Drop
/// Feeding continues.
#[derive(Debug, Clone)]
struct BackgroundFeed(Arc<Shared>);

/// Input that is fed in the background, as a run sees it. A trait object, so that only programs with such input
/// contain the code that stops it.
pub(crate) trait FedInput: fmt::Debug + Send + Sync {
    /// Stops feeding, because the child has ended. Returns the number of bytes that the child did not read.
    ///
    /// # Errors
    /// The input could not be read or written, so the child was killed. Reported once.
    fn stop(&self) -> Result<u64, OperationError>;
}

/// The input of a started child.
#[derive(Debug)]
pub(crate) struct Input {
    fed: Option<BackgroundFeed>,
    /// Input that could not be fed in the background. The first verb that waits takes it.
    feed: Mutex<Option<Feed>>,
}

#[derive(Debug)]
struct Shared {
    /// The process that feeds. After a fork, the forked process has this value, but no feeding thread.
    created_in: Generation,
    state: Mutex<FeedState>,
    changed: Condvar,
    /// Wakes the thread of a reader; the reaper thread has its own.
    wake: Option<Wake>,
}

#[derive(Debug)]
enum FeedState {
    /// No thread is writing: everything is written, or more is being read.
    Idle(Feed),
    /// A thread is writing. With `stop_requested` it should stop.
    Writing { stop_requested: bool },
    /// Feeding is over: the number of bytes that the child did not read, or the error, until it is reported.
    Done(Result<u64, OperationError>),
}

impl Input {
    /// Feeds the first of these children.
    pub(crate) fn begin(feed: Option<Feed>, children: &[ChildHandle]) -> Input {
        let (fed, feed) = match feed.map(|feed| BackgroundFeed::begin(feed, children)) {
            None => (None, None),
            Some(Ok(fed)) => (Some(fed), None),
            Some(Err(feed)) => (None, Some(*feed)),
        };
        Input { fed, feed: Mutex::new(feed) }
    }

    pub(crate) fn background(&self) -> Option<Box<dyn FedInput>> {
        self.fed.clone().map(|fed| Box::new(fed) as Box<dyn FedInput>)
    }

    /// Takes the input that could not be fed in the background.
    pub(crate) fn take_feed(&self) -> Option<Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns true if there is input that could not be fed in the background.
    pub(crate) fn has_feed(&self) -> bool {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Stops feeding: see [`FedInput::stop`].
    pub(crate) fn stop(&self) -> Result<u64, OperationError> {
        self.fed.as_ref().map_or(Ok(0), FedInput::stop)
    }
}

impl BackgroundFeed {
    /// Feeds the first of these children. Returns the input if no thread can be started for it; the verbs that wait
    /// then have to feed it.
    fn begin(mut feed: Feed, children: &[ChildHandle]) -> Result<BackgroundFeed, Box<Feed>> {
        let reader = feed.take_reader();
        let written = feed.write_now();
        if let Err(error) = written {
            let done = FeedState::Done(Err((WRITE, error)));
            return Ok(BackgroundFeed::new(done, None));
        }
        if reader.is_none() && !feed.has_more() {
            feed.close();
            return Ok(BackgroundFeed::new(FeedState::Idle(feed), None));
        }
        let members = members(children);
        if members.len() < children.len() {
            feed.close_child_end();
        }
        match reader {
            Some(reader) => start_reader_thread(feed, reader, members),
            None => {
                let fed = BackgroundFeed::new(FeedState::Writing { stop_requested: false }, None);
                let mut feed = Some(feed);
                reaper::run(|| {
                    let (fed, feed) = (fed.clone(), feed.take());
                    Box::new(FeedTask { fed, feed, members, expects_more: false })
                });
                // Still here if the thread could not be started.
                feed.map_or(Ok(fed), |feed| Err(Box::new(feed)))
            }
        }
    }

    fn new(state: FeedState, wake: Option<Wake>) -> BackgroundFeed {
        let (state, changed) = (Mutex::new(state), Condvar::new());
        BackgroundFeed(Arc::new(Shared { created_in: Generation::current(), state, changed, wake }))
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        // The state is only ever replaced as a whole, so it is valid even after a panic.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, next: FeedState) {
        *self.state() = next;
        self.0.changed.notify_all();
    }

    fn is_stop_requested(&self) -> bool {
        matches!(&*self.state(), FeedState::Writing { stop_requested: true })
    }

    /// Takes the idle input to write more. Returns `None` if feeding is over.
    fn take_idle(&self) -> Option<Feed> {
        let mut state = self.state();
        match mem::replace(&mut *state, FeedState::Writing { stop_requested: false }) {
            FeedState::Idle(feed) => Some(feed),
            over => {
                *state = over;
                None
            }
        }
    }
}

impl FedInput for BackgroundFeed {
    fn stop(&self) -> Result<u64, OperationError> {
        if !self.0.created_in.is_current() {
            // The feeding threads and the child belong to the process that forked this one.
            return Ok(0);
        }
        let mut state = self.state();
        loop {
            match mem::replace(&mut *state, FeedState::Done(Ok(0))) {
                FeedState::Idle(feed) => *state = FeedState::Done(Ok(feed.unread())),
                FeedState::Done(result) => {
                    if let Ok(unread) = result {
                        *state = FeedState::Done(Ok(unread));
                    }
                    return result;
                }
                FeedState::Writing { .. } => {
                    *state = FeedState::Writing { stop_requested: true };
                    drop(state);
                    match &self.0.wake {
                        Some(wake) => wake.raise(),
                        None => reaper::wake(),
                    }
                    state = self.state();
                    // The writing thread only polls its pipes, so this wait is short.
                    while matches!(&*state, FeedState::Writing { .. }) {
                        let woken = self.0.changed.wait(state);
                        state = woken.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
    }
}

/// Returns handles to wait for the children without owning them; fewer if the system has no such handles.
fn members(children: &[ChildHandle]) -> Vec<Member> {
    // Opening by pid is safe: the children were just started, and nothing has waited for them.
    let opened = children.iter().filter_map(|child| Opened::open(child.pid()).ok());
    opened.map(|opened| opened.member().clone()).collect()
}

/// Input that a thread writes.
#[derive(Debug)]
struct FeedTask {
    fed: BackgroundFeed,
    /// Taken when feeding is over.
    feed: Option<Feed>,
    /// The children; the first of them is fed.
    members: Vec<Member>,
    /// True if more input follows after this.
    expects_more: bool,
}

impl BackgroundTask for FeedTask {
    /// Returns the slots of the next wait: room in the pipe, and the end of the child.
    fn slots(&mut self) -> [Slot<'static>; TASK_SLOTS] {
        let write = self.feed.as_mut().map_or(Slot::Off, Feed::next_write);
        let end = self.members.first().map_or(Slot::Off, |first| first.to_slot());
        [write, end]
    }

    fn resume(&mut self, slots: &mut [Slot<'_>]) -> bool {
        let Some(mut feed) = self.feed.take() else { return false };
        let mut has_ended = false;
        for slot in slots {
            match mem::take(slot) {
                Slot::Write(pipe, ..) => feed.put_back(pipe),
                Slot::WriteDone(pipe, _, result) => {
                    if let Err(error) = feed.note(pipe, result) {
                        self.fail((WRITE, error));
                        return false;
                    }
                }
                Slot::EventDone => has_ended = true,
                _ => {}
            }
        }
        if has_ended || self.fed.is_stop_requested() {
            self.fed.set(FeedState::Done(Ok(feed.unread())));
        } else if feed.has_more() {
            self.feed = Some(feed);
        } else {
            if !self.expects_more {
                feed.close();
            }
            self.fed.set(FeedState::Idle(feed));
        }
        self.feed.is_some()
    }
}

impl FeedTask {
    /// Kills the children, so that none mistakes partial input for all of it.
    fn fail(&self, failed: OperationError) {
        // Last child first: it would mistake the end of the previous one for the end of its input.
        for member in self.members.iter().rev() {
            // Ignored: the child has ended, or belongs to another user.
            let _ = member.signal(Signal::KILL);
        }
        self.fed.set(FeedState::Done(Err(failed)));
    }
}

fn start_reader_thread(
    mut feed: Feed,
    reader: Box<dyn Read + Send>,
    members: Vec<Member>,
) -> Result<BackgroundFeed, Box<Feed>> {
    let Ok(wake) = Wake::new() else {
        feed.set_reader(reader);
        return Err(Box::new(feed));
    };
    let fed = BackgroundFeed::new(FeedState::Idle(feed), Some(wake));
    // Shared, to take the reader back if no thread can be started.
    let source = Arc::new(Mutex::new(Some(reader)));
    let take = |source: &Mutex<Option<_>>| source.lock().map_or(None, |mut it| it.take());
    let started = service_thread::start_with_default_stack(c"pipewright-feed", {
        let (fed, source) = (fed.clone(), Arc::clone(&source));
        move || {
            if let Some(reader) = take(&source) {
                feed_from_reader(reader, FeedTask { fed, feed: None, members, expects_more: true });
            }
        }
    });
    if started.is_err() {
        if let (Some(reader), Some(mut feed)) = (take(&source), fed.take_idle()) {
            feed.set_reader(reader);
            return Err(Box::new(feed));
        }
    }
    Ok(fed)
}

/// Reads and writes until the reader or the child ends.
fn feed_from_reader(mut reader: Box<dyn Read + Send>, mut feeding: FeedTask) {
    let mut chunk = Vec::new();
    loop {
        // During the read the state stays idle, so that a verb that sees the end of the child can stop feeding.
        let read = catch_unwind(AssertUnwindSafe(|| read_chunk(&mut *reader, &mut chunk)));
        let read = read.unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
        let Some(mut feed) = feeding.fed.take_idle() else { return };
        match read {
            Err(error) => return feeding.fail((READ, error)),
            Ok(()) if chunk.is_empty() => feed.close(),
            Ok(()) => feed.set_bytes(mem::take(&mut chunk)),
        }
        if !feed.has_more() {
            return feeding.fed.set(FeedState::Idle(feed));
        }
        feeding.feed = Some(feed);
        write_all(&mut feeding);
        match &*feeding.fed.state() {
            FeedState::Idle(feed) if feed.is_open() => {}
            _ => return,
        }
    }
}

/// Writes the bytes that have been read.
fn write_all(feeding: &mut FeedTask) {
    let fed = feeding.fed.clone();
    let Some(wake) = &fed.0.wake else { return };
    loop {
        let [write, end] = feeding.slots();
        let mut slots = [write, end, Slot::Event(wake)];
        if let Err(error) = wait::any(&mut slots, None) {
            return feeding.fail((WRITE, error));
        }
        if !feeding.resume(&mut slots) {
            return;
        }
    }
}
