//! What callers leave for the thread that drives a pool.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pipewright_os::base::wake::Wake;

use super::counters::Counters;
use super::direct::Rest;
use super::job::Job;
use super::options::Schedule;
use super::shelf::{Lent, Returned, Shelf};
use super::status::{PoolStats, Standing};
use crate::error::{Error, ErrorKind};

/// Where callers leave things.
#[derive(Debug)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    wake: Wake,
    next_id: AtomicU64,
    /// What callers may take.
    pub(super) shelf: Shelf,
    pub(super) counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Letters {
    new: Vec<Letter>,
    /// Calls that wait for a worker: there, and with the driver.
    waiting: usize,
    /// Nothing is taken any more.
    closed: bool,
    /// The driver waits, and has to be woken.
    asleep: bool,
    /// There is no driver any more.
    ended: bool,
    /// Why it had to end, where nobody told it to.
    why: Option<Error>,
    /// Who waits for that.
    enders: Vec<Waker>,
    /// The workers when the driver last waited.
    workers: Vec<Standing>,
}

/// Something for the driver.
#[derive(Debug)]
pub(super) enum Letter {
    /// To be done.
    Call(Job),
    /// Nobody wants it any more.
    Cancel(u64),
    /// What a worker has asked during that call, or why it is not told.
    Answer(u64, Result<Vec<u8>, String>),
    /// So many pieces more may come.
    Credit(u64, u32),
    /// A connection that is wanted.
    Returned(Returned),
    /// The same with a call that is not answered.
    Rest(Box<Rest>),
    /// To end properly, and until when.
    ShutDown(Schedule),
    /// To end.
    Stop,
}

impl Mailbox {
    pub(super) fn new() -> Result<Mailbox, Error> {
        Ok(Mailbox {
            letters: Mutex::default(),
            wake: Wake::new().map_err(Error::cannot("make a handle that wakes a pool"))?,
            next_id: AtomicU64::new(1),
            shelf: Shelf::default(),
            counters: Arc::default(),
        })
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        // Nothing in here panics while it holds the lock.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next call.
    pub(super) fn number(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Leaves a call; it is refused where more than so many wait.
    pub(super) fn call(&self, job: Job, most: usize) -> Result<(), Error> {
        let mut letters = self.letters();
        if letters.closed {
            return Err(letters.why());
        }
        if letters.waiting >= most {
            return Err(Error::new(ErrorKind::Full { most }));
        }
        letters.waiting += 1;
        self.put(letters, Letter::Call(job));
        Ok(())
    }

    /// Gives a connection back: to the shelf, or to the driver where that wants it. Whether its worker has
    /// answered by an error; `None`: it was not asked.
    pub(super) fn give_back(&self, lent: Lent, has_failed: Option<bool>) {
        match has_failed {
            Some(true) => self.counters.failures.add_one(),
            Some(false) => self.counters.replies.add_one(),
            None => {}
        }
        if let Some(returned) = self.shelf.give_back(lent, has_failed.is_some()) {
            self.leave(Letter::Returned(returned));
        }
    }

    /// Leaves anything else. What comes too late is of no use to anybody.
    pub(super) fn leave(&self, letter: Letter) {
        self.put(self.letters(), letter);
    }

    fn put(&self, mut letters: MutexGuard<'_, Letters>, letter: Letter) {
        if matches!(letter, Letter::ShutDown(_) | Letter::Stop) {
            letters.closed = true;
        }
        if letters.ended {
            let why = letters.why();
            // A call that is in it ends, and that may call anything.
            drop(letters);
            return letter.end(&why);
        }
        letters.new.push(letter);
        // One wake is enough for all that come before the driver looks.
        let was_asleep = mem::take(&mut letters.asleep);
        drop(letters);
        if was_asleep {
            self.wake.raise();
        }
    }

    /// What the driver waits for.
    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Takes everything that has been left.
    pub(super) fn take(&self, taken: &mut Vec<Letter>) {
        self.wake.lower();
        let mut letters = self.letters();
        letters.asleep = false;
        taken.append(&mut letters.new);
    }

    /// The driver tells how things stand, and is about to wait. `false`: there is something for it.
    pub(super) fn fall_asleep(
        &self,
        waiting: usize,
        workers: impl Iterator<Item = Standing>,
    ) -> bool {
        let mut letters = self.letters();
        letters.workers.clear();
        letters.workers.extend(workers);
        letters.waiting = waiting + letters.new.iter().filter(|it| it.is_call()).count();
        letters.asleep = letters.new.is_empty();
        letters.asleep
    }

    /// Returns the workers as the driver last saw them, and the counters as they are now.
    pub(super) fn stats(&self) -> PoolStats {
        let mut stats = self.counters.stats();
        {
            let letters = self.letters();
            stats.workers.extend(letters.workers.iter().map(Standing::status));
            stats.waiting = letters.waiting;
        }
        self.shelf.note_states(&mut stats.workers);
        stats
    }

    /// The driver has to end, for that reason: so does every call that comes from now on.
    pub(super) fn fail(&self, why: Error) {
        let mut letters = self.letters();
        (letters.closed, letters.why) = (true, Some(why));
    }

    /// The driver has ended: nothing is taken any more, and whoever waits for that is woken.
    pub(super) fn end(&self) {
        let mut letters = self.letters();
        (letters.closed, letters.ended) = (true, true);
        let (left, enders) = (mem::take(&mut letters.new), mem::take(&mut letters.enders));
        let why = letters.why();
        // What nobody has taken ends, and that may call anything.
        drop(letters);
        for letter in left {
            letter.end(&why);
        }
        self.shelf.close();
        for waker in enders {
            waker.wake();
        }
    }

    /// Whether the driver has ended; the task is woken when it has.
    pub(super) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        let mut letters = self.letters();
        if letters.ended {
            return Poll::Ready(());
        }
        letters.enders.push(context.waker().clone());
        Poll::Pending
    }
}

impl Letters {
    /// Why no call is taken.
    fn why(&self) -> Error {
        self.why.as_ref().map_or_else(|| Error::new(ErrorKind::ShutDown), Error::share)
    }
}

impl Letter {
    /// The call that is in it has ended, for that reason.
    fn end(self, why: &Error) {
        match self {
            Letter::Call(job) => job.end(Err(why.share())),
            Letter::Rest(rest) => rest.job.end(Err(why.share())),
            _ => {}
        }
    }

    fn is_call(&self) -> bool {
        matches!(self, Letter::Call(_))
    }
}
