//! The writer's decisions: which changes are committed next, what is reported, and when a failed commit is repeated.

use std::time::Duration;

use super::Report;
use super::changes::Changes;
use super::error::LogError;
use super::outputs::{LostOutput, Outputs};
use super::sqlite::Store;

/// The first wait after a failed commit. Each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A state machine around a store. It has no thread and no clock.
#[derive(Debug)]
pub(crate) struct Committer<S> {
    store: S,
    /// A group whose commit has failed. It is repeated unchanged: parts of it may be durable, so that later changes must not
    /// be merged into it.
    attempted: Option<Changes>,
    /// Later changes.
    waiting: Changes,
    outputs: Outputs,
    /// Outputs that are lost, until their group is durable.
    lost: Vec<LostOutput>,
    failing: bool,
    wait: Duration,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing is left to write.
    Idle,
    /// A group is durable.
    Committed(Vec<Report>),
    /// A commit failed, and is to be repeated after that time.
    Failed { reports: Vec<Report>, wait: Duration },
}

impl<S: Store> Committer<S> {
    pub(crate) fn new(store: S) -> Committer<S> {
        Committer {
            store,
            attempted: None,
            waiting: Changes::default(),
            outputs: Outputs::default(),
            lost: Vec::new(),
            failing: false,
            wait: FIRST_WAIT,
        }
    }

    /// Takes changes that follow all earlier ones.
    pub(crate) fn add(&mut self, changes: Changes) {
        self.waiting.append(changes);
    }

    /// Commits the next group.
    pub(crate) fn step(&mut self) -> Step {
        let mut group = self.next_group();
        if group.is_empty() {
            return Step::Idle;
        }
        match self.store.commit(&group) {
            Ok(()) => Step::Committed(self.committed(&mut group)),
            Err(error) => {
                self.attempted = Some(group);
                self.failed(error)
            }
        }
    }

    /// Commits everything, and gives up at the second error in a row.
    pub(crate) fn finish(&mut self) -> (Vec<Report>, Result<(), LogError>) {
        let mut all = Vec::new();
        let mut has_failed = false;
        loop {
            let mut group = self.next_group();
            if group.is_empty() {
                return (all, Ok(()));
            }
            match self.store.commit(&group) {
                Ok(()) => all.extend(self.committed(&mut group)),
                Err(error) => {
                    self.attempted = Some(group);
                    if has_failed {
                        return (all, Err(error));
                    }
                    has_failed = true;
                }
            }
        }
    }

    /// Returns the group that failed, or the next one, with its outputs on disk.
    fn next_group(&mut self) -> Changes {
        self.attempted.take().unwrap_or_else(|| {
            let mut group = std::mem::take(&mut self.waiting);
            // Once: a group that may be durable must not change any more.
            self.lost.extend(self.outputs.sync(&mut group));
            group
        })
    }

    /// Returns true if something is not durable.
    pub(crate) fn owes(&self) -> bool {
        self.attempted.is_some() || !self.waiting.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    #[cfg(test)]
    pub(crate) fn into_store(self) -> S {
        self.store
    }

    fn committed(&mut self, group: &mut Changes) -> Vec<Report> {
        let mut reports: Vec<Report> =
            group.take_awaited().into_iter().map(Report::Durable).collect();
        reports.extend(self.lost.drain(..).map(Report::LostOutput));
        self.wait = FIRST_WAIT;
        // The log works again only when it holds what it owed.
        if self.failing && self.waiting.is_empty() {
            self.failing = false;
            reports.push(Report::Works);
        }
        reports
    }

    fn failed(&mut self, error: LogError) -> Step {
        let reports = if self.failing { Vec::new() } else { vec![Report::Failed(error)] };
        self.failing = true;
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        Step::Failed { reports, wait }
    }
}
