//! The result of a run, when there is nothing left to wait for.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::limits::{OutOfMemory, Victim};
use pipewright_os::process::status::Ended;

use super::RunState;
use crate::error::OperationError;
use crate::outcome::{Exceeded, Outcome};
use crate::output::Output;
use crate::run::HeldTerminal;
use crate::run::sink::{Collected, Sink};

/// Returns the containment of the children. Stages that have joined the group of the first have none of their own.
fn containment(children: &[ChildHandle]) -> Containment {
    let mut all = children.iter().rev().map(ChildHandle::containment);
    all.find(|found| *found != Containment::None).unwrap_or(Containment::None)
}

impl RunState {
    /// Holds the sides of the child's terminal until the child has ended, or the run.
    pub(crate) fn hold(&mut self, terminal: HeldTerminal) {
        self.info.terminal = terminal;
    }

    /// Returns the result. With several children, it has the status of the last one. Ends held trees: the run is over.
    pub(crate) fn finish(self, children: &[ChildHandle]) -> Result<Output, OperationError> {
        self.conclude(children, true)
    }

    /// Ends a wait for children whose owner keeps them. A held tree lasts until the owner drops it.
    pub(crate) fn finish_wait(self, children: &[ChildHandle]) -> Result<(), OperationError> {
        self.conclude(children, false).map(drop)
    }

    fn conclude(
        mut self,
        children: &[ChildHandle],
        ends_trees: bool,
    ) -> Result<Output, OperationError> {
        let elapsed = self.info.started.elapsed();
        self.stop_feeding()?;
        let child = children.last().ok_or_else(|| ("wait for", io::ErrorKind::NotFound.into()))?;
        let ended = match self.ended {
            Some(ended) => ended,
            None => child.wait().map_err(|e| ("wait for", e))?,
        };
        // The run no longer waits for the rest of the tree, and kills it. Then the tree's figures are final.
        let trees = || children.iter().filter_map(ChildHandle::tree);
        let leftovers_killed = trees().filter(|_| ends_trees).map(|tree| tree.end()).sum();
        let resources = child.tree().and_then(|tree| tree.resources());
        let out_of_memory = resources.as_ref().and_then(|it| it.out_of_memory).or_else(|| {
            trees().filter_map(|tree| tree.resources()).find_map(|it| it.out_of_memory)
        });
        let out_of_memory =
            out_of_memory.map(|oom| with_victim(oom, child.pid(), ended, &self.info.program));
        let unstopped = match (out_of_memory, ended.status.signal()) {
            _ if self.limit_exceeded => Outcome::LimitExceeded,
            (Some(oom), _) => Outcome::OutOfMemory(oom),
            (None, Some(_)) => Outcome::Signaled,
            (None, None) => Outcome::Exited,
        };
        let outcome = self.policy.stopped().unwrap_or(unstopped);
        let exceeded = self.exceeded(outcome);
        let [out, err] = self.streams.map(|stream| stream.sink.map(Sink::finish));
        let total_bytes = |finished: &Option<Collected>| finished.as_ref().map(|it| it.total_bytes);
        let tee_failed = [&out, &err].into_iter().flatten().find_map(|it| it.tee_failed);
        let (stdout_bytes, stderr_bytes) = (total_bytes(&out), total_bytes(&err));
        let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        let output = Output {
            status: ended.status,
            stdout: out.kept,
            stderr: err.kept,
            outcome,
            exceeded,
            program: self.info.program,
            pid: child.pid(),
            elapsed,
            out_of_memory,
            usage: ended.usage.map(|usage| child.refine_peak_memory(usage)),
            tree_usage: resources.as_ref().map(|resources| Box::new(resources.usage)),
            limits: resources.map(|resources| Box::new(resources.held)),
            held_open: self.held_open,
            truncated: out.truncated || err.truncated,
            tee_failed,
            stdin_unread: self.stdin_unread,
            containment: containment(children),
            leftovers_killed,
            stdout_bytes,
            stderr_bytes,
            stderr_merged: self.info.stderr_merged,
        };
        self.info.trace.run_ended(children, &output);
        Ok(output)
    }

    /// Returns the limit that this outcome is about.
    fn exceeded(&self, outcome: Outcome) -> Option<Exceeded> {
        match outcome {
            Outcome::TimedOut => {
                let deadline = self.policy.deadline()?;
                Some(Exceeded::Time(deadline.saturating_duration_since(self.info.started)))
            }
            Outcome::IdleTimedOut => self.policy.idle_timeout().map(Exceeded::Silence),
            Outcome::LimitExceeded => {
                let sinks = self.streams.iter().filter_map(|stream| stream.sink.as_ref());
                sinks.filter_map(Sink::fail_limit_bytes).next().map(Exceeded::Bytes)
            }
            _ => None,
        }
    }
}

/// Adds the victim, if the tree never had another process than the killed child.
fn with_victim(oom: OutOfMemory, pid: u32, ended: Ended, program: &OsStr) -> OutOfMemory {
    let was_child = ended.status.was_killed() && oom.peak_pids == Some(1);
    if oom.victim.is_some() || !was_child {
        return oom;
    }
    let name = Path::new(program).file_name().unwrap_or(program);
    let mut oom = oom;
    oom.victim = Some(Victim::new(pid, &name.to_string_lossy()));
    oom
}
