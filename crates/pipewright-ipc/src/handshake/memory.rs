//! Memory of ours for the other side, memory of its for us, and the proof that it is the same.

use std::hash::{BuildHasher, Hasher, RandomState};

use pipewright::Handle;
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};

use crate::channel::SharedRing;
use crate::options::{LEAST_RING_BYTES, MOST_RING_BYTES, Options};
use crate::wire::Fields;

/// Our side of shared memory while it is being set up.
#[derive(Debug)]
pub(super) struct Offer {
    /// Our object, or why there is none.
    ours: Result<Written, String>,
    theirs: Option<Seen>,
    /// What stands at the start of our object.
    nonce: u64,
}

impl Offer {
    pub(super) fn make(options: &Options) -> Offer {
        let shm = ShmOptions { bytes: options.ring_size(), prefault: options.prefault };
        let mut ours = Written::create(shm).map_err(|error| error.to_string());
        // Nobody has to be kept from guessing it: who sees the memory reads it.
        let nonce = RandomState::new().build_hasher().finish();
        if let Ok(written) = &mut ours {
            if let Some(place) = written.data().first_chunk_mut() {
                *place = nonce.to_le_bytes();
            }
        }
        Offer { ours, theirs: None, nonce }
    }

    pub(super) fn handle(&self) -> Option<&Handle> {
        self.ours.as_ref().ok().map(Written::handle)
    }

    /// What to say of our object, and of what was found in the other one.
    pub(super) fn say(&self, found: Option<Result<u64, String>>) -> Fields {
        let mut fields = Fields::default();
        match &self.ours {
            Ok(written) => fields.set("bytes", written.bytes()),
            Err(why) => fields.set("why", why),
        }
        match found {
            Some(Ok(proof)) => fields.set("proof", proof),
            Some(Err(why)) => fields.set("why", why),
            None => {}
        }
        fields
    }

    /// Maps the other side's object. What stands in it, or why it cannot be used.
    pub(super) fn open(
        &mut self,
        fields: &Fields,
        handle: &Result<Handle, String>,
        options: &Options,
    ) -> Result<u64, String> {
        if let Err(why) = &self.ours {
            return Err(why.clone());
        }
        let (Some(bytes), Ok(handle)) = (fields.number("bytes"), handle) else {
            let missing = handle.as_ref().err().map(String::as_str);
            let why = fields.get("why").or(missing).unwrap_or("no memory was passed");
            return Err(why.to_owned());
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !bytes.is_power_of_two() || !(LEAST_RING_BYTES..=MOST_RING_BYTES).contains(&bytes) {
            return Err(format!("a ring of {bytes} bytes"));
        }
        let shm = ShmOptions { bytes, prefault: options.prefault };
        let seen = Seen::open(handle, shm).map_err(|error| error.to_string())?;
        let [nonce, ..] = seen.numbers(0).map_err(|error| error.to_string())?;
        self.theirs = Some(seen);
        Ok(u64::from_le(nonce))
    }

    /// As [`open`](Self::open), where the other side has already said what it found in ours.
    pub(super) fn take(
        &mut self,
        fields: &Fields,
        handle: &Result<Handle, String>,
        options: &Options,
    ) -> Result<u64, String> {
        let found = self.open(fields, handle, options)?;
        if self.is_proved(fields) {
            return Ok(found);
        }
        Err(fields.get("why").unwrap_or("the other side sees another memory").to_owned())
    }

    /// Whether the other side has found in our object what we wrote there.
    pub(super) fn is_proved(&self, fields: &Fields) -> bool {
        fields.number("proof") == Some(self.nonce)
    }

    /// The rings, if both sides have memory.
    pub(super) fn into_ring(self) -> Option<SharedRing> {
        Some(SharedRing::new(self.ours.ok()?, self.theirs?))
    }
}
