//! The frames of a handshake, and what they carry: the identity of a side, and its memory. Nothing here waits.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IoSlice};
use std::slice;

use pipewright::Handle;
use pipewright_os::channel::handle_channel::{
    self, Arrived, ChannelEnd, drop_elsewhere, lacks_room_for_handles,
};
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};

use crate::connection::SharedRing;
use crate::error::{Error, ErrorKind, Side};
use crate::options::{MAX_RING_BYTES, MIN_RING_BYTES, Options};
use crate::wire::{Frame, Header, HelloFields, Invalid, MAX_HELLO_BYTES, VERSION, kind};

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
        let head = Header::new(kind, body.len()).encode();
        Ok(self.end.send(&[IoSlice::new(&head), IoSlice::new(body)])?)
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
        let head = Header { handles: 1, ..Header::new(kind, body.len()) }.encode();
        let parts = [IoSlice::new(&head), IoSlice::new(body)];
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

// The identity of a side.

/// The fields that have to be equal on both sides, in the order in which they are compared.
#[derive(Debug)]
pub(super) struct Identity([(&'static str, String); 7]);

/// The last field, which is missing if it is empty: earlier versions of this library do not have it.
const SERVICE: &str = "service";

impl Identity {
    pub(super) fn of(options: &Options) -> Identity {
        let bits = usize::BITS;
        let order = if cfg!(target_endian = "little") { "little" } else { "big" };
        Identity([
            // First: the version defines the meaning of the others.
            ("version", VERSION.to_string()),
            ("app", options.app.clone()),
            ("build", options.build.clone()),
            ("arch", format!("{}-{bits}-{order}", std::env::consts::ARCH)),
            ("user", handle_channel::user()),
            ("salt", options.salt.clone()),
            (SERVICE, options.service.clone()),
        ])
    }

    pub(super) fn write_to(&self, fields: &mut HelloFields) {
        for (key, value) in &self.0 {
            if *key != SERVICE || !value.is_empty() {
                fields.set(key, value);
            }
        }
    }

    /// Returns an error that names the first field that differs. `own_side` is the side that compares.
    pub(super) fn mismatch(&self, theirs: &HelloFields, own_side: Side) -> Option<Error> {
        // Values are sent without control characters, so they are compared without them.
        let mut ours = HelloFields::default();
        self.write_to(&mut ours);
        let differs = |key: &&str| ours.get(key) != theirs.get(key);
        let field = self.0.iter().map(|(key, _)| *key).find(differs)?;
        let [ours, theirs] =
            [&ours, theirs].map(|it| it.get(field).unwrap_or("nothing").to_owned());
        let (host, worker) = if own_side == Side::Host { (ours, theirs) } else { (theirs, ours) };
        Some(Error::new(ErrorKind::Refused { by: own_side, field: field.to_owned(), host, worker }))
    }
}

// Memory objects, and the proof that both sides see the same memory.

/// Shared memory during the handshake.
#[derive(Debug)]
pub(super) struct MemoryOffer {
    /// This side's object, or the reason why there is none.
    ours: Result<Written, String>,
    theirs: Option<Seen>,
    /// The number at the start of this side's object.
    nonce: u64,
}

impl MemoryOffer {
    pub(super) fn create(options: &Options) -> MemoryOffer {
        let shm = ShmOptions { bytes: options.ring_size(), prefault: options.prefault };
        let mut ours = Written::create(shm).map_err(|error| error.to_string());
        // It need not be hard to guess: any process that sees the memory can read it.
        let nonce = RandomState::new().build_hasher().finish();
        if let Ok(written) = &mut ours {
            if let Some(place) = written.data().first_chunk_mut() {
                *place = nonce.to_le_bytes();
            }
        }
        MemoryOffer { ours, theirs: None, nonce }
    }

    pub(super) fn handle(&self) -> Option<&Handle> {
        self.ours.as_ref().ok().map(Written::handle)
    }

    /// Returns the fields of MEMORY, with the number found in the other side's object.
    pub(super) fn fields(&self, found: Option<Result<u64, String>>) -> HelloFields {
        let mut fields = HelloFields::default();
        match &self.ours {
            Ok(written) => fields.set("bytes", written.bytes()),
            Err(reason) => fields.set("why", reason),
        }
        match found {
            Some(Ok(proof)) => fields.set("proof", proof),
            Some(Err(reason)) => fields.set("why", reason),
            None => {}
        }
        fields
    }

    /// Maps the other side's object. Returns the number at its start, or the reason why it cannot be used.
    pub(super) fn open(
        &mut self,
        fields: &HelloFields,
        handle: Result<Handle, String>,
        options: &Options,
    ) -> Result<u64, String> {
        let opened = self.try_open(fields, &handle, options);
        if let (Err(_), Ok(handle)) = (&opened, handle) {
            // It may be anything.
            drop_elsewhere(handle);
        }
        opened
    }

    fn try_open(
        &mut self,
        fields: &HelloFields,
        handle: &Result<Handle, String>,
        options: &Options,
    ) -> Result<u64, String> {
        if let Err(reason) = &self.ours {
            return Err(reason.clone());
        }
        let (Some(bytes), Ok(handle)) = (fields.number("bytes"), handle) else {
            let missing = handle.as_ref().err().map(String::as_str);
            let reason = fields.get("why").or(missing).unwrap_or("no memory was passed");
            return Err(reason.to_owned());
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !bytes.is_power_of_two() || !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&bytes) {
            return Err(format!("a ring of {bytes} bytes is not allowed"));
        }
        let shm = ShmOptions { bytes, prefault: options.prefault };
        let seen = Seen::open(handle, shm).map_err(|error| error.to_string())?;
        let [nonce, ..] = seen.numbers(0).map_err(|error| error.to_string())?;
        self.theirs = Some(seen);
        Ok(u64::from_le(nonce))
    }

    /// Maps the other side's object, and checks the number that the other side found in this one.
    pub(super) fn open_proved(
        &mut self,
        fields: &HelloFields,
        handle: Result<Handle, String>,
        options: &Options,
    ) -> Result<u64, String> {
        let found = self.open(fields, handle, options)?;
        if self.is_proved(fields) {
            return Ok(found);
        }
        Err(fields.get("why").unwrap_or("the other side sees different memory").to_owned())
    }

    /// Returns true if the other side found the number that this side wrote.
    pub(super) fn is_proved(&self, fields: &HelloFields) -> bool {
        fields.number("proof") == Some(self.nonce)
    }

    /// Returns the rings, if both sides have memory.
    pub(super) fn into_ring(self) -> Option<SharedRing> {
        Some(SharedRing::new(self.ours.ok()?, self.theirs?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_that_differs_is_named_with_both_values() {
        let options = Options { app: "a\n".to_owned(), ..Options::default() };
        let ours = Identity::of(&options);
        let mut theirs = HelloFields::default();
        ours.write_to(&mut theirs);
        assert!(ours.mismatch(&theirs, Side::Host).is_none());
        let other = Identity::of(&Options { build: "2".to_owned(), ..options.clone() });
        let mut theirs = HelloFields::default();
        other.write_to(&mut theirs);
        let error = ours.mismatch(&theirs, Side::Host).unwrap();
        let text = r#"the host refused the connection: build differs (host "", worker "2")"#;
        assert_eq!(error.to_string(), text);
        let error = ours.mismatch(&HelloFields::default(), Side::Worker).unwrap();
        let text =
            r#"the worker refused the connection: version differs (host "nothing", worker "1")"#;
        assert_eq!(error.to_string(), text);
    }
}
