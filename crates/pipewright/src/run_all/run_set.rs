//! The runs that are under way, in one wait, and the commands that wait for their turn.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Fuse;
use std::time::{Duration, Instant};
use std::{io, panic};

use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

use super::{BegunCapture, Runnable, StartingCapture, StepSet};
use crate::cancel::CancelToken;
use crate::error::{Error, OperationError};
use crate::output::{Capture, into_text};
use crate::run::{LateTee, Resumed, Run, SLOTS, earlier};

/// The running commands.
#[derive(Debug, Default)]
pub(super) struct RunSet {
    members: Vec<RunningCommand>,
    /// The commands that slots or threads have been asked to start.
    starting: Vec<(usize, StartingCapture)>,
    /// The results of starts that failed after they had begun.
    failed: Vec<CommandEnd>,
    /// The owner calls the closures of tees between two steps.
    calls_tees_late: bool,
}

/// A tee of a member that its owner calls.
#[derive(Debug)]
pub(super) struct MemberTee {
    member: usize,
    stream: usize,
    pub(super) tee: LateTee,
}

/// A started command.
#[derive(Debug)]
struct RunningCommand {
    index: usize,
    run: Run,
}

/// The step of a member that waits, or the result of one that has nothing to wait for.
enum MemberStep {
    Waiting,
    Done(Result<bool, OperationError>),
}

impl RunningSet for RunSet {
    fn len(&self) -> usize {
        self.members.len() + self.starting.len() + self.failed.len()
    }

    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error> {
        let is_patient = !self.starting.iter().any(|(_, start)| start.is_aside());
        match command.begin(is_patient)? {
            BegunCapture::Running(run) => self.add(index, run),
            BegunCapture::Starting(start) => self.starting.push((index, start)),
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.starting.iter_mut().for_each(|(_, start)| start.stop());
        self.members.iter_mut().for_each(|member| member.run.stop());
    }

    fn stop_one(&mut self, index: usize) -> bool {
        if let Some((_, start)) = self.starting.iter_mut().find(|(starting, _)| *starting == index)
        {
            start.stop();
            return true;
        }
        if let Some(member) = self.members.iter_mut().find(|member| member.index == index) {
            member.run.stop();
            return true;
        }
        self.failed.iter().any(|(failed, _)| *failed == index)
    }
}

impl StepSet for RunSet {
    fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        let ends = self.step_all(cancel, wake, limit);
        if ends.is_empty() {
            // One that came with results waits until they have been returned.
            self.resume_panics();
        }
        ends
    }
}

impl RunSet {
    /// Returns the number of the process of a command; `None` if it does not run.
    pub(super) fn pid(&self, index: usize) -> Option<u32> {
        let member = self.members.iter().find(|member| member.index == index);
        member.map(|member| member.run.pid())
    }

    /// Leaves the calls of the closures of tees to the owner, who makes them after each step, by
    /// [`take_late_tee`](Self::take_late_tee). Call it before the first start.
    pub(super) fn call_tees_late(&mut self) {
        self.calls_tees_late = true;
    }

    fn add(&mut self, index: usize, mut run: Run) {
        if let Some(run) = run.resume().filter(|_| self.calls_tees_late) {
            run.state.call_tees_late();
        }
        self.members.push(RunningCommand { index, run: run.enforced() });
    }

    /// Takes the next tee to call, from this member on.
    pub(super) fn take_late_tee(&mut self, from: usize) -> Option<MemberTee> {
        let members = self.members.iter_mut().enumerate().skip(from);
        members.filter(|_| self.calls_tees_late).find_map(|(member, running)| {
            let late = running.run.resume().and_then(|run| run.state.take_late_tee());
            running.run.suspend();
            late.map(|(stream, tee)| MemberTee { member, stream, tee })
        })
    }

