//! A set of runs that one thread runs to their ends together.

use std::time::Instant;
use std::{io, panic};

use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

use super::runnable::{BegunCapture, StartingCapture};
use super::{CommandEnd, Runnable, RunningSet};
use crate::cancel::CancelToken;
use crate::error::{Error, OperationError};
use crate::output::{Capture, into_text};
use crate::run::{Resumed, Run, SLOTS, earlier};

/// The running commands.
#[derive(Debug, Default)]
pub(super) struct RunSet {
    members: Vec<RunningCommand>,
    /// The commands that slots or threads have been asked to start.
    starting: Vec<(usize, StartingCapture)>,
    /// The results of starts that failed after they had begun.
    failed: Vec<CommandEnd>,
}

/// A started command.
#[derive(Debug)]
struct RunningCommand {
    index: usize,
    run: Run,
}

/// The step of a member that waits, or the result of one that has nothing to wait for.
enum MemberStep {
    Waiting,
    Done(Result<bool, OperationError>),
}

impl RunningSet for RunSet {
    fn len(&self) -> usize {
        self.members.len() + self.starting.len() + self.failed.len()
    }

    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error> {
        let is_patient = !self.starting.iter().any(|(_, start)| start.is_aside());
        match command.begin(is_patient)? {
            BegunCapture::Running(run) => self.add(index, run),
            BegunCapture::Starting(start) => self.starting.push((index, start)),
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.starting.iter_mut().for_each(|(_, start)| start.stop());
        self.members.iter_mut().for_each(|member| member.run.stop());
    }

    fn stop_one(&mut self, index: usize) -> bool {
        if let Some((_, start)) = self.starting.iter_mut().find(|(starting, _)| *starting == index)
        {
            start.stop();
            return true;
        }
        if let Some(member) = self.members.iter_mut().find(|member| member.index == index) {
            member.run.stop();
            return true;
        }
        self.failed.iter().any(|(failed, _)| *failed == index)
    }
}

impl RunSet {
    /// Returns the number of the process of a command; `None` if it does not run.
    pub(super) fn pid(&self, index: usize) -> Option<u32> {
        let member = self.members.iter().find(|member| member.index == index);
        member.map(|member| member.run.pid())
    }

    fn add(&mut self, index: usize, run: Run) {
        self.members.push(RunningCommand { index, run: run.enforced() });
    }

    fn finish_start(&mut self, index: usize, start: StartingCapture) {
        let is_stopped = start.is_stopped();
        match start.finish() {
            Ok(run) => {
                self.add(index, run);
                if is_stopped {
                    self.stop_one(index);
                }
            }
            Err(error) => self.failed.push((index, Err(error))),
        }
    }

    /// Finishes the starts whose results have come.
    fn finish_starts(&mut self, has_come: &[bool]) {
        // From the end: the start that replaces a removed one has already been handled.
        for (at, has_come) in has_come.iter().enumerate().rev() {
            if *has_come {
                let (index, start) = self.starting.swap_remove(at);
                self.finish_start(index, start);
            }
        }
        self.expire_starts();
    }

    /// Ends the starts whose time is over, and gives up those that do not end.
    fn expire_starts(&mut self) {
        if self.starting.is_empty() {
            return;
        }
        let now = Instant::now();
        for at in (0..self.starting.len()).rev() {
            if self.starting.get_mut(at).is_some_and(|(_, start)| start.expire(now)) {
                let (index, start) = self.starting.swap_remove(at);
                self.failed.push((index, Err(start.give_up())));
            }
        }
    }

    /// Waits once for all members, but no longer than `limit`, and until the flag is raised. Returns the results of those
    /// that have ended.
    pub(super) fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        let ends = self.step_all(cancel, wake, limit);
        if ends.is_empty() {
            // One that came with results waits until they have been returned.
            self.resume_panics();
        }
        ends
    }

    /// Continues the panic of a tee's closure. The runs continue if the caller catches it.
    fn resume_panics(&mut self) {
        let panic = self.members.iter_mut().find_map(|member| member.run.take_panic());
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
    }

