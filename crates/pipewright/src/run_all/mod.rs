//! Many commands at once, on one thread or in one task.
//!
//! | file | contents |
//! |---|---|
//! | `runnable.rs` | a command or a pipeline |
//! | `queue.rs` | the rules, without waiting: which command starts next, and the results |
//! | `run_set.rs` | the wait for all that run, on a thread |
//! | `runner.rs` | a runner, which takes more commands while some run |
//! | `task.rs` | the same for tasks |

mod queue;
mod run_set;
mod runnable;
mod runner;
#[cfg(feature = "tokio")]
mod task;
#[cfg(feature = "tokio")]
mod waker;

use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::wake::Wake;

use crate::cancel::CancelToken;
use crate::error::Error;
use crate::next::Next;
use crate::output::Capture;
use queue::{
    CommandEnd, CommandSource, NextStep, Numbered, Queue, QueueRules, RunningSet, in_order,
};
use run_set::RunSet;
pub use runnable::Runnable;
pub use runner::{Runner, RunnerWaker};
#[cfg(feature = "tokio")]
pub use task::{AsTheyEndAsync, AsyncRunner};

/// Runs many commands, some of them at once, and captures the output of each.
///
/// The calling thread does all the work: it starts, reads, feeds and stops the commands. Each command keeps its own
/// settings: its timeout (from its own start), its limits, its stdio.
///
/// A command is taken from `commands` when there is room for it, so the iterator may be long, or endless.
///
/// If more commands are added while others run (a retry, a graph, a queue), use a [`Runner`]. A
/// [`Pipeline`](crate::Pipeline) counts as one command, with the result of [its whole](crate::Pipelined::whole).
///
/// End a closure that creates the commands with [`owned`](crate::Command::owned). Without it, the closure returns a
/// reference to a temporary, which is error E0515.
///
/// ```
/// use pipewright::{Command, run_all};
/// let compile = |name: &str| Command::new("echo").arg(format!("compiled {name}")).owned();
/// let files = ["a.c", "b.c", "c.c"];
/// for capture in run_all(files.map(compile)).concurrency(2).captures() {
///     assert!(capture?.stdout.starts_with("compiled"));
/// }
/// # Ok::<(), pipewright::Error>(())
/// ```
pub fn run_all<'a, C>(commands: C) -> RunAll<C::IntoIter>
where
    C: IntoIterator<Item: Into<Runnable<'a>>>,
{
    let concurrency = thread::available_parallelism().map_or(1, NonZero::get);
    RunAll { commands: commands.into_iter(), concurrency, fail_fast: false, cancel: None }
}

/// Commands to run: see [`run_all`].
#[derive(Debug)]
#[must_use = "nothing is run until `captures` or `as_they_end` is called"]
pub struct RunAll<I> {
    commands: I,
    concurrency: usize,
    fail_fast: bool,
    cancel: Option<CancelToken>,
}

impl<'a, I> RunAll<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    /// Sets the number of commands that run at once; 0 counts as 1. The default is the number of processors.
    #[doc(alias = "max_parallel")]
    #[doc(alias = "jobs")]
    pub fn concurrency(mut self, count: usize) -> RunAll<I> {
        self.concurrency = count.max(1);
        self
    }

    /// Once a command has failed (its result is an error, or not a success), stops the others as a cancel does, and
    /// starts no more. Without it, all commands run even if some fail.
    pub fn fail_fast(mut self) -> RunAll<I> {
        self.fail_fast = true;
        self
    }

    /// Stops the running commands when the token is cancelled, and starts no more.
    pub fn cancel(mut self, token: &CancelToken) -> RunAll<I> {
        self.cancel = Some(token.clone());
        self
    }

    /// Runs the commands and returns their results, in the order of the commands. After
    /// [`fail_fast`](Self::fail_fast) or a cancel, the last commands may not have been started. They have no results.
    pub fn captures(self) -> Vec<Result<Capture, Error>> {
        run_async_for_test!(self.boxed().captures_async());
        in_order(self.as_they_end().collect())
    }

    /// Boxes the commands, so that they are `Unpin`.
    #[cfg(all(pipewright_test_hooks, feature = "tokio"))]
    fn boxed(self) -> RunAll<Box<I>> {
        let RunAll { commands, concurrency, fail_fast, cancel } = self;
        RunAll { commands: Box::new(commands), concurrency, fail_fast, cancel }
    }

    /// Returns an iterator over the results as the commands end, each with the number of its command, counted from 0.
    ///
    /// ```
    /// use pipewright::{Command, run_all};
    /// use std::time::Duration;
    /// let test = |script| Command::new("sh").args(["-c", script]).timeout(Duration::from_secs(60)).owned();
    /// let mut failed = Vec::new();
    /// for (number, result) in run_all(["exit 0", "echo broken; exit 1"].map(test)).concurrency(4).as_they_end() {
    ///     let capture = result?;
    ///     if !capture.success() {
    ///         println!("test {number}: {}\n{}", capture.outcome, capture.stdout);
    ///         failed.push(number);
    ///     }
    /// }
    /// assert_eq!(failed, [1]);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn as_they_end(self) -> AsTheyEnd<I> {
        AsTheyEnd { queue: self.into_queue(), runs: RunSet::default() }
    }

    fn into_queue(self) -> Queue<Numbered<I>> {
        let RunAll { commands, concurrency, fail_fast, cancel } = self;
        let rules = QueueRules { concurrency, fail_fast, cancel, drain: None };
        Queue::new(Numbered::new(commands), rules)
    }
}

