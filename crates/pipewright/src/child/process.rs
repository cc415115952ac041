//! A child that is never left to become a zombie, and its tree, which is never left at all.

use std::io;
use std::mem;
use std::ops::Deref;
use std::slice;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::Ended;

use super::reaper;
use crate::drive::{Exits, Reach};
use crate::trace::Trace;

/// How long a drop waits for the child that it has killed.
const KILL_TAKES: Duration = Duration::from_millis(100);

/// Owns the handle on a child's end; on drop, a tree that is held ends, and a child that still runs
/// goes to the reaper, or is killed first.
#[derive(Debug, Default)]
pub(crate) struct Process {
    exit: ChildHandle,
    /// What a drop does to it first: [`kill`], by a pointer, so that programs which never ask for it
    /// do not contain it.
    doom: Option<fn(&ChildHandle)>,
    trace: Trace,
}

/// Kills the child and whom a kill of it reaches, and waits for it for a moment.
pub(crate) fn kill(exit: &ChildHandle) {
    // Ignored, as documented: it has become another user's. The wait is a courtesy.
    if Reach::default().kill(slice::from_ref(exit)).is_ok() {
        let until = Instant::now().checked_add(KILL_TAKES);
        let _ = wait::any(&mut [Slot::Event(exit)], until);
    }
}

impl Process {
    pub(crate) fn new(exit: ChildHandle, doom: Option<fn(&ChildHandle)>, trace: Trace) -> Process {
        Process { exit, doom, trace }
    }

    /// The span of the process.
    pub(crate) fn trace(&self) -> Trace {
        self.trace.clone()
    }

    /// The one child of a run.
    pub(crate) fn alone(&self) -> &[ChildHandle] {
        slice::from_ref(&self.exit)
    }

    /// Waits for the end, where nobody else has this process.
    pub(crate) fn wait_alone(&mut self) -> io::Result<Ended> {
        let ended = self.exit.wait_exclusive()?;
        self.trace.ended(ended.status);
        Ok(ended)
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) -> io::Result<Ended> {
        let ended = self.exit.wait()?;
        self.trace.ended(ended.status);
        Ok(ended)
    }

    /// Returns the end, or `None` while the process runs.
    pub(crate) fn try_wait(&self) -> io::Result<Option<Ended>> {
        let ended = self.exit.try_wait()?;
        if let Some(ended) = &ended {
            self.trace.ended(ended.status);
        }
        Ok(ended)
    }

    fn runs(&self) -> bool {
        matches!(self.exit.try_wait(), Ok(None))
    }
}

impl Deref for Process {
    type Target = ChildHandle;

    fn deref(&self) -> &ChildHandle {
        &self.exit
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(tree) = self.exit.tree() {
            // What holds the tree goes with this, and nobody in it is to outlive that.
            self.trace.leftovers_killed(tree.end());
            // Whoever has killed what held the tree has not freed the child. Ignored: it has ended.
            let _ = self.exit.signal(Signal::KILL);
        }
        if let Some(guard) = self.exit.release_tree() {
            reap_in_time(guard);
        }
        let runs = self.runs();
        self.trace.dropped(&self.exit);
        if !runs {
            return;
        }
        if let Some(kill) = self.doom {
            kill(&self.exit);
        }
        reap_in_time(mem::take(&mut self.exit));
    }
}

fn reap_in_time(exit: ChildHandle) {
    if let Ok(None) = exit.try_wait() {
        reaper::adopt(exit);
    }
}

/// Owns the handles on the ends of several children, as [`Process`] does on one.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    exits: Vec<ChildHandle>,
    doom: Option<fn(&ChildHandle)>,
    /// A span for each.
    trace: Trace,
}

impl Processes {
    pub(crate) fn with_room_for(count: usize) -> Processes {
        Processes { exits: Vec::with_capacity(count), doom: None, trace: Trace::default() }
    }

    /// One child alone.
    pub(crate) fn of(process: Process) -> Processes {
        let mut processes = Processes::with_room_for(1);
        processes.push(process);
        processes
    }

    /// One more child, after the others. Where one is killed on drop, all are.
    pub(crate) fn push(&mut self, mut process: Process) {
        self.doom = self.doom.or(process.doom);
        self.trace.extend(mem::take(&mut process.trace));
        self.exits.push(mem::take(&mut process.exit));
    }

    /// The spans of the processes.
    pub(crate) fn trace(&self) -> Trace {
        self.trace.clone()
    }
}

impl Deref for Processes {
    type Target = [ChildHandle];

    fn deref(&self) -> &[ChildHandle] {
        &self.exits
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Each on its own: it is asked whether it still runs, and adopted if it does.
        for exit in self.exits.drain(..) {
            drop(Process::new(exit, self.doom, self.trace.take_first()));
        }
    }
}

impl Exits for Process {
    fn exits(&self) -> &[ChildHandle] {
        self.alone()
    }
}

impl Exits for Processes {
    fn exits(&self) -> &[ChildHandle] {
        self
    }
}
