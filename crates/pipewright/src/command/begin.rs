//! Starts that do not wait for a slot's answer.

use std::time::Instant;

use pipewright_os::base::event::WaitEvent;
use pipewright_os::process::spawn::{self, Begun, RequestedStart};

use super::start::{Prepared, retry_if_busy};
use super::{Command, StdioDefaults};
use crate::error::Error;
use crate::reaper;
use crate::run::Started;
use crate::trace;

/// A start that has begun.
pub(crate) enum BegunChild {
    Started(Started),
    /// A slot has been asked for it.
    Starting(StartingChild),
}

/// A start that a slot has been asked for.
///
/// # Drop
/// Waits for the result, and kills the child.
#[derive(Debug)]
pub(crate) struct StartingChild {
    prepared: Prepared,
    at: Instant,
    start: RequestedStart,
}

impl StartingChild {
    /// Returns the event that ends the wait for the result.
    pub(crate) fn result(&self) -> &dyn WaitEvent {
        &self.start
    }
}

impl Command {
    /// Begins a start, and does not wait for a slot's answer.
    pub(crate) fn begin_child(&self, defaults: StdioDefaults) -> Result<BegunChild, Error> {
        let is_plain = !self.lifetime.detached && self.lifetime.foreground.is_none();
        if self.slot.is_none() || !is_plain {
            return self.start_child(defaults).map(BegunChild::Started);
        }
        self.try_to_begin(defaults).inspect_err(trace::not_started)
    }

    fn try_to_begin(&self, defaults: StdioDefaults) -> Result<BegunChild, Error> {
        reaper::sweep();
        self.check_pty()?;
        self.check_slot()?;
        let at = Instant::now();
        let prepared = self.prepare(defaults)?;
        let plan = self.plan(&prepared);
        let begun = match spawn::begin(&plan) {
            Ok(Begun::Requested(start)) => {
                return Ok(BegunChild::Starting(StartingChild { prepared, at, start }));
            }
            Ok(Begun::Started(child)) => Ok(child),
            Err(failed) => Err(failed),
        };
        let child = retry_if_busy(&plan, begun)?;
        Ok(BegunChild::Started(self.started(child, prepared.ends, at)))
    }

    /// Waits for the result of a start that this command has begun.
    pub(crate) fn finish_child(&self, starting: StartingChild) -> Result<Started, Error> {
        let StartingChild { prepared, at, start } = starting;
        let plan = self.plan(&prepared);
        let child = retry_if_busy(&plan, start.finish(&plan)).inspect_err(trace::not_started)?;
        Ok(self.started(child, prepared.ends, at))
    }
}
