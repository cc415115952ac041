//! The waiting of a channel: for messages, for room, for the end of the other side.

use std::time::{Duration, Instant};

use pipewright::{CancelToken, Child, ExitStatus};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::Arrived;
use pipewright_os::process::child::ChildHandle;

use super::incoming::Progress;
use super::line::Line;
use super::outgoing::FRAME_BYTES;
use super::sink::Nowhere;
use super::spin::Spin;
use crate::error::{Error, ErrorKind, Peer, WAIT, WATCH_TOKEN};
use crate::wire::{Header, kind};

/// Who has closed its end is about to end: its status is waited for, for so long.
pub(super) const END_TAKES: Duration = Duration::from_secs(1);

/// How long a worker has to end after the goodbye.
const CLOSE_TAKES: Duration = Duration::from_secs(5);

/// A channel whose messages are bytes.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) line: Line,
    pub(super) child: Option<Child>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) timeout: Option<Duration>,
    pub(super) spin: Spin,
    /// For values on their way to bytes, and for loans that found no room.
    pub(super) scratch: Vec<u8>,
    /// The child was seen to end.
    pub(super) exited: bool,
    /// What a task waits through.
    #[cfg(feature = "tokio")]
    pub(super) watch: wait::Watch,
}

impl Core {
    pub(super) fn new(line: Line, child: Option<Child>, spin: Duration) -> Core {
        Core {
            line,
            child,
            cancel: None,
            timeout: None,
            spin: Spin::new(spin),
            scratch: Vec::new(),
            exited: false,
            #[cfg(feature = "tokio")]
            watch: wait::Watch::default(),
        }
    }

