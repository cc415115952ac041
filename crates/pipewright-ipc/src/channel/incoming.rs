//! Receives frames in the order in which they were sent, and the bodies of messages, and never waits.

use std::io;
use std::time::Duration;

use pipewright::Handle;
use pipewright_os::channel::handle_channel::Arrived;

use super::line::{Line, SharedRing};
use super::sink::Sink;
use crate::error::{Error, ErrorKind};
use crate::wire::{Frame, Header, Invalid, kind};

/// What has been received.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Frames of the socket that had a place in the order, and were taken.
    through_socket: u64,
    /// The message whose body has not been taken completely.
    body: Option<Body>,
    /// The other side has said that no more comes.
    closed: bool,
    /// Look at the socket only after a wait: the last time there was nothing, and there was nothing when we
    /// began to wait. A question is never answered before it was sent, so to look first is a call in vain.
    patient: bool,
    /// The last wait was one.
    slept: bool,
}

/// A message of which the header has come.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) kind: u8,
    /// Which call it belongs to.
    pub(super) id: u64,
    /// How long it is.
    pub(super) total: u64,
    /// How much of it has not been taken.
    pub(super) left: u64,
    pub(super) handles: Vec<Handle>,
    part: Part,
}

/// The frame that the next bytes of the body are in.
#[derive(Debug)]
struct Part {
    left: usize,
    lane: Lane,
}

/// Where a frame's body is.
#[derive(Debug, Clone, Copy)]
enum Lane {
    Socket,
    /// In the ring: where to go on, and the position behind the record.
    Ring(usize, u64),
}

/// What there is.
enum Next {
    Frame(Header, Lane),
    Nothing,
}

/// How far a call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// There is more to come, and nothing is there now.
    Nothing,
}

impl Line {
    /// The message that is being received, if there is one.
    pub(super) fn body(&mut self) -> Option<&mut Body> {
        self.incoming.body.as_mut()
    }

    /// The same, to look at.
    pub(super) fn incoming_body(&self) -> Option<&Body> {
        self.incoming.body.as_ref()
    }

    /// Whether the message that was begun is of that kind.
    #[inline]
    pub(super) fn has_begun(&self, kind: u8) -> Result<(), Error> {
        match &self.incoming.body {
            Some(body) if body.kind != kind => Err(Invalid::Kind(body.kind).into()),
            _ => Ok(()),
        }
    }

    /// Begins the next message, if one is there. The one before has to be taken completely.
    #[inline]
    pub(super) fn begin(&mut self) -> Result<Progress, Error> {
        if self.incoming.closed {
            return Err(Error::new(ErrorKind::Closed));
        }
        let (header, lane) = match self.next()? {
            Next::Frame(header, lane) => (header, lane),
            Next::Nothing => return Ok(Progress::Nothing),
        };
        if header.kind == kind::GOODBYE {
            self.incoming.closed = true;
            return Err(Error::new(ErrorKind::Closed));
        }
        if !header.begins() {
            return Err(Invalid::Kind(header.kind).into());
        }
        let total = header.message_bytes(self.limits.max_message_bytes)?;
        let handles = match header.handles {
            0 => Vec::new(),
            _ => self.take_handles(&header, lane)?,
        };
        let part = Part { left: header.length as usize, lane };
        let Header { kind, id, .. } = header;
        self.incoming.body = Some(Body { kind, id, total, left: total, handles, part });
        self.stats.received.messages += 1;
        self.stats.received.bytes += total;
        self.stats.received.progressive_messages += u64::from(header.total.is_some());
        self.settle();
        Ok(Progress::Done)
    }

    fn take_handles(&mut self, header: &Header, lane: Lane) -> Result<Vec<Handle>, Error> {
        let count = usize::from(header.handles);
        if matches!(lane, Lane::Ring(..)) || count > self.end.waiting_handles() {
            return Err(Error::protocol("a frame says that handles come with it, and none came"));
        }
        Ok((0..count).filter_map(|_| self.end.take_handle()).collect())
    }

    /// The next frame in order. Its header is taken, its body is not.
    #[inline]
    fn next(&mut self) -> Result<Next, Error> {
        let mut ended = false;
        loop {
            if let Some(ring) = &mut self.ring {
                if let Some(record) = ring.into.peek(&ring.theirs)? {
                    if record.after == self.incoming.through_socket {
                        self.stats.received.shared_frames += 1;
                        self.stats.received.shared_bytes += u64::from(record.header.length);
                        let lane = Lane::Ring(record.body, record.end);
                        return Ok(Next::Frame(record.header, lane));
                    }
                    if record.after < self.incoming.through_socket {
                        return Err(Error::protocol("a record came too late"));
                    }
                }
            }
            // What stands here arrived before the ring was looked at.
            if let Frame::Header(header, count) = Header::decode(self.end.arrived())? {
                self.end.consume(count);
                if header.kind == kind::WAKE {
                    continue;
                }
                self.incoming.through_socket += 1;
                self.incoming.patient = self.incoming.slept;
                self.stats.received.inline_frames += 1;
                self.stats.received.inline_bytes += u64::from(header.length);
                return Ok(Next::Frame(header, Lane::Socket));
            }
            if ended {
                return Err(Error::new(ErrorKind::Died { status: None }));
            }
            if self.incoming.patient && !self.end.has_ended() {
                return Ok(Next::Nothing);
            }
            match self.end.receive(usize::MAX)? {
                Arrived::Bytes { .. } => {}
                Arrived::Nothing => return Ok(Next::Nothing),
                // What it put into the ring before it went is there, and is looked at once more.
                Arrived::End => ended = true,
            }
        }
    }

