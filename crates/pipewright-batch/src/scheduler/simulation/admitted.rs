//! The model of admission: which ready job is the next one to start, by looking at all of them.

use super::model::{Job, Model, Phase};
use crate::scheduler::*;

/// Resources that are free, less those that are kept.
struct Free {
    cpus: i64,
    memory: Option<i64>,
    named: Vec<i64>,
    nothing_runs: bool,
}

impl Free {
    fn fits(&self, needs: &Needs) -> bool {
        let memory = needs.memory_bytes.unwrap_or(0) as i64;
        let has_memory = self.memory.is_none_or(|free| memory == 0 || memory <= free);
        i64::from(needs.cpus.get()) <= self.cpus
            && (has_memory || self.nothing_runs)
            && needs.named.iter().all(|need| i64::from(need.count) <= self.named[need.kind])
    }

    /// Takes what is kept for a starving job: all but a single CPU.
    fn keep(&mut self, needs: &Needs) {
        if needs.cpus.get() > 1 {
            self.cpus -= i64::from(needs.cpus.get());
        }
        self.take_more(needs);
    }

    fn take_more(&mut self, needs: &Needs) {
        for need in &needs.named {
            self.named[need.kind] -= i64::from(need.count);
        }
        if let Some(memory) = &mut self.memory {
            *memory -= needs.memory_bytes.unwrap_or(0) as i64;
        }
    }
}

impl Model<'_> {
    fn free(&self) -> Free {
        let limits = &self.batch.config.limits;
        let mut free = Free {
            cpus: i64::from(self.capacity),
            memory: self.memory.map(|bytes| bytes as i64),
            named: limits.named.iter().map(|kind| i64::from(kind.capacity)).collect(),
            nothing_runs: self.holders().next().is_none(),
        };
        for (job, _) in self.holders() {
            free.cpus -= i64::from(job.needs.cpus.get());
            free.take_more(&job.needs);
        }
        free
    }

    /// Returns the first ready job that fits beside what runs and what is kept for earlier ones, if it has a permit.
    pub(super) fn next_to_start(&self) -> Option<JobNumber> {
        let first = self.first_that_fits()?;
        let is_permitted = self.permits.is_none_or(|permits| self.with(first) <= permits);
        is_permitted.then_some(first)
    }

    /// Returns the permits that the first ready job that fits lacks.
    pub(super) fn wanted_permits(&self) -> Option<u32> {
        let wanted = self.with(self.first_that_fits()?);
        self.permits.filter(|permits| wanted > *permits).map(|_| wanted)
    }

    /// Returns the CPUs that are in use while that job runs too.
    fn with(&self, job: JobNumber) -> u32 {
        let held: u32 = self.holders().map(|(job, _)| job.needs.cpus.get()).sum();
        held + self.jobs[job].needs.cpus.get()
    }

    fn first_that_fits(&self) -> Option<JobNumber> {
        let mut free = self.free();
        if self.halted || !self.log_works || self.pressure != Pressure::None && !free.nothing_runs {
            return None;
        }
        let mut passed_over: Vec<&Needs> = Vec::new();
        for (number, job) in self.jobs.iter().filter(|(_, job)| self.is_ready(job)) {
            let needs = &job.needs;
            if passed_over.contains(&needs) {
                continue;
            }
            if free.fits(needs) {
                return Some(number);
            }
            passed_over.push(needs);
            if self.times_overtaken(needs) >= self.batch.patience {
                free.keep(needs);
            }
        }
        None
    }

    /// Returns the lowest slot that nobody has.
    pub(super) fn lowest_slot(&self) -> u32 {
        let is_free = |slot: &u32| self.holders().all(|(_, held)| held != *slot);
        (1..=self.batch.config.limits.slots.get()).find(is_free).expect("more jobs than slots")
    }

    fn times_overtaken(&self, needs: &Needs) -> u32 {
        self.overtaken.iter().find(|(its, _)| its == needs).map_or(0, |(_, times)| *times)
    }

    /// Counts the start of this job against the earlier ones that are ready, and checks that none of them starves.
    pub(super) fn count_overtaken(&mut self, started: JobNumber) {
        let free = self.free();
        let taken = &self.jobs[started].needs;
        let is_hindered = |job: &Job<'_>| {
            let needs = &job.needs;
            let memory = needs.memory_bytes.unwrap_or(0) as i64;
            let takes_memory = taken.memory_bytes.unwrap_or(0) > 0 && memory > 0;
            let takes = |kind| taken.named.iter().any(|it| it.kind == kind);
            let lacks = |it: &ResourceNeed| i64::from(it.count) > free.named[it.kind];
            needs.cpus.get() > 1 && i64::from(needs.cpus.get()) > free.cpus
                || takes_memory && free.memory.is_some_and(|free| memory > free)
                || needs.named.iter().any(|it| takes(it.kind) && lacks(it))
        };
        let earlier = self.jobs.before(started).filter(|(_, job)| self.is_ready(job));
        let hindered: Vec<JobNumber> =
            earlier.filter(|(_, job)| is_hindered(job)).map(|(number, _)| number).collect();
        let first = self.jobs.iter().find(|(_, job)| self.is_ready(job)).map(|(first, _)| first);
        let known = self.first.filter(|(known, _)| Some(*known) == first && *known < started);
        let before = known.map_or(0, |(_, times)| times);
        self.first = first.map(|first| (first, before + u32::from(hindered.contains(&first))));
        let starves = self.first.is_some_and(|(_, times)| times > self.batch.patience);
        assert!(!starves, "{first:?} is overtaken too often");
        let mut kinds: Vec<&Needs> = Vec::new();
        for number in &hindered {
            let needs = &self.jobs[*number].needs;
            if !kinds.contains(&needs) {
                kinds.push(needs);
            }
        }
        for needs in kinds.into_iter().cloned().collect::<Vec<_>>() {
            match self.overtaken.iter_mut().find(|(its, _)| *its == needs) {
                Some((_, times)) => *times += 1,
                None => self.overtaken.push((needs, 1)),
            }
        }
        let taken = &self.jobs[started].needs;
        self.overtaken.retain(|(needs, _)| needs != taken);
    }

    /// Checks that no resource is used twice. A single job may exceed the memory, and so may those that ran before the
    /// budget was made smaller; the same with CPUs that are gone.
    pub(super) fn check_capacity(&self) {
        let free = self.free();
        let has_shrunk = self.capacity < self.batch.config.limits.slots.get();
        assert!(free.cpus >= 0 || has_shrunk, "too many CPUs are used");
        assert!(
            free.named.iter().all(|free| *free >= 0),
            "more of a resource is used than there is"
        );
        let mut slots: Vec<u32> = self.holders().map(|(_, slot)| slot).collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0] != pair[1]), "two jobs in a slot");
    }

    /// Returns true if the decisions leave nothing to start.
    pub(super) fn check_nothing_idles(&self) {
        assert_eq!(self.next_to_start(), None, "a job that fits was not started");
        let may_start = self.log_works && !self.halted;
        let is_held = |phase: &Phase| matches!(phase, Phase::Intended { is_durable: true, .. });
        assert!(!may_start || self.in_phase(is_held).is_empty(), "a durable intent is forgotten");
    }
}