    fn step_all(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        // A panic that came with results, which were returned first.
        self.resume_panics();
        let mut slots = Vec::with_capacity(self.members.len() * SLOTS + self.starting.len() + 2);
        let mut steps = Vec::with_capacity(self.members.len());
        let mut until = limit;
        for member in &mut self.members {
            let Some(run) = member.run.resume() else {
                steps.push((None, MemberStep::Done(Ok(false))));
                continue;
            };
            let step = match run.state.before(run.children, run.rules) {
                Ok(Some(wait)) => {
                    slots.extend(wait.slots);
                    until = earlier(until, wait.until);
                    MemberStep::Waiting
                }
                Ok(None) => MemberStep::Done(Ok(false)),
                Err(failed) => MemberStep::Done(Err(failed)),
            };
            steps.push((Some(run), step));
        }
        let has_ends = steps.iter().any(|(_, step)| matches!(step, MemberStep::Done(_)));
        if has_ends || !self.failed.is_empty() {
            // There are results to return now, so the wait must not block.
            until = Some(Instant::now());
        }
        let starts_at = slots.len();
        for (_, start) in &self.starting {
            slots.push(Slot::Event(start.result()));
            until = earlier(until, start.until());
        }
        slots.extend(wake.map(|wake| Slot::Event(wake)));
        // Ignored: a token without a flag is checked when something else wakes this thread.
        slots.extend(cancel.and_then(|token| token.wake().ok()).map(|it| Slot::Event(it)));
        let waited = wait::any(&mut slots, until).map(drop);
        if let (Some(token), Some(Slot::EventDone)) = (cancel, slots.last()) {
            forward_signals(token, steps.iter().filter_map(|(run, _)| run.as_ref()));
        }
        let starts = slots.iter().skip(starts_at).take(self.starting.len());
        let has_come: Vec<_> = starts.map(|slot| matches!(slot, Slot::EventDone)).collect();
        let mut lent = slots.chunks_mut(SLOTS);
        for (run, step) in &mut steps {
            let (Some(run), MemberStep::Waiting) = (run, &*step) else {
                // It lent no slots.
                continue;
            };
            let slots = lent.next().unwrap_or_default();
            let waited = waited.as_ref().map_err(copy_error).copied();
            if let Err(failed) = run.state.after(slots, waited, run.children, run.rules) {
                *step = MemberStep::Done(Err(failed));
            }
        }
        drop(slots);
        let done = steps.into_iter().enumerate().filter_map(|(at, (_, step))| match step {
            MemberStep::Waiting => None,
            MemberStep::Done(stepped) => Some((at, stepped)),
        });
        let done = done.collect();
        let mut ends = self.remove_ended(done);
        self.finish_starts(&has_come);
        ends.append(&mut self.failed);
        ends
    }

    /// Removes the members that have ended, and returns their results. The others are left to the background.
    fn remove_ended(
        &mut self,
        done: Vec<(usize, Result<bool, OperationError>)>,
    ) -> Vec<CommandEnd> {
        let mut ends = Vec::new();
        // From the end: the member that replaces a removed one has not ended.
        for (at, stepped) in done.into_iter().rev() {
            let member = self.members.swap_remove(at);
            ends.push((member.index, member.end(stepped)));
        }
        self.members.iter_mut().for_each(|member| member.run.suspend());
        ends
    }
}

impl RunningCommand {
    fn end(mut self, stepped: Result<bool, OperationError>) -> Result<Capture, Error> {
        let output = self.run.end(stepped)?;
        into_text(self.run.program(), self.run.settings().decoding, output)
    }
}

impl Drop for RunSet {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.run.abandon());
    }
}

/// Forwards the token's signals to all children. Errors are ignored: a child has ended.
fn forward_signals<'a>(token: &CancelToken, runs: impl Iterator<Item = &'a Resumed<'a>> + Clone) {
    for signal in token.take_signals() {
        for child in runs.clone().flat_map(|run| run.children) {
            let _ = child.signal(signal);
        }
    }
}

/// Copies an error for another member.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}
