//! Many commands at once, on one thread.

mod crowd;

use std::collections::VecDeque;
use std::num::NonZero;
use std::thread;

use crate::cancel::CancelToken;
use crate::error::Error;
use crate::output::Capture;
use crate::pipeline::Stage;
use crowd::Crowd;

/// Runs many commands, some of them at once, and captures what each says.
///
/// All of them are run by the calling thread: it starts them, reads what they write, feeds them and
/// stops them, whichever of them needs it. A command's own settings hold for it: its timeout, its
/// limits, its stdio.
///
/// The next command is taken out of `commands` when there is room for it, so that there may be any
/// number.
///
/// ```
/// use pipewright::{Command, run_all};
/// let compile = |name: &str| Command::new("echo").arg(format!("compiled {name}")).take();
/// let files = ["a.c", "b.c", "c.c"];
/// for capture in run_all(files.map(compile)).concurrency(2).captures() {
///     assert!(capture?.stdout.starts_with("compiled"));
/// }
/// # Ok::<(), pipewright::Error>(())
/// ```
pub fn run_all<'a, C>(commands: C) -> RunAll<C::IntoIter>
where
    C: IntoIterator<Item: Into<Stage<'a>>>,
{
    let concurrency = thread::available_parallelism().map_or(1, NonZero::get);
    RunAll { commands: commands.into_iter(), concurrency, fail_fast: false, cancel: None }
}

/// Commands that are to be run: see [`run_all`].
#[derive(Debug)]
#[must_use = "nothing is run until `captures` or `as_they_end` is called"]
pub struct RunAll<I> {
    pub(crate) commands: I,
    pub(crate) concurrency: usize,
    pub(crate) fail_fast: bool,
    pub(crate) cancel: Option<CancelToken>,
}

impl<'a, I> RunAll<I>
where
    I: Iterator<Item: Into<Stage<'a>>>,
{
    /// How many run at once, at least one. Where it is not set, as many as there are processors.
    pub fn concurrency(mut self, count: usize) -> RunAll<I> {
        self.concurrency = count.max(1);
        self
    }

    /// When one has failed (an error, or no success), the others are stopped as by a cancel, and no
    /// more are started. Without it, all are run whatever becomes of them.
    pub fn fail_fast(mut self) -> RunAll<I> {
        self.fail_fast = true;
        self
    }

    /// Stops those that run when the token is cancelled, and starts no more.
    pub fn cancel(mut self, token: &CancelToken) -> RunAll<I> {
        self.cancel = Some(token.clone());
        self
    }

    /// Runs them, and gives what came of each, in the order of the commands. Those that were not
    /// started, because of [`fail_fast`](Self::fail_fast) or a cancel, are not among them; they are
    /// the last.
    pub fn captures(self) -> Vec<Result<Capture, Error>> {
        let mut all: Vec<_> = self.as_they_end().collect();
        all.sort_unstable_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, result)| result).collect()
    }

    /// Gives what came of each as it ends, with the number of its command, counted from 0.
    pub fn as_they_end(self) -> AsTheyEnd<I> {
        AsTheyEnd {
            commands: self.commands.fuse(),
            concurrency: self.concurrency,
            fail_fast: self.fail_fast,
            cancel: self.cancel,
            crowd: Crowd::default(),
            next_index: 0,
            over: VecDeque::new(),
            stopped: false,
        }
    }
}

/// What came of many commands, as they end: see [`RunAll::as_they_end`].
///
/// Between the calls of `next` nothing is read: a child that writes much waits meanwhile.
///
/// # Drop
/// Those that still run are killed, with the descendants that can be found.
#[derive(Debug)]
pub struct AsTheyEnd<I: Iterator> {
    commands: std::iter::Fuse<I>,
    concurrency: usize,
    fail_fast: bool,
    cancel: Option<CancelToken>,
    crowd: Crowd,
    next_index: usize,
    over: VecDeque<(usize, Result<Capture, Error>)>,
    /// No more are started.
    stopped: bool,
}

impl<'a, I> AsTheyEnd<I>
where
    I: Iterator<Item: Into<Stage<'a>>>,
{
    /// Starts as many as there is room for. A cancel that is there already stops them before.
    fn start(&mut self) {
        while !self.stopped && self.crowd.len() < self.concurrency {
            let Some(command) = self.commands.next() else { return };
            let mut stage = command.into();
            let index = self.next_index;
            self.next_index += 1;
            if let Err(error) = self.crowd.start(index, stage.command_mut()) {
                self.end(index, Err(error));
            }
        }
    }

    fn end(&mut self, index: usize, result: Result<Capture, Error>) {
        let failed = !result.as_ref().is_ok_and(Capture::success);
        self.over.push_back((index, result));
        if failed && self.fail_fast {
            self.stop();
        }
    }

    fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.crowd.stop();
        }
    }
}

impl<'a, I> Iterator for AsTheyEnd<I>
where
    I: Iterator<Item: Into<Stage<'a>>>,
{
    type Item = (usize, Result<Capture, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                self.stop();
            }
            self.start();
            if let Some(over) = self.over.pop_front() {
                return Some(over);
            }
            if self.crowd.is_empty() {
                return None;
            }
            let cancel = self.cancel.as_ref().filter(|_| !self.stopped);
            for (index, result) in self.crowd.step(cancel) {
                self.end(index, result);
            }
        }
    }
}
