//! The executor of a batch: this machine, or nodes.

use std::io;
use std::time::Instant;

use crate::executor::{Attempt, AttemptKey, Executor, ExecutorEvent, Local, MachineMemory};
use crate::remote::Remote;

/// The executor of a batch: this machine, or [`Nodes`](crate::Nodes).
#[derive(Debug)]
#[non_exhaustive]
pub enum Engine {
    /// This machine.
    Local(Box<Local>),
    /// Other machines.
    Remote(Box<Remote>),
}

impl Engine {
    fn executor(&mut self) -> &mut dyn Executor {
        match self {
            Engine::Local(local) => &mut **local,
            Engine::Remote(remote) => &mut **remote,
        }
    }
}

impl Executor for Engine {
    fn start(&mut self, attempt: Attempt) {
        self.executor().start(attempt);
    }

    fn places_first(&self) -> bool {
        match self {
            Engine::Local(local) => local.places_first(),
            Engine::Remote(remote) => remote.places_first(),
        }
    }

    fn place(&mut self, attempt: Attempt) {
        self.executor().place(attempt);
    }

    fn begin(&mut self, key: AttemptKey) {
        self.executor().begin(key);
    }

    fn stop(&mut self, key: AttemptKey) {
        self.executor().stop(key);
    }

    fn waiting(&self) -> Vec<AttemptKey> {
        match self {
            Engine::Local(local) => local.waiting(),
            Engine::Remote(remote) => remote.waiting(),
        }
    }

    fn next_event(&mut self, until: Option<Instant>) -> io::Result<Option<ExecutorEvent>> {
        self.executor().next_event(until)
    }

    fn memory(&mut self) -> Option<MachineMemory> {
        self.executor().memory()
    }

    fn waker(&mut self) -> io::Result<Box<dyn Fn() + Send + Sync>> {
        self.executor().waker()
    }

    fn expects_events(&self) -> bool {
        match self {
            Engine::Local(local) => local.expects_events(),
            Engine::Remote(remote) => remote.expects_events(),
        }
    }
}