/// The results of many commands, as they end: see [`RunAll::as_they_end`].
///
/// Nothing is read between two calls of `next`: a child blocks when its pipe is full, and a command's timeout or cancel
/// stops it only in the next call. If the work between two calls takes long, call [`next_within`](Self::next_within)
/// meanwhile, or do the work on another thread. If only the timeouts matter, set
/// [`enforce_in_background`](crate::Command::enforce_in_background) on the commands.
///
/// No more commands are started while 32 results have not been taken.
///
/// # Drop
/// Kills the running commands, and the descendants that can be found.
#[derive(Debug)]
pub struct AsTheyEnd<I: Iterator> {
    queue: Queue<Numbered<I>>,
    runs: RunSet,
}

impl<'a, I> AsTheyEnd<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    /// Waits until the next command ends, but no longer than `limit`, for callers that also have other work. Zero starts
    /// commands if there is room, reads the output that is ready, and returns at once.
    ///
    /// ```
    /// use pipewright::{Command, Next, run_all};
    /// use std::time::Duration;
    /// let mut ends = run_all([Command::new("sleep").arg("0.1").owned()]).as_they_end();
    /// assert!(matches!(ends.next_within(Duration::from_millis(10)), Next::Pending));
    /// assert!(ends.next_within(Duration::from_secs(60)).item().is_some());
    /// assert!(matches!(ends.next_within(Duration::ZERO), Next::Done));
    /// ```
    pub fn next_within(&mut self, limit: Duration) -> Next<(usize, Result<Capture, Error>)> {
        // A limit beyond the range of the clock never ends.
        next_end(&mut self.queue, &mut self.runs, None, Instant::now().checked_add(limit))
    }
}

impl<'a, I> Iterator for AsTheyEnd<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    type Item = (usize, Result<Capture, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        next_end(&mut self.queue, &mut self.runs, None, None).item()
    }
}

/// Waits until a command ends, but no longer than `until`, and until the flag is raised, which is then lowered.
fn next_end(
    queue: &mut Queue<impl CommandSource>,
    runs: &mut RunSet,
    wake: Option<&Wake>,
    until: Option<Instant>,
) -> Next<CommandEnd> {
    let mut is_late = false;
    loop {
        let step_until = match queue.next(runs) {
            NextStep::End(end) => return Next::Item(end),
            NextStep::Wait if runs.len() == 0 => return Next::Done,
            NextStep::Wait if is_late => return Next::Pending,
            NextStep::Wait => until,
            NextStep::Poll => Some(Instant::now()),
        };
        for end in runs.step(queue.cancel(), wake, step_until) {
            queue.note(end, runs);
        }
        let is_woken = wake.is_some_and(Wake::is_raised);
        if let (true, Some(wake)) = (is_woken, wake) {
            wake.lower();
        }
        // At least one step: a limit of zero takes results that are ready.
        is_late = is_woken || until.is_some_and(|until| Instant::now() >= until);
    }
}
