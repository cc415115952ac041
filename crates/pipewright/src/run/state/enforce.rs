//! The part of a run that is done in the background, while nobody waits for it.

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
    /// Does what time and the token have made necessary: stops and kills. Nothing is read, and no end is noted: that
    /// is for whoever waits next, who also learns of an error.
    pub(crate) fn enforce(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> NextLook {
        if !self.is_stopping() {
            if have_ended(children) {
                // In time, whenever somebody takes notice of it.
                return NextLook::default();
            }
            // Ignored here and below: whoever waits next tries again, and tells.
            let _ = self.handle_cancel(children, rules, now);
        }
        if self.has_unread_output() {
            // The child has not been silent: nobody has listened.
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

    /// True once something has stopped the children.
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

/// True where all have ended, as far as can be told. Not by a wait: without pidfds that would take a thread.
fn have_ended(children: &[ChildHandle]) -> bool {
    children.iter().all(|child| !matches!(child.try_wait(), Ok(None)))
}
