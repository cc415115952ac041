//! One run, step by step: a step waits once, for everything, and does what that brought.

mod act;
mod enforce;
mod finish;
#[cfg(feature = "tokio")]
mod task;

pub(super) use enforce::NextLook;

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::Ended;

use super::foreground::{ForegroundJob, POLL_INTERVAL};
use super::read_coalescer::ReadCoalescer;
use super::sink::Verdict;
use super::started::Streams;
use super::stop_policy::StopPolicy;
use super::stop_targets::StopTargets;
use super::stream::{Chunk, Stream};
use crate::error::Failed;
use crate::input::{FedInput, Feed};
use crate::outcome::{Outcome, Source};
use crate::rules::{Rules, earlier};
use crate::trace::Trace;

const STDOUT: usize = 0;
const STDERR: usize = 1;
const STDIN: usize = 2;
/// One descendant that was told to stop, after the other: they all have to go anyway.
const MEMBER: usize = 3;
/// The slots that outlive a step.
const KEPT_SLOTS: usize = 4;
const EXIT: usize = 4;
const CANCEL: usize = 5;
pub(crate) const SLOTS: usize = 6;

/// A group that was told to stop has no handle to wait on: it is looked at after growing pauses.
const FIRST_GROUP_PAUSE: Duration = Duration::from_millis(2);
const LAST_GROUP_PAUSE: Duration = Duration::from_millis(100);

/// The wait of a step.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) slots: [Slot<'a>; SLOTS],
    pub(crate) until: Option<Instant>,
}

