//! The counts of a batch that progress shows.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::rate::Rate;
use crate::executor::AttemptKey;
use crate::vocabulary::JobOutcome;
use crate::watch::Update;
use crate::watch::text::cut;
use crate::watch::update::OutcomeCounts;

/// Bytes of a running job's command that are kept.
const MOST_TEXT_BYTES: usize = 400;

#[derive(Debug)]
pub(super) struct Counts {
    pub(super) outcomes: OutcomeCounts,
    /// Jobs that ended in an earlier run.
    resumed: u64,
    added: u64,
    total: Option<u64>,
    rate: Rate,
    running: BTreeMap<(Instant, AttemptKey), String>,
    starts: HashMap<AttemptKey, Instant>,
}

impl Counts {
    pub(super) fn new(now: Instant) -> Counts {
        Counts {
            outcomes: OutcomeCounts::default(),
            resumed: 0,
            added: 0,
            total: None,
            rate: Rate::new(now),
            running: BTreeMap::new(),
            starts: HashMap::new(),
        }
    }

    pub(super) fn update(&mut self, update: &Update<'_>, now: Instant) {
        match *update {
            Update::Resumed { jobs } => self.resumed += jobs,
            Update::Added { jobs, total } => {
                self.added = self.added.max(jobs);
                self.total = total.or(self.total);
            }
            Update::InputEnded { total } => self.total = Some(total),
            Update::Started { key, text, .. } => {
                self.starts.insert(key, now);
                self.running.insert((now, key), cut(text, MOST_TEXT_BYTES));
            }
            Update::Ended { end, .. } => {
                if let Some(start) = self.starts.remove(&end.key) {
                    self.running.remove(&(start, end.key));
                }
            }
            Update::Settled { outcome, .. } => {
                self.outcomes.add(outcome);
                self.rate.record(now, self.outcomes.all());
            }
            _ => {}
        }
    }

    /// Returns the number of jobs that are over.
    pub(super) fn done(&self) -> u64 {
        self.resumed + self.outcomes.all()
    }

    /// Returns the number of all jobs, if it is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.total.map(|total| total.max(self.done()))
    }

    /// Returns the number of all jobs so far.
    pub(super) fn known(&self) -> u64 {
        self.total().unwrap_or(self.added.max(self.done()))
    }

    pub(super) fn percent(&self) -> Option<u64> {
        let total = self.total().filter(|total| *total > 0)?;
        u64::try_from(u128::from(self.done()) * 100 / u128::from(total)).ok()
    }

    pub(super) fn per_second(&self, now: Instant) -> Option<f64> {
        self.rate.per_second(now, self.outcomes.all())
    }

    pub(super) fn left(&self, now: Instant) -> Option<std::time::Duration> {
        let waiting = self.total()?.saturating_sub(self.done());
        self.rate.left(now, self.outcomes.all(), waiting)
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the jobs that have been running longest.
    pub(super) fn longest(&self, most: usize) -> impl Iterator<Item = (Instant, AttemptKey, &str)> {
        self.running.iter().take(most).map(|((start, key), text)| (*start, *key, text.as_str()))
    }

    /// Returns the ends that people should see, with their numbers.
    pub(super) fn problems(&self) -> impl Iterator<Item = (JobOutcome, u64)> {
        let counts = JobOutcome::ALL.map(|outcome| (outcome, self.outcomes.of(outcome)));
        counts
            .into_iter()
            .filter(|(outcome, count)| *outcome != JobOutcome::Succeeded && *count > 0)
    }
}
