//! The numbers of items that calls may send to the host.

use std::collections::{HashMap, VecDeque};

use crate::wire::MAX_CALLS;

/// The most calls with credit: those of the host, and as many that it has withdrawn.
const MAX_CREDITS: usize = 2 * MAX_CALLS;

/// The credit of calls whose host accepts items.
#[derive(Debug, Default)]
pub(super) struct Credits {
    counts: HashMap<u64, u32>,
    /// The calls in the order of their first credit. Includes calls that have ended since.
    order: VecDeque<u64>,
    /// The last answered calls that could send items: more credit for them may be on its way. As many as the host can
    /// have open at a time, so that none is missed.
    answered: VecDeque<u64>,
}

impl Credits {
    /// Adds credit to a call. Credit for a call that was answered would be kept forever, and so would that of a call that
    /// never comes because its caller has withdrawn it. So the oldest goes, unless its call is open.
    pub(super) fn add(&mut self, call: u64, more: u32, is_open: impl Fn(u64) -> bool) {
        if self.answered.contains(&call) {
            return;
        }
        if let Some(credit) = self.counts.get_mut(&call) {
            *credit = credit.saturating_add(more);
            return;
        }
        if self.counts.len() >= MAX_CREDITS {
            self.drop_oldest(is_open);
        }
        self.counts.insert(call, more);
        self.order.push_back(call);
    }

    fn drop_oldest(&mut self, is_open: impl Fn(u64) -> bool) {
        // At most `MAX_CALLS` are open, so another one is found.
        for _ in 0..self.order.len() {
            let Some(oldest) = self.order.pop_front() else { return };
            if is_open(oldest) {
                self.order.push_back(oldest);
            } else if self.counts.remove(&oldest).is_some() {
                return;
            }
        }
    }

    /// Returns the number of items that the call may send. `None`: the host accepts no items.
    pub(super) fn of(&mut self, call: u64) -> Option<&mut u32> {
        self.counts.get_mut(&call)
    }

    /// Records that a call was answered.
    pub(super) fn end(&mut self, call: u64) {
        if self.counts.remove(&call).is_none() {
            return;
        }
        if self.answered.len() >= MAX_CALLS {
            self.answered.pop_front();
        }
        self.answered.push_back(call);
        // Answered in their order, mostly: then it is the first.
        if self.order.front() == Some(&call) {
            self.order.pop_front();
        } else if self.order.len() > 2 * MAX_CREDITS {
            let counts = &self.counts;
            self.order.retain(|call| counts.contains_key(call));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_of_answered_and_withdrawn_calls_is_not_kept() {
        let mut credits = Credits::default();
        for call in 1..=MAX_CALLS as u64 * 3 {
            credits.add(call, 1, |_| false);
            assert_eq!(credits.of(call).copied(), Some(1));
            credits.end(call);
            credits.add(call, 1, |_| false);
            assert_eq!(credits.of(call), None);
        }
        assert!(credits.counts.is_empty() && credits.order.is_empty());
        assert_eq!(credits.answered.len(), MAX_CALLS);
        // The first thousand are open, in any order; the others never come.
        let first = 1_000_000;
        let is_open = |call: u64| call < first + 1_000;
        for call in first..first + 100_000 {
            credits.add(call, 2, is_open);
            assert!(credits.counts.len() <= MAX_CREDITS && credits.order.len() <= 3 * MAX_CREDITS);
        }
        for call in (first..first + 1_000).rev() {
            assert_eq!(credits.of(call).copied(), Some(2));
            credits.end(call);
        }
        assert!(credits.order.len() <= 3 * MAX_CREDITS);
    }
}
