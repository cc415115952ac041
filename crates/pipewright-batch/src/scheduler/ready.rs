//! The ready jobs: who starts next.
//!
//! Jobs start in order of arrival where they can. Those with the same needs are one queue, because if the first of them does
//! not fit, none does: a search looks at one job a queue, not at all jobs. A job that does not fit is passed over, so that it
//! does not block others needlessly. It is *overtaken* if one of those stands in its way afterwards ([`Pool::hinders`]).
//! After that has happened `patience` times to the jobs of a queue in a row, what its first job needs is kept free for it
//! until it starts: everything that it needs is given back some day, so nothing waits for ever.
//!
//! A search ends after [`MOST_PASSED_OVER`] queues, so that its cost is bounded even if each job has needs of its own.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;

use super::event::JobNumber;
use super::limits::Needs;
use super::map::Map;
use super::pool::Pool;

/// Queues that one search passes over at most.
pub(super) const MOST_PASSED_OVER: usize = 128;

/// The index of a queue.
pub(super) type ShapeId = usize;

/// The ready jobs.
#[derive(Debug)]
pub(super) struct Ready {
    shapes: Vec<Shape>,
    /// Indexes of shapes that no job has.
    unused: Vec<ShapeId>,
    by_needs: Map<Needs, ShapeId>,
    /// The first job of each queue.
    heads: BTreeSet<(JobNumber, ShapeId)>,
    len: usize,
    patience: u32,
    search: Search,
}

/// Jobs with the same needs.
#[derive(Debug)]
struct Shape {
    needs: Needs,
    /// Unfinished jobs with these needs, ready or not.
    jobs: usize,
    queue: BinaryHeap<Reverse<JobNumber>>,
    /// Times that it was overtaken since one of its jobs started.
    overtaken: u32,
}

/// The state of one search. While it lasts, resources only get fewer, so nothing has to be looked at twice.
#[derive(Debug, Default)]
struct Search {
    last: Option<(JobNumber, ShapeId)>,
    passed_over: Vec<ShapeId>,
    keeps: bool,
    /// The permits that the first job needs which lacks nothing else.
    wanted_permits: Option<u32>,
}

impl Ready {
    pub(super) fn new(patience: u32) -> Ready {
        Ready {
            shapes: Vec::new(),
            unused: Vec::new(),
            by_needs: Map::default(),
            heads: BTreeSet::new(),
            len: 0,
            patience,
            search: Search::default(),
        }
    }

    /// Returns the queue of an unfinished job with these needs.
    pub(super) fn shape(&mut self, needs: Needs) -> ShapeId {
        if let Some(&shape) = self.by_needs.get(&needs) {
            self.shapes[shape].jobs += 1;
            return shape;
        }
        let shape = Shape { needs: needs.clone(), jobs: 1, queue: BinaryHeap::new(), overtaken: 0 };
        let id = match self.unused.pop() {
            Some(id) => {
                self.shapes[id] = shape;
                id
            }
            None => {
                self.shapes.push(shape);
                self.shapes.len() - 1
            }
        };
        self.by_needs.insert(needs, id);
        id
    }

    /// Forgets a job of that queue, which has been taken out or was never in it.
    pub(super) fn forget(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id];
        shape.jobs -= 1;
        if shape.jobs == 0 {
            self.by_needs.remove(&shape.needs);
            shape.queue = BinaryHeap::new();
            self.unused.push(id);
        }
    }

    pub(super) fn needs(&self, id: ShapeId) -> &Needs {
        &self.shapes[id].needs
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of queues that were ever used at once.
    #[cfg(test)]
    pub(super) fn queues(&self) -> usize {
        self.shapes.len()
    }

    #[cfg(test)]
    pub(super) fn queues_in_use(&self) -> usize {
        self.shapes.len() - self.unused.len()
    }

    pub(super) fn push(&mut self, job: JobNumber, id: ShapeId) {
        self.len += 1;
        let queue = &mut self.shapes[id].queue;
        let first = queue.peek().map(|Reverse(first)| *first);
        queue.push(Reverse(job));
        if first.is_none_or(|first| job < first) {
            if let Some(first) = first {
                self.heads.remove(&(first, id));
            }
            self.heads.insert((job, id));
        }
    }

    pub(super) fn clear(&mut self) {
        for (_, id) in std::mem::take(&mut self.heads) {
            self.shapes[id].queue.clear();
        }
        self.len = 0;
    }

    /// Takes out the next job that fits, takes its resources, and returns it with its slot.
    ///
    /// Continues the search of the last call, until [`Ready::end_search`].
    pub(super) fn next(&mut self, pool: &mut Pool) -> Option<(JobNumber, u32)> {
        while !pool.is_full() && self.search.passed_over.len() < MOST_PASSED_OVER {
            let from = self.search.last.map_or(Bound::Unbounded, Bound::Excluded);
            let &(job, id) = self.heads.range((from, Bound::Unbounded)).next()?;
            let shape = &self.shapes[id];
            if pool.fits(&shape.needs) {
                self.search.wanted_permits = pool.lacking_permits(&shape.needs);
                if self.search.wanted_permits.is_some() {
                    return None;
                }
                let slot = pool.take(&shape.needs);
                self.take_out(job, id);
                self.count_overtaken(id, pool);
                return Some((job, slot));
            }
            if shape.overtaken >= self.patience {
                pool.keep(&shape.needs);
                self.search.keeps = true;
            }
            self.search.passed_over.push(id);
            self.search.last = Some((job, id));
        }
        None
    }

    /// Ends a search: the next one starts with the first job. Returns the permits that the search was short of: the number
    /// with which it would have gone on.
    pub(super) fn end_search(&mut self, pool: &mut Pool) -> Option<u32> {
        if self.search.keeps {
            pool.stop_keeping();
        }
        self.search.keeps = false;
        self.search.passed_over.clear();
        self.search.last = None;
        self.search.wanted_permits.take()
    }

    fn take_out(&mut self, job: JobNumber, id: ShapeId) {
        let shape = &mut self.shapes[id];
        shape.overtaken = 0;
        shape.queue.pop();
        self.len -= 1;
        self.heads.remove(&(job, id));
        if let Some(Reverse(next)) = shape.queue.peek() {
            self.heads.insert((*next, id));
        }
    }

    /// Counts the start of a job against those that were passed over for it.
    fn count_overtaken(&mut self, started: ShapeId, pool: &mut Pool) {
        for &id in &self.search.passed_over {
            let waiting = &self.shapes[id];
            let is_kept = waiting.overtaken >= self.patience;
            if is_kept || !pool.hinders(&self.shapes[started].needs, &waiting.needs) {
                continue;
            }
            let overtaken = waiting.overtaken + 1;
            if overtaken == self.patience {
                pool.keep(&waiting.needs);
                self.search.keeps = true;
            }
            self.shapes[id].overtaken = overtaken;
        }
    }
}
