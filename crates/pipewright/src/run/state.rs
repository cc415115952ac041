//! The state of a run. Each step waits once, for all events, and handles the results.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
#[cfg(feature = "tokio")]
use std::future::poll_fn;
use std::path::Path;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use std::{io, mem, panic};

use pipewright_os::base::pipe::PipeReader;
#[cfg(feature = "tokio")]
use pipewright_os::base::wait::Watch;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::limits::{OutOfMemory, Victim};
use pipewright_os::process::pty;
use pipewright_os::process::start::StartsUnderWay;
use pipewright_os::process::status::Ended;

use super::ends::Ends;
use super::options::Rules;
use super::process::POLL_INTERVAL;
use super::run::{HeldTerminal, RunInfo, Streams};
use super::stop::{Due, StopPolicy, StopTargets, earlier};
use super::stream::{
    Chunk, Collected, LateTee, LimitCheck, ReadCoalescer, Sink, Stream, is_full_read,
};
use super::tee::PanicPayload;
use crate::cancel::CancelToken;
use crate::error::OperationError;
use crate::input::Feed;
use crate::outcome::{Exceeded, Outcome, Source};
use crate::output::Output;

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
    /// The starts that were under way when the streams seemed to be held.
    starts: Option<StartsUnderWay>,
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
            starts: None,
        }
    }

    /// Gives a suspended run its input and its streams.
    pub(super) fn with_streams(
        mut self: Box<RunState>,
        feed: Option<Feed>,
        streams: Streams,
    ) -> Box<RunState> {
        // The first read is not delayed: there may be a chunk already.
        (self.feed, self.streams) = (feed, streams.map(Stream::new));
        self
    }

    /// Waits once, but no longer than `until`, and handles the results. Returns false if there was nothing left to wait
    /// for.
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
        self.streams[index].sink.as_mut()?.take(at_end)
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
            if pty::LEADER_WAITS && self.info.terminal.is_held() {
                // Nobody reads on, and the child would not end.
                self.slots = Default::default();
                self.streams.iter_mut().for_each(|stream| stream.pipe = None);
                self.info.terminal = HeldTerminal::default();
            }
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
            if pty::ENDS_LATE && self.info.terminal.is_held() {
                self.policy.note_terminal_closes();
            }
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

impl RunState {
    /// Does everything that is due by now.
    fn act(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), OperationError> {
        if self.policy.killed_child_wait_ends().is_some_and(|end| now >= end) {
            let message = "still running 30 s after the kill";
            return Err(("stop", io::Error::new(io::ErrorKind::TimedOut, message)));
        }
        if self.policy.is_time_up(now) {
            self.note_ends_in_time(children, now)?;
        }
        loop {
            match self.policy.due(now, self.is_reading()) {
                Due::Nothing => return Ok(()),
                Due::StopReading if self.may_be_copied() && self.policy.look_again(now) => {}
                Due::StopReading => self.stop_reading(rules)?,
                due => self.carry_out(due, children, rules)?,
            }
        }
    }

    /// Returns true while a stream may only be held by a child that another thread is starting.
    fn may_be_copied(&mut self) -> bool {
        !self.starts.get_or_insert_with(StartsUnderWay::now).are_over()
    }

    /// Forwards the signals of the token, and stops the children if it is cancelled.
    fn handle_cancel(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), OperationError> {
        let Some(token) = &rules.cancel else { return Ok(()) };
        for signal in token.take_signals() {
            for child in children {
                // Ignored: it has ended meanwhile, or has changed its user.
                let _ = child.signal(signal);
            }
        }
        if token.is_cancelled() {
            self.note_ends_in_time(children, now)?;
            self.stop(Outcome::Cancelled, children, rules, now)?;
        }
        Ok(())
    }

    /// Records children that have already ended, so that a later timeout or cancel does not count as the reason. A task
    /// that was not polled for a while learns of readable streams first, and of the end only with its next poll.
    #[cold]
    fn note_ends_in_time(
        &mut self,
        children: &[ChildHandle],
        now: Instant,
    ) -> Result<(), OperationError> {
        loop {
            let ended_count = self.ended_count;
            if !self.is_stopping() {
                self.note_end(children, now)?;
            }
            if self.ended_count == ended_count {
                return Ok(());
            }
        }
    }

