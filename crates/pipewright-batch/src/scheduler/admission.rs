//! Admission: which jobs are intended and started. Below it the ready jobs, the free resources, and the needs of a job.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU32;
use std::ops::Bound;

use super::adding::State;
use super::event::{Decision, JobNumber, Shown};
use super::{Map, Scheduler};

impl Scheduler {
    /// Starts all jobs that can start now.
    pub(super) fn admit(&mut self, decisions: &mut Vec<Decision>) {
        self.wanted_permits = None;
        if self.halted.is_some() || !self.log_works {
            return;
        }
        while (!self.pressure || self.pool.jobs() == 0)
            && self.pool.jobs() < self.most_jobs
            && !self.pauses
        {
            let Some((number, slot)) = self.ready.next(&mut self.pool) else { break };
            let Some(job) = self.jobs.get_mut(&number) else { continue };
            job.attempts = job.attempts.saturating_add(1);
            job.state = State::Admitted { slot };
            self.pauses = self.config.spaced;
            let (attempt, durable) = (job.attempts, job.once);
            decisions.push(Decision::Intend { job: number, attempt, durable });
            if !durable {
                self.start(number, decisions);
            }
        }
        self.wanted_permits = self.ready.end_search(&mut self.pool);
    }

    pub(super) fn intended(
        &mut self,
        number: JobNumber,
        attempt: u32,
        decisions: &mut Vec<Decision>,
    ) {
        if self.jobs.get(&number).is_some_and(|job| job.attempts == attempt) {
            if self.log_works {
                // Not held back under pressure: it has its resources, and intents take only milliseconds.
                self.start(number, decisions);
            } else {
                self.held.push(number);
            }
        }
    }

    pub(super) fn log_works(&mut self, decisions: &mut Vec<Decision>) {
        self.log_works = true;
        for number in std::mem::take(&mut self.held) {
            self.start(number, decisions);
        }
    }

    /// Starts an admitted job. In any other state it has been started or settled before.
    fn start(&mut self, number: JobNumber, decisions: &mut Vec<Decision>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        let State::Admitted { slot } = job.state else { return };
        self.starts += 1;
        self.running += 1;
        job.state = State::Running { slot, since: self.starts, stop: None };
        if !job.once {
            self.sheddable.insert((self.starts, number));
        }
        decisions.push(Decision::Start { job: number, slot, attempt: job.attempts });
    }
}

// The ready jobs: who starts next.
//
// Jobs start in order of arrival where they can. Those with the same needs are one queue, because if the first of them
// does not fit, none does: a search looks at one job a queue, not at all jobs. A job that does not fit is passed over,
// so that it does not block others needlessly. It is *overtaken* if one of those stands in its way afterwards
// ([`Pool::hinders`]). After that has happened `patience` times to the jobs of a queue in a row, what its first job
// needs is kept free for it until it starts: everything that it needs is given back some day, so nothing waits for
// ever.
//
// A search ends after [`MOST_PASSED_OVER`] queues, so that its cost is bounded even if each job has needs of its own.

/// Queues that one search passes over at most.
pub(super) const MOST_PASSED_OVER: usize = 128;

/// The index of a queue.
pub(super) type ShapeId = usize;

/// The ready jobs.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) shapes: Vec<Shape>,
    /// Indexes of shapes that no job has.
    pub(super) unused: Vec<ShapeId>,
    by_needs: Map<Needs, ShapeId>,
    /// The first job of each queue.
    heads: BTreeSet<(JobNumber, ShapeId)>,
    len: usize,
    patience: u32,
    search: Search,
}

/// Jobs with the same needs.
#[derive(Debug)]
pub(super) struct Shape {
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

    /// Ends a search: the next one starts with the first job. Returns the permits that the search was short of: the
    /// number with which it would have gone on.
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

// The free resources: slots, CPUs, memory, and those with a name.

/// Resources that are free, and a part of them that is kept for jobs that have waited too long.
#[derive(Debug)]
pub(super) struct Pool {
    slots: Slots,
    cpus: Amount,
    /// The number of CPUs. Jobs may hold more, if some went away.
    capacity: u32,
    /// The most CPUs that a job can ever have, if it is known.
    largest: Option<u32>,
    /// CPUs that jobs may use at once. `None`: as many as there are slots.
    permits: Option<u32>,
    cpus_in_use: u32,
    named: Vec<Amount>,
    memory_used: u64,
    memory_kept: u64,
    /// `None`: memory is not counted.
    memory_budget: Option<u64>,
    jobs: usize,
}

/// A countable resource.
#[derive(Clone, Copy, Debug)]
struct Amount {
    free: u32,
    /// Kept for jobs that have waited too long. May be more than is free.
    kept: u32,
}

impl Amount {
    fn has(self, count: u32) -> bool {
        count <= self.free.saturating_sub(self.kept)
    }
}

impl Pool {
    pub(super) fn new(limits: &Limits, capacity: Option<u32>) -> Pool {
        let amount = |free| Amount { free, kept: 0 };
        let capacity = capacity.unwrap_or(limits.slots.get());
        Pool {
            slots: Slots::default(),
            cpus: amount(capacity),
            capacity,
            largest: None,
            permits: None,
            cpus_in_use: 0,
            named: limits.named.iter().map(|kind| amount(kind.capacity)).collect(),
            memory_used: 0,
            memory_kept: 0,
            memory_budget: limits.memory_bytes,
            jobs: 0,
        }
    }

