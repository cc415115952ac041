//! A started pipeline, in the shape of a child.

use std::ffi::OsString;

use pipewright_os::base::signal::Signal;

use super::end::result_of;
use super::start::StartedStages;
use super::{PipelineOutput, joined};
use crate::error::Error;
use crate::run::{ActiveRun, Collect, Options, Processes, SpawnedRun};
use crate::{ChildStderr, ChildStdin, ChildStdout};

/// A pipeline that runs, or has run.
///
/// `wait`, `try_wait`, `kill` and `signal` take `&self`: one thread can wait while another kills.
///
/// # Drop
/// As that of a [`Child`](crate::Child), for each stage: it goes on running, and is reaped in the
/// background when it ends; unless its tree is held, or one of them is killed on drop: then all are.
#[derive(Debug)]
pub struct PipelineChild {
    /// Our end of the first stage's stdin, where that is piped. Dropping it ends the input.
    pub stdin: Option<ChildStdin>,
    /// Our end of the last stage's stdout, where that is piped.
    pub stdout: Option<ChildStdout>,
    /// Our end of the pipe that every stage whose stderr is piped writes to.
    pub stderr: Option<ChildStderr>,
    pub(super) run: SpawnedRun<Processes>,
    programs: Vec<OsString>,
    pub(super) pipefail: bool,
}

impl PipelineChild {
    pub(super) fn new(started: StartedStages, options: &Options, pipefail: bool) -> PipelineChild {
        let StartedStages { programs, processes, ends, at } = started;
        let (run, (stdin, [stdout, stderr])) =
            SpawnedRun::new(processes, ends, joined(&programs), at, None, options);
        PipelineChild { stdin, stdout, stderr, run, programs, pipefail }
    }

    /// The process ids of the stages, from the first to the last.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.run.processes().iter().map(|child| child.pid()).collect()
    }

    /// Waits until all stages have ended, and reads the piped streams meanwhile. The first stage's
    /// piped stdin is closed first.
    ///
    /// The pipeline's timeouts, limits and its cancel token hold.
    ///
    /// # Errors
    /// A stage could not be read from or waited for; none is then left running.
    pub fn wait_with_output(self) -> Result<PipelineOutput, Error> {
        run_async_for_test!(self.wait_with_output_async());
        let (run, programs, pipefail) = self.into_run();
        run.finish_with(|children, whole| result_of(programs, children, whole, pipefail))
    }

    /// Returns the run that reads everything.
    pub(super) fn into_run(self) -> (ActiveRun, Vec<OsString>, bool) {
        let PipelineChild { stdin, stdout, stderr, run, programs, pipefail } = self;
        (run.into_run((stdin, [stdout, stderr]), Collect::All), programs, pipefail)
    }

    /// Kills every stage, the groups they lead and the descendants that can be found. Stages that
    /// have ended are no error. The pipeline still has to be waited for, or dropped.
    ///
    /// # Errors
    /// A stage may not be signalled by us: it has become another user's. The others are killed.
    pub fn kill(&self) -> Result<(), Error> {
        self.run.kill()
    }

    /// Sends every stage a signal, the last one first, and nobody else. `false`: all have ended
    /// already.
    ///
    /// # Errors
    /// A stage has become another user's; those after it have been sent the signal.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        let mut reached = false;
        for child in self.run.processes().iter().rev() {
            reached |= child.signal(signal).map_err(|error| self.run.cannot("signal", error))?;
        }
        Ok(reached)
    }
}