    /// Stops the children, unless they are being stopped already.
    pub(crate) fn stop(
        &mut self,
        outcome: Outcome,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> Result<(), OperationError> {
        self.check_process("stop")?;
        self.given_up |= self.ended.is_some();
        let due = self.policy.stop(outcome, now);
        self.carry_out(due, children, rules)
    }

    /// Stops the children with this grace. A stop that has begun goes on, and takes no longer than before.
    pub(crate) fn stop_within(
        &mut self,
        grace: Duration,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), OperationError> {
        let now = Instant::now();
        self.policy.set_grace(grace, now);
        self.stop(Outcome::Cancelled, children, rules, now)
    }

    fn carry_out(
        &mut self,
        due: Due,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), OperationError> {
        match due {
            Due::SendStopSignal => {
                let signal = rules.effective_stop_signal();
                self.info.trace.stopping(signal, self.policy.stopped());
                if !self.targets.request_stop(children, signal) {
                    self.policy.note_unsignalable();
                }
            }
            Due::Kill => {
                self.info.trace.killing(self.policy.stopped());
                self.targets.kill(children).map_err(|e| ("stop", e))?;
            }
            Due::Nothing | Due::StopReading => {}
        }
        Ok(())
    }

    /// Reads the bytes that are in the pipes now, and gives the pipes up.
    fn stop_reading(&mut self, rules: &Rules) -> Result<(), OperationError> {
        let was_blocked = self.policy.is_tee_blocked();
        for (slot, stream) in self.slots.iter_mut().zip(&mut self.streams) {
            let rest = stream.give_up(slot, rules.linger_drain);
            let rest = rest.map_err(|e| ("read the output of", e))?;
            self.limit_exceeded |= rest.exceeds_limit;
            self.held_open |= !rest.at_end;
        }
        self.note_tee_blocked();
        if !was_blocked && self.policy.is_tee_blocked() {
            // Its reader has just got the rest, and has as much time for it as for any other bytes.
            self.policy.note_output(Instant::now());
        }
        Ok(())
    }
}

/// The next wait for a run that is enforced.
#[derive(Debug, Default)]
pub(crate) struct NextLook {
    pub(crate) until: Option<Instant>,
    pub(crate) token: Option<CancelToken>,
}

impl RunState {
    /// Stops and kills if time or the token requires it. Reads nothing and records no end: the next wait does that, and
    /// also reports errors.
    pub(crate) fn enforce(
        &mut self,
        children: &[ChildHandle],
        rules: &Rules,
        now: Instant,
    ) -> NextLook {
        if !self.is_stopping() {
            if have_ended(children) {
                // They have ended in time, however late a caller notices that.
                return NextLook::default();
            }
            // Ignored here and below: the next wait tries again, and reports the error.
            let _ = self.handle_cancel(children, rules, now);
        }
        if self.has_unread_output() {
            // Unread output does not count as silence.
            self.policy.note_output(now);
        }
        loop {
            match self.policy.due(now, false) {
                Due::Nothing | Due::StopReading => break,
                due => {
                    let _ = self.carry_out(due, children, rules);
                }
            }
        }
        let token = rules.cancel.clone().filter(|_| !self.is_stopping());
        NextLook { until: self.policy.next(false), token }
    }

    /// Returns true once a stop has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.policy.stopped().is_some()
    }

    fn has_unread_output(&self) -> bool {
        [STDOUT, STDERR].into_iter().any(|index| {
            let pipe = match &self.slots[index] {
                Slot::Read(pipe, _) => Some(pipe),
                _ => self.streams[index].pipe.as_ref(),
            };
            pipe.is_some_and(|pipe| pipe.available().is_ok_and(|bytes| bytes > 0))
        })
    }
}

impl RunState {
    /// Returns the time at which [`enforce`](Self::enforce) has something to do.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.policy.next(false)
    }

    /// Leaves calls of the caller's code to [`take_late_tee`](Self::take_late_tee).
    pub(crate) fn call_tees_late(&mut self) {
        self.streams.iter_mut().filter_map(|it| it.sink.as_mut()).for_each(Sink::call_tee_late);
    }

    /// Takes a tee that is to be called now, with the number of its stream.
    pub(crate) fn take_late_tee(&mut self) -> Option<(usize, LateTee)> {
        let sinks = self.streams.iter_mut().map(|stream| stream.sink.as_mut());
        sinks.enumerate().find_map(|(index, sink)| Some((index, sink?.take_late()?)))
    }

    /// Takes back a tee that was called.
    pub(crate) fn put_late_tee(&mut self, index: usize, late: LateTee) {
        let stream = self.streams.get_mut(index);
        if let Some(sink) = stream.and_then(|stream| stream.sink.as_mut()) {
            sink.done_late(late);
        }
    }
}

/// Returns true if all are known to have ended. Does not wait: without pidfds a wait would need a thread.
fn have_ended(children: &[ChildHandle]) -> bool {
    children.iter().all(|child| !matches!(child.try_wait(), Ok(None)))
}

