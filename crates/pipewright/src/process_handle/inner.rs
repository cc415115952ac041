//! The process behind a handle: a child, or a process opened by pid.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::open::{Opened, ProcessState};
use pipewright_os::process::status::ExitStatus;

use super::ProcessEnd;
use crate::cancel::CancelToken;

use crate::outcome::Outcome;
use crate::run::OwnedProcess;

/// A parent that reaps its children should reap an ended process within this time. Until then the system does not
/// report the status.
pub(super) const REAP_WAIT: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) enum Inner {
    Started(Arc<OwnedProcess>),
    Opened(Opened),
}

impl Inner {
    pub(super) fn pid(&self) -> u32 {
        match self {
            Inner::Started(process) => process.pid(),
            Inner::Opened(opened) => opened.member().pid(),
        }
    }

    /// Returns the end, if the process has ended.
    pub(super) fn end(&self) -> io::Result<Option<ProcessEnd>> {
        Ok(match self {
            Inner::Started(process) => process.try_wait()?.map(|ended| end_of(Some(ended.status))),
            Inner::Opened(opened) => match opened.state()? {
                ProcessState::Running => None,
                ProcessState::Ended(ended) => Some(end_of(Some(ended.status))),
                ProcessState::StatusUnknown => Some(end_of(None)),
            },
        })
    }

    /// Waits for the end. Returns `None` if the deadline or a cancel came first.
    pub(super) fn wait(
        &self,
        deadline: Option<Instant>,
        token: Option<&CancelToken>,
    ) -> io::Result<Option<ProcessEnd>> {
        if let (Inner::Started(process), None, None) = (self, deadline, token) {
            // Without pidfds, the wait below would need a thread.
            return Ok(Some(end_of(Some(process.wait()?.status))));
        }
        let mut end = self.end()?;
        if end.is_some() {
            return Ok(end);
        }
        while end.is_none() {
            let mut slots = self.slots(token)?;
            let done = wait::any(&mut slots, deadline)?;
            end = self.end()?;
            if end.is_none() && self.timed_out_or_cancelled(&slots, done, token) {
                return Ok(None);
            }
        }
        match (self, end) {
            (Inner::Opened(opened), Some(ProcessEnd { status: None, .. })) => {
                opened.wait_for_reap(REAP_WAIT);
                self.end()
            }
            (_, end) => Ok(end),
        }
    }

    /// Sends a signal. Returns `false` if the process has ended.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match self {
            Inner::Started(process) => process.signal(signal),
            Inner::Opened(opened) => opened.signal(signal),
        }
    }

    /// Returns the slots to wait for: the end of the process, and the token.
    pub(super) fn slots<'a>(&'a self, token: Option<&'a CancelToken>) -> io::Result<[Slot<'a>; 2]> {
        let end = match self {
            Inner::Started(process) => Slot::Event(&***process),
            Inner::Opened(opened) => opened.member().to_slot(),
        };
        Ok([end, token.map(CancelToken::wake).transpose()?.map_or(Slot::Off, |it| Slot::Event(it))])
    }

    /// Returns true if a wait for these slots ended by the deadline or a cancel. Forwards the token's pending
    /// signals to the process.
    pub(super) fn timed_out_or_cancelled(
        &self,
        slots: &[Slot<'_>; 2],
        done: usize,
        token: Option<&CancelToken>,
    ) -> bool {
        let woken = matches!(slots[1], Slot::EventDone);
        let Some(token) = token.filter(|_| woken) else { return done == 0 };
        for signal in token.take_signals() {
            // Ignored: the process has ended meanwhile, or belongs to another user.
            let _ = self.signal(signal);
        }
        token.is_cancelled()
    }
}

fn end_of(status: Option<ExitStatus>) -> ProcessEnd {
    let outcome = |status: ExitStatus| match status.signal() {
        Some(_) => Outcome::Signaled,
        None => Outcome::Exited,
    };
    ProcessEnd { status, outcome: status.map(outcome) }
}
