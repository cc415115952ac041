//! Input that is fed from the start of a child on, whoever waits for it, or nobody.
//!
//! Bytes that fit into the pipe are written at once. The rest of some bytes is written by the thread that reaps; a reader
//! may block, so it is read on a thread of its own. Both end with the child.

use std::fmt;
use std::io::{self, Read};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::service_thread;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::member::Member;
use pipewright_os::process::open::Opened;

use super::feed::{Feed, read_chunk};
use crate::error::Failed;
use crate::reaper::{self, BackgroundTask, TASK_SLOTS};

const WRITE: &str = "write the input of";
const READ: &str = "read the input for";

/// Input that is fed in the background. Clones are the same input.
///
/// # Drop
/// The input goes on being fed.
#[derive(Debug, Clone)]
struct BackgroundFeed(Arc<Shared>);

/// Input that is fed in the background, as a run sees it. A trait object, so that only programs with such input contain
/// what stops it.
pub(crate) trait FedInput: fmt::Debug + Send + Sync {
    /// Stops feeding, because the child has ended. Returns the number of bytes that it did not take.
    ///
    /// # Errors
    /// The input could not be read or written, and the child was killed for that. Reported once.
    fn stop(&self) -> Result<u64, Failed>;
}

/// The input of a started child.
#[derive(Debug)]
pub(crate) struct Input {
    fed: Option<BackgroundFeed>,
    /// Input that nothing could feed in the background: taken by the first verb that waits.
    feed: Mutex<Option<Feed>>,
}

#[derive(Debug)]
struct Shared {
    /// After a fork the child has this and no thread that feeds.
    home: Generation,
    state: Mutex<FeedState>,
    changed: Condvar,
    /// Wakes the thread of a reader; the one that reaps has another.
    wake: Option<Wake>,
}

#[derive(Debug)]
enum FeedState {
    /// Nobody writes at this moment: all is written, or more is being read.
    Idle(Feed),
    /// A thread writes. `wanted`: it is to leave off.
    Writing { wanted: bool },
    /// Nothing more is fed. The bytes that the child did not take; or why the rest is missing, until that is told.
    Done(Result<u64, Failed>),
}

impl Input {
    /// Feeds the first of these children.
    pub(crate) fn begin(feed: Option<Feed>, children: &[ChildHandle]) -> Input {
        let (fed, feed) = match feed.map(|feed| BackgroundFeed::begin(feed, children)) {
            None => (None, None),
            Some(Ok(fed)) => (Some(fed), None),
            Some(Err(feed)) => (None, Some(feed)),
        };
        Input { fed, feed: Mutex::new(feed) }
    }

    /// Returns the input that is fed in the background.
    pub(crate) fn background(&self) -> Option<Box<dyn FedInput>> {
        self.fed.clone().map(|fed| Box::new(fed) as Box<dyn FedInput>)
    }

    /// The input that nobody feeds.
    pub(crate) fn take_feed(&self) -> Option<Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// True where nobody feeds it.
    pub(crate) fn has_feed(&self) -> bool {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// As [`FedInput::stop`].
    pub(crate) fn stop(&self) -> Result<u64, Failed> {
        self.fed.as_ref().map_or(Ok(0), FedInput::stop)
    }
}

impl BackgroundFeed {
    /// Feeds the first of these children. Gives the input back where there can be no thread for it: then the verbs
    /// that wait have to feed it.
    fn begin(mut feed: Feed, children: &[ChildHandle]) -> Result<BackgroundFeed, Feed> {
        let reader = feed.take_reader();
        let began = feed.write_now();
        if let Err(error) = began {
            let done = FeedState::Done(Err((WRITE, error)));
            return Ok(BackgroundFeed::new(done, None));
        }
        if reader.is_none() && !feed.has_more() {
            feed.close();
            return Ok(BackgroundFeed::new(FeedState::Idle(feed), None));
        }
        let members = members(children);
        if members.len() < children.len() {
            feed.break_with_the_readers();
        }
        match reader {
            Some(reader) => read_on_a_thread(feed, reader, members),
            None => {
                let fed = BackgroundFeed::new(FeedState::Writing { wanted: false }, None);
                let mut feed = Some(feed);
                reaper::run(|| {
                    let (fed, feed) = (fed.clone(), feed.take());
                    Box::new(FeedTask { fed, feed, members, more_comes: false })
                });
                // Still here if there is no thread.
                feed.map_or(Ok(fed), Err)
            }
        }
    }

