//! A command as a stage of a pipeline: refused settings, and the pipes to its neighbours.

use std::mem;
use std::sync::Arc;

use pipewright_os::process::start::Group;

use super::start::{StdioDefault, StdioDefaults};
use super::stdio::Choice;
use super::{Command, Stdio};
use crate::error::Error;
use crate::run::{OpenForeground, Started, TeeTarget, on_demand};

#[derive(Debug, Clone, Copy)]
pub(crate) struct StagePosition {
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

/// The streams that a pipeline gives a stage instead of its own.
#[derive(Debug, Default)]
pub(crate) struct StagePipes {
    pub(crate) stdin: Option<Stdio>,
    pub(crate) stdout: Option<Stdio>,
    pub(crate) stderr: Option<Stdio>,
}

/// The place of a stage in the job of its pipeline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageJob {
    /// Opens the terminal that the stage gets.
    pub(crate) open: Option<OpenForeground>,
    /// The stage whose group this one joins instead of leading its own.
    pub(crate) leader: Option<u32>,
}

/// The destination of a stage's stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageStderr {
    /// The pipeline's stderr pipe.
    Piped,
    /// The pipeline's stderr pipe, teed to this process's stderr.
    Teed,
    /// The stage's own setting.
    Unchanged,
}

impl Command {
    /// Refuses settings that a stage of a pipeline cannot have.
    pub(crate) fn check_as_stage(&self, position: StagePosition) -> Result<(), Error> {
        if self.program.is_empty() {
            return Err(self.misuse("the command of a pipeline stage is empty"));
        }
        self.refuse_pty_for("is not supported for a stage of a pipeline")?;
        if !position.is_first && is_set(self.stdin.as_ref()) {
            return Err(self.misuse("its stdin comes from the previous stage and cannot be set"));
        }
        if !position.is_last && is_set(self.stdout.as_ref()) {
            return Err(self.misuse("its stdout goes to the next stage and cannot be set"));
        }
        let unfit = match &self.stderr {
            Some(Stdio(Choice::TeeTarget(..))) => Some("tee_to"),
            Some(Stdio(Choice::TeeWith(_))) => Some("tee_with"),
            _ => None,
        };
        if let Some(name) = unfit {
            return Err(self.misuse(&format!(
                "`{name}` cannot be used for stderr: all stages share one stderr pipe"
            )));
        }
        match self.run_setting() {
            Some(name) => {
                Err(self
                    .misuse(&format!("`{name}` applies to the whole run: set it on the pipeline")))
            }
            None => Ok(()),
        }
    }

    /// Returns the name of the first setting that applies to a whole run.
    fn run_setting(&self) -> Option<&'static str> {
        let foreground = self.lifetime.foreground.map(|_| "foreground");
        self.options.first_set().or(foreground)
    }

    /// Returns the destination of the stage's stderr, given the verb's default.
    pub(crate) fn stage_stderr(&self, default: StdioDefault) -> StageStderr {
        match self.stderr.as_ref().map(|stderr| &stderr.0) {
            _ if self.merge_stderr => StageStderr::Unchanged,
            Some(Choice::Piped(_)) => StageStderr::Piped,
            Some(Choice::Tee(_) | Choice::TeeMap(_)) => StageStderr::Teed,
            None => match default {
                StdioDefault::Piped => StageStderr::Piped,
                StdioDefault::Tee(_) => StageStderr::Teed,
                StdioDefault::Inherit | StdioDefault::Null => StageStderr::Unchanged,
            },
            _ => StageStderr::Unchanged,
        }
    }

    /// Returns the tee of the pipeline's stderr pipe, if this stage is teed.
    pub(crate) fn stage_tee(&self) -> TeeTarget {
        match self.stderr.as_ref().map(|stderr| &stderr.0) {
            Some(Choice::TeeMap(open)) => TeeTarget::Closure(Arc::clone(open)),
            _ => TeeTarget::SameStream(on_demand::OPEN_TEE),
        }
    }

    /// Returns true if the command leads a process group of its own.
    pub(crate) fn has_own_group(&self) -> bool {
        self.unix.group == Group::Own
    }

    /// Starts the stage as a part of a job.
    pub(crate) fn start_in_job(
        &mut self,
        job: StageJob,
        start: impl FnOnce(&mut Command) -> Result<Started, Error>,
    ) -> Result<Started, Error> {
        // Only for this start, as the pipes below.
        let own = (self.unix.group, self.lifetime.foreground);
        self.lifetime.foreground = job.open;
        match job.leader.and_then(|leader| i32::try_from(leader).ok()) {
            Some(leader) if self.has_own_group() => self.unix.group = Group::Join(leader),
            _ => {}
        }
        let started = start(self);
        (self.unix.group, self.lifetime.foreground) = own;
        started
    }

    /// Starts the stage with these pipes. The pipes are handed back.
    pub(crate) fn start_with_pipes(
        &mut self,
        pipes: &mut StagePipes,
        defaults: StdioDefaults,
    ) -> Result<Started, Error> {
        // The pipes replace the command's own settings during the start, so that there is one way to start.
        let joined = [&pipes.stdin, &pipes.stdout, &pipes.stderr].map(Option::is_some);
        self.swap_streams(pipes, joined);
        let started = self.start_child(defaults);
        self.swap_streams(pipes, joined);
        started
    }

    fn swap_streams(&mut self, pipes: &mut StagePipes, joined: [bool; 3]) {
        let own = [&mut self.stdin, &mut self.stdout, &mut self.stderr];
        let given = [&mut pipes.stdin, &mut pipes.stdout, &mut pipes.stderr];
        for ((own, given), joined) in own.into_iter().zip(given).zip(joined) {
            if joined {
                mem::swap(own, given);
            }
        }
    }
}

/// Returns true if a stream between two stages is set to anything but a pipe.
fn is_set(stream: Option<&Stdio>) -> bool {
    !matches!(stream.map(|stream| &stream.0), None | Some(Choice::Piped(_)))
}
