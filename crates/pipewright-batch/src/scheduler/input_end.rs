//! The end of the input: names that no job has, and cycles.
//!
//! Both are found here and not when nothing runs any more: no later job can change them, the user hears of them early, and
//! the names can be forgotten.

use std::sync::Arc;

use super::Scheduler;
use super::event::{Cause, Decision, JobNumber, Refusal};
use super::graph;
use super::job::State;
use super::names::Names;

impl Scheduler {
    pub(super) fn end_input(&mut self, decisions: &mut Vec<Decision>) {
        if self.input_ended {
            return;
        }
        self.input_ended = true;
        self.tally.total = Some(self.tally.added);
        let Some(names) = self.names.take() else { return };
        // A job that waits for an unknown name and for a refused job is refused, too: all first causes come first.
        for (name, waiters) in names.all_awaited() {
            let unknown = || Cause::Refusal(Refusal::UnknownAfter { name: name.into() });
            self.settled.extend(waiters.iter().map(|job| (job, unknown().into())));
        }
        self.settle_all(decisions);
        if self.blocked > 0 {
            self.refuse_cycles(&names);
            self.settle_all(decisions);
        }
    }

    fn refuse_cycles(&mut self, names: &Names) {
        let is_blocked = |state| matches!(state, State::Blocked(_));
        let jobs = self.jobs.iter().filter(|(_, job)| is_blocked(job.state));
        let mut blocked: Vec<JobNumber> = jobs.map(|(number, _)| *number).collect();
        blocked.sort_unstable();
        let mut edges = Vec::new();
        for (awaited, number) in blocked.iter().enumerate() {
            let waiters = self.jobs.get(number).map(|job| job.waiters.iter());
            let waiting = waiters.into_iter().flatten();
            let waiting = waiting.filter_map(|waiter| blocked.binary_search(&waiter).ok());
            edges.extend(waiting.map(|waiting| (waiting, awaited)));
        }
        for cycle in graph::cycles(blocked.len(), &edges) {
            let name = |job: &usize| {
                let id = self.jobs.get(&blocked[*job]).and_then(|job| job.name);
                // A job that another one waits for has a name.
                id.map(|id| names.text(id)).unwrap_or_default().into()
            };
            let cycle_names: Arc<[Box<str>]> = cycle.iter().map(name).collect();
            let refused = cycle.iter().map(|job| {
                let names = Arc::clone(&cycle_names);
                (blocked[*job], Cause::Refusal(Refusal::Cycle { names }).into())
            });
            self.settled.extend(refused);
        }
    }
}
