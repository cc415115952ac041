//! A started pipeline, in the shape of a child.

use std::ffi::OsString;
use std::io;
use std::time::Instant;

use pipewright_os::signal::Signal;
use pipewright_os::status::ExitStatus;

use super::start::Running;
use super::verbs::{conduct, wait_for_all};
use super::{PipelineOutput, joined};
use crate::child::{Input, Processes};
use crate::command::{Keep, Limit, OutputEnd, Rules};
use crate::drive::{Reach, Run, TeeTo, wait_through};
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
    pub(super) processes: Processes,
    pub(super) programs: Vec<OsString>,
    started: Instant,
    /// Input that came with the first command.
    input: Input,
    pub(super) rules: Rules,
    limit: Option<Limit>,
    pipefail: bool,
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
        PipelineChild {
            stdin: running.stdin,
            input: Input::begin(running.feed, &running.processes),
            stdout,
            stderr,
            processes: running.processes,
            programs: running.programs,
            started: running.at,
            rules,
            limit,
            pipefail,
            tees,
        }
    }

    /// The process ids of the stages, from the first to the last.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(|exit| exit.pid()).collect()
    }

    /// Waits until all stages have ended. The first one's piped stdin, if it has not been taken, is
    /// closed first. The status is the one that [`Pipeline`](crate::Pipeline#status) tells of.
    ///
    /// The pipeline's timeouts and its cancel token hold. Streams that are piped are not read: use
    /// [`wait_with_output`](Self::wait_with_output) for stages that may fill them.
    ///
    /// # Errors
    /// A status is lost: see [`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost).
    pub fn wait(&self) -> Result<ExitStatus, Error> {
        by_its_twin!(self.wait_async());
        let run = self.begin_wait()?;
        if run.feeds() || self.rules.can_stop() {
            wait_through(run, &self.processes, &self.rules)
                .map_err(|(doing, error)| self.cannot(doing, error))?;
        }
        let status = self.status_of_all()?;
        self.input.stop().map_err(|(doing, error)| self.cannot(doing, error))?;
        Ok(status)
    }

    /// Closes the input that nobody has taken, and gives what a wait consists of.
    pub(super) fn begin_wait(&self) -> Result<Run, Error> {
        if let Some(stdin) = &self.stdin {
            stdin.hang_up().map_err(|error| self.cannot("close the input of", error))?;
        }
        let run = Run::new(&self.rules, self.started, self.input.take_feed(), [None, None]);
        Ok(run.fed_by(self.input.fed()))
    }

    pub(super) fn status_of_all(&self) -> Result<ExitStatus, Error> {
        wait_for_all(&self.processes, self.pipefail).map_err(|error| self.cannot("wait for", error))
    }

    /// How the pipeline ended, or `None` while a stage runs. Never blocks.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> Result<Option<ExitStatus>, Error> {
        let cannot = |error| self.cannot("wait for", error);
        for exit in self.processes.iter() {
            if exit.try_wait().map_err(cannot)?.is_none() {
                return Ok(None);
            }
        }
        wait_for_all(&self.processes, self.pipefail).map(Some).map_err(cannot)
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
        drop(self.stdin);
        let [stdout_tee, stderr_tee] = self.tees;
        let running = Running {
            programs: self.programs,
            processes: self.processes,
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

    pub(super) fn cannot(&self, doing: &'static str, error: io::Error) -> Error {
        Error::talk(&joined(&self.programs), doing, error)
    }
}