/// The facts about a run beside its children, its rules and its streams.
#[derive(Debug)]
pub(crate) struct RunInfo {
    /// For the result.
    pub(crate) program: OsString,
    pub(crate) started: Instant,
    /// Input that is fed in the background.
    pub(crate) background_feed: Option<Box<dyn FedInput>>,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
    pub(crate) trace: Trace,
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
    slots: [Slot<'static>; KEPT_SLOTS],
    /// The number of children that are known to have ended. One is waited for after the other.
    ended_count: usize,
    /// The end of the last child, once all have ended.
    ended: Option<Ended>,
    held_open: bool,
    limit_exceeded: bool,
    /// A cancel came after the end, and has been handled.
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
        let watched = streams.iter().flatten().any(|(_, sink)| sink.is_watched());
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
            slots: Default::default(),
            ended_count: 0,
            ended: None,
            held_open: false,
            limit_exceeded: false,
            given_up: false,
            group_pause: Duration::ZERO,
        }
    }

    /// Returns the same run, which was suspended, with the input and the streams that it has from now on.
    pub(super) fn reading(self: Box<RunState>, feed: Option<Feed>, streams: Streams) -> RunState {
        // Each chunk is looked at as it comes: there may be one already.
        RunState { feed, streams: streams.map(Stream::new), ..*self }
    }

    /// Waits once and does what that brought. `false`: there is nothing left to wait for.
    pub(crate) fn step(&mut self, children: &[ChildHandle], rules: &Rules) -> Result<bool, Failed> {
        self.step_until(None, children, rules)
    }

    /// The same, and waits no longer than until then.
    pub(crate) fn step_until(
        &mut self,
        until: Option<Instant>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, Failed> {
        let Some(mut wait) = self.before(children, rules)? else { return Ok(false) };
        let waited = wait::any(&mut wait.slots, earlier(wait.until, until)).map(drop);
        self.after(&mut wait.slots, waited, children, rules)?;
        Ok(true)
    }

    /// Returns what to wait for, and until when; `None`: there is nothing left to wait for.
    pub(crate) fn before<'a>(
        &mut self,
        children: &'a [ChildHandle],
        rules: &'a Rules,
    ) -> Result<Option<Wait<'a>>, Failed> {
        self.submit()?;
        let Some(until) = self.what_to_wait_for(children) else { return Ok(None) };
        Ok(Some(Wait { slots: self.lend_slots(children, rules)?, until }))
    }

    /// Takes back what [`before`](Self::before) lent, and does what the wait brought.
    pub(crate) fn after(
        &mut self,
        slots: &mut [Slot<'_>],
        waited: io::Result<()>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        let now = Instant::now();
        self.take_back(slots);
        waited.map_err(|e| ("wait for", e))?;
        self.coalescer.expire(now);
        self.take_completions(now)?;
        // The end after the streams: what it left in them came before it.
        if matches!(slots.get(EXIT), Some(Slot::EventDone)) {
            self.note_end(children, now)?;
        }
        if let Some(job) = &self.info.foreground {
            job.follow_stops(children);
        }
        if matches!(slots.get(CANCEL), Some(Slot::EventDone)) {
            self.handle_cancel(children, rules, now)?;
        } else if self.limit_exceeded {
            self.stop(Outcome::LimitExceeded, children, rules, now)?;
        }
        self.act(children, rules, now)
    }

    /// Takes back what [`before`](Self::before) lent, where the wait is not over.
    pub(crate) fn take_back(&mut self, slots: &mut [Slot<'_>]) {
        // In a loop: to take arrays apart and map them is a copy of the code for every slot.
        for (kept, slot) in self.slots.iter_mut().zip(slots) {
            *kept = mem::take(slot).detach();
        }
    }

    /// From here on nothing of the streams is kept.
    pub(crate) fn keep_nothing(&mut self) {
        for sink in self.streams.iter_mut().filter_map(|stream| stream.sink.as_mut()) {
            sink.keep_nothing();
        }
    }

    /// Takes what has come of that stream, or its end.
    pub(crate) fn take(&mut self, source: Source) -> Option<Chunk> {
        let index = source as usize;
        if matches!(self.slots[index], Slot::Read(..)) {
            // Its buffer is out with the read, and had nothing new when it went.
            return None;
        }
        let at_end = !self.is_open(index);
        let bytes = self.streams[index].sink.as_mut()?.take(at_end)?;
        Some(Chunk { bytes, at_end })
    }

    /// Takes back a buffer that was taken, with what is to stand before the next chunk.
    pub(crate) fn give_back(&mut self, source: Source, buffer: Vec<u8>) {
        let stream = &mut self.streams[source as usize];
        if let (Some(_), Some(sink)) = (&stream.pipe, &mut stream.sink) {
            sink.give_back(buffer);
        }
    }

    /// Whatever went wrong: kills, and waits as long as that can be expected to help. Who is left
    /// then is left to the reaper.
    pub(crate) fn abandon(&mut self, children: &[ChildHandle]) {
        self.targets.abandon(children);
    }

    /// Fills the slots with what is to be done next.
    fn submit(&mut self) -> Result<(), Failed> {
        let paused = self.coalescer.until().is_some();
        for (slot, stream) in self.slots.iter_mut().zip(&mut self.streams) {
            match stream.next(paused).map_err(|e| ("keep the output of", e))? {
                Slot::Off => {}
                next => *slot = next,
            }
        }
        if let (Some(feed), Slot::Off) = (&mut self.feed, &self.slots[STDIN]) {
            self.slots[STDIN] = feed.next().map_err(|e| ("read the input for", e))?;
        }
        Ok(())
    }

    /// Returns until when to wait; `None`: there is nothing left to wait for.
    fn what_to_wait_for(&mut self, children: &[ChildHandle]) -> Option<Option<Instant>> {
        let reading = self.is_reading();
        let mut waiting = self.ended.is_none() || reading;
        let mut until = None;
        if self.ended.is_some() && self.policy.stopped().is_some() {
            if let Some(others) = self.wait_for_the_others(children) {
                until = others;
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

    /// After a stop: waits for whom it reached, one after the other, as they all have to go.
    /// Until when to wait; `None`: for nobody.
    fn wait_for_the_others(&mut self, children: &[ChildHandle]) -> Option<Option<Instant>> {
        let now = Instant::now();
        if self.policy.killed_wait_ends().is_none_or(|end| now < end) {
            if let Some(member) = self.targets.someone_left(children) {
                self.slots[MEMBER] = member.to_slot();
                return Some(self.policy.killed_wait_ends());
            }
            if self.targets.others_are_left(children) {
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
    ) -> Result<[Slot<'a>; SLOTS], Failed> {
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

    /// Returns true if a stream is open, or has yet to be passed on.
    fn is_reading(&self) -> bool {
        self.is_open(STDOUT) || self.is_open(STDERR) || self.policy.is_held_up()
    }

    fn note_held_up(&mut self) {
        self.policy.note_held_up(self.streams.iter().any(Stream::is_behind));
    }

    fn is_open(&self, index: usize) -> bool {
        self.streams[index].pipe.is_some() || matches!(self.slots[index], Slot::Read(..))
    }

    fn take_completions(&mut self, now: Instant) -> Result<(), Failed> {
        for index in 0..KEPT_SLOTS {
            match mem::take(&mut self.slots[index]) {
                Slot::ReadDone(pipe, buffer, result) => {
                    let count = result.map_err(|e| ("read the output of", e))?;
                    self.note_chunk(index, pipe, buffer, count, now);
                }
                Slot::WriteDone(pipe, _, result) if index < STDIN => {
                    let stream = &mut self.streams[index];
                    if let Some(sink) = &mut stream.sink {
                        sink.note_passed(pipe, result);
                        self.policy.note_output(now);
                    }
                    stream.close_if_in_vain();
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
        self.note_held_up();
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
            // The end of the stream: the pipe is closed here.
            sink.give_back(buffer);
            sink.note_end();
            return;
        }
        self.policy.note_output(now);
        *place = Some(pipe);
        if !sink.is_watched() && self.ended.is_none() {
            self.coalescer.note(count, buffer.len() == buffer.capacity(), now);
        }
        self.limit_exceeded |= sink.accept(buffer, count) == Verdict::TooMuch;
        self.streams[index].close_if_in_vain();
    }

    fn note_end(&mut self, children: &[ChildHandle], now: Instant) -> Result<(), Failed> {
        let Some(child) = children.get(self.ended_count) else { return Ok(()) };
        if self.policy.stopped().is_some() {
            self.targets.before_reap(child);
        }
        let Some(ended) = child.try_wait().map_err(|e| ("wait for", e))? else { return Ok(()) };
        self.ended_count += 1;
        // It was the first that was fed.
        let fed = self.stop_feeding();
        if self.ended_count == children.len() {
            self.ended = Some(ended);
            self.policy.note_end(now);
            self.coalescer.end();
        }
        // Only now: whoever waits for it again finds the end noted.
        fed
    }

    fn stop_feeding(&mut self) -> Result<(), Failed> {
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