    fn new(state: FeedState, wake: Option<Wake>) -> BackgroundFeed {
        let (state, changed) = (Mutex::new(state), Condvar::new());
        BackgroundFeed(Arc::new(Shared { home: Generation::current(), state, changed, wake }))
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        // Replaced as a whole, so it is whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, next: FeedState) {
        *self.state() = next;
        self.0.changed.notify_all();
    }

    fn is_wanted(&self) -> bool {
        matches!(&*self.state(), FeedState::Writing { wanted: true })
    }

    /// Takes the input from where it rests. `None`: nobody wants it any more.
    fn resume(&self) -> Option<Feed> {
        let mut state = self.state();
        match mem::replace(&mut *state, FeedState::Writing { wanted: false }) {
            FeedState::Idle(feed) => Some(feed),
            over => {
                *state = over;
                None
            }
        }
    }
}

impl FedInput for BackgroundFeed {
    fn stop(&self) -> Result<u64, Failed> {
        if !self.0.home.is_here() {
            // Its threads are in the process that we were forked from, and so is the child.
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
                    *state = FeedState::Writing { wanted: true };
                    drop(state);
                    match &self.0.wake {
                        Some(wake) => wake.raise(),
                        None => reaper::wake(),
                    }
                    state = self.state();
                    // It does nothing but look at its pipes, so this takes no time.
                    while matches!(&*state, FeedState::Writing { .. }) {
                        let woken = self.0.changed.wait(state);
                        state = woken.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
    }
}

/// The children, to be waited for by somebody who does not own them; fewer where the system has no such handles.
fn members(children: &[ChildHandle]) -> Vec<Member> {
    // By their numbers, which are theirs: they have just been started, and nobody has waited for them.
    let opened = children.iter().filter_map(|child| Opened::open(child.pid()).ok());
    opened.map(|opened| opened.member().clone()).collect()
}

/// Input that a thread writes.
#[derive(Debug)]
struct FeedTask {
    fed: BackgroundFeed,
    /// Taken when it is over.
    feed: Option<Feed>,
    /// The first of them is fed.
    members: Vec<Member>,
    /// More comes when this is written.
    more_comes: bool,
}

impl BackgroundTask for FeedTask {
    /// Returns the next wait: for room in the pipe, and for the end of the child.
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
        if has_ended || self.fed.is_wanted() {
            self.fed.set(FeedState::Done(Ok(feed.unread())));
        } else if feed.has_more() {
            self.feed = Some(feed);
        } else {
            if !self.more_comes {
                feed.close();
            }
            self.fed.set(FeedState::Idle(feed));
        }
        self.feed.is_some()
    }
}

impl FeedTask {
    /// Kills the children: what they were given so far is not to be taken for the whole.
    fn fail(&self, failed: Failed) {
        // The last one first: it would take the end of the one before it for the end of its input.
        for member in self.members.iter().rev() {
            // Ignored: it has ended, or is another user's.
            let _ = member.signal(Signal::KILL);
        }
        self.fed.set(FeedState::Done(Err(failed)));
    }
}

fn read_on_a_thread(
    mut feed: Feed,
    reader: Box<dyn Read + Send>,
    members: Vec<Member>,
) -> Result<BackgroundFeed, Feed> {
    let Ok(wake) = Wake::new() else {
        feed.set_reader(reader);
        return Err(feed);
    };
    let fed = BackgroundFeed::new(FeedState::Idle(feed), Some(wake));
    // Here for the case that there can be no thread: then it is taken back.
    let source = Arc::new(Mutex::new(Some(reader)));
    let take = |source: &Mutex<Option<_>>| source.lock().map_or(None, |mut it| it.take());
    let started = service_thread::start_with_default_stack(c"pipewright-feed", {
        let (fed, source) = (fed.clone(), Arc::clone(&source));
        move || {
            if let Some(reader) = take(&source) {
                feed_from(reader, FeedTask { fed, feed: None, members, more_comes: true });
            }
        }
    });
    if started.is_err() {
        if let (Some(reader), Some(mut feed)) = (take(&source), fed.resume()) {
            feed.set_reader(reader);
            return Err(feed);
        }
    }
    Ok(fed)
}

/// Reads, and writes what was read, until one of the two ends.
fn feed_from(mut reader: Box<dyn Read + Send>, mut feeding: FeedTask) {
    let mut chunk = Vec::new();
    loop {
        // Meanwhile it rests where a verb that has seen the end of the child finds it.
        let read = catch_unwind(AssertUnwindSafe(|| read_chunk(&mut *reader, &mut chunk)));
        let read = read.unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
        let Some(mut feed) = feeding.fed.resume() else { return };
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

/// Writes what has been read.
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
