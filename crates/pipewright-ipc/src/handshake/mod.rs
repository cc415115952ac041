//! The handshake: both sides compare their identities and capabilities, and prove that they share memory.
//!
//! ```text
//! host                                              worker
//!   HELLO identity, capabilities              ->
//!                                             <-    HELLO the same              (or REJECT, which names the field)
//!   MEMORY an object that contains a nonce    ->                                (if both can)
//!                                             <-    MEMORY an object, the nonce found in the host's
//!   READY the nonce found, or a reason        ->                                (or REJECT)
//! ```
//!
//! Each step has a deadline, and fails if the worker ends. Shared memory that is unavailable, or not the same on both
//! sides, is not used, and both sides know the reason.

mod frames;

#[cfg(feature = "tokio")]
use std::future::poll_fn;
use std::io;
use std::time::Instant;

use pipewright::Child;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{ChannelEnd, drop_elsewhere};

use crate::connection::{Connection, Limits, SharedRing};
use crate::error::{Error, ErrorKind, Peer, Side, WAIT};
use crate::options::{MAX_MESSAGE_BYTES, Options, SharedMemory};
use crate::process;
use crate::wire::{HelloFields, MAGIC, kind};
use frames::{Expected, HandshakeStream, Identity, MemoryOffer, ReceivedFrame};

/// Performs the handshake of the host.
pub(crate) fn host(
    end: ChannelEnd,
    child: Option<&Child>,
    options: &Options,
) -> Result<Connection, Error> {
    let connected = Handshake::host(end, options).and_then(|handshake| run(handshake, child));
    connected.map_err(|error| process::explain(error, child, None))
}

/// Performs the handshake of the worker.
pub(crate) fn worker(end: ChannelEnd, options: &Options) -> Result<Connection, Error> {
    run(Handshake::worker(end, options), None)
}

fn run(handshake: Handshake, child: Option<&Child>) -> Result<Connection, Error> {
    let (mut unfinished, mut exited) = (Unfinished::new(handshake), false);
    while let Some(handshake) = unfinished.after_step(exited)? {
        let mut slots = slots(handshake, child);
        let done = wait::any(&mut slots, handshake.until());
        exited = has_exited(done, slots, child)?;
    }
    unfinished.into_connection()
}

/// A handshake in progress. Its drop, also as a part of a dropped future, waits for no close.
struct Unfinished(Option<Box<Handshake>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(handshake) = self.0.take() {
            handshake.discard();
        }
    }
}

impl Unfinished {
    fn new(handshake: Handshake) -> Unfinished {
        Unfinished(Some(Box::new(handshake)))
    }

    /// Goes on without waiting. Returns the handshake to wait for; `None` if it is complete.
    fn after_step(&mut self, exited: bool) -> Result<Option<&mut Handshake>, Error> {
        let Some(handshake) = &mut self.0 else { return Ok(None) };
        match handshake.step()? {
            // The worker has exited, and another process holds its end.
            false if exited => Err(Error::new(ErrorKind::Died { status: None })),
            is_complete => Ok((!is_complete).then_some(&mut **handshake)),
        }
    }

    fn into_connection(mut self) -> Result<Connection, Error> {
        let handshake = self.0.take().ok_or_else(|| Error::new(ErrorKind::Closed))?;
        Ok(handshake.into_connection())
    }
}

/// The slots of a wait: arrival, room, exit of the child.
type Slots<'a> = [Slot<'a>; 3];

fn slots<'a>(handshake: &'a Handshake, child: Option<&'a Child>) -> Slots<'a> {
    let room = if handshake.wants_room() { Slot::Room(handshake.end()) } else { Slot::Off };
    let exit = child.map_or(Slot::Off, |child| Slot::Event(child.child_handle()));
    [Slot::Event(handshake.end()), room, exit]
}

/// Evaluates a wait. Returns true if the worker has exited.
fn has_exited(
    done: io::Result<usize>,
    slots: Slots<'_>,
    child: Option<&Child>,
) -> Result<bool, Error> {
    match done.map_err(Error::cannot(WAIT))? {
        0 => Err(timed_out(child)),
        _ => {
            let [_arrival, _room, exit] = slots;
            Ok(matches!(exit, Slot::EventDone))
        }
    }
}

pub(crate) fn timed_out(child: Option<&Child>) -> Error {
    Error::timed_out("the handshake", Peer::of(child))
}

// The same for tasks of a tokio runtime. Only the wait differs.

