//! The rules of many commands at once, whoever waits for them: which are still to be started, and
//! the results of those that have ended.

use std::collections::VecDeque;
use std::iter::Fuse;

use super::Runnable;
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;

/// The number of a command, counted from 0, and its result.
pub(crate) type End = (usize, Result<Capture, Error>);

/// Those that run.
pub(crate) trait Running {
    fn len(&self) -> usize;
    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error>;
    /// Stops all, as a cancel does.
    fn stop(&mut self);
    /// Stops the one of that number, as a cancel does. `false`: it does not run.
    fn stop_one(&mut self, index: usize) -> bool;
}

/// Those that have not been started.
pub(crate) trait Source {
    /// Starts the next one. `None`: none is left.
    fn start_next(&mut self, running: &mut impl Running) -> Option<(usize, Result<(), Error>)>;
    /// Takes out one that will not be started, if its caller is to be told.
    fn give_up(&mut self) -> Option<End>;
}

#[derive(Debug)]
pub(crate) struct Queue<S> {
    pub(super) source: S,
    pub(super) rules: QueueRules,
    pub(super) over: VecDeque<End>,
    /// No more are started, and those that ran were stopped.
    stopped: bool,
}

/// How many run at once, and when no more are started.
#[derive(Debug, Clone)]
pub(crate) struct QueueRules {
    /// At least one.
    pub(super) concurrency: usize,
    pub(super) fail_fast: bool,
    /// Stops those that run, and starts no more.
    pub(super) cancel: Option<CancelToken>,
    /// Starts no more.
    pub(super) drain: Option<CancelToken>,
}

impl<S: Source> Queue<S> {
    pub(crate) fn new(source: S, rules: QueueRules) -> Queue<S> {
        Queue { source, rules, over: VecDeque::new(), stopped: false }
    }

    /// The token that ends a wait; `None`: there is none, or it has stopped all already.
    pub(crate) fn cancel(&self) -> Option<&CancelToken> {
        self.rules.cancel.as_ref().filter(|_| !self.stopped)
    }

    /// Looks at the cancel, starts as many as there is room for, and returns the next result.
    pub(crate) fn next(&mut self, running: &mut impl Running) -> Option<End> {
        if self.cancel().is_some_and(CancelToken::is_cancelled) {
            self.stop(running);
        }
        let drains = self.rules.drain.as_ref().is_some_and(CancelToken::is_cancelled);
        while !self.stopped && !drains && running.len() < self.rules.concurrency {
            let Some((index, started)) = self.source.start_next(running) else { break };
            if let Err(error) = started {
                self.note((index, Err(error)), running);
                // Returned before another is tried: there may be no end of those that fail.
                break;
            }
        }
        let end = self.over.pop_front();
        if end.is_none() && (self.stopped || drains) { self.source.give_up() } else { end }
    }

    /// Records an end. If that is to stop the others, it does.
    pub(crate) fn note(&mut self, end: End, running: &mut impl Running) {
        let failed = !end.1.as_ref().is_ok_and(Capture::success);
        self.over.push_back(end);
        if failed && self.rules.fail_fast {
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

/// The commands of [`run_all`](super::run_all), numbered in their order.
#[derive(Debug)]
pub(crate) struct Numbered<I: Iterator> {
    commands: Fuse<I>,
    next: usize,
}

impl<I: Iterator> Numbered<I> {
    pub(super) fn new(commands: I) -> Numbered<I> {
        Numbered { commands: commands.fuse(), next: 0 }
    }
}

impl<'a, I> Source for Numbered<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    fn start_next(&mut self, running: &mut impl Running) -> Option<(usize, Result<(), Error>)> {
        let command = self.commands.next()?;
        let index = self.next;
        self.next += 1;
        Some((index, running.start(index, command.into())))
    }

    fn give_up(&mut self) -> Option<End> {
        None
    }
}

/// The results, in the order of the commands.
pub(crate) fn in_order(mut ends: Vec<End>) -> Vec<Result<Capture, Error>> {
    ends.sort_unstable_by_key(|(index, _)| *index);
    ends.into_iter().map(|(_, result)| result).collect()
}