    /// Takes back a tee that was called, and returns its member.
    pub(super) fn put_late_tee(&mut self, late: MemberTee) -> usize {
        let MemberTee { member, stream, tee } = late;
        if let Some(RunningCommand { run, .. }) = self.members.get_mut(member) {
            if let Some(run) = run.resume() {
                run.state.put_late_tee(stream, tee);
            }
            run.suspend();
        }
        member
    }

    /// Does what the times of all members require by now, and takes the starts that have been answered. Reads nothing,
    /// and returns no end. Returns the time at which it has something to do again.
    pub(super) fn enforce(&mut self) -> Option<Instant> {
        if !self.starting.is_empty() {
            let mut slots: Vec<_> =
                self.starting.iter().map(|it| Slot::Event(it.1.result())).collect();
            // Ignored: the owner looks again, and reports the error.
            let _ = wait::any(&mut slots, Some(Instant::now()));
            let has_come: Vec<_> =
                slots.iter().map(|slot| matches!(slot, Slot::EventDone)).collect();
            drop(slots);
            self.finish_starts(&has_come);
        }
        let now = Instant::now();
        for RunningCommand { run, .. } in &mut self.members {
            if let Some(Resumed { state, children, rules }) = run.resume() {
                state.enforce(children, rules, now);
            }
            run.suspend();
        }
        self.next_due()
    }

    /// Returns the time at which [`enforce`](Self::enforce) has something to do.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        let of_starts = self.starting.iter().filter_map(|(_, start)| start.next_due()).min();
        let members = self.members.iter_mut();
        members.fold(of_starts, |due, member| earlier(due, member.next_due()))
    }

    /// Returns the first time of the command that was started last.
    pub(super) fn due_of_last_start(&mut self) -> Option<Instant> {
        let of_start = self.starting.last().and_then(|(_, start)| start.next_due());
        earlier(of_start, self.members.last_mut().and_then(RunningCommand::next_due))
    }

    fn finish_start(&mut self, index: usize, start: StartingCapture) {
        let is_stopped = start.is_stopped();
        match start.finish() {
            Ok(run) => {
                self.add(index, run);
                if is_stopped {
                    self.stop_one(index);
                }
            }
            Err(error) => self.failed.push((index, Err(error))),
        }
    }

    /// Finishes the starts whose results have come.
    fn finish_starts(&mut self, has_come: &[bool]) {
        // From the end: the start that replaces a removed one has already been handled.
        for (at, has_come) in has_come.iter().enumerate().rev() {
            if *has_come {
                let (index, start) = self.starting.swap_remove(at);
                self.finish_start(index, start);
            }
        }
        self.expire_starts();
    }

    /// Ends the starts whose time is over, and gives up those that do not end.
    fn expire_starts(&mut self) {
        if self.starting.is_empty() {
            return;
        }
        let now = Instant::now();
        for at in (0..self.starting.len()).rev() {
            if self.starting.get_mut(at).is_some_and(|(_, start)| start.expire(now)) {
                let (index, start) = self.starting.swap_remove(at);
                self.failed.push((index, Err(start.give_up())));
            }
        }
    }

    /// Continues the panic of a tee's closure. The runs continue if the caller catches it.
    pub(super) fn resume_panics(&mut self) {
        let panic = self.members.iter_mut().find_map(|member| member.run.take_panic());
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
    }

    /// Steps without the panics of this step.
    pub(super) fn step_all(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        // A panic that came with results, which were returned first.
        self.resume_panics();
        let mut slots = Vec::with_capacity(self.members.len() * SLOTS + self.starting.len() + 2);
        let mut steps = Vec::with_capacity(self.members.len());
        let mut until = limit;
        for member in &mut self.members {
            let Some(run) = member.run.resume() else {
                steps.push((None, MemberStep::Done(Ok(false))));
                continue;
            };
            let step = match run.state.before(run.children, run.rules) {
                Ok(Some(wait)) => {
                    slots.extend(wait.slots);
                    until = earlier(until, wait.until);
                    MemberStep::Waiting
                }
                Ok(None) => MemberStep::Done(Ok(false)),
                Err(failed) => MemberStep::Done(Err(failed)),
            };
            steps.push((Some(run), step));
        }
        let has_ends = steps.iter().any(|(_, step)| matches!(step, MemberStep::Done(_)));
        if has_ends || !self.failed.is_empty() {
            // There are results to return now, so the wait must not block.
            until = Some(Instant::now());
        }
        let starts_at = slots.len();
        for (_, start) in &self.starting {
            slots.push(Slot::Event(start.result()));
            until = earlier(until, start.until());
        }
        slots.extend(wake.map(|wake| Slot::Event(wake)));
        // Ignored: a token without a flag is checked when something else wakes this thread.
        slots.extend(cancel.and_then(|token| token.wake().ok()).map(|it| Slot::Event(it)));
        let waited = wait::any(&mut slots, until).map(drop);
        if let (Some(token), Some(Slot::EventDone)) = (cancel, slots.last()) {
            forward_signals(token, steps.iter().filter_map(|(run, _)| run.as_ref()));
        }
        let starts = slots.iter().skip(starts_at).take(self.starting.len());
        let has_come: Vec<_> = starts.map(|slot| matches!(slot, Slot::EventDone)).collect();
        let mut lent = slots.chunks_mut(SLOTS);
        for (run, step) in &mut steps {
            let (Some(run), MemberStep::Waiting) = (run, &*step) else {
                // It lent no slots.
                continue;
            };
            let slots = lent.next().unwrap_or_default();
            let waited = waited.as_ref().map_err(copy_error).copied();
            if let Err(failed) = run.state.after(slots, waited, run.children, run.rules) {
                *step = MemberStep::Done(Err(failed));
            }
        }
        drop(slots);
        let done = steps.into_iter().enumerate().filter_map(|(at, (_, step))| match step {
            MemberStep::Waiting => None,
            MemberStep::Done(stepped) => Some((at, stepped)),
        });
        let done = done.collect();
        let mut ends = self.remove_ended(done);
        self.finish_starts(&has_come);
        ends.append(&mut self.failed);
        ends
    }

    /// Removes the members that have ended, and returns their results. The others are left to the background.
    fn remove_ended(
        &mut self,
        done: Vec<(usize, Result<bool, OperationError>)>,
    ) -> Vec<CommandEnd> {
        let mut ends = Vec::new();
        // From the end: the member that replaces a removed one has not ended.
        for (at, stepped) in done.into_iter().rev() {
            let member = self.members.swap_remove(at);
            ends.push((member.index, member.end(stepped)));
        }
        self.members.iter_mut().for_each(|member| member.run.suspend());
        ends
    }
}

