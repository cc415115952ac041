//! The owner of a child, which leaves no zombie and, if the tree is held, no process of the tree.

use std::fmt;
use std::io;
use std::mem;
use std::ops::Deref;
use std::slice;
use std::time::{Duration, Instant};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::Ended;

use super::stop_targets::StopTargets;
use crate::reaper;
use crate::trace::Trace;

/// The longest time that a drop waits for the child that it has killed.
const KILL_WAIT: Duration = Duration::from_millis(100);

/// Owns the handle of a child.
///
/// # Drop
/// Ends the tree, if it is held. A child that still runs goes to the reaper, and is killed first if `kill_on_drop` is
/// set. In a fork of the process that has started it, the copy only closes its handles.
#[derive(Debug)]
pub(crate) struct OwnedProcess {
    child: ChildHandle,
    /// The process that has started it.
    made_in: Generation,
    /// Called by a drop, before the reaper. Through a pointer: see [`on_demand`](super::on_demand).
    on_drop: Option<fn(&ChildHandle)>,
    trace: Trace,
}

impl Default for OwnedProcess {
    fn default() -> OwnedProcess {
        OwnedProcess::new(ChildHandle::default(), None, Trace::default())
    }
}

impl Default for Processes {
    fn default() -> Processes {
        Processes::with_room_for(0)
    }
}

/// Kills the child and the descendants that a kill reaches, and waits briefly for the child.
pub(super) fn kill(child: &ChildHandle) {
    // Errors are ignored, as documented: the child has changed its user. The wait is best effort.
    if StopTargets::default().kill(slice::from_ref(child)).is_ok() {
        let until = Instant::now().checked_add(KILL_WAIT);
        let _ = wait::any(&mut [Slot::Event(child)], until);
    }
}

impl OwnedProcess {
    pub(crate) fn new(
        child: ChildHandle,
        on_drop: Option<fn(&ChildHandle)>,
        trace: Trace,
    ) -> OwnedProcess {
        OwnedProcess { child, made_in: Generation::current(), on_drop, trace }
    }

    /// Returns the span of the process.
    pub(crate) fn trace(&self) -> Trace {
        self.trace.clone()
    }

    /// Returns the child as a slice, for runs of several children.
    pub(crate) fn as_slice(&self) -> &[ChildHandle] {
        slice::from_ref(&self.child)
    }

    /// Waits for the end with one system call less: no other thread can use this handle.
    pub(crate) fn wait_exclusive(&mut self) -> io::Result<Ended> {
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

    fn is_running(&self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Deref for OwnedProcess {
    type Target = ChildHandle;

    fn deref(&self) -> &ChildHandle {
        &self.child
    }
}

impl Drop for OwnedProcess {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        if let Some(tree) = self.child.tree() {
            // The tree's holder goes away with this handle, and no process of the tree may outlive it.
            self.trace.leftovers_killed(tree.end());
            // If somebody killed the holder, the child may still run. Errors are ignored: it has ended.
            let _ = self.child.signal(Signal::KILL);
        }
        if let Some(guard) = self.child.release_tree() {
            reap_now_or_later(guard);
        }
        let is_running = self.is_running();
        self.trace.dropped(&self.child);
        if !is_running {
            return;
        }
        if let Some(kill) = self.on_drop {
            kill(&self.child);
        }
        reap_now_or_later(mem::take(&mut self.child));
    }
}

/// Reaps the child if it has ended, and otherwise leaves that to the reaper.
fn reap_now_or_later(child: ChildHandle) {
    if let Ok(None) = child.try_wait() {
        reaper::reap(child);
    }
}

/// Owns the handles of several children, as [`OwnedProcess`] owns one.
#[derive(Debug)]
pub(crate) struct Processes {
    children: Vec<ChildHandle>,
    /// The process that has started them.
    made_in: Generation,
    on_drop: Option<fn(&ChildHandle)>,
    /// One span per child.
    trace: Trace,
}

impl Processes {
    pub(crate) fn with_room_for(count: usize) -> Processes {
        let made_in = Generation::current();
        let children = Vec::with_capacity(count);
        Processes { children, made_in, on_drop: None, trace: Trace::default() }
    }

    /// Converts the owner of one child.
    pub(crate) fn of(process: OwnedProcess) -> Processes {
        let mut process = process;
        Processes {
            children: vec![mem::take(&mut process.child)],
            made_in: process.made_in,
            on_drop: process.on_drop,
            trace: mem::take(&mut process.trace),
        }
    }

    /// Adds a child after the others. If one child is killed on drop, all are.
    pub(crate) fn push(&mut self, mut process: OwnedProcess) {
        self.on_drop = self.on_drop.or(process.on_drop);
        self.trace.extend(mem::take(&mut process.trace));
        self.children.push(mem::take(&mut process.child));
    }

    /// Returns the spans of the processes.
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
        // Each child is reaped, or goes to the reaper if it still runs.
        for child in self.children.drain(..) {
            let (made_in, on_drop) = (self.made_in, self.on_drop);
            drop(OwnedProcess { child, made_in, on_drop, trace: self.trace.take_first() });
        }
    }
}

/// An owner of the handles of a run's children.
pub(crate) trait Children: fmt::Debug + Send + Sync {
    fn handles(&self) -> &[ChildHandle];

    /// Returns the process that has started them.
    fn made_in(&self) -> Generation;
}

impl Children for OwnedProcess {
    fn handles(&self) -> &[ChildHandle] {
        self.as_slice()
    }

    fn made_in(&self) -> Generation {
        self.made_in
    }
}

impl Children for Processes {
    fn handles(&self) -> &[ChildHandle] {
        self
    }

    fn made_in(&self) -> Generation {
        self.made_in
    }
}
