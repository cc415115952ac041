//! The connections of workers that have nothing to do: a caller who finds one there talks to the worker itself.
//!
//! Through the thread of the pool each call costs two wake-ups more, of that thread and of the caller by it. It
//! goes on watching what a worker writes and how it ends, and has the connection back whenever it looks, unless
//! a caller has it; then it is told when it [wants](Shelf::want) it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pipewright_os::base::wake::Wake;

use super::connection::Connection;
use super::counters::Counter;
use super::status::{WorkerState, WorkerStatus};

/// Where they are.
#[derive(Debug, Default)]
pub(super) struct Shelf(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    places: Vec<Place>,
    /// Nothing is put there any more.
    closed: bool,
}

/// The place of one worker.
#[derive(Debug)]
struct Place {
    worker: u64,
    /// `None`: a caller has it.
    connection: Option<Box<Connection>>,
    /// From then on nobody takes it.
    until: Option<Instant>,
    used: Used,
    /// Who has it hands it over to the driver when the call is answered.
    is_wanted: bool,
    /// Raised: at once.
    wake: Arc<Wake>,
    jobs: Arc<Counter>,
}

/// What a worker has answered while its connection was on the shelf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) has_answered: bool,
    pub(super) last: Instant,
}

/// A connection that a caller has.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) worker: u64,
    pub(super) connection: Box<Connection>,
    /// Raised: the driver has to have it.
    pub(super) wake: Arc<Wake>,
    /// The calls that the worker has answered.
    pub(super) jobs: Arc<Counter>,
}

/// A connection that comes back to the driver.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) worker: u64,
    pub(super) connection: Box<Connection>,
    pub(super) used: Used,
}

impl Shelf {
    fn content(&self) -> MutexGuard<'_, Content> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller takes the connection that was used last, so that others can be let go.
    pub(super) fn take(&self) -> Option<Lent> {
        let mut content = self.content();
        let is_there = |place: &&mut Place| {
            place.connection.is_some() && place.until.is_none_or(|until| Instant::now() < until)
        };
        let places = content.places.iter_mut().filter(is_there);
        let place = places.max_by_key(|place| place.used.last)?;
        let connection = place.connection.take()?;
        let (wake, jobs) = (Arc::clone(&place.wake), Arc::clone(&place.jobs));
        Some(Lent { worker: place.worker, connection, wake, jobs })
    }

    /// Takes a connection back from a caller, whose call may have been answered. Returns it where the driver wants it.
    pub(super) fn give_back(&self, lent: Lent, was_answered: bool) -> Option<Returned> {
        if was_answered {
            lent.jobs.add_one();
        }
        let mut content = self.content();
        let at = content.places.iter().position(|place| place.worker == lent.worker)?;
        let place = content.places.get_mut(at)?;
        let has_answered = place.used.has_answered || was_answered;
        place.used = Used { has_answered, last: Instant::now() };
        if !place.is_wanted {
            place.connection = Some(lent.connection);
            return None;
        }
        let used = content.places.swap_remove(at).used;
        Some(Returned { worker: lent.worker, connection: lent.connection, used })
    }

    /// The caller's call is not answered: the driver has to see to it.
    pub(super) fn hand_over(&self, lent: Lent) -> Returned {
        let mut content = self.content();
        let mut used = Used { has_answered: false, last: Instant::now() };
        if let Some(at) = content.places.iter().position(|place| place.worker == lent.worker) {
            used.has_answered = content.places.swap_remove(at).used.has_answered;
        }
        Returned { worker: lent.worker, connection: lent.connection, used }
    }

    /// The driver puts one there, to be taken until then.
    pub(super) fn put(&self, lent: Lent, until: Option<Instant>, last: Instant) {
        let Lent { worker, connection, wake, jobs } = lent;
        let mut content = self.content();
        if content.closed {
            return;
        }
        content.places.push(Place {
            worker,
            connection: Some(connection),
            until,
            used: Used { has_answered: false, last },
            is_wanted: false,
            wake,
            jobs,
        });
    }

    /// The driver takes back what no caller has.
    pub(super) fn take_back(&self, taken: &mut Vec<Returned>) {
        self.content().places.retain_mut(|place| {
            let (worker, used) = (place.worker, place.used);
            let connection = place.connection.take();
            let is_lent = connection.is_none();
            taken.extend(connection.map(|connection| Returned { worker, connection, used }));
            is_lent
        });
    }

    /// The driver wants one back that a caller has: after the call, or at once. `true`: it is there already.
    pub(super) fn want(&self, worker: u64, at_once: bool) -> bool {
        let mut content = self.content();
        let place = content.places.iter_mut().find(|place| place.worker == worker);
        let Some(place) = place else { return false };
        place.is_wanted = true;
        if at_once {
            place.wake.raise();
        }
        place.connection.is_some()
    }

    /// There is no driver any more.
    pub(super) fn close(&self) {
        let places = {
            let mut content = self.content();
            content.closed = true;
            std::mem::take(&mut content.places)
        };
        for place in places {
            place.wake.raise();
        }
    }

    /// Notes which workers callers talk to themselves, which the driver does not know.
    pub(super) fn note_states(&self, workers: &mut [WorkerStatus]) {
        let content = self.content();
        for worker in workers {
            let place = content.places.iter().find(|place| place.worker == worker.number);
            let Some(place) = place else { continue };
            let is_idle = place.connection.is_some();
            worker.state = if is_idle { WorkerState::Idle } else { WorkerState::Busy };
        }
    }
}
