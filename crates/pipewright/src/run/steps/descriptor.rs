//! Steps for an event loop that this crate does not know.

use std::time::Instant;

use pipewright_os::base::wait::WaitDescriptor;

use super::{State, Steps};
use crate::error::Error;

/// The descriptor through which an event loop waits for the next step, made for the first wait.
#[derive(Debug, Default)]
pub(crate) struct StepsDescriptor(Option<WaitDescriptor>);

impl Steps {
    /// Returns the descriptor that becomes readable when the next step without a wait has something to do.
    pub(crate) fn update_descriptor(
        &mut self,
        descriptor: &mut StepsDescriptor,
    ) -> Result<i32, Error> {
        let made = match &mut descriptor.0 {
            Some(made) => made,
            none => none.insert(
                WaitDescriptor::new().map_err(|e| Error::cannot(&self.program, "wait for", e))?,
            ),
        };
        self.resume();
        let updated = match (self.state, &mut self.run) {
            (State::Running, Some(run)) => match run.before(&self.processes, &self.rules) {
                Ok(Some(mut wait)) => {
                    let updated = made.update(&wait.slots, wait.until);
                    run.take_back(&mut wait.slots);
                    updated
                }
                // The next step reports the end, or the error.
                Ok(None) | Err(_) => made.update(&[], Some(Instant::now())),
            },
            _ => made.update(&[], Some(Instant::now())),
        };
        self.suspend();
        updated.map_err(|error| Error::cannot(&self.program, "wait for", error))?;
        Ok(made.number())
    }
}
