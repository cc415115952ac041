//! The queue of many commands, for threads and tasks: the commands to start, from an iterator or pushed one by one with a key, and
//! the results of those that have ended.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Fuse;

use super::Runnable;
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;

/// The number of a command, counted from 0, and its result.
pub(crate) type CommandEnd = (usize, Result<Capture, Error>);

/// The running commands.
pub(crate) trait RunningSet {
    fn len(&self) -> usize;
    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error>;
    /// Stops all of them, as a cancel does.
    fn stop(&mut self);
    /// Stops the command of this number, as a cancel does. Returns false if it is not running.
    fn stop_one(&mut self, index: usize) -> bool;
}

/// The commands that have not been started.
pub(crate) trait CommandSource {
    /// Starts the next command, or returns `None` if none is left.
    fn start_next(&mut self, running: &mut impl RunningSet) -> Option<(usize, Result<(), Error>)>;
    /// Removes a command that will not be started, if its caller expects a result.
    fn give_up(&mut self) -> Option<CommandEnd>;
}

/// The least number of starts before the running commands are polled.
const MIN_BURST: usize = 8;
/// The running commands per start before the next poll, whose cost grows with their number.
const RUNNING_PER_START: usize = 4;
/// The number of untaken results from which no more commands are started.
const MAX_WAITING: usize = 32;

/// The next step of a caller of [`Queue::next`].
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for one match, and nearly always is the large one"
)]
pub(crate) enum NextStep {
    /// Return this result.
    End(CommandEnd),
    /// Poll the running commands without waiting: more are to be started.
    Poll,
    /// Wait for the running commands. If there are none, all commands have ended.
    Wait,
}

#[derive(Debug)]
pub(crate) struct Queue<S> {
    pub(super) source: S,
    pub(super) rules: QueueRules,
    /// The results that have not been taken.
    pub(super) ends: VecDeque<CommandEnd>,
    /// True if all commands have been stopped, and no more are started.
    stopped: bool,
}

/// The number of commands that run at once, and the reasons to start no more.
#[derive(Debug, Clone)]
pub(crate) struct QueueRules {
    /// At least one.
    pub(super) concurrency: usize,
    pub(super) fail_fast: bool,
    /// Stops the running commands, and starts no more.
    pub(super) cancel: Option<CancelToken>,
    /// Starts no more.
    pub(super) drain: Option<CancelToken>,
}

impl<S: CommandSource> Queue<S> {
    pub(crate) fn new(source: S, rules: QueueRules) -> Queue<S> {
        Queue { source, rules, ends: VecDeque::new(), stopped: false }
    }

    /// Returns the token that ends a wait; `None` if there is none or it has already stopped all commands.
    pub(crate) fn cancel(&self) -> Option<&CancelToken> {
        self.rules.cancel.as_ref().filter(|_| !self.stopped)
    }

    /// Stops all commands after a cancel, starts some if there is room, and returns the caller's next step.
    ///
    /// Without polls between the starts, short commands would fill their pipes and all be read at once in the end.
    pub(crate) fn next(&mut self, running: &mut impl RunningSet) -> NextStep {
        if self.cancel().is_some_and(CancelToken::is_cancelled) {
            self.stop(running);
        }
        let drains = self.rules.drain.as_ref().is_some_and(CancelToken::is_cancelled);
        if !drains && self.ends.len() < MAX_WAITING && self.start_some(running) {
            return NextStep::Poll;
        }
        let end = self.ends.pop_front();
        let end =
            if end.is_none() && (self.stopped || drains) { self.source.give_up() } else { end };
        end.map_or(NextStep::Wait, NextStep::End)
    }

    /// Starts some commands. Returns true if there is room for more.
    fn start_some(&mut self, running: &mut impl RunningSet) -> bool {
        for _ in 0..MIN_BURST.max(running.len() / RUNNING_PER_START) {
            if self.stopped || running.len() >= self.rules.concurrency {
                return false;
            }
            let Some((index, started)) = self.source.start_next(running) else { return false };
            if let Err(error) = started {
                self.note((index, Err(error)), running);
                // Return this result before the next start: an endless iterator may yield only commands that fail.
                return false;
            }
        }
        !self.stopped && running.len() < self.rules.concurrency
    }

