//! The part of a run that the background thread does while no caller waits.

use std::time::Instant;

use pipewright_os::base::wait::Slot;
use pipewright_os::process::child::ChildHandle;

use super::{RunState, STDERR, STDOUT};
use crate::cancel::CancelToken;
use crate::rules::Rules;
use crate::run::stop_policy::Due;

/// The next wait for a run that is enforced.
#[derive(Debug, Default)]
pub(crate) struct NextLook {
    pub(crate) until: Option<Instant>,
    pub(crate) token: Option<CancelToken>,
}

impl RunState {
    /// Stops and kills if time or the token requires it. Reads nothing and records no end: the next wait does that, and
    /// also reports errors.
    pub(crate) fn enforce(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> NextLook {
        if !self.is_stopping() {
            if have_ended(children) {
                // They have ended in time, however late a caller notices that.
                return NextLook::default();
            }
            // Ignored here and below: the next wait tries again, and reports the error.
            let _ = self.handle_cancel(children, rules, now);
        }
        if self.has_unread_output() {
            // Unread output does not count as silence.
            self.policy.note_output(now);
        }
        loop {
            match self.policy.due(now, false) {
                Due::Nothing | Due::StopReading => break,
                due => {
                    let _ = self.carry_out(due, children, rules);
                }
            }
        }
        let token = rules.cancel.clone().filter(|_| !self.is_stopping());
        NextLook { until: self.policy.next(false), token }
    }

    /// Returns true once a stop has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.policy.stopped().is_some()
    }

    fn has_unread_output(&self) -> bool {
        [STDOUT, STDERR].into_iter().any(|index| {
            let pipe = match &self.slots[index] {
                Slot::Read(pipe, _) => Some(pipe),
                _ => self.streams[index].pipe.as_ref(),
            };
            pipe.is_some_and(|pipe| pipe.available().is_ok_and(|bytes| bytes > 0))
        })
    }
}

/// Returns true if all have ended, as far as is known. Does not wait: without pidfds a wait would need a thread.
fn have_ended(children: &[ChildHandle]) -> bool {
    children.iter().all(|child| !matches!(child.try_wait(), Ok(None)))
}
