//! A handle to the processes of a run, for other threads.

use std::io;
use std::sync::Arc;

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::usage::Usage;

use super::Steps;
use crate::error::Error;
use crate::run::process::Processes;
use crate::run::stop_targets::StopTargets;

/// A handle to the processes of a run that is driven step by step. Other threads can signal and kill them while the run
/// is waited for.
///
/// # Drop
/// Does nothing. But a tree that is held ends only when the run and all handles to it are dropped.
#[derive(Debug, Clone)]
pub struct RunHandle(Arc<Processes>);

/// The end of one process of a run: of a command, or of a stage of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildEnd {
    /// The process id that it had.
    pub pid: u32,
    /// The exit status.
    pub status: ExitStatus,
    /// CPU time and memory; `None` if other code in this program reaped it.
    pub usage: Option<Usage>,
}

impl RunHandle {
    /// Waits for the ends of the processes, and returns them. Those of a pipeline's stages are in their order.
    ///
    /// # Errors
    /// A status is lost ([`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost)).
    pub fn ends(&self) -> Result<Vec<ChildEnd>, Error> {
        let end = |child: &ChildHandle| {
            let ended = child.wait()?;
            let usage = ended.usage.map(|usage| child.refine_peak_memory(usage));
            Ok(ChildEnd { pid: child.pid(), status: ended.status, usage })
        };
        let ends: io::Result<Vec<ChildEnd>> = self.0.iter().map(end).collect();
        ends.map_err(|error| Error::cannot(self.name().as_ref(), "wait for", error))
    }

    /// Kills the processes and the descendants that can be found, or the whole tree if it is contained. Does not wait for
    /// their end.
    ///
    /// # Errors
    /// A process has changed its user, so this process may not signal it.
    pub fn kill(&self) -> Result<(), Error> {
        let killed = StopTargets::default().kill(&self.0);
        killed.map_err(|error| Error::cannot(self.name().as_ref(), "kill", error))
    }

    /// Sends a signal to the processes themselves, not to their descendants. Returns `false` if all have ended.
    ///
    /// # Errors
    /// A process has changed its user, so this process may not signal it.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        let mut sent = false;
        for child in self.0.iter() {
            let result = child.signal(signal);
            sent |= result.map_err(|e| Error::cannot(self.name().as_ref(), "signal", e))?;
        }
        Ok(sent)
    }

    /// Returns the process ids; those of a pipeline's stages are in their order.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(ChildHandle::pid).collect()
    }

    /// Returns the mechanism that contains the first process.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.first().map_or(Containment::None, ChildHandle::containment)
    }

    fn name(&self) -> String {
        self.0.first().map_or(0, ChildHandle::pid).to_string()
    }
}

impl Steps {
    /// Returns a handle to the processes.
    pub(crate) fn handle(&self) -> RunHandle {
        RunHandle(Arc::clone(&self.processes))
    }
}
