//! What a process handle holds: a child of ours, or a process that was opened by its number.

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
use crate::run::Process;

/// A process that has just ended is reaped by its parent within this, if by anybody: until then
/// the system does not tell its status.
pub(super) const REAP_TAKES: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) enum Inner {
    Started(Arc<Process>),
    Opened(Opened),
}

impl Inner {
    pub(super) fn pid(&self) -> u32 {
        match self {
            Inner::Started(process) => process.pid(),
            Inner::Opened(opened) => opened.member().pid(),
        }
    }

    /// How it ended, if it has.
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

    /// Waits for the end. `None`: the deadline or a cancel came first.
    pub(super) fn wait(
        &self,
        deadline: Option<Instant>,
        token: Option<&CancelToken>,
    ) -> io::Result<Option<ProcessEnd>> {
        if let (Inner::Started(process), None, None) = (self, deadline, token) {
            // Without pidfds the wait below would take a thread.
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
            if end.is_none() && self.is_given_up(&slots, done, token) {
                return Ok(None);
            }
        }
        match (self, end) {
            (Inner::Opened(opened), Some(ProcessEnd { status: None, .. })) => {
                opened.wait_for_reap(REAP_TAKES);
                self.end()
            }
            (_, end) => Ok(end),
        }
    }

    /// Sends a signal. `false`: it has ended.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match self {
            Inner::Started(process) => process.signal(signal),
            Inner::Opened(opened) => opened.signal(signal),
        }
    }

    /// What to wait for: its end, and the token.
    pub(super) fn slots<'a>(&'a self, token: Option<&'a CancelToken>) -> io::Result<[Slot<'a>; 2]> {
        let end = match self {
            Inner::Started(process) => Slot::Event(&***process),
            Inner::Opened(opened) => opened.member().to_slot(),
        };
        Ok([end, token.map(CancelToken::wake).transpose()?.map_or(Slot::Off, |it| Slot::Event(it))])
    }

    /// Whether a wait for these slots brought the deadline or a cancel. What the token has for the process is passed on.
    pub(super) fn is_given_up(
        &self,
        slots: &[Slot<'_>; 2],
        done: usize,
        token: Option<&CancelToken>,
    ) -> bool {
        let woken = matches!(slots[1], Slot::EventDone);
        let Some(token) = token.filter(|_| woken) else { return done == 0 };
        for signal in token.take_signals() {
            // Ignored: it has ended meanwhile, or is another user's.
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