    /// Records an end. A failure stops the other commands if `fail_fast` is set.
    pub(crate) fn note(&mut self, end: CommandEnd, running: &mut impl RunningSet) {
        let failed = !end.1.as_ref().is_ok_and(Capture::success);
        self.ends.push_back(end);
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

    fn give_up(&mut self) -> Option<CommandEnd> {
        None
    }
}

/// Sorts the results in the order of the commands.
pub(crate) fn in_order(mut ends: Vec<CommandEnd>) -> Vec<Result<Capture, Error>> {
    ends.sort_unstable_by_key(|(index, _)| *index);
    ends.into_iter().map(|(_, result)| result).collect()
}

/// A key, and the result of its command.
pub(crate) type KeyedEnd<K> = (K, Result<Capture, Error>);

/// The state of a runner, which is the same for threads and tasks.
#[derive(Debug)]
pub(crate) struct PushQueue<K, R> {
    pub(crate) queue: Queue<QueuedCommands>,
    pub(crate) running: R,
    /// The keys by the numbers of their commands. A returned result takes its key along.
    keys: BTreeMap<usize, K>,
    next: usize,
}

/// The commands that have not been started, in the order of their pushes.
#[derive(Debug, Default)]
pub(crate) struct QueuedCommands(VecDeque<(usize, Runnable<'static>)>);

impl CommandSource for QueuedCommands {
    fn start_next(&mut self, running: &mut impl RunningSet) -> Option<(usize, Result<(), Error>)> {
        let (index, command) = self.0.pop_front()?;
        Some((index, running.start(index, command)))
    }

    fn give_up(&mut self) -> Option<CommandEnd> {
        self.0.pop_front().map(|(index, command)| (index, Err(command.cancelled())))
    }
}

impl<K, R: RunningSet + Default> PushQueue<K, R> {
    pub(crate) fn new(concurrency: usize) -> PushQueue<K, R> {
        let concurrency = concurrency.max(1);
        let rules = QueueRules { concurrency, fail_fast: false, cancel: None, drain: None };
        PushQueue {
            queue: Queue::new(QueuedCommands::default(), rules),
            running: R::default(),
            keys: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K, R: RunningSet> PushQueue<K, R> {
    pub(crate) fn cancel_on(&mut self, token: &CancelToken) {
        self.queue.rules.cancel = Some(token.clone());
    }

    pub(crate) fn drain_on(&mut self, token: &CancelToken) {
        self.queue.rules.drain = Some(token.clone());
    }

    pub(crate) fn set_concurrency(&mut self, count: usize) {
        self.queue.rules.concurrency = count.max(1);
    }

    pub(crate) fn push(&mut self, key: K, command: Runnable<'static>) {
        self.queue.source.0.push_back((self.next, command));
        self.keys.insert(self.next, key);
        self.next += 1;
    }

    /// Returns the number of results that have not been returned.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.source.0.len()
    }

    pub(crate) fn cancel(&mut self, key: &K) -> bool
    where
        K: PartialEq,
    {
        let numbers: Vec<usize> = self.numbers_of(key).collect();
        let mut found = false;
        for number in numbers {
            found |= self.cancel_one(number);
        }
        found
    }

    /// Returns the numbers of the commands with this key that were not returned.
    pub(crate) fn numbers_of<'a>(&'a self, key: &'a K) -> impl Iterator<Item = usize> + 'a
    where
        K: PartialEq,
    {
        self.keys.iter().filter(move |(_, other)| *other == key).map(|(number, _)| *number)
    }

    fn cancel_one(&mut self, number: usize) -> bool {
        let waiting = &mut self.queue.source.0;
        // Sorted: numbers are given in the order of the pushes.
        if let Ok(at) = waiting.binary_search_by_key(&number, |(number, _)| *number) {
            let removed = waiting.remove(at);
            let end = removed.map(|(number, command)| (number, Err(command.cancelled())));
            self.queue.ends.extend(end);
            return true;
        }
        self.running.stop_one(number)
    }

    pub(crate) fn cancel_queued(&mut self) {
        while let Some(end) = self.queue.source.give_up() {
            self.queue.ends.push_back(end);
        }
    }

    pub(crate) fn cancel_all(&mut self) {
        self.cancel_queued();
        self.running.stop();
    }

    /// Replaces the number by its key. Each number ends once, so the key is always there.
    pub(crate) fn with_key(&mut self, (number, result): CommandEnd) -> Option<KeyedEnd<K>> {
        self.keys.remove(&number).map(|key| (key, result))
    }
}
