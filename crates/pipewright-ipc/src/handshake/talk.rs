//! One step of a handshake after the other: each with a deadline, each ended by the end of the worker.

use std::io::IoSlice;
use std::slice;
use std::time::{Duration, Instant};

use pipewright::{Child, Handle};
use pipewright_os::link::{Arrived, End};
use pipewright_os::mux::{self, Slot};

use crate::channel::status_of;
use crate::error::{Error, ErrorKind, Peer, Side};
use crate::wire::{Fields, Frame, Header, Invalid, MOST_HELLO_BYTES, kind};

/// An end over which nothing but the handshake goes.
pub(super) struct Talk<'a> {
    end: End,
    child: Option<&'a Child>,
    step: Duration,
    exited: bool,
}

/// What the other side has said.
pub(super) struct Heard {
    pub(super) kind: u8,
    pub(super) fields: Fields,
    pub(super) handle: Option<Handle>,
}

/// The first line of a rejection.
const REJECTED: &str = "rejected";

/// The end of the worker is waited for, for so long, after it has closed its end.
const END_TAKES: Duration = Duration::from_secs(1);

impl<'a> Talk<'a> {
    pub(super) fn new(end: End, child: Option<&'a Child>, step: Duration) -> Talk<'a> {
        Talk { end, child, step, exited: false }
    }

    pub(super) fn into_end(self) -> End {
        self.end
    }

    /// Says something, with a handle or without.
    pub(super) fn say(
        &mut self,
        kind: u8,
        body: &[u8],
        handle: Option<&Handle>,
    ) -> Result<(), Error> {
        let until = Instant::now().checked_add(self.step);
        let handles = u16::from(handle.is_some());
        let (bytes, count) = Header { handles, ..Header::new(kind, body.len()) }.encode();
        let head = bytes.get(..count).unwrap_or_default();
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        match handle {
            Some(handle) => {
                while !self.end.send_handles(&parts, slice::from_ref(handle))? {
                    self.wait(true, until)?;
                }
            }
            None => self.end.send(&parts).map_err(|error| self.explain(error.into()))?,
        }
        while self.end.flush().map_err(|error| self.explain(error.into()))? > 0 {
            self.wait(true, until)?;
        }
        Ok(())
    }

    /// What the other side says next, which has to be of that kind.
    pub(super) fn hear(&mut self, kind: u8, first: &str) -> Result<Heard, Error> {
        self.hear_one_of([kind, kind], [first, first])
    }

    /// The same, of one of two kinds.
    pub(super) fn hear_one_of(
        &mut self,
        kinds: [u8; 2],
        firsts: [&str; 2],
    ) -> Result<Heard, Error> {
        let until = Instant::now().checked_add(self.step);
        let header = self.header(until)?;
        let body = self.body(&header, until)?;
        if header.kind == kind::REJECT {
            return Err(rejection(&body));
        }
        let Some(place) = kinds.iter().position(|kind| *kind == header.kind) else {
            return Err(Invalid::Kind(header.kind).into());
        };
        let first = firsts.get(place).copied().unwrap_or_default();
        let fields = Fields::decode(&body, first);
        let fields = fields.ok_or_else(|| Error::protocol(format!("it did not say {first:?}")))?;
        let handle = self.handle(&header)?;
        Ok(Heard { kind: header.kind, fields, handle })
    }

    fn header(&mut self, until: Option<Instant>) -> Result<Header, Error> {
        loop {
            if let Frame::Header(header, count) = Header::decode(self.end.arrived())? {
                if header.length as usize > MOST_HELLO_BYTES || header.total.is_some() {
                    let (bytes, most) = (u64::from(header.length), MOST_HELLO_BYTES as u64);
                    return Err(Invalid::TooLong { bytes, most }.into());
                }
                self.end.consume(count);
                return Ok(header);
            }
            self.more(until)?;
        }
    }

    fn body(&mut self, header: &Header, until: Option<Instant>) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(body) = self.end.arrived().get(..header.length as usize) {
                let body = body.to_vec();
                self.end.consume(body.len());
                return Ok(body);
            }
            self.more(until)?;
        }
    }

    fn handle(&mut self, header: &Header) -> Result<Option<Handle>, Error> {
        if usize::from(header.handles) > self.end.waiting_handles() || header.handles > 1 {
            return Err(Error::protocol("a frame says that handles come with it, and none came"));
        }
        Ok(if header.handles == 1 { self.end.take_handle() } else { None })
    }

    /// Waits until more has come.
    fn more(&mut self, until: Option<Instant>) -> Result<(), Error> {
        loop {
            match self.end.receive(usize::MAX).map_err(|error| self.explain(error.into()))? {
                Arrived::Bytes { .. } => return Ok(()),
                Arrived::End => return Err(self.explain(died())),
                // It has ended, and somebody else holds its end.
                Arrived::Nothing if self.exited => return Err(self.explain(died())),
                Arrived::Nothing => self.wait(false, until)?,
            }
        }
    }

    fn wait(&mut self, for_room: bool, until: Option<Instant>) -> Result<(), Error> {
        let end = if for_room { Slot::Room(&self.end) } else { Slot::Arrival(&self.end) };
        let exit = match self.child {
            Some(child) if !self.exited => Slot::Exit(child.as_exit()),
            _ => Slot::Off,
        };
        let mut slots = [end, exit];
        if mux::wait(&mut slots, until)? == 0 {
            let peer = match self.child {
                Some(child) if child.as_exit().is_stopped() => Peer::Stopped { pid: child.id() },
                Some(child) => Peer::Runs { pid: child.id() },
                None => Peer::Connected,
            };
            let waiting_for = "the handshake";
            return Err(Error::new(ErrorKind::TimedOut { waiting_for, peer }));
        }
        self.exited |= matches!(slots, [_, Slot::ExitDone]);
        if self.exited && for_room {
            return Err(self.explain(died()));
        }
        Ok(())
    }

    /// Tells the other side why, and gives that error.
    pub(super) fn refuse(&mut self, error: Error) -> Error {
        let mut fields = Fields::default();
        if let ErrorKind::Refused { field, host, worker, by } = error.kind() {
            fields.set("by", by);
            fields.set("field", field);
            fields.set("host", host);
            fields.set("worker", worker);
        }
        // Ignored: who is not told finds the connection closed.
        let _ = self.say(kind::REJECT, &fields.encode(REJECTED), None);
        error
    }

    /// Adds how the worker ended. What it said before may still be there.
    fn explain(&self, error: Error) -> Error {
        let (ErrorKind::Died { .. }, Some(child)) = (error.kind(), self.child) else {
            return error;
        };
        match status_of(child.as_exit(), Instant::now().checked_add(END_TAKES)) {
            Some(status) => Error::new(ErrorKind::Died { status: Some(status) }),
            None => error,
        }
    }
}

fn died() -> Error {
    Error::new(ErrorKind::Died { status: None })
}

/// The other side's reason.
fn rejection(body: &[u8]) -> Error {
    let Some(fields) = Fields::decode(body, REJECTED) else {
        return Error::protocol("a rejection without a reason");
    };
    let field = |key: &str| fields.get(key).unwrap_or_default().to_owned();
    let by = if fields.get("by") == Some("host") { Side::Host } else { Side::Worker };
    let [host, worker] = ["host", "worker"].map(field);
    Error::new(ErrorKind::Refused { by, field: field("field"), host, worker })
}
