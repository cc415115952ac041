//! The loop on the calling thread: one wait for both streams, the input, the end and a cancel.

use std::ffi::OsStr;
use std::io;
use std::mem;
use std::time::{Duration, Instant};

use pipewright_os::exit::{Ended, Exit};
use pipewright_os::mux::{self, Slot};
use pipewright_os::pipe::PipeReader;

use super::conduct::{Conduct, Due, earlier};
use super::nap::Nap;
use super::sink::{Finished, Verdict};
use super::{Feed, Reach, Sink};
use crate::child::reaper;
use crate::command::Rules;
use crate::error::Error;
use crate::output::{Outcome, Output};

/// A started child, and what is to be done with it.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) program: &'a OsStr,
    pub(crate) exit: &'a Exit,
    pub(crate) started: Instant,
    pub(crate) rules: &'a Rules,
    pub(crate) feed: Option<Feed>,
    /// stdout and stderr, where they pass through us.
    pub(crate) streams: [Option<(PipeReader, Sink)>; 2],
}

/// Sees the child through to its end.
pub(crate) fn drive(job: Job<'_>) -> Result<Output, Error> {
    let program = job.program;
    let exit = job.exit;
    let own_group = job.rules.own_group;
    match Drive::new(job).and_then(Drive::run) {
        Ok(output) => Ok(output),
        Err((doing, source)) => {
            // Whatever went wrong: no child is left behind. Ignored: its status is of no use now.
            Reach::new(exit, own_group).kill();
            let _ = exit.wait();
            Err(Error::talk(program, doing, source))
        }
    }
}

