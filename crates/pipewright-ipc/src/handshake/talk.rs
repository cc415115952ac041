//! What the two sides of a handshake say to each other, and never a wait for it.

use std::io::{self, IoSlice};
use std::slice;

use pipewright::Handle;
use pipewright_os::channel::handle_channel::{Arrived, End, lacks_room_for_handles};

use crate::error::{Error, ErrorKind, Side};
use crate::wire::{Fields, Frame, Header, Invalid, MOST_HELLO_BYTES, kind};

/// An end over which nothing but the handshake goes.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) end: End,
    /// A handle came that this process has no room for.
    lost: Option<io::Error>,
}

/// What the other side has said.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) kind: u8,
    pub(super) fields: Fields,
    /// What came with it, or why nothing did.
    pub(super) handle: Result<Handle, String>,
}

/// What may be said next: a kind, and the first line of its body.
pub(super) type Expected = (u8, &'static str);

/// The first line of a rejection.
const REJECTED: &str = "rejected";

impl Talk {
    pub(super) fn new(end: End) -> Talk {
        Talk { end, lost: None }
    }

    /// Says something. What the system does not take at once is kept.
    pub(super) fn say(&mut self, kind: u8, body: &[u8]) -> Result<(), Error> {
        let (bytes, count) = Header::new(kind, body.len()).encode();
        let head = bytes.get(..count).unwrap_or_default();
        Ok(self.end.send(&[IoSlice::new(head), IoSlice::new(body)])?)
    }

    /// As [`say`](Self::say), with a handle. `false`: there is no room, and nothing was said.
    pub(super) fn say_with(
        &mut self,
        kind: u8,
        body: &[u8],
        handle: &Handle,
    ) -> Result<bool, Error> {
        if self.end.flush()? > 0 {
            return Ok(false);
        }
        let (bytes, count) = Header { handles: 1, ..Header::new(kind, body.len()) }.encode();
        let head = bytes.get(..count).unwrap_or_default();
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        Ok(self.end.send_handles(&parts, slice::from_ref(handle))?)
    }

    /// What the other side says next, if it has said it.
    pub(super) fn hear(&mut self, expected: &[Expected]) -> Result<Option<Heard>, Error> {
        let (header, count) = loop {
            match self.whole_frame()? {
                Some(frame) => break frame,
                None => match self.end.receive(usize::MAX) {
                    Ok(Arrived::Bytes { .. }) => {}
                    Ok(Arrived::Nothing) => return Ok(None),
                    Ok(Arrived::End) => return Err(Error::new(ErrorKind::Died { status: None })),
                    // That is our lack, and no fault of the other side: what came with it is here.
                    Err(error) if lacks_room_for_handles(&error) => self.lost = Some(error),
                    Err(error) => return Err(error.into()),
                },
            }
        };
        self.end.consume(count);
        let body = self.end.arrived().get(..header.length as usize).unwrap_or_default().to_vec();
        self.end.consume(body.len());
        if header.kind == kind::REJECT {
            return Err(rejection(&body));
        }
        let Some((_, first)) = expected.iter().find(|(kind, _)| *kind == header.kind) else {
            return Err(Invalid::Kind(header.kind).into());
        };
        let fields = Fields::decode(&body, first);
        let fields = fields.ok_or_else(|| Error::protocol(format!("it did not say {first:?}")))?;
        let handle = self.handle(&header)?;
        Ok(Some(Heard { kind: header.kind, fields, handle }))
    }

    /// The header of the next frame, and its length, if all of the frame is here.
    fn whole_frame(&self) -> Result<Option<(Header, usize)>, Error> {
        let Frame::Header(header, count) = Header::decode(self.end.arrived())? else {
            return Ok(None);
        };
        let length = header.length as usize;
        if length > MOST_HELLO_BYTES || header.total.is_some() {
            let (bytes, most) = (u64::from(header.length), MOST_HELLO_BYTES as u64);
            return Err(Invalid::TooLong { bytes, most }.into());
        }
        let is_whole = self.end.arrived().len() >= count + length;
        Ok(is_whole.then_some((header, count)))
    }

    /// The handle that came with a frame, or why there is none.
    fn handle(&mut self, header: &Header) -> Result<Result<Handle, String>, Error> {
        if header.handles == 0 {
            return Ok(Err("no memory was passed".to_owned()));
        }
        let came = if header.handles == 1 { self.end.take_handle() } else { None };
        match (came, self.lost.take()) {
            (Some(handle), _) => Ok(Ok(handle)),
            (None, Some(error)) => Ok(Err(format!("cannot take in a handle: {error}"))),
            _ => Err(Error::protocol("a frame says that handles come with it, and none came")),
        }
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
        let _ = self.say(kind::REJECT, &fields.encode(REJECTED));
        error
    }
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
