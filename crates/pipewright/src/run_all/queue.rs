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
pub(crate) trait RunningSet {
    fn len(&self) -> usize;
    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error>;
    /// Stops all, as a cancel does.
    fn stop(&mut self);
    /// Stops the one of that number, as a cancel does. `false`: it does not run.
    fn stop_one(&mut self, index: usize) -> bool;
}

/// Those that have not been started.
pub(crate) trait CommandSource {
    /// Starts the next one. `None`: none is left.
    fn start_next(&mut self, running: &mut impl RunningSet) -> Option<(usize, Result<(), Error>)>;
    /// Takes out one that will not be started, if its caller is to be told.
    fn give_up(&mut self) -> Option<End>;
}

/// How many are started at least before those that run are looked at.
const LEAST_BURST: usize = 8;
/// Of those that run, one is started for so many before they are looked at: a look costs as much as there are.
const RUNNING_A_START: usize = 4;
/// While so many results have not been taken, no more are started than there is room for.
const MOST_WAITING: usize = 32;

/// What a caller of [`Queue::next`] does next.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for one match, and nearly always is the large one"
)]
pub(crate) enum NextStep {
    /// Hand out this result.
    End(End),
    /// Look at those that run, without waiting: more are to be started.
    Look,
    /// Wait for those that run. If there are none, everything is over.
    Wait,
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

impl<S: CommandSource> Queue<S> {
    pub(crate) fn new(source: S, rules: QueueRules) -> Queue<S> {
        Queue { source, rules, over: VecDeque::new(), stopped: false }
    }

    /// The token that ends a wait; `None`: there is none, or it has stopped all already.
    pub(crate) fn cancel(&self) -> Option<&CancelToken> {
        self.rules.cancel.as_ref().filter(|_| !self.stopped)
    }

    /// Stops all after a cancel, starts some where there is room, and says what comes next.
    ///
    /// Children that end as fast as others are started would fill their pipes, and all be read at once in the
    /// end. So those that run are looked at between the starts.
    pub(crate) fn next(&mut self, running: &mut impl RunningSet) -> NextStep {
        if self.cancel().is_some_and(CancelToken::is_cancelled) {
            self.stop(running);
        }
        let drains = self.rules.drain.as_ref().is_some_and(CancelToken::is_cancelled);
        if !drains && self.over.len() < MOST_WAITING && self.start_some(running) {
            return NextStep::Look;
        }
        let end = self.over.pop_front();
        let end =
            if end.is_none() && (self.stopped || drains) { self.source.give_up() } else { end };
        end.map_or(NextStep::Wait, NextStep::End)
    }

    /// Returns true if there is room for more.
    fn start_some(&mut self, running: &mut impl RunningSet) -> bool {
        for _ in 0..LEAST_BURST.max(running.len() / RUNNING_A_START) {
            if self.stopped || running.len() >= self.rules.concurrency {
                return false;
            }
            let Some((index, started)) = self.source.start_next(running) else { return false };
            if let Err(error) = started {
                self.note((index, Err(error)), running);
                // Handed out before another is tried: there may be no end of those that fail.
                return false;
            }
        }
        !self.stopped && running.len() < self.rules.concurrency
    }

    /// Records an end. If that is to stop the others, it does.
    pub(crate) fn note(&mut self, end: End, running: &mut impl RunningSet) {
        let failed = !end.1.as_ref().is_ok_and(Capture::success);
        self.over.push_back(end);
        if failed && self.rules.fail_fast {
            self.stop(running);
        }
    }

    fn stop(&mut self, running: &mut impl RunningSet) {
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

impl<'a, I> CommandSource for Numbered<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    fn start_next(&mut self, running: &mut impl RunningSet) -> Option<(usize, Result<(), Error>)> {
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
