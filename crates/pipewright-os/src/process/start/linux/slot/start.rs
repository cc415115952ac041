//! A start that the supervisor of a slot has been asked for.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use super::request::Handles;
use super::{Failed, LinuxSlot, SpawnError};
use crate::base::event::{EventSource, WaitEvent};
use crate::process::child::ChildHandle;
use crate::process::contain::linux::job::SlotSupervisor;
use crate::process::contain::linux::limits::KeptGroups;
use crate::process::start::layout::Layout;
use crate::process::start::slot::Requested;
use crate::process::start::{BadInput, Plan};

/// The attempts of one start.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// The number of the last request.
    pub(super) number: i64,
    /// The number of attempts that a pending stop has ended.
    pub(super) stops: usize,
    /// True if the supervisor was gone once. Another one that is gone is an error.
    pub(super) has_renewed: bool,
    /// True if the command joins the slot's groups.
    pub(super) has_limits: bool,
    /// True if the supervisor was asked to end: nothing is tried again.
    pub(super) is_ended: bool,
}

/// The facts of a start that a request has.
pub(super) struct StartRequest<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) layout: Layout,
    pub(super) handles: Handles<'a>,
}

impl<'a> StartRequest<'a> {
    pub(super) fn of(
        plan: &'a Plan<'a>,
        groups: Option<&'a dyn KeptGroups>,
    ) -> Result<StartRequest<'a>, SpawnError> {
        Ok(StartRequest { plan, layout: Layout::new(plan)?, handles: Handles::of(plan, groups)? })
    }
}

/// A start that the supervisor has been asked for.
pub(super) struct SlotStart {
    slot: Arc<LinuxSlot>,
    supervisor: Arc<SlotSupervisor>,
    /// `None` once the result has been received.
    attempt: Option<Attempt>,
}

impl SlotStart {
    pub(super) fn new(
        slot: Arc<LinuxSlot>,
        supervisor: Arc<SlotSupervisor>,
        attempt: Attempt,
    ) -> SlotStart {
        SlotStart { slot, supervisor, attempt: Some(attempt) }
    }
}

impl Requested for SlotStart {
    fn finish(mut self: Box<Self>, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
        if !self.slot.made_in.is_current() {
            return Err(SpawnError::bad(BadInput::SlotOfParent));
        }
        let attempt = self.attempt.take().unwrap_or_default();
        let mut state = self.slot.lock();
        state.is_starting = false;
        self.slot.result(&mut state, plan, Arc::clone(&self.supervisor), attempt)
    }

    fn end(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.is_ended = true;
            self.supervisor.end();
        }
    }
}

impl SlotStart {
    /// Waits a moment for the result of a start that is not wanted any more. If there is none, ends the supervisor, and waits
    /// once more. Returns false if there is still none: then the kernel cannot end the child now.
    fn has_result_soon(&self, attempt: &Attempt) -> bool {
        let supervisor = &self.supervisor;
        if attempt.is_ended {
            return supervisor.has_message_within(Duration::ZERO);
        }
        supervisor.has_message_soon() || {
            supervisor.end();
            // The first second is that of the supervisor, then its guard kills it.
            supervisor.has_message_soon() || supervisor.has_message_soon()
        }
    }
}

impl WaitEvent for SlotStart {
    fn source(&self) -> EventSource<'_> {
        EventSource::Readable(self.supervisor.reports().as_fd())
    }

    fn has_happened(&self) -> bool {
        // Its source can be polled.
        false
    }
}

impl Drop for SlotStart {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        if !self.slot.made_in.is_current() {
            return;
        }
        let mut state = self.slot.lock();
        state.is_starting = false;
        if !self.has_result_soon(&attempt) {
            state.holder = None;
            return;
        }
        match state.answer(&self.supervisor, &attempt) {
            // Its drop ends the tree.
            Ok((job, pidfd)) => drop(state.child(job, pidfd)),
            Err(Failed::Start(_) | Failed::StopPending) => {}
            Err(Failed::NotReceived | Failed::Holder(_)) => state.holder = None,
        }
    }
}
