//! The names of jobs: which are known, which are only waited for, and how the named jobs ended.
//!
//! Until the input ends, a later job may be `after` any earlier one, so names of finished jobs stay. A million of them
//! are three large blocks (the text, the entries, the table) instead of a million small ones.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use super::event::JobNumber;
use super::map::Hashing;
use super::waiters::Waiters;

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
