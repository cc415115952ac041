//! The names of jobs: which are known, which are only waited for, and how the named jobs ended; those that wait for one
//! job; and cycles among them.
//!
//! Until the input ends, a later job may be `after` any earlier one, so names of finished jobs stay. A million of them
//! are three large blocks (the text, the entries, the table) instead of a million small ones.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use super::Hashing;
use super::event::JobNumber;

/// The index of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameId(usize);

impl NameId {
    pub(crate) fn index(self) -> usize {
        self.0
    }

    pub(crate) fn from_index(index: usize) -> NameId {
        NameId(index)
    }
}

/// The job of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Some `after` contains the name, and no job has it so far.
    Awaited,
    Unfinished(JobNumber),
    Succeeded(JobNumber),
    /// It did not succeed.
    Failed(JobNumber),
}

/// All names of a batch.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The names, one behind the other.
    text: String,
    entries: Vec<Entry>,
    /// Open addressing with linear probing: 0 is empty, otherwise the index of the entry plus 1.
    pub(super) table: Vec<usize>,
    /// Jobs that wait for a name that no job has so far.
    awaited: BTreeMap<NameId, Waiters>,
    hashing: Hashing,
}

#[derive(Debug)]
struct Entry {
    /// The start of the name in the text. It ends where the next one starts.
    start: usize,
    holder: Holder,
}

impl Names {
    /// Gives a name to a job, and returns the jobs that wait for it already.
    ///
    /// # Errors
    /// Returns the other job that has the name.
    pub(crate) fn define(
        &mut self,
        name: &str,
        job: JobNumber,
    ) -> Result<(NameId, Waiters), JobNumber> {
        let id = self.intern(name);
        let holder = &mut self.entries[id.0].holder;
        match *holder {
            Holder::Unfinished(first) | Holder::Succeeded(first) | Holder::Failed(first) => {
                Err(first)
            }
            Holder::Awaited => {
                *holder = Holder::Unfinished(job);
                Ok((id, self.awaited.remove(&id).unwrap_or_default()))
            }
        }
    }

    /// Returns the number of names.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the job that has the name, if it did not succeed.
    pub(crate) fn failed(&self, name: &str) -> Option<JobNumber> {
        let id = self.find(name).ok()?;
        match self.entries[id.0].holder {
            Holder::Failed(job) => Some(job),
            _ => None,
        }
    }

    /// Returns the state of a name that a job waits for, and remembers it if it is new.
    pub(crate) fn look_up(&mut self, name: &str) -> (NameId, Holder) {
        let id = self.intern(name);
        (id, self.entries[id.0].holder)
    }

    /// Returns the jobs that wait for a name that no job has so far.
    pub(crate) fn awaited(&mut self, id: NameId) -> &mut Waiters {
        self.awaited.entry(id).or_default()
    }

    /// Returns the names that no job has, and the jobs that wait for each.
    pub(crate) fn all_awaited(&self) -> impl Iterator<Item = (&str, &Waiters)> {
        self.awaited.iter().map(|(id, waiters)| (self.text(*id), waiters))
    }

    pub(crate) fn set(&mut self, id: NameId, holder: Holder) {
        self.entries[id.0].holder = holder;
    }

    pub(crate) fn text(&self, id: NameId) -> &str {
        let end = self.entries.get(id.0 + 1).map_or(self.text.len(), |next| next.start);
        &self.text[self.entries[id.0].start..end]
    }

    fn intern(&mut self, name: &str) -> NameId {
        // At most three quarters are used, so that a search ends soon, and always.
        if (self.entries.len() + 1) * 4 > self.table.len() * 3 {
            self.grow();
        }
        self.find(name).unwrap_or_else(|free| {
            let id = NameId(self.entries.len());
            self.entries.push(Entry { start: self.text.len(), holder: Holder::Awaited });
            self.text.push_str(name);
            self.table[free] = id.0 + 1;
            id
        })
    }

