//! A whole run on the calling thread.

use std::ffi::OsStr;
use std::time::Instant;

use pipewright_os::exit::Exit;
use pipewright_os::pipe::PipeReader;

use super::run::Run;
use super::{Feed, Sink};
use crate::command::Rules;
use crate::error::Error;
use crate::output::Output;

/// A started child, and what is to be done with it.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) exit: &'a Exit,
    pub(crate) started: Instant,
    pub(crate) rules: &'a Rules,
    pub(crate) feed: Option<Feed>,
    /// stdout and stderr, where they pass through us.
    pub(crate) streams: [Option<(PipeReader, Sink)>; 2],
}

/// Sees the child through to its end. After an error there is no child.
pub(crate) fn drive(job: Job<'_>) -> Result<Output, Error> {
    let Job { program, exit, started, rules, feed, streams } = job;
    let mut run = Run::new(rules, started, feed, streams);
    loop {
        match run.step(exit, rules) {
            Ok(true) => {}
            Ok(false) => break,
            Err((doing, source)) => {
                run.abandon(exit);
                return Err(Error::talk(program, doing, source));
            }
        }
    }
    run.finish(exit).map_err(|(doing, source)| Error::talk(program, doing, source))
}