    /// Returns the number of jobs that hold resources.
    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Returns true if no job fits, whatever it needs.
    pub(super) fn is_full(&self) -> bool {
        !self.cpus.has(1)
    }

    /// Returns true if a job with these needs can start. The first job may exceed the memory: one always runs.
    pub(super) fn fits(&self, needs: &Needs) -> bool {
        let memory = needs.memory_bytes.unwrap_or(0);
        // One that can never have its CPUs is not kept waiting for them: its executor refuses it.
        (self.cpus.has(needs.cpus.get()) || self.largest.is_some_and(|it| it < needs.cpus.get()))
            && (self.jobs == 0
                || !self.lacks_memory(memory.saturating_add(self.memory_kept), memory))
            && needs.named.iter().all(|need| self.named[need.kind].has(need.count))
    }

    /// Returns the permits that a job which [fits](Self::fits) would need, if there are fewer.
    pub(super) fn lacking_permits(&self, needs: &Needs) -> Option<u32> {
        let wanted = self.cpus_in_use + needs.cpus.get();
        self.permits.is_some_and(|permits| wanted > permits).then_some(wanted)
    }

    /// Returns the number of CPUs.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Sets the number of CPUs.
    pub(super) fn set_capacity(&mut self, cpus: u32) {
        self.capacity = cpus;
        self.count_free_cpus();
    }

    /// Sets the most CPUs that a job can ever have.
    pub(super) fn set_largest(&mut self, cpus: Option<u32>) {
        self.largest = cpus;
    }

    fn count_free_cpus(&mut self) {
        self.cpus.free = self.capacity.saturating_sub(self.cpus_in_use);
    }

    /// Sets the number of CPUs that all jobs together may use.
    pub(super) fn set_permits(&mut self, cpus: u32) {
        self.permits = Some(cpus);
    }

    /// Returns the CPUs that jobs hold.
    pub(super) fn cpus_in_use(&self) -> u32 {
        self.cpus_in_use
    }

    /// Takes the resources of a job, and returns its slot.
    pub(super) fn take(&mut self, needs: &Needs) -> u32 {
        self.jobs += 1;
        self.cpus_in_use = self.cpus_in_use.saturating_add(needs.cpus.get());
        self.count_free_cpus();
        self.memory_used = self.memory_used.saturating_add(needs.memory_bytes.unwrap_or(0));
        for need in &needs.named {
            self.named[need.kind].free -= need.count;
        }
        self.slots.take_lowest()
    }

    /// Gives back the resources of a job.
    pub(super) fn release(&mut self, needs: &Needs, slot: u32) {
        self.jobs -= 1;
        self.cpus_in_use = self.cpus_in_use.saturating_sub(needs.cpus.get());
        self.count_free_cpus();
        self.memory_used = self.memory_used.saturating_sub(needs.memory_bytes.unwrap_or(0));
        for need in &needs.named {
            self.named[need.kind].free += need.count;
        }
        self.slots.release(slot);
    }

    /// Sets the memory that all jobs together may use.
    pub(super) fn set_memory_budget(&mut self, bytes: u64) {
        self.memory_budget = Some(bytes);
    }

    /// Returns true if a job that was just started stands in the way of a waiting one: it took some of a resource, and
    /// now there is less than the waiting job needs.
    ///
    /// A need of one CPU does not count. Each end of a job frees one, and the waiting job is first in line for it.
    pub(super) fn hinders(&self, started: &Needs, waiting: &Needs) -> bool {
        let cpus = waiting.cpus.get();
        let memory = waiting.memory_bytes.unwrap_or(0);
        cpus > 1 && cpus > self.cpus.free
            || started.memory_bytes.is_some() && self.lacks_memory(memory, memory)
            || waiting.named.iter().any(|need| {
                let is_taken = started.named.iter().any(|taken| taken.kind == need.kind);
                is_taken && need.count > self.named[need.kind].free
            })
    }

    /// Keeps the resources of a waiting job free until [`Pool::stop_keeping`]. One CPU is not kept: see
    /// [`Pool::hinders`].
    pub(super) fn keep(&mut self, needs: &Needs) {
        if needs.cpus.get() > 1 {
            self.cpus.kept = self.cpus.kept.saturating_add(needs.cpus.get());
        }
        self.memory_kept = self.memory_kept.saturating_add(needs.memory_bytes.unwrap_or(0));
        for need in &needs.named {
            let kept = &mut self.named[need.kind].kept;
            *kept = kept.saturating_add(need.count);
        }
    }

