//! A command as a stage of a pipeline: what it may not set, and how its streams are joined.

use std::mem;

use super::launch::{Started, StdioDefaults, Usual};
use super::stdio::Choice;
use super::{Command, Linger, Rules, Stdio};
use crate::error::Error;

/// Where a stage stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

/// What a pipeline puts in the place of a stage's own streams.
#[derive(Debug, Default)]
pub(crate) struct Joints {
    pub(crate) stdin: Option<Stdio>,
    pub(crate) stdout: Option<Stdio>,
    pub(crate) stderr: Option<Stdio>,
}

/// Where a stage's stderr goes.
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
    pub(crate) fn check_as_stage(&self, place: Place) -> Result<(), Error> {
        if self.program.is_empty() {
            return Err(self.misuse("a stage of the pipeline names no program"));
        }
        if !place.is_first && is_set(self.stdin.as_ref()) {
            return Err(self.misuse("its stdin is the stage before it, and cannot be set"));
        }
        if !place.is_last && is_set(self.stdout.as_ref()) {
            return Err(self.misuse("its stdout is the stage after it, and cannot be set"));
        }
        if matches!(&self.stderr, Some(Stdio(Choice::TeeTo(..)))) {
            return Err(self.misuse(
                "its stderr is one pipe with that of the others, and goes to no file of its own",
            ));
        }
        match self.rule_of_its_own() {
            Some(name) => Err(self.misuse(&format!(
                "its `{name}` would be that of one stage: set it on the pipeline"
            ))),
            None => Ok(()),
        }
    }

    /// The first setting that is about a whole run.
    fn rule_of_its_own(&self) -> Option<&'static str> {
        let usual = Rules::default();
        let rules = &self.rules;
        let settings = [
            ("timeout", rules.timeout.is_some()),
            ("deadline", rules.deadline.is_some()),
            ("idle_timeout", rules.idle_timeout.is_some()),
            ("cancel", rules.cancel.is_some()),
            ("kill_grace", rules.kill_grace != usual.kill_grace),
            ("stop_signal", rules.stop_signal != usual.stop_signal),
            ("linger", rules.linger != Linger::default()),
            ("linger_drain", rules.linger_drain),
            ("enforce_in_background", rules.background.is_some()),
            ("foreground", self.lifetime.front.is_some()),
            ("limit", self.limit.is_some()),
            ("max_line", self.max_line_bytes.is_some()),
            ("strict_utf8", self.decoding.is_set()),
        ];
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }

    /// Where its stderr goes, with a verb that has that default.
    pub(crate) fn stage_stderr(&self, default: Usual) -> StageStderr {
        match self.stderr.as_ref().map(|stderr| &stderr.0) {
            _ if self.merge_stderr => StageStderr::ItsOwn,
            Some(Choice::Piped(_)) => StageStderr::Piped,
            Some(Choice::Tee(_)) => StageStderr::Teed,
            None => match default {
                Usual::Piped => StageStderr::Piped,
                Usual::Tee(_) => StageStderr::Teed,
                Usual::Inherit | Usual::Null => StageStderr::ItsOwn,
            },
            _ => StageStderr::ItsOwn,
        }
    }

    /// Starts the stage with these streams, which are given back.
    pub(crate) fn launch_joined(
        &mut self,
        joints: &mut Joints,
        defaults: StdioDefaults,
    ) -> Result<Started, Error> {
        // For as long as the start takes they are the command's own: there is one way to start.
        let joined = [&joints.stdin, &joints.stdout, &joints.stderr].map(Option::is_some);
        self.exchange(joints, joined);
        let started = self.launch(defaults);
        self.exchange(joints, joined);
        started
    }

    fn exchange(&mut self, joints: &mut Joints, joined: [bool; 3]) {
        let own = [&mut self.stdin, &mut self.stdout, &mut self.stderr];
        let given = [&mut joints.stdin, &mut joints.stdout, &mut joints.stderr];
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
