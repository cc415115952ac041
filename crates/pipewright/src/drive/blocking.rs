//! A whole run on the calling thread.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::exit::Exit;
use pipewright_os::pipe::PipeReader;

use super::run::{Failed, Run};
use super::{Feed, Front, Sink};
use crate::command::Rules;
use crate::error::Error;
use crate::output::Output;

/// A started child, and what is to be done with it.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) exits: &'a [Exit],
    pub(crate) started: Instant,
    pub(crate) rules: &'a Rules,
    pub(crate) feed: Option<Feed>,
    pub(crate) front: Option<Arc<dyn Front>>,
    /// stdout and stderr, where they pass through us.
    pub(crate) streams: [Option<(PipeReader, Sink)>; 2],
}

/// Sees the child through to its end. After an error there is no child.
pub(crate) fn drive(job: Job<'_>) -> Result<Output, Error> {
    let Job { program, exits, started, rules, feed, front, streams } = job;
    see_through(Run::new(rules, started, feed, streams).in_front(front), exits, rules)
        .map_err(|(doing, source)| Error::talk(program, doing, source))
}

/// Sees all children of a run through to their ends. After an error there is none.
pub(crate) fn see_through(mut run: Run, exits: &[Exit], rules: &Rules) -> Result<Output, Failed> {
    loop {
        match run.step(exits, rules) {
            Ok(true) => {}
            Ok(false) => return run.finish(exits),
            Err(failed) => {
                run.abandon(exits);
                return Err(failed);
            }
        }
    }
}
