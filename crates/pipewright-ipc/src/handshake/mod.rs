//! How two sides come to trust each other: who they are, what they can do, and memory that is proved.
//!
//! ```text
//! host                                        worker
//!   HELLO who I am, what I can do       ->
//!                                       <-    HELLO the same          (or REJECT, which names the field)
//!   MEMORY an object, with a nonce in it ->                           (where both can)
//!                                       <-    MEMORY an object, what I found in yours
//!   READY what I found in yours, or why not ->                        (or REJECT)
//! ```
//!
//! Every step has a deadline, and ends with the worker. Shared memory that cannot be had, or is not
//! the same on both sides, is left out, and both know why.

mod identity;
mod memory;
mod talk;

use pipewright::Child;
use pipewright_os::link::End;

use crate::channel::{Limits, Line, no_shared_memory};
use crate::error::{Error, Side};
use crate::options::{MOST_MESSAGE_BYTES, Options, SharedMemory};
use crate::wire::{Fields, MAGIC, kind};
use identity::Identity;
use memory::Offer;
use talk::Talk;

/// What a side can do, as words; unknown ones are passed over.
const SHARED_MEMORY: &str = "shm.v1";
const HANDLES: &str = "handles.v1";

/// The handshake of the side that began.
pub(crate) fn host(end: End, child: Option<&Child>, options: &Options) -> Result<Line, Error> {
    let mut talk = Talk::new(end, child, options.handshake_timeout);
    let ours = hello(options);
    talk.say(kind::HELLO, &ours.encode(MAGIC), None)?;
    let theirs = talk.hear(kind::HELLO, MAGIC)?.fields;
    let identity = Identity::of(options);
    if let Some(refusal) = identity.refusal(&theirs, Side::Host) {
        return Err(talk.refuse(refusal));
    }
    let limits = limits(options, &theirs);
    let wanted = options.shared_memory != SharedMemory::Off && can(&theirs, SHARED_MEMORY);
    let mut ring = None;
    let mut fallback = missing(options, &theirs);
    if wanted {
        let mut offer = Offer::make(options);
        talk.say(kind::MEMORY, &offer.say(None).encode(MEMORY), offer.handle())?;
        let heard = talk.hear(kind::MEMORY, MEMORY)?;
        match offer.take(&heard.fields, heard.handle.as_ref(), options) {
            Ok(proof) => {
                talk.say(kind::READY, &ready(Ok(proof)).encode(READY), None)?;
                ring = offer.into_ring();
            }
            Err(why) => fallback = Some(why),
        }
    }
    if ring.is_none() {
        let why = fallback.clone().unwrap_or_default();
        if options.shared_memory == SharedMemory::Required {
            return Err(talk.refuse(no_shared_memory(Side::Host, &why)));
        }
        talk.say(kind::READY, &ready(Err(&why)).encode(READY), None)?;
    }
    Ok(Line::new(talk.into_end(), ring, limits, options, fallback))
}

/// The handshake of the side that was started.
pub(crate) fn worker(end: End, options: &Options) -> Result<Line, Error> {
    let mut talk = Talk::new(end, None, options.handshake_timeout);
    let theirs = talk.hear(kind::HELLO, MAGIC)?.fields;
    let identity = Identity::of(options);
    if let Some(refusal) = identity.refusal(&theirs, Side::Worker) {
        return Err(talk.refuse(refusal));
    }
    talk.say(kind::HELLO, &hello(options).encode(MAGIC), None)?;
    let limits = limits(options, &theirs);
    let mut fallback = missing(options, &theirs);
    let mut offer = None;
    let mut heard = talk.hear_one_of([kind::MEMORY, kind::READY], [MEMORY, READY])?;
    if heard.kind == kind::MEMORY {
        let mut made = Offer::make(options);
        let found = made.open(&heard.fields, heard.handle.as_ref(), options);
        talk.say(kind::MEMORY, &made.say(Some(found)).encode(MEMORY), made.handle())?;
        heard = talk.hear(kind::READY, READY)?;
        offer = Some(made);
    }
    let ring = match (offer, heard.fields.number("shared")) {
        (Some(offer), Some(1)) if offer.is_proved(&heard.fields) => offer.into_ring(),
        (_, Some(1)) => return Err(Error::protocol("shared memory is on, and was not proved")),
        _ => None,
    };
    if ring.is_none() {
        fallback = fallback.or_else(|| heard.fields.get("why").map(str::to_owned));
        if options.shared_memory == SharedMemory::Required {
            let why = fallback.unwrap_or_default();
            return Err(talk.refuse(no_shared_memory(Side::Worker, &why)));
        }
    }
    Ok(Line::new(talk.into_end(), ring, limits, options, fallback))
}

/// The first lines of the two other bodies.
const MEMORY: &str = "memory";
const READY: &str = "ready";

fn hello(options: &Options) -> Fields {
    let mut fields = Fields::default();
    Identity::of(options).say(&mut fields);
    fields.set("max_message_bytes", options.max_message_bytes.min(MOST_MESSAGE_BYTES));
    let mut abilities = vec![HANDLES];
    if options.shared_memory != SharedMemory::Off {
        abilities.push(SHARED_MEMORY);
    }
    fields.set("can", abilities.join(" "));
    fields
}

fn ready(shared: Result<u64, &str>) -> Fields {
    let mut fields = Fields::default();
    match shared {
        Ok(proof) => {
            fields.set("shared", 1);
            fields.set("proof", proof);
        }
        Err(why) => {
            fields.set("shared", 0);
            fields.set("why", why);
        }
    }
    fields
}

fn limits(options: &Options, theirs: &Fields) -> Limits {
    let most = theirs.number("max_message_bytes").unwrap_or(0);
    Limits {
        max_message_bytes: options.max_message_bytes.min(MOST_MESSAGE_BYTES).min(most),
        threshold_bytes: options.threshold_bytes,
        max_backlog_bytes: options.max_backlog_bytes,
    }
}

fn can(fields: &Fields, ability: &str) -> bool {
    fields.get("can").unwrap_or_default().split(' ').any(|word| word == ability)
}

/// Why shared memory is not even tried.
fn missing(options: &Options, theirs: &Fields) -> Option<String> {
    let is_wanted = options.shared_memory != SharedMemory::Off;
    (is_wanted && !can(theirs, SHARED_MEMORY)).then(|| "the other side has it off".to_owned())
}
