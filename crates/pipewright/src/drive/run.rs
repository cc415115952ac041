//! One run, step by step: a step waits once, for everything, and does what that brought.

mod act;
mod begin;
mod finish;
mod keep;
#[cfg(feature = "tokio")]
mod task;

use std::ffi::OsString;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::ChildHandle;
use pipewright_os::process::status::Ended;

use super::conduct::{Conduct, earlier};
use super::front::{Front, LOOK_PAUSE};
use super::nap::Nap;
use super::sink::Verdict;
use super::stepwise::Chunk;
use super::stream::Stream;
use super::{Feed, Reach, Sink};
use crate::child::Fed;
use crate::command::Rules;
use crate::outcome::{Outcome, Source};
use crate::trace::Trace;

/// What was being done, and what the system said.
pub(crate) type Failed = (&'static str, io::Error);

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

/// What a step waits for.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) slots: [Slot<'a>; SLOTS],
    pub(crate) until: Option<Instant>,
}

/// Where a run stands.
#[derive(Debug)]
pub(crate) struct Run {
    /// For whoever is told how it ended.
    program: OsString,
    started: Instant,
    conduct: Conduct,
    reach: Reach,
    feed: Option<Feed>,
    /// Input that somebody else feeds.
    fed: Option<Fed>,
    stdin_unread: u64,
    streams: [Stream; 2],
    nap: Nap,
    slots: [Slot<'static>; KEPT_SLOTS],
    /// How many children are known to have ended. One is waited for after the other.
    gone: usize,
    /// How the last of them did; then all have.
    ended: Option<Ended>,
    held_open: bool,
    too_much: bool,
    /// A cancel came after the end, and has been heeded.
    given_up: bool,
    group_pause: Duration,
    front: Option<Arc<dyn Front>>,
    trace: Trace,
}

impl Run {
    pub(crate) fn new(
        rules: &Rules,
        started: Instant,
        feed: Option<Feed>,
        streams: [Option<(PipeReader, Sink)>; 2],
    ) -> Run {
        // Of nothing to read there is nothing to put off, and a timer has its price.
        let reads = streams.iter().any(Option::is_some);
        let watched = streams.iter().flatten().any(|(_, sink)| sink.is_watched());
        Run {
            program: OsString::new(),
            started,
            conduct: Conduct::new(rules, started),
            reach: Reach::default(),
            feed,
            fed: None,
            stdin_unread: 0,
            streams: streams.map(Stream::new),
            nap: if reads && !watched { Nap::at_start(Instant::now()) } else { Nap::default() },
            slots: Default::default(),
            gone: 0,
            ended: None,
            held_open: false,
            too_much: false,
            given_up: false,
            group_pause: Duration::ZERO,
            front: None,
            trace: Trace::default(),
        }
    }

    /// Waits once and does what that brought. `false`: there is nothing left to wait for.
    pub(crate) fn step(&mut self, exits: &[ChildHandle], rules: &Rules) -> Result<bool, Failed> {
        self.step_until(None, exits, rules)
    }

    /// The same, and waits no longer than until then.
    pub(crate) fn step_until(
        &mut self,
        until: Option<Instant>,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, Failed> {
        let Some(mut wait) = self.before(exits, rules)? else { return Ok(false) };
        let waited = wait::any(&mut wait.slots, earlier(wait.until, until)).map(drop);
        self.after(&mut wait.slots, waited, exits, rules)?;
        Ok(true)
    }

    /// What to wait for, and until when; `None`: there is nothing left to wait for.
    pub(crate) fn before<'a>(
        &mut self,
        exits: &'a [ChildHandle],
        rules: &'a Rules,
    ) -> Result<Option<Wait<'a>>, Failed> {
        self.submit()?;
        let Some(until) = self.what_to_wait_for(exits) else { return Ok(None) };
        Ok(Some(Wait { slots: self.lend_slots(exits, rules)?, until }))
    }