    /// Returns the name, or the place in the table where it would be.
    fn find(&self, name: &str) -> Result<NameId, usize> {
        let mask = self.table.len().wrapping_sub(1);
        let mut place = self.hashing.hash_one(name) as usize & mask;
        loop {
            match self.table.get(place) {
                None | Some(0) => return Err(place),
                Some(used) if self.text(NameId(used - 1)) == name => return Ok(NameId(used - 1)),
                Some(_) => place = (place + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        // The old table is freed first: both at once would be the highest use of memory.
        let size = (self.table.len() * 2).max(16);
        self.table = Vec::new();
        self.table = vec![0; size];
        for index in 0..self.entries.len() {
            let mut place = self.hashing.hash_one(self.text(NameId(index))) as usize & (size - 1);
            while self.table[place] != 0 {
                place = (place + 1) & (size - 1);
            }
            self.table[place] = index + 1;
        }
    }
}

// The jobs that wait for one job, without a pile of those that wait no more.

/// Jobs that wait for the same job.
///
/// A job that is skipped because of another job stays in the list. A long-running job could so collect entries without
/// end: a full list is cleaned before it grows, which costs O(1) amortized a job.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<JobNumber>);

impl Waiters {
    /// Adds a job. `waits` returns false for jobs that are settled.
    pub(super) fn push(&mut self, job: JobNumber, waits: impl Fn(JobNumber) -> bool) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|job| waits(*job));
            // Without this, a list whose entries are nearly all alive would be cleaned again at once.
            self.0.reserve(self.0.len().max(1));
        }
        self.0.push(job);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = JobNumber> + '_ {
        self.0.iter().copied()
    }
}

// Cycles in a graph of jobs, found without recursion.

/// Returns cycles such that every job that can never start is in one of them, or waits for one.
///
/// An edge is a job and one that it waits for, both below `jobs`. In a cycle each job waits for the next, and the last
/// one for the first; the first one has the lowest number. No two cycles share a job. Takes O(jobs + edges).
pub(crate) fn cycles(jobs: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let unmet = unmet_at_the_end(jobs, edges);
    // Each job that is left waits for another one that is left. One such edge a job leads from any of them into a
    // cycle.
    let mut next: Vec<Option<usize>> = vec![None; jobs];
    for &(job, awaited) in edges {
        // A job that waits for one that is left is left, too.
        if unmet[awaited] > 0 {
            next[job].get_or_insert(awaited);
        }
    }
    let mut walked_from: Vec<Option<usize>> = vec![None; jobs];
    let mut found = Vec::new();
    for start in 0..jobs {
        let mut at = start;
        while let (None, Some(following)) = (walked_from[at], next[at]) {
            walked_from[at] = Some(start);
            at = following;
        }
        // A walk that meets an older walk leads into a cycle that is known.
        if walked_from[at] == Some(start) {
            found.push(cycle_through(at, &next));
        }
    }
    found
}

/// Lets all jobs end that can, and returns the number of jobs that each one still waits for.
fn unmet_at_the_end(jobs: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut unmet = vec![0; jobs];
    // The dependents of a job are `dependents[ends[job - 1]..ends[job]]`.
    let mut ends = vec![0; jobs];
    for &(job, awaited) in edges {
        unmet[job] += 1;
        ends[awaited] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        let count = *end;
        *end = total;
        total += count;
    }
    let mut dependents = vec![0; edges.len()];
    for &(job, awaited) in edges {
        dependents[ends[awaited]] = job;
        ends[awaited] += 1;
    }
    let mut can_end: Vec<usize> = (0..jobs).filter(|job| unmet[*job] == 0).collect();
    while let Some(job) = can_end.pop() {
        let start = job.checked_sub(1).map_or(0, |before| ends[before]);
        for &dependent in &dependents[start..ends[job]] {
            unmet[dependent] -= 1;
            if unmet[dependent] == 0 {
                can_end.push(dependent);
            }
        }
    }
    unmet
}

fn cycle_through(job: usize, next: &[Option<usize>]) -> Vec<usize> {
    let mut cycle = vec![job];
    let mut at = next[job];
    while let Some(member) = at.filter(|member| *member != job) {
        cycle.push(member);
        at = next[member];
    }
    let lowest = cycle.iter().enumerate().min_by_key(|(_, job)| **job);
    let first = lowest.map_or(0, |(place, _)| place);
    cycle.rotate_left(first);
    cycle
}
