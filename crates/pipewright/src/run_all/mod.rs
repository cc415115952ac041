//! Many commands at once, on one thread or in one task.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | a list of commands, each a command or a pipeline |
//! | `run_set.rs` | the runs under way, in one wait; the queue: which command starts next, and the results |
//! | `guarded.rs` | the same with a thread that sees to the times while the owner is elsewhere |
//! | `runner.rs` | a runner, which takes more commands while some run |
//! | `task.rs` | the same for tasks, and their wakers |

mod guarded;
mod run_set;
mod runner;
#[cfg(feature = "tokio")]
mod task;

use std::ffi::OsString;
use std::num::NonZero;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use pipewright_os::base::wake::{WaitEvent, Wake};

use crate::cancel::CancelToken;
use crate::command::{Aside, BegunChild, Command, StartingChild};
use crate::error::{Error, ErrorKind, FailedOperation};
use crate::output::Capture;
use crate::pipeline::{Pipeline, Stage};
use crate::run::{Next, Run, earlier};
use run_set::{
    CommandEnd, CommandSource, NextStep, Numbered, Queue, QueueRules, RunSet, RunningSet, in_order,
};

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
    /// Waits until the next command ends, but no longer than `limit`, for callers that also have other work. Zero
    /// starts commands if there is room, reads the output that is ready, and returns at once.
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

/// The running commands of a thread.
trait StepSet: RunningSet {
    /// Waits once for all members, but no longer than `limit`, and until the flag is raised. Returns the results of
    /// those that have ended.
    fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd>;
}

/// Waits until a command ends, but no longer than `until`, and until the flag is raised, which is then lowered.
fn next_end(
    queue: &mut Queue<impl CommandSource>,
    runs: &mut impl StepSet,
    wake: Option<&Wake>,
    until: Option<Instant>,
) -> Next<CommandEnd> {
    let mut is_late = false;
    loop {
        let step_until = match queue.next(runs) {
            NextStep::End(end) => return Next::Item(end),
            NextStep::Wait => {
                let due = queue.next_due(runs);
                match (runs.len(), due) {
                    (0, None) => return Next::Done,
                    _ if is_late => return Next::Pending,
                    _ => earlier(until, due),
                }
            }
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

/// A command or a pipeline, owned or borrowed: the type that [`run_all`](run_all) and
/// [`Runner::push`](crate::Runner::push) convert their commands to.
#[derive(Debug)]
pub struct Runnable<'a>(Box<dyn StartCapture + Send + Sync + 'a>);

/// A command that starts a capture. Used as a trait object, so that a program without pipelines does not contain their
/// code.
trait StartCapture: fmt::Debug {
    fn start(&mut self) -> Result<Run, Error>;
    /// Begins the capture, and does not wait for a slot's answer if the command is owned. `is_patient` is false if
    /// other starts wait for their files.
    fn begin(mut self: Box<Self>, _is_patient: bool) -> Result<BegunCapture, Error> {
        self.start().map(BegunCapture::Running)
    }
    /// Returns the name of the program, for errors.
    fn name(&self) -> OsString;
}

pub(crate) enum BegunCapture {
    Running(Run),
    /// A slot or a thread has been asked to start the command.
    Starting(StartingCapture),
}

/// A capture whose command a slot or a thread has been asked to start.
#[derive(Debug)]
pub(crate) struct StartingCapture {
    starter: Starter,
    phase: StartPhase,
    /// The time of the next phase.
    until: Option<Instant>,
}

/// A start that has been asked for.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are in a slot, and have no allocation for it"
)]
enum Starter {
    Slot(StartingChild, Box<Command>),
    Thread(Box<dyn Aside>),
}

/// A phase of a start. Each may end with its result.
#[derive(Debug, Clone, Copy)]
enum StartPhase {
    Wanted,
    /// Its child would be stopped at once. A start that answers in time is left to do so: then the child gets its stop
    /// signal.
    Unwanted(Reason),
    /// The child is killed, and what starts it.
    Killed(Reason),
}