/// Like [`host`], for a worker that this process started.
#[cfg(feature = "tokio")]
pub(crate) async fn host_async(
    end: ChannelEnd,
    child: &Child,
    options: &Options,
) -> Result<Connection, Error> {
    let connected = match Handshake::host(end, options) {
        Ok(handshake) => run_async(handshake, Some(child)).await,
        Err(error) => Err(error),
    };
    match connected {
        Err(error) => Err(process::explain_async(error, Some(child), None).await),
        connected => connected,
    }
}

/// Like [`worker`].
#[cfg(feature = "tokio")]
pub(crate) async fn worker_async(end: ChannelEnd, options: &Options) -> Result<Connection, Error> {
    run_async(Handshake::worker(end, options), None).await
}

#[cfg(feature = "tokio")]
async fn run_async(handshake: Handshake, child: Option<&Child>) -> Result<Connection, Error> {
    let (mut unfinished, mut exited) = (Unfinished::new(handshake), false);
    let mut watch = wait::Watch::default();
    while let Some(handshake) = unfinished.after_step(exited)? {
        let (mut slots, until) = (slots(handshake, child), handshake.until());
        let done = poll_fn(|context| watch.poll_wait(context, &mut slots, until)).await;
        exited = has_exited(done, slots, child)?;
    }
    unfinished.into_connection()
}

// The state machine. It never waits.

/// Capabilities, as words. A side ignores unknown ones.
const SHARED_MEMORY: &str = "shm.v1";
const HANDLES: &str = "handles.v1";
const CALLS: &str = "calls.v1";
/// Requests that items follow.
const STREAMS: &str = "streams.v1";

/// A handshake in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    stream: HandshakeStream,
    options: Options,
    stage: HandshakeStep,
    limits: Limits,
    fallback: Option<String>,
    /// The other side answers calls.
    calls: bool,
    /// The other side takes items after a request.
    streams: bool,
    /// The deadline of the current step.
    until: Option<Instant>,
}

/// The next step.
#[derive(Debug)]
enum HandshakeStep {
    /// Host: receives HELLO.
    HostHello,
    /// Host: sends its object as soon as there is room.
    HostOffer(MemoryOffer),
    /// Host: receives the worker's object.
    HostMemory(MemoryOffer),
    /// Worker: receives HELLO.
    WorkerHello,
    /// Worker: receives the host's object, or READY.
    WorkerMemory,
    /// Worker: sends its object, and the nonce that it found in the host's.
    WorkerOffer(MemoryOffer, Result<u64, String>),
    /// Worker: receives READY.
    WorkerReady(MemoryOffer),
    /// Everything was sent, and may still be unflushed.
    Complete(Option<SharedRing>),
    /// The handshake failed.
    Failed,
}

const HELLO: Expected = (kind::HELLO, MAGIC);
const MEMORY: Expected = (kind::MEMORY, "memory");
const READY: Expected = (kind::READY, "ready");

impl Handshake {
    /// Starts the handshake of the host: sends HELLO.
    pub(crate) fn host(end: ChannelEnd, options: &Options) -> Result<Handshake, Error> {
        let mut handshake = Handshake::new(end, options, HandshakeStep::HostHello);
        // If the worker's end can pass handles too, its answer has that.
        handshake.stream.send(kind::HELLO, &hello(options, true).encode(MAGIC))?;
        Ok(handshake)
    }

    /// Starts the handshake of the worker.
    pub(crate) fn worker(end: ChannelEnd, options: &Options) -> Handshake {
        Handshake::new(end, options, HandshakeStep::WorkerHello)
    }

    fn new(end: ChannelEnd, options: &Options, stage: HandshakeStep) -> Handshake {
        let until = Instant::now().checked_add(options.handshake_timeout);
        let (stream, options) = (HandshakeStream::new(end), options.clone());
        let limits = limits(&options, 0);
        let (calls, streams) = (false, false);
        Handshake { stream, options, stage, limits, fallback: None, calls, streams, until }
    }

    /// Returns the end of the handle channel, to wait for.
    pub(crate) fn end(&self) -> &ChannelEnd {
        &self.stream.end
    }

    /// Returns the deadline of the current step.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns true if the next step needs room to send.
    pub(crate) fn wants_room(&self) -> bool {
        matches!(self.stage, HandshakeStep::HostOffer(_) | HandshakeStep::WorkerOffer(..))
            || self.stream.end.unsent() > 0
    }

    /// Returns true if the other side answers calls.
    pub(crate) fn answers_calls(&self) -> bool {
        self.calls
    }

    /// Returns true if the other side takes items after a request.
    pub(crate) fn takes_items(&self) -> bool {
        self.streams
    }

