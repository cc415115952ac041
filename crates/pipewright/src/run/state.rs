//! The state of a run. Each step waits once, for all events, and handles the results.

mod act;
mod enforce;
mod finish;
mod panics;
mod so_far;
#[cfg(feature = "tokio")]
mod task;

pub(super) use enforce::NextLook;

use std::io;
use std::mem;
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::Ended;

use super::foreground::POLL_INTERVAL;
use super::info::RunInfo;
use super::read_coalescer::ReadCoalescer;
use super::sink::LimitCheck;
use super::started::Streams;
use super::stop_policy::StopPolicy;
use super::stop_targets::StopTargets;
use super::stream::{Chunk, Stream, is_full_read};
use super::terminal::HeldTerminal;
use crate::error::OperationError;
use crate::input::Feed;
use crate::outcome::{Outcome, Source};
use crate::rules::{Rules, earlier};

const STDOUT: usize = 0;
const STDERR: usize = 1;
const STDIN: usize = 2;
/// A descendant that got the stop signal. The run waits for them one at a time: all of them have to end anyway.
const MEMBER: usize = 3;
/// The number of slots that outlive a step.
const KEPT_SLOTS: usize = 4;
const EXIT: usize = 4;
const CANCEL: usize = 5;
pub(crate) const SLOTS: usize = 6;

/// The pauses between checks of a group that got the stop signal: it has no handle to wait for, so it is polled.
const FIRST_GROUP_PAUSE: Duration = Duration::from_millis(2);
const LAST_GROUP_PAUSE: Duration = Duration::from_millis(100);

/// The wait of a step.
#[derive(Debug)]
pub(crate) struct StepWait<'a> {
    pub(crate) slots: [Slot<'a>; SLOTS],
    pub(crate) until: Option<Instant>,
}

/// The state of a run between two waits.
#[derive(Debug)]
pub(crate) struct RunState {
    info: RunInfo,
    policy: StopPolicy,
    targets: StopTargets,
    feed: Option<Feed>,
    stdin_unread: u64,
    streams: [Stream; 2],
    coalescer: ReadCoalescer,
    /// Delays reads even of streams that somebody watches.
    coalesces_watched: bool,
    slots: [Slot<'static>; KEPT_SLOTS],
    /// The number of children that are known to have ended. The run waits for the children one at a time.
    ended_count: usize,
    /// The end of the last child, once all have ended.
    ended: Option<Ended>,
    held_open: bool,
    limit_exceeded: bool,
    /// True if a cancel came after the end and has been handled.
    given_up: bool,
    group_pause: Duration,
}

impl RunState {
    pub(crate) fn new(
        rules: &Rules,
        info: RunInfo,
        feed: Option<Feed>,
        streams: Streams,
    ) -> RunState {
        // Without streams there is nothing to delay, and a timer is not free.
        let reads = streams.iter().any(Option::is_some);
        let watched =
            !rules.coalesce_reads && streams.iter().flatten().any(|(_, sink)| sink.is_watched());
        let coalescer = match reads && !watched {
            true => ReadCoalescer::at_start(Instant::now()),
            false => ReadCoalescer::default(),
        };
        RunState {
            policy: StopPolicy::new(rules, info.started),
            info,
            targets: StopTargets::default(),
            feed,
            stdin_unread: 0,
            streams: streams.map(Stream::new),
            coalescer,
            coalesces_watched: rules.coalesce_reads,
            slots: Default::default(),
            ended_count: 0,
            ended: None,
            held_open: false,
            limit_exceeded: false,
            given_up: false,
            group_pause: Duration::ZERO,
        }
    }

    /// Gives a suspended run its input and its streams.
    pub(super) fn with_streams(
        self: Box<RunState>,
        feed: Option<Feed>,
        streams: Streams,
    ) -> RunState {
        // The first read is not delayed: there may be a chunk already.
        RunState { feed, streams: streams.map(Stream::new), ..*self }
    }