    pub(super) fn stop_keeping(&mut self) {
        self.cpus.kept = 0;
        self.memory_kept = 0;
        for amount in &mut self.named {
            amount.kept = 0;
        }
    }

    /// Returns true if there is less memory than `bytes`, for a job that needs `own` of them. It needs none: it lacks
    /// none.
    fn lacks_memory(&self, bytes: u64, own: u64) -> bool {
        let budget = self.memory_budget.filter(|_| own > 0);
        budget.is_some_and(|budget| bytes > budget.saturating_sub(self.memory_used))
    }
}

/// The numbers of slots, from 1. The lowest free one is given out, as GNU parallel's `{%}`.
#[derive(Debug, Default)]
struct Slots {
    /// Free ones, all lower than those that were never used.
    free: BinaryHeap<Reverse<u32>>,
    used: u32,
}

impl Slots {
    fn take_lowest(&mut self) -> u32 {
        self.free.pop().map_or_else(
            || {
                self.used += 1;
                self.used
            },
            |Reverse(slot)| slot,
        )
    }

    fn release(&mut self, slot: u32) {
        self.free.push(Reverse(slot));
    }
}

// Resources: the limits of a batch and the needs of a job.

/// Resources that all jobs of a batch share.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Slots. Each running job has one slot, and as many slots' worth of CPUs as it needs.
    pub(crate) slots: NonZeroU32,
    /// Memory for all jobs together. `None`: it is not counted, until the machine reports a budget.
    pub(crate) memory_bytes: Option<u64>,
    /// Resources with a name. A job names a kind by its index here.
    pub(crate) named: Vec<ResourceKind>,
}

/// A kind of token, as `link=2`.
#[derive(Clone, Debug)]
pub(crate) struct ResourceKind {
    pub(crate) name: Box<str>,
    pub(crate) capacity: u32,
}

/// Resources that a job holds while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Needs {
    pub(crate) cpus: NonZeroU32,
    /// Memory that the job is expected to use. `None`: it counts as none.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) named: Vec<ResourceNeed>,
}

/// Tokens of one kind that a job holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceNeed {
    /// Index of the kind in [`Limits::named`].
    pub(crate) kind: usize,
    pub(crate) count: u32,
}

impl Limits {
    /// Returns the needs in a normal form (each kind of token once, in order).
    ///
    /// # Errors
    /// Refuses needs that can never be met, because there is less than that even if nothing else runs.
    pub(crate) fn check(&self, needs: Needs) -> Result<Needs, NeedsError> {
        if needs.cpus > self.slots {
            return Err(NeedsError::Cpus { needed: needs.cpus, slots: self.slots });
        }
        if let (Some(needed), Some(limit)) = (needs.memory_bytes, self.memory_bytes) {
            if needed > limit {
                return Err(NeedsError::Memory { needed, limit });
            }
        }
        let needs = needs.merged();
        for need in &needs.named {
            let Some(kind) = self.named.get(need.kind) else {
                return Err(NeedsError::UnknownToken { kind: need.kind });
            };
            if need.count > kind.capacity {
                let (name, capacity) = (kind.name.clone(), kind.capacity);
                return Err(NeedsError::Tokens { name, needed: need.count, capacity });
            }
        }
        Ok(needs)
    }
}

impl Needs {
    fn merged(mut self) -> Needs {
        self.named.sort_unstable();
        self.named.dedup_by(|later, kept| {
            let is_same = later.kind == kept.kind;
            if is_same {
                kept.count = kept.count.saturating_add(later.count);
            }
            is_same
        });
        self.named.retain(|need| need.count > 0);
        self.memory_bytes = self.memory_bytes.filter(|bytes| *bytes > 0);
        self
    }
}

/// Needs that can never be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeedsError {
    /// More CPUs than slots.
    Cpus { needed: NonZeroU32, slots: NonZeroU32 },
    /// More memory than all jobs together may use.
    Memory { needed: u64, limit: u64 },
    /// A kind of token that the batch does not have.
    UnknownToken { kind: usize },
    /// More than there is of that resource.
    Tokens { name: Box<str>, needed: u32, capacity: u32 },
}

impl Display for NeedsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NeedsError::Cpus { needed, slots } => {
                write!(f, "needs {needed} CPUs, and the batch has {slots}: allow more jobs at once")
            }
            NeedsError::Memory { needed, limit } => {
                write!(f, "needs {needed} bytes of memory, and the batch may use {limit}")
            }
            NeedsError::UnknownToken { kind } => {
                write!(f, "needs the resource {kind}, which the batch does not have")
            }
            NeedsError::Tokens { name, needed, capacity } => {
                write!(
                    f,
                    "needs {needed} of the resource {}, and the batch has {capacity}",
                    Shown(name)
                )
            }
        }
    }
}

impl Error for NeedsError {}
