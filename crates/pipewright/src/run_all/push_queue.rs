//! The commands of a runner: pushed one by one, each with a key, and cancelled by that key.

use std::collections::{BTreeMap, VecDeque};

use super::Runnable;
use super::queue::{CommandEnd, CommandSource, Queue, QueueRules, RunningSet};
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;

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
        let numbers = self.keys.iter().filter(|(_, other)| *other == key);
        let numbers: Vec<usize> = numbers.map(|(number, _)| *number).collect();
        let mut found = false;
        for number in numbers {
            found |= self.cancel_one(number);
        }
        found
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