impl RunningCommand {
    fn next_due(&mut self) -> Option<Instant> {
        let next = self.run.resume().and_then(|run| run.state.next_due());
        self.run.suspend();
        next
    }

    fn end(mut self, stepped: Result<bool, OperationError>) -> Result<Capture, Error> {
        let output = self.run.end(stepped)?;
        into_text(self.run.program(), self.run.settings().decoding, output)
    }
}

impl Drop for RunSet {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.run.abandon());
    }
}

/// Forwards the token's signals to all children. Errors are ignored: a child has ended.
fn forward_signals<'a>(token: &CancelToken, runs: impl Iterator<Item = &'a Resumed<'a>> + Clone) {
    for signal in token.take_signals() {
        for child in runs.clone().flat_map(|run| run.children) {
            let _ = child.signal(signal);
        }
    }
}

/// Copies an error for another member.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}

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
    /// Returns the time at which a command may start that may not start yet.
    fn next_due(&self) -> Option<Instant> {
        None
    }
    /// Lets all commands start now.
    #[cfg(feature = "tokio")]
    fn hurry(&mut self) {}
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

    /// Returns the time at which a command may start that has room now. Call it when there is nothing else to do.
    pub(crate) fn next_due(&self, running: &impl RunningSet) -> Option<Instant> {
        let has_room = !self.stopped && running.len() < self.rules.concurrency;
        self.source.next_due().filter(|_| has_room)
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

/// The commands that have not been started.
#[derive(Debug, Default)]
pub(crate) struct QueuedCommands {
    /// Those that may start, in the order of their pushes.
    now: VecDeque<(usize, Runnable<'static>)>,
    /// Those that may start at a time, in the order of their times and pushes.
    later: BTreeMap<(Instant, usize), Runnable<'static>>,
}

impl QueuedCommands {
    fn len(&self) -> usize {
        self.now.len() + self.later.len()
    }

    /// Removes the command of this number.
    fn remove(&mut self, number: usize) -> Option<Runnable<'static>> {
        // Sorted: numbers are given in the order of the pushes.
        if let Ok(at) = self.now.binary_search_by_key(&number, |(number, _)| *number) {
            return self.now.remove(at).map(|(_, command)| command);
        }
        let key = *self.later.keys().find(|(_, later)| *later == number)?;
        self.later.remove(&key)
    }
}

impl CommandSource for QueuedCommands {
    fn start_next(&mut self, running: &mut impl RunningSet) -> Option<(usize, Result<(), Error>)> {
        let is_due = |due: Instant| due <= Instant::now();
        let (index, command) = match self.later.first_entry() {
            Some(first) if is_due(first.key().0) => {
                let ((_, index), command) = first.remove_entry();
                (index, command)
            }
            _ => self.now.pop_front()?,
        };
        Some((index, running.start(index, command)))
    }

    fn give_up(&mut self) -> Option<CommandEnd> {
        let later = || self.later.pop_first().map(|((_, index), command)| (index, command));
        let (index, command) = self.now.pop_front().or_else(later)?;
        Some((index, Err(command.cancelled())))
    }

    fn next_due(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((due, _), _)| *due)
    }

    #[cfg(feature = "tokio")]
    fn hurry(&mut self) {
        let later = std::mem::take(&mut self.later);
        self.now.extend(later.into_iter().map(|((_, number), command)| (number, command)));
        self.now.make_contiguous().sort_by_key(|(number, _)| *number);
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
        let number = self.number(key);
        self.queue.source.now.push_back((number, command));
    }

    pub(crate) fn push_after(&mut self, delay: Duration, key: K, command: Runnable<'static>) {
        /// Nobody waits for longer.
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        let (now, number) = (Instant::now(), self.number(key));
        let due = now.checked_add(delay).or_else(|| now.checked_add(CENTURY)).unwrap_or(now);
        self.queue.source.later.insert((due, number), command);
    }

    /// Returns the number of a command with that key.
    fn number(&mut self, key: K) -> usize {
        let number = self.next;
        self.keys.insert(number, key);
        self.next += 1;
        number
    }

    /// Returns the number of results that have not been returned.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.source.len()
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
        if let Some(command) = self.queue.source.remove(number) {
            self.queue.ends.push_back((number, Err(command.cancelled())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    /// One command that runs.
    struct Busy;

    impl RunningSet for Busy {
        fn len(&self) -> usize {
            1
        }

        fn start(&mut self, _: usize, _: Runnable<'_>) -> Result<(), Error> {
            Ok(())
        }

        fn stop(&mut self) {}

        fn stop_one(&mut self, _: usize) -> bool {
            false
        }
    }

    #[test]
    fn a_time_that_is_over_wakes_nobody_while_there_is_no_room() {
        // It would be looked at again and again, until a command ends.
        let mut queued = PushQueue::<_, RunSet>::new(1);
        queued.push_after(Duration::ZERO, "second", Command::new("true").into());
        assert_eq!(queued.queue.next_due(&Busy), None);
        queued.set_concurrency(2);
        assert!(queued.queue.next_due(&Busy).is_some_and(|due| due <= Instant::now()));
    }
}
