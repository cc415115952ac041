//! From commands to stages that run, joined.

use std::ffi::OsString;
use std::io;
use std::time::Instant;

use pipewright_os::base::pipe::{Mode, PipeOptions, PipeWriter};

use super::Pipeline;
use crate::child::{Fed, Processes};
use crate::command::{
    Command, Joints, OutputEnd, Place, StageStderr, Started, Stdio, StdioDefaults, Usual,
};
use crate::drive::{Feed, Reach, Run, TeeTo, open_tee};
use crate::error::{Doing, Error, ErrorKind};

/// Stages that run, and our ends of their pipes.
pub(super) struct Running {
    pub(super) programs: Vec<OsString>,
    pub(super) processes: Processes,
    /// Their run, where somebody has waited for them already.
    pub(super) begun: Option<Box<Run>>,
    pub(super) stdin: Option<PipeWriter>,
    pub(super) feed: Option<Feed>,
    /// Input that somebody else feeds.
    pub(super) fed: Option<Fed>,
    pub(super) stdout: Option<OutputEnd>,
    pub(super) stderr: Option<OutputEnd>,
    pub(super) at: Instant,
}

impl Pipeline<'_> {
    /// Starts all stages. After an error there is none.
    pub(super) fn start(&mut self, defaults: StdioDefaults) -> Result<Running, Error> {
        self.check()?;
        let (stderr, shared) = self.share_stderr(defaults.stderr)?;
        let mut running = Running {
            programs: self.programs(),
            processes: Processes::with_room_for(self.stages.len()),
            begun: None,
            stdin: None,
            feed: None,
            fed: None,
            stdout: None,
            stderr: shared,
            at: Instant::now(),
        };
        // The pipes are closed on the way: those of a stage as soon as it has them.
        match self.start_all(defaults, stderr, &mut running) {
            Ok(()) => Ok(running),
            Err(error) => {
                Reach::default().abandon(&running.processes);
                Err(error)
            }
        }
    }

    fn start_all(
        &mut self,
        defaults: StdioDefaults,
        stderr: Option<Stdio>,
        running: &mut Running,
    ) -> Result<(), Error> {
        let last = self.stages.len().saturating_sub(1);
        let mut joints = Joints { stderr, ..Joints::default() };
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let command = stage.command_mut();
            let mut next = None;
            if index < last {
                let (reader, writer) = command.make_pipe(PipeOptions::default())?;
                joints.stdout = Some(writer.into());
                next = Some(reader.into());
            }
            let started = command.start_stage(&mut joints, defaults)?;
            running.take(started);
            joints.stdin = next;
            joints.stdout = None;
        }
        Ok(())
    }

    /// What is wrong already, before anything is started.
    fn check(&self) -> Result<(), Error> {
        let Some(last) = self.stages.len().checked_sub(1) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the pipeline has no stages");
            return Err(Error::new(
                "".as_ref(),
                Doing::Start,
                ErrorKind::InvalidInput,
                Some(source),
            ));
        };
        for (index, command) in self.stages().enumerate() {
            command.check_as_stage(Place { is_first: index == 0, is_last: index == last })?;
        }
        Ok(())
    }

    /// The one pipe for every stderr that passes through us: the stages' end of it, and ours.
    fn share_stderr(&self, default: Usual) -> Result<(Option<Stdio>, Option<OutputEnd>), Error> {
        let ways = self.stages().map(|command| (command, command.stage_stderr(default)));
        let mut first = None;
        for (command, way) in ways.filter(|(_, way)| *way != StageStderr::ItsOwn) {
            match first {
                None => first = Some((command, way)),
                Some((_, other)) if other == way => {}
                Some(_) => {
                    let words =
                        "its stderr is piped and another stage's is teed: they are one pipe";
                    return Err(command.misuse(words));
                }
            }
        }
        let Some((command, way)) = first else { return Ok((None, None)) };
        let options = PipeOptions { read: Mode::Async, ..PipeOptions::default() };
        let (reader, writer) = command.make_pipe(options)?;
        let ours =
            OutputEnd::new(reader, (way == StageStderr::Teed).then_some(TeeTo::Ours(open_tee)));
        Ok((Some(writer.into()), Some(ours)))
    }
}

impl Command {
    fn start_stage(
        &mut self,
        joints: &mut Joints,
        defaults: StdioDefaults,
    ) -> Result<Started, Error> {
        if self.stage_stderr(defaults.stderr) != StageStderr::ItsOwn {
            return self.launch_joined(joints, defaults);
        }
        let shared = joints.stderr.take();
        let started = self.launch_joined(joints, defaults);
        joints.stderr = shared;
        started
    }
}

impl Running {
    fn take(&mut self, started: Started) {
        let Started { process, ends, .. } = started;
        self.processes.push(process);
        // Only the first has the one, only the last the other.
        self.stdin = self.stdin.take().or(ends.stdin);
        self.feed = self.feed.take().or(ends.feed);
        self.stdout = self.stdout.take().or(ends.stdout);
    }
}
