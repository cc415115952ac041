//! Which commands are still to be started, and what has come of those that are over: the rules of
//! many commands at once, whoever waits for them.

use std::collections::VecDeque;
use std::iter::Fuse;

use super::RunAll;
use crate::cancel::CancelToken;
use crate::command::Command;
use crate::error::Error;
use crate::output::Capture;
use crate::pipeline::Stage;

/// The number of a command, counted from 0, and what came of it.
pub(crate) type End = (usize, Result<Capture, Error>);

/// Those that run.
pub(crate) trait Running {
    fn len(&self) -> usize;
    fn start(&mut self, index: usize, command: &mut Command) -> Result<(), Error>;
    /// Stops all, as a cancel does.
    fn stop(&mut self);
}

#[derive(Debug)]
pub(crate) struct Queue<I: Iterator> {
    commands: Fuse<I>,
    concurrency: usize,
    fail_fast: bool,
    cancel: Option<CancelToken>,
    next_index: usize,
    over: VecDeque<End>,
    /// No more are started.
    stopped: bool,
}

impl<'a, I> Queue<I>
where
    I: Iterator<Item: Into<Stage<'a>>>,
{
    pub(crate) fn new(all: RunAll<I>) -> Queue<I> {
        let RunAll { commands, concurrency, fail_fast, cancel } = all;
        Queue {
            commands: commands.fuse(),
            concurrency,
            fail_fast,
            cancel,
            next_index: 0,
            over: VecDeque::new(),
            stopped: false,
        }
    }

    /// What a wait is to be ended by; `None`: nothing, or it has stopped all already.
    pub(crate) fn cancel(&self) -> Option<&CancelToken> {
        self.cancel.as_ref().filter(|_| !self.stopped)
    }

    /// Heeds the cancel, starts as many as there is room for, and gives what is over.
    pub(crate) fn next(&mut self, running: &mut impl Running) -> Option<End> {
        if self.cancel().is_some_and(CancelToken::is_cancelled) {
            self.stop(running);
        }
        while !self.stopped && running.len() < self.concurrency {
            let Some(command) = self.commands.next() else { break };
            let index = self.next_index;
            self.next_index += 1;
            if let Err(error) = running.start(index, command.into().command_mut()) {
                self.note((index, Err(error)), running);
                // Told before another is tried: there may be no end of those that fail.
                break;
            }
        }
        self.over.pop_front()
    }

    /// One is over. Where that is to stop the others, it does.
    pub(crate) fn note(&mut self, end: End, running: &mut impl Running) {
        let failed = !end.1.as_ref().is_ok_and(Capture::success);
        self.over.push_back(end);
        if failed && self.fail_fast {
            self.stop(running);
        }
    }

    fn stop(&mut self, running: &mut impl Running) {
        if !self.stopped {
            self.stopped = true;
            running.stop();
        }
    }
}

/// What came of each, in the order of the commands.
pub(crate) fn in_order(mut ends: Vec<End>) -> Vec<Result<Capture, Error>> {
    ends.sort_unstable_by_key(|(index, _)| *index);
    ends.into_iter().map(|(_, result)| result).collect()
}
