//! Steps for an event loop that this crate does not know.

use std::io;
use std::time::Instant;

use pipewright_os::base::wait::{Slot, WaitDescriptor};

use super::{State, Steps};
use crate::error::Error;

/// The descriptor through which an event loop waits for the next step, made for the first wait.
#[derive(Debug, Default)]
pub(crate) struct StepsDescriptor(Option<WaitDescriptor>);

impl From<WaitDescriptor> for StepsDescriptor {
    fn from(made: WaitDescriptor) -> StepsDescriptor {
        StepsDescriptor(Some(made))
    }
}

impl Steps {
    /// Returns the descriptor that becomes readable when the next step without a wait has something to do.
    pub(crate) fn update_descriptor(
        &mut self,
        descriptor: &mut StepsDescriptor,
    ) -> Result<i32, Error> {
        self.set_descriptor(descriptor, |made, slots, until| made.update(slots, until))
            .map(|(number, ())| number)
    }

    /// Returns the descriptor without a timer, and the time at which the next step is due in any case.
    pub(crate) fn register_descriptor(
        &mut self,
        descriptor: &mut StepsDescriptor,
    ) -> Result<(i32, Option<Instant>), Error> {
        self.set_descriptor(descriptor, |made, slots, until| made.register(slots, until))
    }

    fn set_descriptor<T>(
        &mut self,
        descriptor: &mut StepsDescriptor,
        set: impl FnOnce(&mut WaitDescriptor, &[Slot<'_>], Option<Instant>) -> io::Result<T>,
    ) -> Result<(i32, T), Error> {
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
                    let updated = set(made, &wait.slots, wait.until);
                    run.take_back(&mut wait.slots);
                    updated
                }
                // The next step reports the end, or the error.
                Ok(None) | Err(_) => set(made, &[], Some(Instant::now())),
            },
            _ => set(made, &[], Some(Instant::now())),
        };
        self.suspend();
        let set = updated.map_err(|error| Error::cannot(&self.program, "wait for", error))?;
        Ok((made.number(), set))
    }
}
