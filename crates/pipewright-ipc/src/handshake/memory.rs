//! The exchange of memory objects, and the proof that both sides see the same memory.

use std::hash::{BuildHasher, Hasher, RandomState};

use pipewright::Handle;
use pipewright_os::channel::handle_channel::drop_elsewhere;
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};

use crate::connection::SharedRing;
use crate::options::{MAX_RING_BYTES, MIN_RING_BYTES, Options};
use crate::wire::HelloFields;

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
