//! Starting the stages and connecting them.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::pipe::{Mode, PipeOptions};

use super::{Pipeline, join_names};
use crate::command::{
    Command, StageJob, StagePipes, StagePosition, StageStderr, Stdio, StdioDefault, StdioDefaults,
};
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::run::{
    Children as _, Collect, ForegroundJob, HeldTerminal, OutputEnd, ParentEnds, Processes, Run,
    RunInfo, RunSettings, Started, StopTargets, TeeTarget, on_demand,
};

/// Running stages, and the parent's ends of their pipes.
pub(super) struct StartedStages {
    pub(super) programs: Vec<OsString>,
    pub(super) processes: Processes,
    pub(super) ends: ParentEnds,
    pub(super) at: Instant,
    /// The terminal that the first stage has got.
    pub(super) foreground: Option<Arc<dyn ForegroundJob>>,
}

impl Pipeline<'_> {
    /// Starts all stages. After an error, none is running.
    pub(super) fn start(&mut self, defaults: StdioDefaults) -> Result<StartedStages, Error> {
        self.check()?;
        let (stderr, shared) = self.share_stderr(defaults.stderr)?;
        let mut started = StartedStages {
            programs: self.programs(),
            processes: Processes::with_room_for(self.stages.len(), self.pipefail),
            ends: ParentEnds { stderr: shared, ..ParentEnds::default() },
            at: Instant::now(),
            foreground: None,
        };
        // Closes the pipes of each stage as soon as the stage has them.
        match self.start_all(defaults, stderr, &mut started) {
            Ok(()) => Ok(started),
            Err(error) => {
                StopTargets::default().abandon(started.processes.handles(), None);
                Err(error)
            }
        }
    }

    fn start_all(
        &mut self,
        defaults: StdioDefaults,
        stderr: Option<Stdio>,
        started: &mut StartedStages,
    ) -> Result<(), Error> {
        let last = self.stages.len().saturating_sub(1);
        let mut pipes = StagePipes { stderr, ..StagePipes::default() };
        let (open, mut leader) = (self.foreground, None);
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let command = stage.command_mut();
            let mut next = None;
            if index < last {
                let (reader, writer) = command.make_pipe(PipeOptions::default())?;
                pipes.stdout = Some(writer.into());
                next = Some(reader.into());
            }
            let job = StageJob { open: open.filter(|_| index == 0), leader };
            let stage = command.start_in_job(job, |stage| stage.start_stage(&mut pipes, defaults));
            let stage =
                stage.map_err(|error| if index > 0 { error.after_a_start() } else { error })?;
            if index == 0 && open.is_some() && command.has_own_group() {
                leader = Some(stage.process.pid());
            }
            started.push(stage);
            pipes.stdin = next;
            pipes.stdout = None;
        }
        Ok(())
    }

    /// Returns the errors that can be found before anything is started.
    fn check(&self) -> Result<(), Error> {
        let Some(last) = self.stages.len().checked_sub(1) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it has no stages");
            return Err(Error::new(
                "".as_ref(),
                FailedOperation::StartPipeline,
                ErrorKind::InvalidInput,
                Some(source),
            ));
        };
        for (index, command) in self.stages().enumerate() {
            command
                .check_as_stage(StagePosition { is_first: index == 0, is_last: index == last })?;
        }
        Ok(())
    }

    /// Makes one pipe for every stderr that passes through this process. Returns the stages' end and ours.
    fn share_stderr(
        &self,
        default: StdioDefault,
    ) -> Result<(Option<Stdio>, Option<OutputEnd>), Error> {
        let settings = self.stages().map(|command| (command, command.stage_stderr(default)));
        let mut first = None;
        for (command, stderr) in settings.filter(|(_, stderr)| *stderr != StageStderr::Unchanged) {
            match first {
                None => first = Some((command, stderr)),
                Some((_, other)) if other == stderr => {}
                Some(_) => {
                    let words = "its stderr is piped and another stage's is teed: all stages share one stderr pipe";
                    return Err(command.misuse(words));
                }
            }
        }
        let Some((command, stderr)) = first else { return Ok((None, None)) };
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = command.make_pipe(options)?;
        let ours = OutputEnd::new(
            reader,
            (stderr == StageStderr::Teed).then_some(TeeTarget::SameStream(on_demand::OPEN_TEE)),
        );
        Ok((Some(writer.into()), Some(ours)))
    }
}

impl Command {
    fn start_stage(
        &mut self,
        pipes: &mut StagePipes,
        defaults: StdioDefaults,
    ) -> Result<Started, Error> {
        if self.stage_stderr(defaults.stderr) != StageStderr::Unchanged {
            return self.start_with_pipes(pipes, defaults);
        }
        let shared = pipes.stderr.take();
        let started = self.start_with_pipes(pipes, defaults);
        pipes.stderr = shared;
        started
    }
}

impl StartedStages {
    fn push(&mut self, stage: Started) {
        let Started { process, ends, foreground, .. } = stage;
        self.processes.push(process);
        // Only the first stage has it.
        self.foreground = self.foreground.take().or(foreground);
        // Only the first stage has a stdin, only the last a stdout.
        self.ends.stdin = self.ends.stdin.take().or(ends.stdin);
        self.ends.feed = self.ends.feed.take().or(ends.feed);
        self.ends.stdout = self.ends.stdout.take().or(ends.stdout);
        self.ends.stderr_merged = ends.stderr_merged;
    }

    /// Returns the run, which keeps as much output as `collect` says, and the programs of the stages.
    pub(super) fn into_run(self, options: &RunSettings, collect: Collect) -> (Run, Vec<OsString>) {
        let StartedStages { programs, processes, ends, at, foreground } = self;
        let info = RunInfo {
            started: at,
            made_in: processes.made_in(),
            background_feed: None,
            foreground,
            stderr_merged: ends.stderr_merged,
            terminal: HeldTerminal::default(),
            trace: processes.trace(),
        };
        (
            Run::new(Arc::new(processes), join_names(&programs), info, ends, options, collect),
            programs,
        )
    }
}