impl RunState {
    /// Returns true once all children are known to have ended.
    pub(crate) fn have_children_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the kept bytes of a stream, as the limit would cut them if it ended now.
    pub(crate) fn so_far(&self, source: Source) -> Cow<'_, [u8]> {
        match self.ends(source) {
            Some(ends) => ends.so_far().into(),
            None => self.kept(source).into(),
        }
    }

    /// Returns the number of bytes that are kept of a stream.
    pub(crate) fn bytes_so_far(&self, source: Source) -> usize {
        self.ends(source).map_or_else(|| self.kept(source).len(), Ends::bytes_so_far)
    }

    fn ends(&self, source: Source) -> Option<&dyn Ends> {
        self.streams[source as usize].sink.as_ref()?.ends()
    }

    fn kept(&self, source: Source) -> &[u8] {
        let index = source as usize;
        match (&self.slots[index], &self.streams[index].sink) {
            (Slot::Read(_, buffer) | Slot::ReadDone(_, buffer, _), _) => buffer,
            (_, Some(sink)) => sink.so_far(),
            (_, None) => &[],
        }
    }

    /// Moves the kept bytes of a stream into an empty buffer, whose memory is used for the next ones. Does nothing
    /// while a read has them, or if a limit decides which of them are kept.
    pub(crate) fn take_so_far(&mut self, source: Source, buffer: &mut Vec<u8>) {
        let index = source as usize;
        if let (Slot::Off, Some(sink)) = (&self.slots[index], &mut self.streams[index].sink) {
            sink.swap_kept(buffer);
        }
    }
}

impl RunState {
    /// Continues the panic of a tee's closure, if there was one.
    pub(crate) fn resume_panic(&mut self) {
        if let Some(payload) = self.take_panic() {
            panic::resume_unwind(payload);
        }
    }

    /// Takes the panic of a tee's closure.
    pub(crate) fn take_panic(&mut self) -> Option<PanicPayload> {
        let mut sinks = self.streams.iter_mut().filter_map(|stream| stream.sink.as_mut());
        sinks.find_map(Sink::take_panic)
    }
}

/// Returns the containment of the children. Stages that have joined the group of the first have none of their own.
fn containment(children: &[ChildHandle]) -> Containment {
    let mut all = children.iter().rev().map(ChildHandle::containment);
    all.find(|found| *found != Containment::None).unwrap_or(Containment::None)
}

impl RunState {
    /// Holds the sides of the child's terminal until the child has ended, or the run.
    pub(crate) fn hold(&mut self, terminal: HeldTerminal) {
        self.info.terminal = terminal;
    }

    /// Returns the result. With several children, it has the status of the last one. Ends held trees: the run is over.
    /// The caller adds the program's name.
    pub(crate) fn finish(
        self,
        children: &[ChildHandle],
        program: &OsStr,
    ) -> Result<Output, OperationError> {
        self.conclude(children, program, true)
    }

    /// Ends a wait for children whose owner keeps them. A held tree lasts until the owner drops it.
    pub(crate) fn finish_wait(self, children: &[ChildHandle]) -> Result<(), OperationError> {
        self.conclude(children, OsStr::new(""), false).map(drop)
    }

    fn conclude(
        mut self,
        children: &[ChildHandle],
        program: &OsStr,
        ends_trees: bool,
    ) -> Result<Output, OperationError> {
        let elapsed = self.info.started.elapsed();
        self.stop_feeding()?;
        let child = children.last().ok_or_else(|| ("wait for", io::ErrorKind::NotFound.into()))?;
        let ended = match self.ended {
            Some(ended) => ended,
            None => child.wait().map_err(|e| ("wait for", e))?,
        };
        // The run no longer waits for the rest of the tree, and kills it. Then the tree's figures are final.
        let trees = || children.iter().filter_map(ChildHandle::tree);
        let leftovers_killed = if ends_trees {
            let in_trees: u32 = trees().map(|tree| tree.end()).sum();
            in_trees + children.iter().map(ChildHandle::end_group).sum::<u32>()
        } else {
            0
        };
        let resources = child.tree().and_then(|tree| tree.resources());
        let out_of_memory = resources.as_ref().and_then(|it| it.out_of_memory).or_else(|| {
            trees().filter_map(|tree| tree.resources()).find_map(|it| it.out_of_memory)
        });
        let out_of_memory = out_of_memory.map(|oom| with_victim(oom, child.pid(), ended, program));
        let unstopped = match (out_of_memory, ended.status.signal()) {
            _ if self.limit_exceeded => Outcome::LimitExceeded,
            (Some(oom), _) => Outcome::OutOfMemory(oom),
            (None, Some(_)) => Outcome::Signaled,
            (None, None) => Outcome::Exited,
        };
        let outcome = self.policy.stopped().unwrap_or(unstopped);
        let exceeded = self.exceeded(outcome);
        let [out, err] = self.streams.map(|stream| stream.sink.map(Sink::finish));
        let total_bytes = |finished: &Option<Collected>| finished.as_ref().map(|it| it.total_bytes);
        let tee_failed = [&out, &err].into_iter().flatten().find_map(|it| it.tee_failed);
        let (stdout_bytes, stderr_bytes) = (total_bytes(&out), total_bytes(&err));
        let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        let output = Output {
            status: ended.status,
            stdout: out.kept,
            stderr: err.kept,
            outcome,
            exceeded,
            program: OsString::new(),
            pid: child.pid(),
            elapsed,
            out_of_memory,
            usage: ended.usage.map(|usage| child.refine_peak_memory(usage)),
            tree_usage: resources.as_ref().map(|resources| Box::new(resources.usage)),
            limits: resources.map(|resources| Box::new(resources.held)),
            held_open: self.held_open,
            truncated: out.truncated || err.truncated,
            tee_failed,
            stdin_unread: self.stdin_unread,
            containment: containment(children),
            leftovers_killed,
            stdout_bytes,
            stderr_bytes,
            stdout_file: out.file,
            stderr_file: err.file,
            stderr_merged: self.info.stderr_merged,
        };
        self.info.trace.run_ended(children, &output);
        Ok(output)
    }

