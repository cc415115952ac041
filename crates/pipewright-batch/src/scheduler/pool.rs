//! The free resources: slots, CPUs, memory and tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::limits::{Limits, Needs};

/// Resources that are free, and a part of them that is kept for jobs that have waited too long.
#[derive(Debug)]
pub(super) struct Pool {
    slots: Slots,
    cpus: Amount,
    /// The number of CPUs that there are. Jobs may hold more, if some went away.
    capacity: u32,
    /// The most CPUs that a job can ever have, if it is known.
    largest: Option<u32>,
    /// CPUs that jobs may use at once. `None`: as many as there are slots.
    permits: Option<u32>,
    cpus_in_use: u32,
    tokens: Vec<Amount>,
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
            tokens: limits.tokens.iter().map(|kind| amount(kind.capacity)).collect(),
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
            && needs.tokens.iter().all(|need| self.tokens[need.kind].has(need.count))
    }

    /// Returns the permits that a job which [fits](Self::fits) would need, if there are fewer.
    pub(super) fn lacking_permits(&self, needs: &Needs) -> Option<u32> {
        let wanted = self.cpus_in_use + needs.cpus.get();
        self.permits.is_some_and(|permits| wanted > permits).then_some(wanted)
    }

    /// Returns the number of CPUs that there are.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Sets the number of CPUs that there are.
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
        for need in &needs.tokens {
            self.tokens[need.kind].free -= need.count;
        }
        self.slots.take_lowest()
    }

    /// Gives back the resources of a job.
    pub(super) fn release(&mut self, needs: &Needs, slot: u32) {
        self.jobs -= 1;
        self.cpus_in_use = self.cpus_in_use.saturating_sub(needs.cpus.get());
        self.count_free_cpus();
        self.memory_used = self.memory_used.saturating_sub(needs.memory_bytes.unwrap_or(0));
        for need in &needs.tokens {
            self.tokens[need.kind].free += need.count;
        }
        self.slots.release(slot);
    }

    /// Sets the memory that all jobs together may use.
    pub(super) fn set_memory_budget(&mut self, bytes: u64) {
        self.memory_budget = Some(bytes);
    }

    /// Returns true if a job that was just started stands in the way of a waiting one: it took some of a resource, and now
    /// there is less than the waiting job needs.
    ///
    /// A need of one CPU does not count. Each end of a job frees one, and the waiting job is first in line for it.
    pub(super) fn hinders(&self, started: &Needs, waiting: &Needs) -> bool {
        let cpus = waiting.cpus.get();
        let memory = waiting.memory_bytes.unwrap_or(0);
        cpus > 1 && cpus > self.cpus.free
            || started.memory_bytes.is_some() && self.lacks_memory(memory, memory)
            || waiting.tokens.iter().any(|need| {
                let is_taken = started.tokens.iter().any(|taken| taken.kind == need.kind);
                is_taken && need.count > self.tokens[need.kind].free
            })
    }

    /// Keeps the resources of a waiting job free until [`Pool::stop_keeping`]. One CPU is not kept: see [`Pool::hinders`].
    pub(super) fn keep(&mut self, needs: &Needs) {
        if needs.cpus.get() > 1 {
            self.cpus.kept = self.cpus.kept.saturating_add(needs.cpus.get());
        }
        self.memory_kept = self.memory_kept.saturating_add(needs.memory_bytes.unwrap_or(0));
        for need in &needs.tokens {
            let kept = &mut self.tokens[need.kind].kept;
            *kept = kept.saturating_add(need.count);
        }
    }

    pub(super) fn stop_keeping(&mut self) {
        self.cpus.kept = 0;
        self.memory_kept = 0;
        for amount in &mut self.tokens {
            amount.kept = 0;
        }
    }

    /// Returns true if there is less memory than `bytes`, for a job that needs `own` of them. It needs none: it lacks none.
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
