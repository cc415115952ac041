//! A queue of the kernel for what it takes, and the pool for everything else.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use pipewright_os::disk::file::{Finished, Request};

use super::pool::PoolBackend;
use super::witness::{Before, Witness};
use super::{Backend, Tell, cancelled, remove};
use crate::class::Seen;

/// A queue of the kernel that does not take everything.
pub(crate) trait Queue: fmt::Debug {
    /// Whether that request is for it.
    fn takes(&self, request: &Request) -> bool;

    /// As [`Backend::push`].
    fn push(&mut self, token: usize, request: Request) -> Result<(), Request>;

    /// As [`Backend::submit`]; `WouldBlock`: the rest when some have been taken.
    fn submit(&mut self) -> io::Result<()>;

    /// What was seen of the request that has just been handed over.
    fn seen(&self, token: usize, witness: &Witness, before: Before) -> Seen;

    /// As [`Backend::wait`].
    fn wait(&mut self) -> io::Result<()>;

    /// One request that is done, if one is; without waiting.
    fn take(&mut self) -> Option<Finished>;

    /// As [`Backend::cancel`]; the request may not be its own.
    fn cancel(&mut self, token: usize);

    /// Ends waits from elsewhere, those to come included.
    fn waker(&self) -> Tell;
}

#[derive(Debug)]
pub(crate) struct MixedBackend<Q> {
    queue: Q,
    pool: PoolBackend,
    /// How many operations are with either.
    in_queue: usize,
    in_pool: usize,
    watched: Option<Watched>,
}

/// What it takes to see what becomes of each operation.
#[derive(Debug)]
struct Watched {
    witness: Witness,
    pushed: VecDeque<(usize, Request)>,
    done: VecDeque<(Finished, Seen)>,
    /// What was seen of those that are under way, by their tokens.
    seen: Vec<Seen>,
}

impl<Q: Queue> MixedBackend<Q> {
    pub(crate) fn new(
        queue: Q,
        depth: usize,
        threads: usize,
        classes: bool,
        times: bool,
    ) -> MixedBackend<Q> {
        let mut pool = PoolBackend::new(threads, times);
        // Who waits for the queue hears of the pool as well.
        pool.tell(queue.waker());
        let watched = classes.then(|| Watched {
            witness: Witness::new(times),
            pushed: VecDeque::new(),
            done: VecDeque::new(),
            seen: vec![Seen::Nothing; depth],
        });
        MixedBackend { queue, pool, in_queue: 0, in_pool: 0, watched }
    }
}

impl Watched {
    /// One after the other: what the call does besides is then known of each.
    fn submit(&mut self, queue: &mut impl Queue) -> io::Result<()> {
        while let Some((token, request)) = self.pushed.pop_front() {
            let before = self.witness.look();
            if let Err(request) = queue.push(token, request) {
                self.pushed.push_front((token, request));
                return Err(io::ErrorKind::InvalidInput.into());
            }
            // Where the kernel has no room now the queue keeps it.
            queue.submit()?;
            if let Some(place) = self.seen.get_mut(token) {
                *place = queue.seen(token, &self.witness, before);
            }
        }
        Ok(())
    }
}

impl<Q: Queue> Backend for MixedBackend<Q> {
    fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        if !self.queue.takes(&request) {
            self.in_pool += 1;
            return self.pool.push(token, request);
        }
        self.in_queue += 1;
        match &mut self.watched {
            Some(watched) => {
                if let Some(place) = watched.seen.get_mut(token) {
                    *place = Seen::Nothing;
                }
                watched.pushed.push_back((token, request));
                Ok(())
            }
            None => self.queue.push(token, request),
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        self.pool.submit()?;
        if let Some(watched) = &mut self.watched {
            watched.submit(&mut self.queue)?;
        }
        self.queue.submit()
    }

    fn wait(&mut self) -> io::Result<()> {
        match self.submit() {
            // A full queue is no reason not to wait: it is one to.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let has_done = self.watched.as_ref().is_some_and(|watched| !watched.done.is_empty());
        if has_done { Ok(()) } else { self.queue.wait() }
    }

    fn take(&mut self) -> Option<(Finished, Seen)> {
        if self.in_pool > 0 {
            if let Some(done) = self.pool.take() {
                self.in_pool -= 1;
                return Some(done);
            }
        }
        if self.in_queue == 0 {
            return None;
        }
        let ended = self.watched.as_mut().and_then(|watched| watched.done.pop_front());
        let ended = ended.or_else(|| {
            let finished = self.queue.take()?;
            let seen = self.watched.as_ref().and_then(|watched| watched.seen.get(finished.token));
            Some((finished, seen.copied().unwrap_or(Seen::Nothing)))
        });
        self.in_queue -= usize::from(ended.is_some());
        ended
    }

    fn cancel(&mut self, token: usize) {
        if let Some(watched) = &mut self.watched {
            if let Some(request) = remove(&mut watched.pushed, token) {
                watched.done.push_back((cancelled(token, request), Seen::Nothing));
                return;
            }
        }
        if self.in_pool > 0 {
            self.pool.cancel(token);
        }
        self.queue.cancel(token);
    }

    fn waker(&self) -> Option<Tell> {
        Some(self.queue.waker())
    }
}
