//! A started pipeline, in the shape of a child.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::signal::Signal;

use super::PipelineOutput;
use super::start::Running;
use super::verbs::conduct;
use crate::child::{Input, Processes};
use crate::command::{Keep, Limit, OutputEnd, Rules};
use crate::drive::{Keeping, Parked, Reach, TeeTo};
use crate::error::Error;
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
    /// Before the processes: it has a handle on them.
    keeping: Option<Keeping>,
    pub(super) processes: Arc<Processes>,
    pub(super) programs: Vec<OsString>,
    pub(super) started: Instant,
    /// Input that came with the first command.
    pub(super) input: Input,
    pub(super) parked: Arc<Parked>,
    pub(super) rules: Rules,
    limit: Option<Limit>,
    pub(super) pipefail: bool,
    /// What whoever reads the streams is to pass on: us, if we do.
    tees: [Option<TeeTo>; 2],
}

impl PipelineChild {
    pub(super) fn new(
        running: Running,
        rules: Rules,
        limit: Option<Limit>,
        pipefail: bool,
    ) -> PipelineChild {
        let ([stdout, stderr], tees) = OutputEnd::split([running.stdout, running.stderr]);
        let mut child = PipelineChild {
            keeping: None,
            stdin: running.stdin,
            input: Input::begin(running.feed, &running.processes),
            parked: Arc::default(),
            stdout,
            stderr,
            processes: Arc::new(running.processes),
            programs: running.programs,
            started: running.at,
            rules,
            limit,
            pipefail,
            tees,
        };
        child.keeping = child.rules.keep(&child.processes, &child.parked);
        if child.keeping.is_some() {
            child.parked.put(Box::new(child.run(None)));
        }
        child
    }

    /// The process ids of the stages, from the first to the last.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(|exit| exit.pid()).collect()
    }

    /// Waits until all stages have ended, and reads the piped streams meanwhile. The first stage's
    /// piped stdin is closed first.
    ///
    /// The pipeline's timeouts, limits and its cancel token hold.
    ///
    /// # Errors
    /// A stage could not be read from or waited for; none is then left running.
    pub fn wait_with_output(self) -> Result<PipelineOutput, Error> {
        by_its_twin!(self.wait_with_output_async());
        let (running, rules, limit, pipefail) = self.into_running();
        conduct(running, &rules, limit, Keep::Both, pipefail)
    }

    /// What is seen through when everything is read.
    pub(super) fn into_running(self) -> (Running, Rules, Option<Limit>, bool) {
        // From here on this keeps the time.
        drop(self.keeping);
        drop(self.stdin);
        let [stdout_tee, stderr_tee] = self.tees;
        let running = Running {
            programs: self.programs,
            // Nobody else has them any more.
            processes: Arc::into_inner(self.processes).unwrap_or_default(),
            begun: self.parked.take_out(),
            stdin: None,
            feed: self.input.take_feed(),
            fed: self.input.fed(),
            stdout: self.stdout.map(|pipe| OutputEnd::new(pipe, stdout_tee)),
            stderr: self.stderr.map(|pipe| OutputEnd::new(pipe, stderr_tee)),
            at: self.started,
        };
        (running, self.rules, self.limit, self.pipefail)
    }

    /// Kills every stage, the groups they lead and the descendants that can be found. Stages that
    /// have ended are no error. The pipeline still has to be waited for, or dropped.
    ///
    /// # Errors
    /// A stage may not be signalled by us: it has become another user's. The others are killed.
    pub fn kill(&self) -> Result<(), Error> {
        let killed = Reach::default().kill(&self.processes);
        killed.map_err(|error| self.cannot("kill", error))
    }

    /// Sends every stage a signal, the last one first, and nobody else. `false`: all have ended
    /// already.
    ///
    /// # Errors
    /// A stage has become another user's; those after it have been sent the signal.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        let mut reached = false;
        for exit in self.processes.iter().rev() {
            reached |= exit.signal(signal).map_err(|error| self.cannot("signal", error))?;
        }
        Ok(reached)
    }
}
