//! The frames of a handshake. Nothing here waits.

use std::io::{self, IoSlice};
use std::slice;

use pipewright::Handle;
use pipewright_os::channel::handle_channel::{
    Arrived, ChannelEnd, drop_elsewhere, lacks_room_for_handles,
};

use crate::error::{Error, ErrorKind, Side};
use crate::wire::{Frame, Header, HelloFields, Invalid, MAX_HELLO_BYTES, kind};

/// An end of a handle channel during the handshake.
#[derive(Debug)]
pub(super) struct HandshakeStream {
    pub(super) end: ChannelEnd,
    /// The error of a handle that came while this process had no room for another one.
    handle_error: Option<io::Error>,
}

/// A frame of the other side.
#[derive(Debug)]
pub(super) struct ReceivedFrame {
    pub(super) kind: u8,
    pub(super) fields: HelloFields,
    /// The handle that came with the frame, or the reason why none did.
    pub(super) handle: Result<Handle, String>,
}

/// A frame that may come next: its kind, and the first line of its body.
pub(super) type Expected = (u8, &'static str);

/// The first line of a rejection.
const REJECTED: &str = "rejected";

impl HandshakeStream {
    pub(super) fn new(end: ChannelEnd) -> HandshakeStream {
        HandshakeStream { end, handle_error: None }
    }

    /// Sends a frame. Keeps what the system does not take at once.
    pub(super) fn send(&mut self, kind: u8, body: &[u8]) -> Result<(), Error> {
        let (bytes, count) = Header::new(kind, body.len()).encode();
        let head = bytes.get(..count).unwrap_or_default();
        Ok(self.end.send(&[IoSlice::new(head), IoSlice::new(body)])?)
    }

    /// Sends a frame with a handle. Returns false if there is no room, and nothing was sent.
    pub(super) fn send_with_handle(
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

    /// Returns the next frame, if all of it has arrived.
    pub(super) fn receive(
        &mut self,
        expected: &[Expected],
    ) -> Result<Option<ReceivedFrame>, Error> {
        let (header, count) = loop {
            match self.whole_frame()? {
                Some(frame) => break frame,
                None => match self.end.receive(usize::MAX) {
                    Ok(Arrived::Bytes { .. }) => {}
                    Ok(Arrived::Nothing) => return Ok(None),
                    Ok(Arrived::End) => return Err(Error::new(ErrorKind::Died { status: None })),
                    // A limit of this process, not a fault of the other side. The bytes have arrived.
                    Err(error) if lacks_room_for_handles(&error) => self.handle_error = Some(error),
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
        let fields = HelloFields::decode(&body, first);
        let fields = fields
            .ok_or_else(|| Error::protocol(format!("a frame without the first line {first:?}")))?;
        let handle = self.handle(&header)?;
        let handle = match handle {
            Ok(handle) if header.kind != kind::MEMORY => {
                drop_elsewhere(handle);
                return Err(Error::protocol("a handle came with a frame that has none"));
            }
            handle => handle,
        };
        Ok(Some(ReceivedFrame { kind: header.kind, fields, handle }))
    }

    /// Returns the header of the next frame and the header's length, if all of the frame has arrived.
    fn whole_frame(&self) -> Result<Option<(Header, usize)>, Error> {
        let Frame::Header(header, count) = Header::decode(self.end.arrived())? else {
            return Ok(None);
        };
        let length = header.length as usize;
        if length > MAX_HELLO_BYTES || header.total.is_some() {
            let (bytes, most) = (u64::from(header.length), MAX_HELLO_BYTES as u64);
            return Err(Invalid::TooLong { bytes, most }.into());
        }
        let is_whole = self.end.arrived().len() >= count + length;
        Ok(is_whole.then_some((header, count)))
    }

    /// Takes the handle that came with a frame, or returns the reason why there is none.
    fn handle(&mut self, header: &Header) -> Result<Result<Handle, String>, Error> {
        if header.handles == 0 {
            return Ok(Err("no memory was passed".to_owned()));
        }
        let received = if header.handles == 1 { self.end.take_handle() } else { None };
        match (received, self.handle_error.take()) {
            (Some(handle), _) => Ok(Ok(handle)),
            (None, Some(error)) => Ok(Err(format!("cannot receive a handle: {error}"))),
            _ => Err(Error::protocol("a frame announces handles, and none came")),
        }
    }

    /// Sends REJECT for the error, and returns it.
    pub(super) fn reject(&mut self, error: Error) -> Error {
        let mut fields = HelloFields::default();
        if let ErrorKind::Refused { field, host, worker, by } = error.kind() {
            fields.set("by", by);
            fields.set("field", field);
            fields.set("host", host);
            fields.set("worker", worker);
        }
        // Ignored: the other side then finds the connection closed.
        let _ = self.send(kind::REJECT, &fields.encode(REJECTED));
        error
    }
}

/// Returns the error of a REJECT frame.
fn rejection(body: &[u8]) -> Error {
    let Some(fields) = HelloFields::decode(body, REJECTED) else {
        return Error::protocol("a REJECT frame without fields");
    };
    let field = |key: &str| fields.get(key).unwrap_or_default().to_owned();
    let by = if fields.get("by") == Some("host") { Side::Host } else { Side::Worker };
    let [host, worker] = ["host", "worker"].map(field);
    Error::new(ErrorKind::Refused { by, field: field("field"), host, worker })
}
