//! io_uring; one operation at a time where somebody wants to know what became of each.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::file::{Finished, Request};
use pipewright_os::disk::io_uring::{Ring, RingOptions};
use pipewright_os::disk::unavailable::WhyNot;

use super::witness::Witness;
use super::{Backend, Tell, cancelled, remove};
use crate::class::Seen;

/// So many are handed over without being asked to: the disk begins with them while the next are prepared, and
/// is not left without work in between. More at once are fewer calls; see docs/benchmarks.md.
const EARLY: usize = 4;

#[derive(Debug)]
pub(crate) struct RingBackend {
    ring: Ring,
    /// How many were pushed since the last call that hands over.
    unsubmitted: usize,
    /// Raised by who wants to end a wait; `None`: nobody can.
    wake: Option<Arc<Wake>>,
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

impl RingBackend {
    pub(crate) fn new(
        options: RingOptions,
        classes: bool,
        times: bool,
        wake: Option<Arc<Wake>>,
    ) -> Result<RingBackend, WhyNot> {
        let ring = Ring::new(options, wake.clone())?;
        let watched = classes.then(|| Watched {
            witness: Witness::new(times),
            pushed: VecDeque::new(),
            done: VecDeque::new(),
            seen: vec![Seen::Nothing; options.depth],
        });
        Ok(RingBackend { ring, unsubmitted: 0, wake, watched })
    }
}

impl Watched {
    /// Hands over one after the other: what is done when the call returns was done in it.
    fn submit(&mut self, ring: &mut Ring) -> io::Result<()> {
        if self.pushed.is_empty() {
            return Ok(());
        }
        let mut before = self.witness.look();
        while let Some((token, request)) = self.pushed.pop_front() {
            if let Err(request) = ring.push(token, request) {
                self.pushed.push_front((token, request));
                return Err(io::ErrorKind::WouldBlock.into());
            }
            before = self.witness.again(before);
            ring.submit()?;
            let (found, after) = self.witness.handed_over_since(before);
            if let Some(seen) = self.seen.get_mut(token) {
                *seen = found;
            }
            // The look after one is that before the next: in between there is nothing that could sleep.
            before = after;
            while let Some(finished) = ring.take() {
                let seen = self.seen.get(finished.token).copied().unwrap_or(Seen::Nothing);
                let seen = match seen {
                    Seen::Kernel { slept, took, device_bytes } if finished.token == token => {
                        Seen::Inline { slept, took, device_bytes }
                    }
                    other => other,
                };
                self.done.push_back((finished, seen));
            }
        }
        Ok(())
    }
}

impl Backend for RingBackend {
    fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        if let Some(watched) = &mut self.watched {
            watched.pushed.push_back((token, request));
            return Ok(());
        }
        self.ring.push(token, request)?;
        self.unsubmitted += 1;
        if self.unsubmitted >= EARLY {
            self.unsubmitted = 0;
            // Ignored: what was not handed over stays pushed, and the next call says why.
            let _ = self.ring.submit();
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.unsubmitted = 0;
        match &mut self.watched {
            Some(watched) => watched.submit(&mut self.ring),
            None => self.ring.submit(),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.unsubmitted = 0;
        if let Some(watched) = &mut self.watched {
            watched.submit(&mut self.ring)?;
            if !watched.done.is_empty() {
                return Ok(());
            }
        }
        self.ring.wait()
    }

    fn take(&mut self) -> Option<(Finished, Seen)> {
        let Some(watched) = &mut self.watched else {
            return self.ring.take().map(|finished| (finished, Seen::Nothing));
        };
        if let Some(done) = watched.done.pop_front() {
            return Some(done);
        }
        let finished = self.ring.take()?;
        let seen = watched.seen.get(finished.token).copied().unwrap_or(Seen::Nothing);
        Some((finished, seen))
    }

    fn cancel(&mut self, token: usize) {
        if let Some(watched) = &mut self.watched {
            if let Some(request) = remove(&mut watched.pushed, token) {
                watched.done.push_back((cancelled(token, request), Seen::Nothing));
                return;
            }
        }
        self.ring.cancel(token);
    }

    fn waker(&self) -> Option<Tell> {
        let wake = Arc::clone(self.wake.as_ref()?);
        Some(Box::new(move || wake.raise()))
    }
}