    /// Goes on without waiting. Returns true if the handshake is complete and flushed.
    pub(crate) fn step(&mut self) -> Result<bool, Error> {
        loop {
            let stage = std::mem::replace(&mut self.stage, HandshakeStep::Failed);
            let (stage, has_moved) = self.next_stage(stage)?;
            self.stage = stage;
            if !has_moved {
                let unsent = self.stream.end.flush()?;
                return Ok(matches!(self.stage, HandshakeStep::Complete(_)) && unsent == 0);
            }
            self.until = Instant::now().checked_add(self.options.handshake_timeout);
        }
    }

    /// Returns the connection, once the handshake is [complete](Self::step).
    pub(crate) fn into_connection(self) -> Connection {
        let ring = if let HandshakeStep::Complete(ring) = self.stage { ring } else { None };
        Connection::new(self.stream.end, ring, self.limits, &self.options, self.fallback)
    }

    /// Drops it: on another thread if that may block.
    pub(crate) fn discard(mut self: Box<Self>) {
        if self.stream.end.end_both() {
            drop_elsewhere(self);
        }
    }

    /// Returns the next stage, and true if it differs from this one.
    fn next_stage(&mut self, stage: HandshakeStep) -> Result<(HandshakeStep, bool), Error> {
        let next = match stage {
            HandshakeStep::HostHello => match self.stream.receive(&[HELLO])? {
                Some(received) => self.accept_worker(&received.fields)?,
                None => return Ok((HandshakeStep::HostHello, false)),
            },
            HandshakeStep::HostOffer(offer) => match self.send_memory(&offer, None)? {
                true => HandshakeStep::HostMemory(offer),
                false => return Ok((HandshakeStep::HostOffer(offer), false)),
            },
            HandshakeStep::HostMemory(offer) => match self.stream.receive(&[MEMORY])? {
                Some(received) => self.finish_host(offer, received)?,
                None => return Ok((HandshakeStep::HostMemory(offer), false)),
            },
            HandshakeStep::WorkerHello => match self.stream.receive(&[HELLO])? {
                Some(received) => self.accept_host(&received.fields)?,
                None => return Ok((HandshakeStep::WorkerHello, false)),
            },
            HandshakeStep::WorkerMemory => match self.stream.receive(&[MEMORY, READY])? {
                Some(received) if received.kind == kind::READY => {
                    self.finish_worker(None, &received.fields)?
                }
                Some(received) => {
                    let mut offer = MemoryOffer::create(&self.options);
                    let found = offer.open(&received.fields, received.handle, &self.options);
                    HandshakeStep::WorkerOffer(offer, found)
                }
                None => return Ok((HandshakeStep::WorkerMemory, false)),
            },
            HandshakeStep::WorkerOffer(offer, found) => {
                match self.send_memory(&offer, Some(&found))? {
                    true => HandshakeStep::WorkerReady(offer),
                    false => return Ok((HandshakeStep::WorkerOffer(offer, found), false)),
                }
            }
            HandshakeStep::WorkerReady(offer) => match self.stream.receive(&[READY])? {
                Some(received) => self.finish_worker(Some(offer), &received.fields)?,
                None => return Ok((HandshakeStep::WorkerReady(offer), false)),
            },
            stage @ (HandshakeStep::Complete(_) | HandshakeStep::Failed) => {
                return Ok((stage, false));
            }
        };
        Ok((next, true))
    }

    /// Compares the identities, and takes over limits and capabilities.
    fn check_hello(&mut self, theirs: &HelloFields, own_side: Side) -> Result<(), Error> {
        if let Some(error) = Identity::of(&self.options).mismatch(theirs, own_side) {
            return Err(self.stream.reject(error));
        }
        self.limits = limits(&self.options, theirs.number("max_message_bytes").unwrap_or(0));
        self.limits.takes_handles = can(theirs, HANDLES);
        self.calls = can(theirs, CALLS);
        self.streams = can(theirs, STREAMS);
        let reason = match (can(theirs, SHARED_MEMORY), self.stream.end.carries_handles()) {
            (true, true) => None,
            (true, false) => Some("this handle channel cannot pass handles"),
            (false, _) => Some("the other side has shared memory off"),
        };
        let is_wanted = self.options.shared_memory != SharedMemory::Off;
        self.fallback = reason.filter(|_| is_wanted).map(str::to_owned);
        Ok(())
    }

    fn accept_worker(&mut self, theirs: &HelloFields) -> Result<HandshakeStep, Error> {
        self.check_hello(theirs, Side::Host)?;
        if self.options.shared_memory != SharedMemory::Off && self.fallback.is_none() {
            return Ok(HandshakeStep::HostOffer(MemoryOffer::create(&self.options)));
        }
        self.without_memory(self.fallback.clone().unwrap_or_default())
    }