    /// Returns the limit that this outcome is about.
    fn exceeded(&self, outcome: Outcome) -> Option<Exceeded> {
        match outcome {
            Outcome::TimedOut => {
                let deadline = self.policy.deadline()?;
                Some(Exceeded::Time(deadline.saturating_duration_since(self.info.started)))
            }
            Outcome::IdleTimedOut => self.policy.idle_timeout().map(Exceeded::Silence),
            Outcome::LimitExceeded => {
                let sinks = self.streams.iter().filter_map(|stream| stream.sink.as_ref());
                sinks.filter_map(Sink::fail_limit_bytes).next().map(Exceeded::Bytes)
            }
            _ => None,
        }
    }
}

/// Adds the victim, if the tree never had another process than the killed child.
fn with_victim(oom: OutOfMemory, pid: u32, ended: Ended, program: &OsStr) -> OutOfMemory {
    let was_child = ended.status.was_killed() && oom.peak_pids == Some(1);
    if oom.victim.is_some() || !was_child {
        return oom;
    }
    let name = Path::new(program).file_name().unwrap_or(program);
    let mut oom = oom;
    oom.victim = Some(Victim::new(pid, &name.to_string_lossy()));
    oom
}

#[cfg(feature = "tokio")]
impl RunState {
    /// Polls [`step_until`](Self::step_until). `Pending` leaves the state unchanged.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        until: Option<Instant>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Poll<Result<bool, OperationError>> {
        let Some(mut wait) = self.before(children, rules)? else { return Poll::Ready(Ok(false)) };
        match watch.poll_wait(cx, &mut wait.slots, earlier(wait.until, until)) {
            Poll::Ready(waited) => {
                let done = self.after(&mut wait.slots, waited.map(drop), children, rules);
                if let Some(payload) = self.take_panic() {
                    // A caller that catches the panic may poll again: nothing is registered.
                    cx.waker().wake_by_ref();
                    panic::resume_unwind(payload);
                }
                Poll::Ready(done.map(|()| true))
            }
            Poll::Pending => {
                self.take_back(&mut wait.slots);
                Poll::Pending
            }
        }
    }

    /// Waits until there is nothing left to wait for, but no longer than `until`. Returns false if there is more to
    /// wait for. An error does not affect the children.
    pub(crate) async fn run_until(
        &mut self,
        until: Option<Instant>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, OperationError> {
        // Dropped before the end is handled: its registrations would keep a pipe open.
        let mut watch = Watch::default();
        poll_fn(|cx| {
            loop {
                if let Err(error) = wait::check_runtime() {
                    return Poll::Ready(Err(("wait for", error)));
                }
                match ready!(self.poll_step(cx, &mut watch, until, children, rules)) {
                    Ok(true) if self.is_late(until) => {
                        // The runtime may not have looked at the child since it was registered.
                        self.note_ends_in_time(children, Instant::now())?;
                        if self.is_late(until) {
                            return Poll::Ready(Ok(false));
                        }
                    }
                    Ok(true) => {}
                    Ok(false) => return Poll::Ready(Ok(true)),
                    Err(failed) => return Poll::Ready(Err(failed)),
                }
            }
        })
        .await
    }
}