/// The reason why a start is not wanted any more.
#[derive(Debug, Clone, Copy)]
enum Reason {
    Stop,
    Timeout,
}

/// The time that a start has that is not wanted any more.
const UNWANTED_START_WAIT: Duration = Duration::from_secs(1);

/// The time that a killed start has to end. One that takes longer is stuck in the kernel.
const KILLED_START_WAIT: Duration = Duration::from_secs(5);

/// The least time between two looks at a start that nobody waits for.
const LEAST_LOOK: Duration = Duration::from_millis(100);

impl StartingCapture {
    fn new(starter: Starter) -> StartingCapture {
        let until = match &starter {
            Starter::Slot(child, _) => child.until(),
            Starter::Thread(start) => start.until(),
        };
        StartingCapture { starter, phase: StartPhase::Wanted, until }
    }

    /// Returns the event that ends the wait for the start.
    pub(crate) fn result(&self) -> &dyn WaitEvent {
        match &self.starter {
            Starter::Slot(child, _) => child.result(),
            Starter::Thread(start) => start.result(),
        }
    }

    /// Returns true if it waits on a thread of its own.
    pub(crate) fn is_aside(&self) -> bool {
        matches!(self.starter, Starter::Thread(_))
    }

    /// Returns the time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns the time at which to look at it at the latest, while nobody waits for its result. With an idle timeout
    /// alone nothing else would: its child may be running.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let command = match &self.starter {
            Starter::Slot(_, command) => command,
            Starter::Thread(start) => start.command(),
        };
        let idle = command.longest_silence().map(|idle| idle.max(LEAST_LOOK));
        earlier(self.until, idle.and_then(|idle| Instant::now().checked_add(idle)))
    }

    /// Stops it. If its child runs then, that has to be stopped, too.
    pub(crate) fn stop(&mut self) {
        if matches!(self.phase, StartPhase::Wanted) {
            self.enter(StartPhase::Unwanted(Reason::Stop), UNWANTED_START_WAIT);
        }
    }

    /// Returns true if it was stopped, and not by its timeout.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.phase, StartPhase::Unwanted(Reason::Stop) | StartPhase::Killed(Reason::Stop))
    }

    /// Enters the next phase if it is time for it. Returns true after the last one: its program or its directory may be
    /// on a mount that does not answer, and the kernel does not end it.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        if self.until.is_none_or(|until| now < until) {
            return false;
        }
        match self.phase {
            StartPhase::Wanted => {
                self.enter(StartPhase::Unwanted(Reason::Timeout), UNWANTED_START_WAIT);
            }
            StartPhase::Unwanted(reason) => {
                self.enter(StartPhase::Killed(reason), KILLED_START_WAIT);
                match &mut self.starter {
                    Starter::Slot(child, _) => child.end(),
                    Starter::Thread(start) => start.end(),
                }
            }
            StartPhase::Killed(_) => return true,
        }
        false
    }

    fn enter(&mut self, phase: StartPhase, limit: Duration) {
        self.phase = phase;
        self.until = Instant::now().checked_add(limit);
    }

    /// Returns the error of a start that does not end.
    pub(crate) fn give_up(self) -> Error {
        self.unanswered("answers, and its process cannot be killed now")
    }

    fn unanswered(&self, words: &str) -> Error {
        let kind = match self.is_stopped() {
            true => io::ErrorKind::Interrupted,
            false => io::ErrorKind::TimedOut,
        };
        let source = io::Error::new(kind, format!("its file or its directory never {words}"));
        let program = match &self.starter {
            Starter::Slot(_, command) => command.get_program(),
            Starter::Thread(start) => start.command().get_program(),
        };
        Error::new(program, FailedOperation::Start, ErrorKind::Io, Some(source))
    }

    /// Waits for the start.
    pub(crate) fn finish(self) -> Result<Run, Error> {
        let is_killed = matches!(self.phase, StartPhase::Killed(_));
        let unanswered = is_killed.then(|| self.unanswered("answered"));
        let run = match self.starter {
            Starter::Slot(child, command) => {
                command.finish_child(child).map(|started| command.captured(started))
            }
            Starter::Thread(start) => start.finish(),
        };
        run.map_err(|error| unanswered.unwrap_or(error))
    }
}