    fn accept_host(&mut self, theirs: &HelloFields) -> Result<HandshakeStep, Error> {
        self.check_hello(theirs, Side::Worker)?;
        let ours = hello(&self.options, self.stream.end.carries_handles());
        self.stream.send(kind::HELLO, &ours.encode(MAGIC))?;
        Ok(HandshakeStep::WorkerMemory)
    }

    /// Sends MEMORY. Returns false if there is no room now.
    fn send_memory(
        &mut self,
        offer: &MemoryOffer,
        found: Option<&Result<u64, String>>,
    ) -> Result<bool, Error> {
        let (kind, first) = MEMORY;
        let body = offer.fields(found.cloned()).encode(first);
        match offer.handle() {
            Some(handle) => self.stream.send_with_handle(kind, &body, handle),
            None => self.stream.send(kind, &body).map(|()| true),
        }
    }

    /// Sends READY after the worker's MEMORY.
    fn finish_host(
        &mut self,
        mut offer: MemoryOffer,
        received: ReceivedFrame,
    ) -> Result<HandshakeStep, Error> {
        match offer.open_proved(&received.fields, received.handle, &self.options) {
            Ok(proof) => {
                self.stream.send(kind::READY, &ready(Ok(proof)).encode(READY.1))?;
                Ok(HandshakeStep::Complete(offer.into_ring()))
            }
            Err(reason) => self.without_memory(reason),
        }
    }

    /// Sends READY for a connection without shared memory.
    fn without_memory(&mut self, reason: String) -> Result<HandshakeStep, Error> {
        if self.options.shared_memory == SharedMemory::Required {
            return Err(self.stream.reject(no_shared_memory(Side::Host, &reason)));
        }
        self.stream.send(kind::READY, &ready(Err(&reason)).encode(READY.1))?;
        if self.options.shared_memory != SharedMemory::Off {
            self.fallback = Some(reason);
        }
        Ok(HandshakeStep::Complete(None))
    }

    /// Evaluates READY.
    fn finish_worker(
        &mut self,
        offer: Option<MemoryOffer>,
        ready: &HelloFields,
    ) -> Result<HandshakeStep, Error> {
        let ring = match (offer, ready.number("shared")) {
            (Some(offer), Some(1)) if offer.is_proved(ready) => offer.into_ring(),
            (_, Some(1)) => {
                return Err(Error::protocol("the host enabled shared memory without proof"));
            }
            _ => None,
        };
        if ring.is_none() {
            let fallback = self.fallback.take().or_else(|| ready.get("why").map(str::to_owned));
            if self.options.shared_memory == SharedMemory::Required {
                let reason = fallback.unwrap_or_default();
                return Err(self.stream.reject(no_shared_memory(Side::Worker, &reason)));
            }
            self.fallback = fallback;
        }
        Ok(HandshakeStep::Complete(ring))
    }
}

fn hello(options: &Options, carries_handles: bool) -> HelloFields {
    let mut fields = HelloFields::default();
    Identity::of(options).write_to(&mut fields);
    fields.set("max_message_bytes", options.max_message_bytes.min(MAX_MESSAGE_BYTES));
    let mut capabilities = vec![CALLS, STREAMS];
    if carries_handles {
        capabilities.push(HANDLES);
    }
    if carries_handles && options.shared_memory != SharedMemory::Off {
        capabilities.push(SHARED_MEMORY);
    }
    fields.set("can", capabilities.join(" "));
    fields
}

fn ready(shared: Result<u64, &str>) -> HelloFields {
    let mut fields = HelloFields::default();
    match shared {
        Ok(proof) => {
            fields.set("shared", 1);
            fields.set("proof", proof);
        }
        Err(reason) => {
            fields.set("shared", 0);
            fields.set("why", reason);
        }
    }
    fields
}

fn limits(options: &Options, theirs: u64) -> Limits {
    Limits {
        max_message_bytes: options.max_message_bytes.min(MAX_MESSAGE_BYTES).min(theirs),
        threshold_bytes: options.threshold_bytes,
        max_backlog_bytes: options.max_backlog_bytes,
        takes_handles: false,
    }
}

/// Returns an error for a side that requires shared memory.
fn no_shared_memory(by: Side, reason: &str) -> Error {
    let field = "shared memory".to_owned();
    Error::new(ErrorKind::Refused { by, field, host: reason.to_owned(), worker: reason.to_owned() })
}

fn can(fields: &HelloFields, capability: &str) -> bool {
    fields.get("can").unwrap_or_default().split(' ').any(|word| word == capability)
}