/// What was being done, and what the system said.
type Failed = (&'static str, io::Error);

const STDOUT: usize = 0;
const STDERR: usize = 1;
const STDIN: usize = 2;
const EXIT: usize = 3;
const CANCEL: usize = 4;
/// One descendant that was told to stop, after the other: they all have to go anyway.
const MEMBER: usize = 5;
const SLOTS: usize = 6;

/// How often a group that was told to stop is looked at: it has no handle to wait on.
const GROUP_LOOK: Duration = Duration::from_millis(5);

struct Drive<'a> {
    exit: &'a Exit,
    rules: &'a Rules,
    started: Instant,
    conduct: Conduct,
    reach: Reach<'a>,
    feed: Option<Feed>,
    stdin_unread: u64,
    streams: [Stream; 2],
    slots: [Slot<'a>; SLOTS],
    ended: Option<Ended>,
    held_open: bool,
    too_much: bool,
}

/// One of the child's streams.
#[derive(Default)]
struct Stream {
    /// Here while it is not being read from; then it is in its slot.
    pipe: Option<PipeReader>,
    sink: Option<Sink>,
    nap: Nap,
}

impl<'a> Drive<'a> {
    fn new(job: Job<'a>) -> Result<Drive<'a>, Failed> {
        let mut slots: [Slot<'a>; SLOTS] = Default::default();
        slots[EXIT] = Slot::Exit(job.exit);
        if let Some(token) = &job.rules.cancel {
            slots[CANCEL] = Slot::Wake(token.wake().map_err(|e| ("prepare to cancel", e))?);
        }
        Ok(Drive {
            exit: job.exit,
            rules: job.rules,
            started: job.started,
            conduct: Conduct::new(job.rules, job.started),
            reach: Reach::new(job.exit, job.rules.own_group),
            feed: job.feed,
            stdin_unread: 0,
            streams: job.streams.map(|stream| match stream {
                Some((pipe, sink)) => {
                    Stream { pipe: Some(pipe), sink: Some(sink), nap: Nap::default() }
                }
                None => Stream::default(),
            }),
            slots,
            ended: None,
            held_open: false,
            too_much: false,
        })
    }

    fn run(mut self) -> Result<Output, Failed> {
        loop {
            self.submit()?;
            let Some(until) = self.what_to_wait_for() else { break };
            mux::wait(&mut self.slots, until).map_err(|e| ("wait for", e))?;
            let now = Instant::now();
            for stream in &mut self.streams {
                stream.nap.wake(now);
            }
            self.take_completions(now)?;
            self.act(now)?;
        }
        self.finish()
    }

    /// Fills the slots with what is to be done next.
    fn submit(&mut self) -> Result<(), Failed> {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if stream.nap.until().is_some() {
                continue;
            }
            if let (Some(pipe), Some(sink)) = (stream.pipe.take(), &mut stream.sink) {
                let buffer = sink.lend().map_err(|e| ("keep the output of", e))?;
                self.slots[index] = Slot::Read(pipe, buffer);
            }
        }
        if let (Some(feed), Slot::Off) = (&mut self.feed, &self.slots[STDIN]) {
            match feed.next().map_err(|e| ("read the input for", e))? {
                Some(write) => self.slots[STDIN] = write,
                None => self.stop_feeding(),
            }
        }
        Ok(())
    }

    /// Until when to wait; `None`: there is nothing left to wait for.
    fn what_to_wait_for(&mut self) -> Option<Option<Instant>> {
        let reading = (0..2).any(|index| self.is_open(index));
        let mut waiting = self.ended.is_none() || reading;
        let mut until = None;
        if self.ended.is_some() && self.conduct.stopped().is_some() {
            if let Some(others) = self.wait_for_the_others() {
                until = others;
                waiting = true;
            }
        }
        until = earlier(until, self.conduct.next());
        for stream in &self.streams {
            until = earlier(until, stream.nap.until());
        }
        waiting.then_some(until)
    }

    /// After a stop: waits for whom it reached, one after the other, as they all have to go.
    /// Until when to wait; `None`: for nobody.
    fn wait_for_the_others(&mut self) -> Option<Option<Instant>> {
        let now = Instant::now();
        if self.conduct.killed_wait_ends().is_none_or(|end| now < end) {
            if let Some(member) = self.reach.someone_left() {
                self.slots[MEMBER] = Slot::Gone(member);
                return Some(self.conduct.killed_wait_ends());
            }
            if self.reach.group_is_left() {
                return Some(Some(now + GROUP_LOOK));
            }
        }
        self.conduct.note_all_gone(now);
        None
    }

    fn is_open(&self, index: usize) -> bool {
        self.streams[index].pipe.is_some() || matches!(self.slots[index], Slot::Read(..))
    }

    fn take_completions(&mut self, now: Instant) -> Result<(), Failed> {
        for index in 0..SLOTS {
            match mem::take(&mut self.slots[index]) {
                Slot::ReadDone(pipe, buffer, result) => {
                    let count = result.map_err(|e| ("read the output of", e))?;
                    self.note_chunk(index, pipe, buffer, count, now);
                }
                Slot::WriteDone(pipe, _, result) => {
                    if let Some(feed) = &mut self.feed {
                        feed.note(pipe, result).map_err(|e| ("write the input of", e))?;
                    }
                }
                Slot::ExitDone => self.note_end(now)?,
                Slot::WakeDone => self.stop(Outcome::Cancelled, now),
                Slot::GoneDone => {}
                waiting => self.slots[index] = waiting,
            }
        }
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
        let Stream { pipe: place, sink: Some(sink), nap } = &mut self.streams[index] else {
            return;
        };
        if count == 0 {
            // The end of the stream: the pipe is closed here.
            sink.give_back(buffer);
            return;
        }
        self.conduct.note_output(now);
        *place = Some(pipe);
        if !sink.is_watched() && self.ended.is_none() {
            nap.note(count, now);
        }
        if sink.accept(buffer, count) == Verdict::TooMuch {
            self.too_much = true;
            self.stop(Outcome::LimitExceeded, now);
        }
    }

    fn note_end(&mut self, now: Instant) -> Result<(), Failed> {
        if self.conduct.stopped().is_some() {
            self.reach.before_reap();
        }
        self.ended = self.exit.try_wait().map_err(|e| ("wait for", e))?;
        if self.ended.is_none() {
            // It was ready and is not: only somebody else's reap could look like this.
            self.slots[EXIT] = Slot::Exit(self.exit);
            return Ok(());
        }
        self.conduct.note_end(now);
        self.stop_feeding();
        for stream in &mut self.streams {
            stream.nap.end();
        }
        Ok(())
    }

    fn stop_feeding(&mut self) {
        if let Some(feed) = self.feed.take() {
            let pipe = match mem::take(&mut self.slots[STDIN]) {
                Slot::Write(pipe, ..) => Some(pipe),
                _ => None,
            };
            self.stdin_unread = feed.unread(pipe);
        }
    }

    /// Does what time has made necessary.
    fn act(&mut self, now: Instant) -> Result<(), Failed> {
        loop {
            let due = self.conduct.due(now);
            match due {
                Due::Nothing => return Ok(()),
                Due::StopReading => return self.stop_reading(),
                Due::Ask | Due::Kill => self.carry_out(due),
            }
        }
    }

    fn stop(&mut self, why: Outcome, now: Instant) {
        let due = self.conduct.stop(why, now);
        self.carry_out(due);
    }

    fn carry_out(&mut self, due: Due) {
        match due {
            Due::Ask => self.reach.ask(self.rules.stop_signal),
            Due::Kill => self.reach.kill(),
            Due::Nothing | Due::StopReading => {}
        }
    }

    /// Takes what is in the pipes at this moment, and gives them up.
    fn stop_reading(&mut self) -> Result<(), Failed> {
        for index in [STDOUT, STDERR] {
            let (pipe, buffer) = match mem::take(&mut self.slots[index]) {
                Slot::Read(pipe, buffer) => (Some(pipe), Some(buffer)),
                other => {
                    self.slots[index] = other;
                    (self.streams[index].pipe.take(), None)
                }
            };
            let Some(sink) = &mut self.streams[index].sink else { continue };
            if let Some(buffer) = buffer {
                sink.give_back(buffer);
            }
            let Some(pipe) = pipe else { continue };
            let rest = take_rest(&pipe, sink).map_err(|e| ("read the output of", e))?;
            self.too_much |= rest.too_much;
            if !rest.at_end {
                self.held_open = true;
                if self.rules.linger_drain {
                    reaper::drain(pipe);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Output, Failed> {
        let elapsed = self.started.elapsed();
        self.stop_feeding();
        let ended = match self.ended {
            Some(ended) => ended,
            None => self.exit.wait().map_err(|e| ("wait for", e))?,
        };
        let by_itself = match ended.status.signal() {
            _ if self.too_much => Outcome::LimitExceeded,
            Some(_) => Outcome::Signaled,
            None => Outcome::Exited,
        };
        let [out, err] = self.streams.map(|stream| stream.sink.map(Sink::finish));
        let passed = |finished: &Option<Finished>| finished.as_ref().map(|it| it.total_bytes);
        let (stdout_bytes, stderr_bytes) = (passed(&out), passed(&err));
        let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
        Ok(Output {
            status: ended.status,
            stdout: out.kept,
            stderr: err.kept,
            outcome: self.conduct.stopped().unwrap_or(by_itself),
            pid: self.exit.pid(),
            elapsed,
            usage: ended.usage,
            held_open: self.held_open,
            truncated: out.truncated || err.truncated,
            stdin_unread: self.stdin_unread,
            stdout_bytes,
            stderr_bytes,
        })
    }
}

/// What [`take_rest`] found.
struct Rest {
    at_end: bool,
    too_much: bool,
}

/// Reads what is in the pipe now, and not what a fast writer adds meanwhile.
fn take_rest(pipe: &PipeReader, sink: &mut Sink) -> io::Result<Rest> {
    let mut left = pipe.available()?;
    let mut too_much = false;
    loop {
        let mut buffer = sink.lend()?;
        match pipe.try_read_spare(&mut buffer) {
            Ok(0) => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: true, too_much });
            }
            Ok(count) => {
                too_much |= sink.accept(buffer, count) == Verdict::TooMuch;
                left = left.saturating_sub(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: false, too_much });
            }
            Err(error) => return Err(error),
        }
        if left == 0 && pipe.available()? > 0 {
            return Ok(Rest { at_end: false, too_much });
        }
    }
}
