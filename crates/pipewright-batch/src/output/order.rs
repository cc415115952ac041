//! The order in which jobs are printed: the outputs that wait, and the jobs whose turn is over.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use pipewright::Source;

use super::content::Content;
use super::kept::{Kept, Record};
use super::queue::Queue;
use super::spool::{Extent, Extents, Spool};

/// The outputs of jobs that have ended and are not printed yet.
#[derive(Debug)]
pub(super) struct Waiting {
    jobs: BTreeMap<u64, Stored>,
    spool: Arc<Spool>,
    kept: Option<Arc<Kept>>,
}

/// The output of a job.
#[derive(Debug)]
enum Stored {
    /// The usual kind if many jobs wait: it has no allocation of its own.
    Spooled(Source, Extent),
    Contents(Box<[(Source, Content)]>),
    /// It is beside the log.
    Kept(Box<[Record]>),
}

impl Waiting {
    pub(super) fn new(spool: &Arc<Spool>, kept: Option<Arc<Kept>>) -> Waiting {
        Waiting { jobs: BTreeMap::new(), spool: Arc::clone(spool), kept }
    }

    /// Adds the output of a job, which replaces that of an earlier attempt. With a log it goes into the files beside that.
    pub(super) fn add(&mut self, job: u64, mut contents: Vec<(Source, Content)>) {
        self.remove(job);
        if let Some(kept) = self.kept.as_ref().filter(|_| !contents.is_empty()) {
            let add = |(source, content): &(Source, Content)| {
                kept.add(job, *source, content.bytes(), |write| content.read(write))
            };
            let (added, failed): (Vec<_>, Vec<_>) =
                contents.iter().map(add).partition(|added| added.is_ok());
            let added: Box<[Record]> = added.into_iter().flatten().collect();
            if failed.is_empty() {
                self.jobs.insert(job, Stored::Kept(added));
                return;
            }
            // There is no room beside the log: it is printed from here.
            added.iter().for_each(|record| kept.handed_over(record));
        }
        let stored = match contents.len() {
            0 => return,
            1 => contents.pop().map_or_else(
                || Stored::Contents(Box::default()),
                |(source, content)| match content.into_extent() {
                    Ok(extent) => Stored::Spooled(source, extent),
                    Err(content) => Stored::Contents(Box::new([(source, content)])),
                },
            ),
            _ => Stored::Contents(contents.into()),
        };
        self.jobs.insert(job, stored);
    }

    /// Drops the output of a job.
    pub(super) fn remove(&mut self, job: u64) {
        match self.jobs.remove(&job) {
            Some(Stored::Spooled(_, extent)) => self.spool.release(extent),
            Some(Stored::Kept(records)) => {
                for record in &records {
                    self.kept.iter().for_each(|kept| kept.handed_over(record));
                }
            }
            _ => {}
        }
    }

    /// Prints the output of a job.
    pub(super) fn print(&mut self, job: u64, queue: &Queue) {
        if let Some(stored) = self.jobs.remove(&job) {
            self.push(stored, queue);
        }
    }

    /// Prints the outputs of all jobs before this one.
    pub(super) fn print_before(&mut self, job: u64, queue: &Queue) {
        while let Some(first) = self.jobs.first_entry().filter(|first| *first.key() < job) {
            let stored = first.remove();
            self.push(stored, queue);
        }
    }

    fn push(&self, stored: Stored, queue: &Queue) {
        match stored {
            Stored::Spooled(source, extent) => {
                queue.push_extents(source, Extents::from_one(extent, Arc::clone(&self.spool)));
            }
            Stored::Kept(records) => records.into_iter().for_each(|it| queue.push_kept(it)),
            Stored::Contents(contents) => {
                for (source, content) in contents {
                    queue.push(source, content);
                }
            }
        }
    }
}

/// The turns of jobs in the order of the input.
#[derive(Debug)]
pub(super) struct Turns {
    /// The first job that is not settled.
    next: u64,
    /// The later jobs that are settled: ranges, from the first one to the one after the last.
    settled: BTreeMap<u64, u64>,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { next: 1, settled: BTreeMap::new() }
    }

    /// Returns the first job that is not settled.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Settles jobs of which none or all are settled.
    pub(super) fn settle(&mut self, jobs: Range<u64>) {
        if jobs.start < self.next || jobs.is_empty() {
            return;
        }
        let Range { start: job, end } = jobs;
        let before = self.settled.range(..=job).next_back().map(|(from, to)| (*from, *to));
        let from = match before {
            Some((_, to)) if job < to => return,
            Some((from, to)) if job == to => from,
            _ => job,
        };
        let to = self.settled.remove(&end).unwrap_or(end);
        self.settled.insert(from, to);
        if let Some(to) = self.settled.remove(&self.next) {
            self.next = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_job_is_the_first_that_is_not_settled(
            jobs in proptest::collection::vec(1_u64..60, 0..200)
        ) {
            let mut turns = Turns::new();
            let mut settled = BTreeSet::new();
            for job in jobs {
                turns.settle(job..job + 1);
                settled.insert(job);
                let next = (1..).find(|job| !settled.contains(job)).unwrap();
                prop_assert_eq!(turns.next(), next);
                let gaps = settled.range(next..).filter(|job| !settled.contains(&(**job - 1)));
                prop_assert_eq!(turns.settled.len(), gaps.count());
            }
        }

        #[test]
        fn jobs_that_do_not_exist_are_skipped(
            jobs in proptest::collection::btree_map(1_u64..60, proptest::bool::ANY, 1..30)
        ) {
            let mut turns = Turns::new();
            let mut last = 0;
            for (job, is_settled) in &jobs {
                turns.settle(last + 1..*job);
                if *is_settled {
                    turns.settle(*job..*job + 1);
                }
                last = *job;
            }
            let open = jobs.iter().find(|(_, is_settled)| !**is_settled).map(|(job, _)| *job);
            prop_assert_eq!(turns.next(), open.unwrap_or(last + 1));
        }
    }
}