    /// When a call that begins now has to end.
    #[inline]
    pub(crate) fn until(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Sends a message. After an error within it, nothing more can be sent.
    #[inline]
    pub(crate) fn send(
        &mut self,
        first: Header,
        body: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        by_its_twin!(self, self.send_async(first, body, until));
        let bytes = body.len() as u64;
        self.line.may_send(bytes)?;
        let mut frames = 0;
        let mut rest = body;
        loop {
            let now = rest.len().min(FRAME_BYTES);
            let (frame, after) = rest.split_at(now);
            let header = if frames == 0 {
                Header { total: (!after.is_empty()).then_some(bytes), ..first }
            } else {
                Header::new(kind::PART, 0)
            };
            let put = self.line.put(&Header { length: now as u32, ..header }, frame);
            frames += 1;
            if let Err(error) = put.and_then(|()| self.hand_over(until)) {
                self.line.outgoing.cut_off = true;
                return Err(self.explain(error, until));
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        self.line.note_sent(bytes, frames);
        Ok(())
    }

    /// Waits until the system has taken everything that was sent. Takes in what comes meanwhile: the
    /// other side may be waiting for exactly that.
    #[inline]
    pub(super) fn hand_over(&mut self, until: Option<Instant>) -> Result<(), Error> {
        if self.line.unsent() == 0 {
            return Ok(());
        }
        self.hand_over_slowly(until)
    }

    fn hand_over_slowly(&mut self, until: Option<Instant>) -> Result<(), Error> {
        by_its_twin!(self, self.hand_over_async(until));
        let began = Instant::now();
        while self.line.end.flush()? > 0 {
            self.wait_for_room(until)?;
        }
        self.line.stats.sent.blocked += began.elapsed();
        Ok(())
    }

    /// Waits once for room in the socket, and takes in what has come meanwhile.
    pub(super) fn wait_for_room(&mut self, until: Option<Instant>) -> Result<(), Error> {
        self.may_wait_for_room()?;
        let arrived = self.wait(Want::Room, until)?;
        self.take_in(arrived)
    }

    /// Whether there can be room once.
    pub(super) fn may_wait_for_room(&self) -> Result<(), Error> {
        if self.exited {
            return Err(Error::new(ErrorKind::Died { status: None }));
        }
        let most = self.line.limits.max_backlog_bytes;
        if self.line.end.arrived().len() >= most {
            return Err(Error::new(ErrorKind::Backlog { most }));
        }
        Ok(())
    }

    /// Keeps what has come while there was no room.
    pub(super) fn take_in(&mut self, arrived: bool) -> Result<(), Error> {
        let most = self.line.limits.max_backlog_bytes;
        if arrived {
            while let Arrived::Bytes { .. } = self.line.end.receive(most)? {}
        }
        Ok(())
    }

    /// Goes on with a step until it is done, and waits for the other side in between.
    #[inline]
    pub(super) fn receive(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Line) -> Result<Progress, Error>,
    ) -> Result<(), Error> {
        by_its_twin!(self, self.receive_async(until, step));
        loop {
            match step(&mut self.line) {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Nothing) => {}
                Err(error) => return Err(self.explain(error, until)),
            }
            if let Err(error) = self.wait_for_more(until) {
                return Err(self.explain(error, until));
            }
        }
    }

    fn wait_for_more(&mut self, until: Option<Instant>) -> Result<(), Error> {
        if !self.is_about_to_wait(true)? {
            return Ok(());
        }
        let began = Instant::now();
        let waited = self.wait(Want::Message, until);
        self.has_waited(began.elapsed());
        waited.map(drop)
    }

    /// Before a wait for a message. `false`: there may be one already.
    #[inline]
    pub(super) fn is_about_to_wait(&mut self, may_spin: bool) -> Result<bool, Error> {
        if self.exited {
            if self.line.be_eager() {
                // What it said last may be in the socket.
                return Ok(false);
            }
            return Err(Error::new(ErrorKind::Died { status: None }));
        }
        // What was kept by a call that does not wait.
        self.line.publish()?;
        self.line.end.flush()?;
        let in_order = !self.line.waits_for_socket();
        if in_order {
            if may_spin {
                let line = &self.line;
                let spun = self.spin.until(|| line.has_news());
                self.line.stats.received.spun += spun;
                self.line.stats.received.blocked += spun;
            }
            if self.line.has_news() {
                return Ok(false);
            }
            if let Some(ring) = &mut self.line.ring {
                return Ok(ring.into.fall_asleep(&ring.ours, &ring.theirs));
            }
        }
        Ok(true)
    }

    /// After a wait for a message.
    #[inline]
    pub(super) fn has_waited(&mut self, slept: Duration) {
        self.line.wake_up(slept);
        self.line.stats.received.blocked += slept;
        self.spin.note_sleep(slept);
    }

    /// Waits for the socket, the end of the child, the cancel token, the deadline. Whether something
    /// has arrived.
    fn wait(&mut self, want: Want, until: Option<Instant>) -> Result<bool, Error> {
        let wants_room = matches!(want, Want::Room) || self.line.unsent() > 0;
        let alone = self.child.is_none() && self.cancel.is_none() && until.is_none();
        if alone && !wants_room && !self.line.end.has_ended() {
            self.line.end.wait_and_receive()?;
            return Ok(true);
        }
        let mut slots = self.slots(want)?;
        let done = wait::any(&mut slots, until).map_err(Error::cannot(WAIT))?;
        let slots = slots.map(Slot::detach);
        self.note_wait(want, slots, done)
    }

    /// What to wait for: an arrival, room, the end of the child, the cancel token.
    pub(super) fn slots(&self, want: Want) -> Result<[Slot<'_>; 4], Error> {
        let end = &self.line.end;
        let wants_room = matches!(want, Want::Room) || self.line.unsent() > 0;
        let arrival = if end.has_ended() { Slot::Off } else { Slot::Event(end) };
        let room = if wants_room { Slot::Room(end) } else { Slot::Off };
        let exit = match &self.child {
            Some(child) if !self.exited => Slot::Event(child.child_handle()),
            _ => Slot::Off,
        };
        let cancel = match &self.cancel {
            Some(token) => Slot::Event(token.wake().map_err(Error::cannot(WATCH_TOKEN))?),
            None => Slot::Off,
        };
        Ok([arrival, room, exit, cancel])
    }

    /// What has come of a wait: whether something has arrived.
    pub(super) fn note_wait(
        &mut self,
        want: Want,
        slots: [Slot<'static>; 4],
        done: usize,
    ) -> Result<bool, Error> {
        let [arrival, _, exit, cancel] = slots;
        let arrived = matches!(arrival, Slot::EventDone);
        let (exited, woken) = (matches!(exit, Slot::EventDone), matches!(cancel, Slot::EventDone));
        if exited {
            // Not yet an error: what it sent before stands in the socket and in the ring.
            self.exited = true;
        }
        if done == 0 {
            return Err(self.timed_out(want));
        }
        if let (true, Some(token)) = (woken, &self.cancel) {
            if token.is_cancelled() {
                return Err(Error::new(ErrorKind::Cancelled));
            }
            // A signal that is on its way to somebody's child: none of ours.
            token.take_signals();
        }
        Ok(arrived)
    }

    pub(super) fn timed_out(&self, want: Want) -> Error {
        let peer = Peer::of(self.child.as_ref());
        let waiting_for = match want {
            Want::Message => "a message",
            Want::Room => "the other side to read",
        };
        Error::new(ErrorKind::TimedOut { waiting_for, peer })
    }

    /// Adds to an error of a connection how the other side ended, where it is our child.
    pub(super) fn explain(&mut self, error: Error, until: Option<Instant>) -> Error {
        let (ErrorKind::Died { status: None }, Some(child)) = (error.kind(), &self.child) else {
            return error;
        };
        let enough = Instant::now().checked_add(END_TAKES);
        let until = [until, enough].into_iter().flatten().min();
        match status_of(child.child_handle(), until) {
            Some(status) => Error::new(ErrorKind::Died { status: Some(status) }),
            None => error,
        }
    }

    /// Begins the next message. What is left of the one before is thrown away.
    #[inline]
    pub(super) fn begin(&mut self, until: Option<Instant>) -> Result<(), Error> {
        by_its_twin!(self, self.begin_async(until));
        self.begin_any(until)?;
        // Calls have hosts and workers of their own.
        self.line.has_begun(kind::MESSAGE)
    }

    /// The kind of the message that was begun, and the call that it belongs to.
    pub(crate) fn begun(&self) -> (u8, u64) {
        self.line.incoming_body().map_or((0, 0), |body| (body.kind, body.id))
    }

    /// As [`begin`](Self::begin), of whatever kind it is.
    #[inline]
    pub(crate) fn begin_any(&mut self, until: Option<Instant>) -> Result<(), Error> {
        self.skip(until)?;
        self.receive(until, Line::begin)
    }

    /// Throws away what is left of the message that was begun.
    #[inline]
    pub(super) fn skip(&mut self, until: Option<Instant>) -> Result<(), Error> {
        if self.line.body().is_some() {
            self.receive(until, |line| line.take(usize::MAX, &mut Nowhere))?;
            self.line.end_of_body();
        }
        Ok(())
    }

    /// As [`close`](Self::close), within the time that there is for it.
    pub(crate) fn close_in_time(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.close(self.close_until())
    }

    /// Until when a close may take. A host that reads slowly is no reason to give up, its end ends the wait.
    pub(super) fn close_until(&self) -> Option<Instant> {
        let timeout = self.timeout.or(self.child.is_some().then_some(CLOSE_TAKES))?;
        Instant::now().checked_add(timeout)
    }

    /// Says that no more comes, waits until the other side says so too, and for the end of the child.
    pub(super) fn close(&mut self, until: Option<Instant>) -> Result<Option<ExitStatus>, Error> {
        let said = self.line.say_goodbye();
        said.and_then(|()| self.hand_over(until)).map_err(|error| self.explain(error, until))?;
        loop {
            match self.begin(until) {
                Ok(()) => {}
                Err(error) if error.is_disconnect() => break,
                Err(error) => return Err(error),
            }
        }
        let Some(child) = &self.child else { return Ok(None) };
        match status_of(child.child_handle(), until) {
            Some(status) => Ok(Some(status)),
            None => Err(self.timed_out(Want::Message)),
        }
    }
}

/// What a wait is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Want {
    Message,
    Room,
}

/// How a child has ended, or ends until then.
pub(crate) fn status_of(exit: &ChildHandle, until: Option<Instant>) -> Option<ExitStatus> {
    // Ignored, here and below: a status that is lost is none.
    let _ = wait::any(&mut [Slot::Event(exit)], until);
    exit.try_wait().ok().flatten().map(|ended| ended.status)
}