impl Runnable<'_> {
    /// Begins the capture, and does not wait for a slot's answer if the command is owned. With `is_patient` it waits
    /// for a moment, if the command may start aside.
    pub(crate) fn begin(self, is_patient: bool) -> Result<BegunCapture, Error> {
        self.0.begin(is_patient)
    }

    /// Starts the capture.
    #[cfg(feature = "tokio")]
    pub(crate) fn start(&mut self) -> Result<Run, Error> {
        self.0.start()
    }

    /// Returns the name of the program, for errors.
    pub(crate) fn name(&self) -> OsString {
        self.0.name()
    }

    /// Returns the error of a command that was cancelled before it started.
    pub(crate) fn cancelled(&self) -> Error {
        Error::new(&self.name(), FailedOperation::Start, ErrorKind::Cancelled, None)
    }
}

impl StartCapture for Command {
    fn start(&mut self) -> Result<Run, Error> {
        self.start_capture()
    }

    fn begin(self: Box<Self>, is_patient: bool) -> Result<BegunCapture, Error> {
        let starter = match (self.aside(), is_patient) {
            (Some(start_aside), false) => Starter::Thread(start_aside(*self)?),
            (aside, _) => match (self.begin_capture(), aside) {
                (Ok(BegunChild::Started(started)), _) => {
                    return Ok(BegunCapture::Running(self.captured(started)));
                }
                (Ok(BegunChild::Starting(child)), _) => Starter::Slot(child, self),
                (Err(error), Some(start_aside)) if error.is_unanswered_start() => {
                    Starter::Thread(start_aside(*self)?)
                }
                (Err(error), _) => return Err(error),
            },
        };
        Ok(BegunCapture::Starting(StartingCapture::new(starter)))
    }

    fn name(&self) -> OsString {
        self.get_program().to_owned()
    }
}

impl StartCapture for Stage<'_> {
    fn start(&mut self) -> Result<Run, Error> {
        self.command_mut().start_capture()
    }

    fn name(&self) -> OsString {
        self.command().get_program().to_owned()
    }
}

impl StartCapture for Pipeline<'_> {
    fn start(&mut self) -> Result<Run, Error> {
        self.start_capture()
    }

    fn name(&self) -> OsString {
        Pipeline::name(self)
    }
}

impl<T: StartCapture> StartCapture for &mut T {
    fn start(&mut self) -> Result<Run, Error> {
        (**self).start()
    }

    fn name(&self) -> OsString {
        (**self).name()
    }
}

impl From<Command> for Runnable<'_> {
    fn from(command: Command) -> Self {
        Runnable(Box::new(command))
    }
}

impl<'a> From<&'a mut Command> for Runnable<'a> {
    fn from(command: &'a mut Command) -> Self {
        Runnable(Box::new(command))
    }
}

impl<'a> From<Stage<'a>> for Runnable<'a> {
    fn from(stage: Stage<'a>) -> Self {
        Runnable(Box::new(stage))
    }
}

impl<'a> From<Pipeline<'a>> for Runnable<'a> {
    fn from(pipeline: Pipeline<'a>) -> Self {
        Runnable(Box::new(pipeline))
    }
}

impl<'a> From<&'a mut Pipeline<'_>> for Runnable<'a> {
    fn from(pipeline: &'a mut Pipeline<'_>) -> Self {
        Runnable(Box::new(pipeline))
    }
}