    /// Takes back what [`before`](Self::before) lent, and does what the wait brought.
    pub(crate) fn after(
        &mut self,
        slots: &mut [Slot<'_>],
        waited: io::Result<()>,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        let now = Instant::now();
        self.take_back(slots);
        waited.map_err(|e| ("wait for", e))?;
        self.nap.wake(now);
        self.take_completions(now)?;
        // The end after the streams: what it left in them came before it.
        if matches!(slots.get(EXIT), Some(Slot::EventDone)) {
            self.note_end(exits, now)?;
        }
        if let Some(front) = &self.front {
            front.look(exits);
        }
        if matches!(slots.get(CANCEL), Some(Slot::EventDone)) {
            self.heed(exits, rules, now)?;
        } else if self.too_much {
            self.stop(Outcome::LimitExceeded, exits, rules, now)?;
        }
        self.act(exits, rules, now)
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

    /// What has come of that stream and not been taken, or its end.
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
    pub(crate) fn abandon(&mut self, exits: &[ChildHandle]) {
        self.reach.abandon(exits);
    }

    /// Fills the slots with what is to be done next.
    fn submit(&mut self) -> Result<(), Failed> {
        let napping = self.nap.until().is_some();
        for (slot, stream) in self.slots.iter_mut().zip(&mut self.streams) {
            match stream.next(napping).map_err(|e| ("keep the output of", e))? {
                Slot::Off => {}
                next => *slot = next,
            }
        }
        if let (Some(feed), Slot::Off) = (&mut self.feed, &self.slots[STDIN]) {
            self.slots[STDIN] = feed.next().map_err(|e| ("read the input for", e))?;
        }
        Ok(())
    }

    /// Until when to wait; `None`: there is nothing left to wait for.
    fn what_to_wait_for(&mut self, exits: &[ChildHandle]) -> Option<Option<Instant>> {
        let reading = self.is_reading();
        let mut waiting = self.ended.is_none() || reading;
        let mut until = None;
        if self.ended.is_some() && self.conduct.stopped().is_some() {
            if let Some(others) = self.wait_for_the_others(exits) {
                until = others;
                waiting = true;
            }
        }
        until = earlier(until, self.conduct.next(reading));
        until = earlier(until, self.conduct.killed_child_wait_ends());
        until = earlier(until, self.nap.until());
        if self.front.is_some() && self.ended.is_none() {
            until = earlier(until, Instant::now().checked_add(LOOK_PAUSE));
        }
        waiting.then_some(until)
    }

    /// After a stop: waits for whom it reached, one after the other, as they all have to go.
    /// Until when to wait; `None`: for nobody.
    fn wait_for_the_others(&mut self, exits: &[ChildHandle]) -> Option<Option<Instant>> {
        let now = Instant::now();
        if self.conduct.killed_wait_ends().is_none_or(|end| now < end) {
            if let Some(member) = self.reach.someone_left(exits) {
                self.slots[MEMBER] = member.to_slot();
                return Some(self.conduct.killed_wait_ends());
            }
            if self.reach.others_are_left(exits) {
                self.group_pause =
                    (self.group_pause * 2).clamp(FIRST_GROUP_PAUSE, LAST_GROUP_PAUSE);
                return Some(Some(now + self.group_pause));
            }
        }
        self.conduct.note_all_gone(now);
        None
    }

    fn lend_slots<'a>(
        &mut self,
        exits: &'a [ChildHandle],
        rules: &'a Rules,
    ) -> Result<[Slot<'a>; SLOTS], Failed> {
        let cancel = match &rules.cancel {
            Some(token) if self.conduct.stopped().is_none() && !self.given_up => {
                Slot::Event(token.wake().map_err(|e| ("prepare to cancel", e))?)
            }
            _ => Slot::Off,
        };
        let mut slots: [Slot<'a>; SLOTS] = Default::default();
        for (slot, kept) in slots.iter_mut().zip(&mut self.slots) {
            *slot = mem::take(kept);
        }
        slots[EXIT] = exits.get(self.gone).map_or(Slot::Off, |it| Slot::Event(it));
        slots[CANCEL] = cancel;
        Ok(slots)
    }

    /// Whether a stream is open, or has yet to be passed on.
    fn is_reading(&self) -> bool {
        self.is_open(STDOUT) || self.is_open(STDERR) || self.conduct.is_held_up()
    }

    fn note_held_up(&mut self) {
        self.conduct.note_held_up(self.streams.iter().any(Stream::is_behind));
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
                        self.conduct.note_output(now);
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
        self.conduct.note_output(now);
        *place = Some(pipe);
        if !sink.is_watched() && self.ended.is_none() {
            self.nap.note(count, buffer.len() == buffer.capacity(), now);
        }
        self.too_much |= sink.accept(buffer, count) == Verdict::TooMuch;
        self.streams[index].close_if_in_vain();
    }

    fn note_end(&mut self, exits: &[ChildHandle], now: Instant) -> Result<(), Failed> {
        let Some(exit) = exits.get(self.gone) else { return Ok(()) };
        if self.conduct.stopped().is_some() {
            self.reach.before_reap(exit);
        }
        let Some(ended) = exit.try_wait().map_err(|e| ("wait for", e))? else { return Ok(()) };
        self.gone += 1;
        // It was the first that was fed.
        let fed = self.stop_feeding();
        if self.gone == exits.len() {
            self.ended = Some(ended);
            self.conduct.note_end(now);
            self.nap.end();
        }
        // Only now: whoever waits for it again finds the end noted.
        fed
    }

    fn stop_feeding(&mut self) -> Result<(), Failed> {
        if let Some(feed) = self.feed.take() {
            self.slots[STDIN] = Slot::Off;
            self.stdin_unread = feed.unread();
        }
        if let Some(fed) = self.fed.take() {
            self.stdin_unread = fed.stop()?;
        }
        Ok(())
    }
}
