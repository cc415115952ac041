//! A child that is never left to become a zombie, and its tree, which is never left at all.

use std::fmt;
use std::io;
use std::mem;
use std::ops::Deref;
use std::slice;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::Ended;

use super::stop_targets::StopTargets;
use crate::reaper;
use crate::trace::Trace;

/// The time that a drop waits for the child that it has killed.
const KILL_TAKES: Duration = Duration::from_millis(100);

/// Owns the handle on a child's end; on drop, a tree that is held ends, and a child that still runs
/// goes to the reaper, or is killed first.
#[derive(Debug, Default)]
pub(crate) struct Process {
    child: ChildHandle,
    /// Called first by a drop. By a pointer: see [`on_demand`](super::on_demand).
    on_drop: Option<fn(&ChildHandle)>,
    trace: Trace,
}

/// Kills the child and the processes that a kill of it reaches, and waits for it for a moment.
pub(super) fn kill(child: &ChildHandle) {
    // Ignored, as documented: it has become another user's. The wait is a courtesy.
    if StopTargets::default().kill(slice::from_ref(child)).is_ok() {
        let until = Instant::now().checked_add(KILL_TAKES);
        let _ = wait::any(&mut [Slot::Event(child)], until);
    }
}

impl Process {
    pub(crate) fn new(
        child: ChildHandle,
        on_drop: Option<fn(&ChildHandle)>,
        trace: Trace,
    ) -> Process {
        Process { child, on_drop, trace }
    }

    /// The span of the process.
    pub(crate) fn trace(&self) -> Trace {
        self.trace.clone()
    }

    /// The one child of a run.
    pub(crate) fn alone(&self) -> &[ChildHandle] {
        slice::from_ref(&self.child)
    }

    /// Waits for the end, where nobody else has this process.
    pub(crate) fn wait_alone(&mut self) -> io::Result<Ended> {
        let ended = self.child.wait_exclusive()?;
        self.trace.ended(ended.status);
        Ok(ended)
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) -> io::Result<Ended> {
        let ended = self.child.wait()?;
        self.trace.ended(ended.status);
        Ok(ended)
    }

    /// Returns the end, or `None` while the process runs.
    pub(crate) fn try_wait(&self) -> io::Result<Option<Ended>> {
        let ended = self.child.try_wait()?;
        if let Some(ended) = &ended {
            self.trace.ended(ended.status);
        }
        Ok(ended)
    }

    fn runs(&self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Deref for Process {
    type Target = ChildHandle;

    fn deref(&self) -> &ChildHandle {
        &self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(tree) = self.child.tree() {
            // What holds the tree goes with this, and nobody in it is to outlive that.
            self.trace.leftovers_killed(tree.end());
            // Whoever has killed what held the tree has not freed the child. Ignored: it has ended.
            let _ = self.child.signal(Signal::KILL);
        }
        if let Some(guard) = self.child.release_tree() {
            reap_in_time(guard);
        }
        let runs = self.runs();
        self.trace.dropped(&self.child);
        if !runs {
            return;
        }
        if let Some(kill) = self.on_drop {
            kill(&self.child);
        }
        reap_in_time(mem::take(&mut self.child));
    }
}

fn reap_in_time(child: ChildHandle) {
    if let Ok(None) = child.try_wait() {
        reaper::adopt(child);
    }
}

/// Owns the handles on the ends of several children, as [`Process`] does on one.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    children: Vec<ChildHandle>,
    on_drop: Option<fn(&ChildHandle)>,
    /// A span for each.
    trace: Trace,
}

impl Processes {
    pub(crate) fn with_room_for(count: usize) -> Processes {
        Processes { children: Vec::with_capacity(count), on_drop: None, trace: Trace::default() }
    }

    /// One child alone.
    pub(crate) fn of(process: Process) -> Processes {
        let mut process = process;
        Processes {
            children: vec![mem::take(&mut process.child)],
            on_drop: process.on_drop,
            trace: mem::take(&mut process.trace),
        }
    }

    /// One more child, after the others. Where one is killed on drop, all are.
    pub(crate) fn push(&mut self, mut process: Process) {
        self.on_drop = self.on_drop.or(process.on_drop);
        self.trace.extend(mem::take(&mut process.trace));
        self.children.push(mem::take(&mut process.child));
    }

    /// The spans of the processes.
    pub(crate) fn trace(&self) -> Trace {
        self.trace.clone()
    }
}

impl Deref for Processes {
    type Target = [ChildHandle];

    fn deref(&self) -> &[ChildHandle] {
        &self.children
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Each on its own: it is asked whether it still runs, and adopted if it does.
        for child in self.children.drain(..) {
            drop(Process::new(child, self.on_drop, self.trace.take_first()));
        }
    }
}

/// The handles on the children of a run, whoever owns them.
pub(crate) trait Children: fmt::Debug + Send + Sync {
    fn handles(&self) -> &[ChildHandle];
}

impl Children for Process {
    fn handles(&self) -> &[ChildHandle] {
        self.alone()
    }
}

impl Children for Processes {
    fn handles(&self) -> &[ChildHandle] {
        self
    }
}
