//! Many commands at once, on one thread or in one task.
//!
//! | file | contents |
//! |---|---|
//! | `runnable.rs` | a command or a pipeline |
//! | `queue.rs`, `push_queue.rs` | the rules, without waiting: which command starts next, and the results |
//! | `run_set.rs` | the wait for all that run, on a thread |
//! | `runner.rs` | a runner, which takes more commands while some run |
//! | `task.rs` | the same for tasks |

mod push_queue;
mod queue;
mod run_set;
mod runnable;
mod runner;
#[cfg(feature = "tokio")]
mod task;

use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::error::Error;
use crate::next::Next;
use crate::output::Capture;
use queue::{CommandSource, End, NextStep, Numbered, Queue, QueueRules, RunningSet, in_order};
use run_set::RunSet;
pub use runnable::Runnable;
pub use runner::Runner;
#[cfg(feature = "tokio")]
pub use task::{AsTheyEndAsync, AsyncRunner};

/// Runs many commands, some of them at once, and captures what each says.
///
/// All of them are run by the calling thread: it starts them, reads what they write, feeds them and
/// stops them, whichever of them needs it. A command's own settings hold for it: its timeout, its
/// limits, its stdio.
///
/// The next command is taken out of `commands` when there is room for it, so that there may be any
/// number.
///
/// Commands that are found while others run (a retry, a graph, a queue) need a [`Runner`]. A
/// [`Pipeline`](crate::Pipeline) counts as one command, with the result of
/// [its whole](crate::Pipelined::whole).
///
/// A closure that makes the commands ends with [`owned`](crate::Command::owned): without it, it
/// returns a reference to a temporary, which is error E0515.
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

/// Commands that are to be run: see [`run_all`].
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
    /// How many run at once, at least one. Where it is not set, as many as there are processors.
    #[doc(alias = "max_parallel")]
    #[doc(alias = "jobs")]
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
        run_async_for_test!(self.unpinned().captures_async());
        in_order(self.as_they_end().collect())
    }

    /// The same commands, wherever they come from, for a task.
    #[cfg(all(pipewright_force_async, feature = "tokio"))]
    fn unpinned(self) -> RunAll<Box<I>> {
        let RunAll { commands, concurrency, fail_fast, cancel } = self;
        RunAll { commands: Box::new(commands), concurrency, fail_fast, cancel }
    }

    /// Gives what came of each as it ends, with the number of its command, counted from 0.
    pub fn as_they_end(self) -> AsTheyEnd<I> {
        AsTheyEnd { queue: self.into_queue(), runs: RunSet::default() }
    }

    fn into_queue(self) -> Queue<Numbered<I>> {
        let RunAll { commands, concurrency, fail_fast, cancel } = self;
        let rules = QueueRules { concurrency, fail_fast, cancel, drain: None };
        Queue::new(Numbered::new(commands), rules)
    }
}

/// What came of many commands, as they end: see [`RunAll::as_they_end`].
///
/// Between the calls of `next` nothing is read: a child that writes much waits meanwhile, and no timeout and no cancel
/// of a command stops it before the next call. Whoever takes long between two calls uses
/// [`next_within`](Self::next_within), or works on another thread.
///
/// While 32 results have not been taken, no more commands are started.
///
/// # Drop
/// Those that still run are killed, with the descendants that can be found.
#[derive(Debug)]
pub struct AsTheyEnd<I: Iterator> {
    queue: Queue<Numbered<I>>,
    runs: RunSet,
}

impl<'a, I> AsTheyEnd<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    /// Waits until the next one ends, but not longer than that: for whoever has something else to do now
    /// and then. Zero takes what has ended.
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
        // A limit so long that the clock cannot hold its end is none.
        next_end(&mut self.queue, &mut self.runs, Instant::now().checked_add(limit))
    }
}

impl<'a, I> Iterator for AsTheyEnd<I>
where
    I: Iterator<Item: Into<Runnable<'a>>>,
{
    type Item = (usize, Result<Capture, Error>);

    fn next(&mut self) -> Option<Self::Item> {
        next_end(&mut self.queue, &mut self.runs, None).item()
    }
}

/// Waits until one ends, but not beyond that time.
fn next_end(
    queue: &mut Queue<impl CommandSource>,
    runs: &mut RunSet,
    until: Option<Instant>,
) -> Next<End> {
    let mut is_late = false;
    loop {
        let step_until = match queue.next(runs) {
            NextStep::End(end) => return Next::Item(end),
            NextStep::Wait if runs.len() == 0 => return Next::Done,
            NextStep::Wait if is_late => return Next::Pending,
            NextStep::Wait => until,
            NextStep::Look => Some(Instant::now()),
        };
        for end in runs.step(queue.cancel(), step_until) {
            queue.note(end, runs);
        }
        // At least one step: a limit of zero takes what there is.
        is_late = until.is_some_and(|until| Instant::now() >= until);
    }
}