    /// Waits once and handles the results. Returns false if there was nothing left to wait for.
    pub(crate) fn step(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, OperationError> {
        self.step_until(None, children, rules)
    }

    /// Steps as [`step`](Self::step) does, but waits no longer than `until`.
    pub(crate) fn step_until(
        &mut self,
        until: Option<Instant>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, OperationError> {
        let Some(mut wait) = self.before(children, rules)? else { return Ok(false) };
        let waited = wait::any(&mut wait.slots, earlier(wait.until, until)).map(drop);
        let handled = self.after(&mut wait.slots, waited, children, rules);
        self.resume_panic();
        handled.map(|()| true)
    }

    /// Returns true if a wait until then is over and has more to wait for than what has just ended.
    pub(crate) fn is_late(&self, until: Option<Instant>) -> bool {
        let is_over = self.ended.is_some() && !self.is_reading() && !self.is_stopping();
        !is_over && until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns the events to wait for and the time limit, or `None` if there is nothing left to wait for.
    pub(crate) fn before<'a>(
        &mut self,
        children: &'a [ChildHandle],
        rules: &'a Rules,
    ) -> Result<Option<StepWait<'a>>, OperationError> {
        self.check_process("wait for")?;
        self.submit()?;
        let Some(until) = self.next_wait(children) else {
            // All that the stop has found are gone.
            return self
                .targets
                .take_missed(children)
                .map_or(Ok(None), |error| Err(("stop", error)));
        };
        Ok(Some(StepWait { slots: self.lend_slots(children, rules)?, until }))
    }

    /// Fails in a fork of the process that has started the children: they are not the fork's to stop.
    fn check_process(&self, doing: &'static str) -> Result<(), OperationError> {
        if self.info.made_in.is_current() {
            return Ok(());
        }
        let message = "this process is a fork of the one that started it";
        Err((doing, io::Error::new(io::ErrorKind::Unsupported, message)))
    }

    /// Takes back the slots that [`before`](Self::before) lent, and handles the results of the wait.
    /// [`resume_panic`](Self::resume_panic) comes after it.
    pub(crate) fn after(
        &mut self,
        slots: &mut [Slot<'_>],
        waited: io::Result<()>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), OperationError> {
        let now = Instant::now();
        self.take_back(slots);
        waited.map_err(|e| ("wait for", e))?;
        self.coalescer.expire(now);
        self.take_completions(now)?;
        // The end comes after the streams: their bytes were written before it.
        if matches!(slots.get(EXIT), Some(Slot::EventDone)) {
            self.note_end(children, now)?;
        }
        if let Some(job) = self.info.foreground.as_ref().filter(|_| self.ended.is_none()) {
            job.follow_stops(children);
        }
        if matches!(slots.get(CANCEL), Some(Slot::EventDone)) {
            self.handle_cancel(children, rules, now)?;
        } else if self.limit_exceeded {
            self.stop(Outcome::LimitExceeded, children, rules, now)?;
        }
        self.act(children, rules, now)
    }

    /// Takes back the slots that [`before`](Self::before) lent, if the wait is not over.
    pub(crate) fn take_back(&mut self, slots: &mut [Slot<'_>]) {
        // A loop: destructuring and mapping arrays would copy this code for every slot.
        for (kept, slot) in self.slots.iter_mut().zip(slots) {
            *kept = mem::take(slot).detach();
        }
    }

    /// Keeps nothing of the streams from now on.
    pub(crate) fn keep_nothing(&mut self) {
        for sink in self.streams.iter_mut().filter_map(|stream| stream.sink.as_mut()) {
            sink.keep_nothing();
        }
    }

    /// Takes the new bytes of a stream, or its end.
    pub(crate) fn take(&mut self, source: Source) -> Option<Chunk> {
        let index = source as usize;
        if matches!(self.slots[index], Slot::Read(..)) {
            // The pending read has the buffer, which had nothing new when it was lent.
            return None;
        }
        let at_end = !self.is_open(index);
        let bytes = self.streams[index].sink.as_mut()?.take(at_end)?;
        Some(Chunk { bytes, at_end })
    }

    /// Takes back a buffer. Its bytes come before the next chunk.
    pub(crate) fn give_back(&mut self, source: Source, buffer: Vec<u8>) {
        let stream = &mut self.streams[source as usize];
        if let (Some(_), Some(sink)) = (&stream.pipe, &mut stream.sink) {
            sink.give_back(buffer);
        }
    }

    /// Kills all processes after an error, and waits for as long as a kill may take. Survivors are left to the reaper.
    /// Does nothing in a fork of the process that has started them.
    pub(crate) fn abandon(&mut self, children: &[ChildHandle]) {
        if self.info.made_in.is_current() {
            // One limit for all waits after the first kill.
            self.targets.abandon(children, self.policy.killed_child_wait_ends());
        }
    }

    /// Fills the slots with the next reads and writes.
    fn submit(&mut self) -> Result<(), OperationError> {
        let paused = self.coalescer.until().is_some();
        for (slot, stream) in self.slots.iter_mut().zip(&mut self.streams) {
            match stream.next(paused).map_err(|e| ("store the output of", e))? {
                Slot::Off => {}
                next => *slot = next,
            }
        }
        if let (Some(feed), Slot::Off) = (&mut self.feed, &self.slots[STDIN]) {
            self.slots[STDIN] = feed.next().map_err(|e| ("read the input for", e))?;
        }
        Ok(())
    }

    /// Returns the time limit of the next wait, or `None` if there is nothing left to wait for.
    fn next_wait(&mut self, children: &[ChildHandle]) -> Option<Option<Instant>> {
        let reading = self.is_reading();
        let mut waiting = self.ended.is_none() || reading;
        let mut until = None;
        if self.ended.is_some() && self.policy.stopped().is_some() {
            if let Some(limit) = self.wait_for_targets(children) {
                until = limit;
                waiting = true;
            }
        }
        until = earlier(until, self.policy.next(reading));
        until = earlier(until, self.policy.killed_child_wait_ends());
        until = earlier(until, self.coalescer.until());
        if self.info.foreground.is_some() && self.ended.is_none() {
            until = earlier(until, Instant::now().checked_add(POLL_INTERVAL));
        }
        waiting.then_some(until)
    }

    /// Waits, after a stop, for the processes that it reached, one at a time. Returns the time limit, or `None` if none
    /// is left to wait for.
    fn wait_for_targets(&mut self, children: &[ChildHandle]) -> Option<Option<Instant>> {
        let now = Instant::now();
        if self.policy.killed_wait_ends().is_none_or(|end| now < end) {
            if let Some(member) = self.targets.remaining_member(children) {
                self.slots[MEMBER] = member.to_slot();
                return Some(self.policy.killed_wait_ends());
            }
            if self.targets.group_or_tree_is_alive(children) {
                self.group_pause =
                    (self.group_pause * 2).clamp(FIRST_GROUP_PAUSE, LAST_GROUP_PAUSE);
                return Some(Some(now + self.group_pause));
            }
        }
        self.policy.note_all_gone(now);
        None
    }

    fn lend_slots<'a>(
        &mut self,
        children: &'a [ChildHandle],
        rules: &'a Rules,
    ) -> Result<[Slot<'a>; SLOTS], OperationError> {
        let cancel = match &rules.cancel {
            Some(token) if self.policy.stopped().is_none() && !self.given_up => {
                Slot::Event(token.wake().map_err(|e| ("prepare to cancel", e))?)
            }
            _ => Slot::Off,
        };
        let mut slots: [Slot<'a>; SLOTS] = Default::default();
        for (slot, kept) in slots.iter_mut().zip(&mut self.slots) {
            *slot = mem::take(kept);
        }
        slots[EXIT] = children.get(self.ended_count).map_or(Slot::Off, |it| Slot::Event(it));
        slots[CANCEL] = cancel;
        Ok(slots)
    }

    /// Returns true if a stream is open, or a tee has unwritten bytes.
    fn is_reading(&self) -> bool {
        self.is_open(STDOUT) || self.is_open(STDERR) || self.policy.is_tee_blocked()
    }

    fn note_tee_blocked(&mut self) {
        self.policy.note_tee_blocked(self.streams.iter().any(Stream::has_pending_tee));
    }

    fn is_open(&self, index: usize) -> bool {
        self.streams[index].pipe.is_some() || matches!(self.slots[index], Slot::Read(..))
    }

    fn take_completions(&mut self, now: Instant) -> Result<(), OperationError> {
        for index in 0..KEPT_SLOTS {
            match mem::take(&mut self.slots[index]) {
                Slot::ReadDone(pipe, buffer, result) => {
                    let count = result.map_err(|e| ("read the output of", e))?;
                    self.note_chunk(index, pipe, buffer, count, now);
                }
                Slot::WriteDone(pipe, _, result) if index < STDIN => {
                    let stream = &mut self.streams[index];
                    if let Some(sink) = &mut stream.sink {
                        sink.note_written(pipe, result);
                        self.policy.note_output(now);
                    }
                    if stream.close_if_unwanted() {
                        self.info.terminal = HeldTerminal::default();
                    }
                }
                Slot::WriteDone(pipe, _, result) => {
                    if let Some(feed) = &mut self.feed {
                        feed.note(pipe, result).map_err(|e| ("write the input of", e))?;
                    }
                }
                Slot::EventDone => {}
                waiting => self.slots[index] = waiting,
            }
        }
        self.note_tee_blocked();
        Ok(())
    }

    fn note_chunk(
        &mut self,
        index: usize,
        pipe: PipeReader,
        buffer: Vec<u8>,
        count: usize,
        now: Instant,
    ) {
        let Stream { pipe: place, sink: Some(sink) } = &mut self.streams[index] else {
            return;
        };
        if count == 0 {
            // The end of the stream. Returning drops, and so closes, the pipe.
            sink.give_back(buffer);
            sink.note_end();
            return;
        }
        self.policy.note_output(now);
        let is_full = is_full_read(&pipe, &buffer, count);
        *place = Some(pipe);
        if (self.coalesces_watched || !sink.is_watched()) && self.ended.is_none() {
            self.coalescer.note(count, is_full, now);
        }
        self.limit_exceeded |= sink.accept(buffer, count) == LimitCheck::Exceeded;
        if self.streams[index].close_if_unwanted() {
            self.info.terminal = HeldTerminal::default();
        }
    }

    fn note_end(&mut self, children: &[ChildHandle], now: Instant) -> Result<(), OperationError> {
        let Some(child) = children.get(self.ended_count) else { return Ok(()) };
        if self.policy.stopped().is_some() {
            self.targets.before_reap(child);
        }
        let Some(ended) = child.try_wait().map_err(|e| ("wait for", e))? else { return Ok(()) };
        self.ended_count += 1;
        // Only the first child is fed.
        let fed = self.stop_feeding();
        if self.ended_count == children.len() {
            self.ended = Some(ended);
            self.info.terminal.child_end = None;
            if let Some(job) = &self.info.foreground {
                job.ended();
            }
            self.policy.note_end(now);
            self.coalescer.end();
        }
        // An error is returned only now: the end is recorded, and a later wait finds it.
        fed
    }

    fn stop_feeding(&mut self) -> Result<(), OperationError> {
        if let Some(feed) = self.feed.take() {
            self.slots[STDIN] = Slot::Off;
            self.stdin_unread = feed.unread();
        }
        if let Some(feed) = self.info.background_feed.take() {
            self.stdin_unread = feed.stop()?;
        }
        Ok(())
    }
}