    /// Takes what there is of the message's body, at most so many bytes.
    #[inline]
    pub(super) fn take(&mut self, most: usize, sink: &mut impl Sink) -> Result<Progress, Error> {
        let mut most = most;
        loop {
            let Some(body) = &mut self.incoming.body else { return Ok(Progress::Done) };
            if body.left == 0 || most == 0 {
                self.settle();
                return Ok(Progress::Done);
            }
            if body.part.left == 0 {
                if self.next_part()? == Progress::Nothing {
                    return Ok(Progress::Nothing);
                }
                continue;
            }
            let wanted = most.min(body.part.left);
            let taken = match (&mut body.part.lane, &self.ring) {
                (Lane::Ring(at, _), Some(ring)) => {
                    sink.take_shared(&ring.theirs, *at, wanted)?;
                    *at += wanted;
                    wanted
                }
                _ => take_from_socket(&mut self.end, wanted, sink)?,
            };
            if taken == 0 {
                return Ok(Progress::Nothing);
            }
            most -= taken;
            body.part.left -= taken;
            body.left -= taken as u64;
            self.settle();
        }
    }

    /// Gives back what was taken completely: a record's place, a message.
    #[inline]
    fn settle(&mut self) {
        let Some(body) = &mut self.incoming.body else { return };
        if body.part.left == 0 {
            if let (Lane::Ring(_, end), Some(ring)) = (body.part.lane, &mut self.ring) {
                ring.into.release(&ring.ours, end);
                body.part.lane = Lane::Socket;
            }
        }
    }

    /// Forgets the message, which has been taken completely.
    #[inline]
    pub(super) fn end_of_body(&mut self) {
        self.incoming.body = None;
    }

    fn next_part(&mut self) -> Result<Progress, Error> {
        let (header, lane) = match self.next()? {
            Next::Frame(header, lane) => (header, lane),
            Next::Nothing => return Ok(Progress::Nothing),
        };
        let Some(body) = &mut self.incoming.body else { return Ok(Progress::Done) };
        if header.kind != kind::PART {
            return Err(Invalid::Kind(header.kind).into());
        }
        let fits = header.length != 0 && u64::from(header.length) <= body.left;
        if !fits || header.handles != 0 || header.total.is_some() {
            return Err(Invalid::Parts.into());
        }
        body.part = Part { left: header.length as usize, lane };
        Ok(Progress::Done)
    }

    /// Notes that it was waited, and how long: what was waited for is in the socket.
    pub(super) fn note_sleep(&mut self, slept: Duration) {
        self.incoming.slept = slept >= Duration::from_micros(3);
        self.incoming.patient = false;
    }

    /// Looks at the socket the next time, whether or not somebody waits. Whether it would not have been
    /// looked at.
    pub(super) fn be_eager(&mut self) -> bool {
        self.incoming.slept = false;
        std::mem::take(&mut self.incoming.patient)
    }

    /// Whether something is in the ring that was not looked at.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring: &SharedRing| ring.into.has_news(&ring.theirs))
    }

    /// Whether what stands in the ring has to wait for something from the socket.
    pub(super) fn waits_for_socket(&mut self) -> bool {
        let taken = self.incoming.through_socket;
        let Some(ring) = &mut self.ring else { return true };
        matches!(ring.into.peek(&ring.theirs), Ok(Some(record)) if record.after > taken)
    }
}

fn take_from_socket(
    end: &mut pipewright_os::channel::handle_channel::End,
    wanted: usize,
    sink: &mut impl Sink,
) -> io::Result<usize> {
    if end.arrived().is_empty() {
        let arrived = match sink.buffer() {
            Some(buffer) => end.receive_into(buffer, wanted)?,
            None => end.receive(usize::MAX)?,
        };
        match arrived {
            Arrived::Bytes { to_caller: 0, .. } => {}
            Arrived::Bytes { to_caller, .. } => return Ok(to_caller),
            Arrived::Nothing => return Ok(0),
            Arrived::End => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
    let count = wanted.min(end.arrived().len());
    sink.take(end.arrived().get(..count).unwrap_or_default())?;
    end.consume(count);
    Ok(count)
}
