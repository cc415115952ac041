//! The attempts that a page shows one by one: failed ones before others, and long ones before short ones.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use serde::Serialize;

/// The facts of an attempt that the page shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct KeptAttempt {
    pub(super) job: u64,
    pub(super) attempt: u32,
    /// 0: unknown.
    pub(super) slot: u32,
    /// The word of its outcome.
    pub(super) outcome: &'static str,
    /// Its end in words.
    pub(super) end: String,
    pub(super) is_success: bool,
    /// Seconds from the start of the batch.
    pub(super) start_seconds: f64,
    pub(super) elapsed_seconds: f64,
    pub(super) command: String,
}

/// The order in which attempts are kept.
#[derive(Debug)]
struct Ranked(KeptAttempt);

impl Ranked {
    fn order(&self, other: &Ranked) -> Ordering {
        let (one, other) = (&self.0, &other.0);
        // Of equal ones the first is kept.
        (other.is_success.cmp(&one.is_success))
            .then(one.elapsed_seconds.total_cmp(&other.elapsed_seconds))
            .then(other.job.cmp(&one.job))
            .then(other.attempt.cmp(&one.attempt))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        self.order(other)
    }
}

/// A bounded number of attempts.
#[derive(Debug)]
pub(super) struct Kept {
    most: usize,
    /// The one that goes next is at the top.
    heap: BinaryHeap<Reverse<Ranked>>,
    /// The number of attempts that are not kept.
    pub(super) others: u64,
}

impl Kept {
    pub(super) fn new(most: usize) -> Kept {
        Kept { most, heap: BinaryHeap::new(), others: 0 }
    }

    pub(super) fn add(&mut self, attempt: KeptAttempt) {
        self.heap.push(Reverse(Ranked(attempt)));
        if self.heap.len() > self.most {
            self.heap.pop();
            self.others += 1;
        }
    }

    /// Returns the attempts: failed ones first, and then in the order of their start.
    pub(super) fn sorted(&self) -> Vec<&KeptAttempt> {
        let mut all: Vec<_> = self.heap.iter().map(|Reverse(Ranked(attempt))| attempt).collect();
        all.sort_by(|one, other| {
            (one.is_success.cmp(&other.is_success))
                .then(one.start_seconds.total_cmp(&other.start_seconds))
                .then((one.job, one.attempt).cmp(&(other.job, other.attempt)))
        });
        all
    }
}
