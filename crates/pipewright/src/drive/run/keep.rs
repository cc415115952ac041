//! What is done of a run while nobody waits for it.

use std::time::Instant;

use pipewright_os::base::wait::Slot;
use pipewright_os::process::child::ChildHandle;

use super::{Run, STDERR, STDOUT};
use crate::command::Rules;
use crate::drive::NextLook;
use crate::drive::conduct::Due;

impl Run {
    /// Does what time and the token have made necessary: stops and kills. Nothing is read, and no end is noted: that
    /// is for whoever waits next, who also learns of an error.
    pub(crate) fn keep(&mut self, exits: &[ChildHandle], rules: &Rules, now: Instant) -> NextLook {
        if !self.is_stopping() {
            if have_ended(exits) {
                // In time, whenever somebody takes notice of it.
                return NextLook::default();
            }
            // Ignored here and below: whoever waits next tries again, and tells.
            let _ = self.heed(exits, rules, now);
        }
        if self.has_unread_output() {
            // The child has not been silent: nobody has listened.
            self.conduct.note_output(now);
        }
        loop {
            match self.conduct.due(now, false) {
                Due::Nothing | Due::StopReading => break,
                due => {
                    let _ = self.carry_out(due, exits, rules);
                }
            }
        }
        let token = rules.cancel.clone().filter(|_| !self.is_stopping());
        NextLook { until: self.conduct.next(false), token }
    }

    /// True once something has stopped the children.
    pub(crate) fn is_stopping(&self) -> bool {
        self.conduct.stopped().is_some()
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
fn have_ended(exits: &[ChildHandle]) -> bool {
    exits.iter().all(|exit| !matches!(exit.try_wait(), Ok(None)))
}
