//! Jobs of earlier runs, as a resumed batch looks them up: 32 bytes a job.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::ledger::{JobState, LoggedJob};
use crate::job::JobId;
use crate::scheduler::JobEnd;

/// A job that the log has. Two words instead of a `u128`, whose alignment would make it larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    id: [u64; 2],
    /// A hash of its number, its line and its name.
    description: u64,
    row: u32,
    /// The index of the state in [`JobState::ALL`].
    state: u8,
    /// The last input did not have it.
    is_removed: bool,
}

impl Entry {
    pub(crate) fn new(id: JobId, row: u32, state: JobState) -> Entry {
        let index = JobState::ALL.iter().position(|it| *it == state).unwrap_or(0);
        // There are fewer than 256 states.
        let state = u8::try_from(index).unwrap_or(0);
        Entry { id: halves(id), description: 0, row, state, is_removed: false }
    }

    /// Returns the entry of a job with that description in the log.
    pub(crate) fn described(self, number: u64, line: Option<u64>, name: Option<&str>) -> Entry {
        Entry { description: description(number, line, name), ..self }
    }

    /// Returns the entry of a job that the last input did not have.
    pub(crate) fn removed(self, is_removed: bool) -> Entry {
        Entry { is_removed, ..self }
    }

    fn id(&self) -> JobId {
        let [high, low] = self.id;
        JobId::from_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }

    fn state(&self) -> JobState {
        JobState::ALL.get(usize::from(self.state)).copied().unwrap_or(JobState::Started)
    }
}

/// Returns a hash of what the log says about a job beside its state. Two that differ have the same one once in 2^64
/// times.
fn description(number: u64, line: Option<u64>, name: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (number, line, name).hash(&mut hasher);
    hasher.finish()
}

fn halves(id: JobId) -> [u64; 2] {
    let all = u128::from_be_bytes(id.to_bytes());
    [(all >> 64) as u64, all as u64]
}

/// All jobs of a log, sorted by identity.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries(pub(super) Arc<Vec<Entry>>);

impl Entries {
    /// Sorts the jobs. `None`: two have the same identity, which no log has.
    pub(crate) fn new(mut entries: Vec<Entry>) -> Option<Entries> {
        entries.sort_unstable();
        let is_unique = entries.windows(2).all(|pair| match pair {
            [one, other] => one.id != other.id,
            _ => true,
        });
        is_unique.then(|| Entries(Arc::new(entries)))
    }

    fn find(&self, id: JobId) -> Option<usize> {
        self.0.binary_search_by_key(&halves(id), |entry| entry.id).ok()
    }

    pub(crate) fn row_of(&self, id: JobId) -> Option<u32> {
        self.find(id).and_then(|index| self.0.get(index)).map(|entry| entry.row)
    }

    /// Returns the state of a job at the end of the earlier runs.
    pub(crate) fn state_of(&self, id: JobId) -> Option<JobState> {
        self.find(id).and_then(|index| self.0.get(index)).map(Entry::state)
    }
}

/// The jobs of earlier runs.
///
/// [`look_up`](Past::look_up) also notes that the input still has the job, so that [`removed`](Past::removed) lists the
/// others.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(super) entries: Entries,
    /// A bit a job, in the order of the entries. Not in them: others share them, and a log may have millions.
    seen: Vec<u64>,
}

/// A job of an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PastJob {
    pub(crate) id: JobId,
    /// Its row in the table `jobs`.
    pub(crate) row: u32,
    pub(crate) state: JobState,
    /// The last input did not have it.
    pub(crate) is_removed: bool,
    description: u64,
}

impl PastJob {
    /// Returns true if the log has the number, the line and the name of this job for it.
    pub(crate) fn is_described_as(&self, job: &LoggedJob<'_>) -> bool {
        self.description == description(job.number, job.job.get_line(), job.job.get_name())
    }

    /// Returns its end, for the scheduler. `None`: it runs again.
    pub(crate) fn end(&self) -> Option<JobEnd> {
        self.state.past()
    }
}

impl Past {
    pub(crate) fn new(entries: Entries) -> Past {
        let seen = vec![0; entries.0.len().div_ceil(64)];
        Past { entries, seen }
    }

    /// Returns the number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.entries.0.len()
    }

    /// Returns the state of a job at the end of the earlier runs. `None`: it is new.
    pub(crate) fn look_up(&mut self, id: JobId) -> Option<PastJob> {
        let index = self.entries.find(id)?;
        if let Some(word) = self.seen.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
        self.entries.0.get(index).map(past_job)
    }

    /// Returns the jobs that were never looked up: after the whole input, those that it no longer has.
    pub(crate) fn removed(&self) -> impl Iterator<Item = PastJob> {
        let is_seen = |index: usize| {
            self.seen.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
        };
        let jobs = self.entries.0.iter().enumerate();
        jobs.filter(move |(index, _)| !is_seen(*index)).map(|(_, entry)| past_job(entry))
    }
}

pub(super) fn past_job(entry: &Entry) -> PastJob {
    let Entry { row, is_removed, description, .. } = *entry;
    PastJob { id: entry.id(), row, state: entry.state(), is_removed, description }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> JobId {
        JobId::from_bytes((number << 60).to_be_bytes())
    }

    #[test]
    fn an_entry_takes_32_bytes() {
        assert_eq!(size_of::<Entry>(), 32);
    }

    #[test]
    fn jobs_are_found_and_the_others_are_removed() {
        let states = JobState::ALL.into_iter().cycle();
        let entries = (1..=200).rev().zip(states);
        let entries = entries.map(|(it, state)| Entry::new(id(it), it as u32, state)).collect();
        let mut past = Past::new(Entries::new(entries).unwrap());
        assert_eq!(past.len(), 200);
        for number in (1..=200).filter(|number| number % 3 == 0) {
            let job = past.look_up(id(number)).unwrap();
            assert_eq!((job.id, job.row), (id(number), number as u32));
        }
        assert_eq!(past.look_up(id(0)), None);
        assert_eq!(past.look_up(id(201)), None);
        let removed: Vec<_> = past.removed().map(|job| u128::from(job.row)).collect();
        let expected: Vec<u128> = (1..=200).filter(|number| number % 3 != 0).collect();
        assert_eq!(removed, expected);
        let ended = [JobState::Interrupted, JobState::UNKNOWN];
        let interrupted: Vec<_> = past.interrupted().collect();
        assert!(
            interrupted.len() >= 26 && interrupted.iter().all(|job| ended.contains(&job.state))
        );
    }

    #[test]
    fn two_jobs_with_one_identity_are_refused() {
        let entry = Entry::new(id(1), 1, JobState::Started);
        assert!(Entries::new(vec![entry, Entry { row: 2, ..entry }]).is_none());
    }
}
