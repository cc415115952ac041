//! A command as a stage of a pipeline: what it may not set, and how its streams are joined.

use std::mem;

use super::start::{StdioDefault, StdioDefaults};
use super::stdio::Choice;
use super::{Command, Stdio};
use crate::error::Error;
use crate::run::Started;

/// The position of a stage.
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

/// The way of a stage's stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageStderr {
    /// Through us, and no further.
    Piped,
    /// Through us, and on to ours.
    Teed,
    /// Where the stage itself says.
    ItsOwn,
}

impl Command {
    /// Refuses what a stage of a pipeline cannot have.
    pub(crate) fn check_as_stage(&self, position: StagePosition) -> Result<(), Error> {
        if self.program.is_empty() {
            return Err(self.misuse("a stage of the pipeline names no program"));
        }
        if !position.is_first && is_set(self.stdin.as_ref()) {
            return Err(self.misuse("its stdin is the stage before it, and cannot be set"));
        }
        if !position.is_last && is_set(self.stdout.as_ref()) {
            return Err(self.misuse("its stdout is the stage after it, and cannot be set"));
        }
        if matches!(&self.stderr, Some(Stdio(Choice::TeeTarget(..)))) {
            return Err(self.misuse(
                "its stderr is one pipe with that of the others, and goes to no file of its own",
            ));
        }
        match self.run_setting() {
            Some(name) => Err(self.misuse(&format!(
                "its `{name}` would be that of one stage: set it on the pipeline"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the name of the first setting that is about a whole run.
    fn run_setting(&self) -> Option<&'static str> {
        let foreground = self.lifetime.foreground.map(|_| "foreground");
        self.options.first_set().or(foreground)
    }

    /// Where its stderr goes, with a verb that has that default.
    pub(crate) fn stage_stderr(&self, default: StdioDefault) -> StageStderr {
        match self.stderr.as_ref().map(|stderr| &stderr.0) {
            _ if self.merge_stderr => StageStderr::ItsOwn,
            Some(Choice::Piped(_)) => StageStderr::Piped,
            Some(Choice::Tee(_)) => StageStderr::Teed,
            None => match default {
                StdioDefault::Piped => StageStderr::Piped,
                StdioDefault::Tee(_) => StageStderr::Teed,
                StdioDefault::Inherit | StdioDefault::Null => StageStderr::ItsOwn,
            },
            _ => StageStderr::ItsOwn,
        }
    }

    /// Starts the stage with these streams, which are given back.
    pub(crate) fn start_joined(
        &mut self,
        pipes: &mut StagePipes,
        defaults: StdioDefaults,
    ) -> Result<Started, Error> {
        // For as long as the start takes they are the command's own: there is one way to start.
        let joined = [&pipes.stdin, &pipes.stdout, &pipes.stderr].map(Option::is_some);
        self.exchange(pipes, joined);
        let started = self.start_child(defaults);
        self.exchange(pipes, joined);
        started
    }

    fn exchange(&mut self, pipes: &mut StagePipes, joined: [bool; 3]) {
        let own = [&mut self.stdin, &mut self.stdout, &mut self.stderr];
        let given = [&mut pipes.stdin, &mut pipes.stdout, &mut pipes.stderr];
        for ((own, given), joined) in own.into_iter().zip(given).zip(joined) {
            if joined {
                mem::swap(own, given);
            }
        }
    }
}

/// Whether a stream at a joint is anything else than the pipe that it will be.
fn is_set(stream: Option<&Stdio>) -> bool {
    !matches!(stream.map(|stream| &stream.0), None | Some(Choice::Piped(_)))
}
