//! A handshake as far as it has come: it goes on when something has arrived, and never waits.

use std::time::Instant;

use pipewright_os::channel::handle_channel::End;

use super::identity::Identity;
use super::memory::Offer;
use super::talk::{Expected, Heard, Talk};
use super::{CALLS, HANDLES, SHARED_MEMORY};
use crate::channel::{Limits, Line, SharedRing, no_shared_memory};
use crate::error::{Error, Side};
use crate::options::{MOST_MESSAGE_BYTES, Options, SharedMemory};
use crate::wire::{Fields, MAGIC, kind};

/// A handshake that is going on.
#[derive(Debug)]
pub(crate) struct Greeting {
    talk: Talk,
    options: Options,
    stage: Stage,
    limits: Limits,
    fallback: Option<String>,
    /// The other side answers calls.
    calls: bool,
    /// When the step that it is at has to be done.
    until: Option<Instant>,
}

/// What is done next.
#[derive(Debug)]
enum Stage {
    /// Host: hears who the worker is.
    HostHello,
    /// Host: its object is to be sent, as soon as there is room.
    HostOffer(Offer),
    /// Host: hears of the worker's object.
    HostMemory(Offer),
    /// Worker: hears who the host is.
    WorkerHello,
    /// Worker: hears of the host's object, or the last word.
    WorkerMemory,
    /// Worker: its object is to be sent, and what it found in the host's.
    WorkerOffer(Offer, Result<u64, String>),
    /// Worker: hears the last word.
    WorkerReady(Offer),
    /// Everything has been said, and may be on its way.
    Over(Option<SharedRing>),
    /// It has failed.
    Failed,
}

const HELLO: Expected = (kind::HELLO, MAGIC);
const MEMORY: Expected = (kind::MEMORY, "memory");
const READY: Expected = (kind::READY, "ready");

impl Greeting {
    /// The handshake of the side that began.
    pub(crate) fn host(end: End, options: &Options) -> Result<Greeting, Error> {
        let mut greeting = Greeting::new(end, options, Stage::HostHello);
        // Whether handles can be passed shows with the answer.
        greeting.talk.say(kind::HELLO, &hello(options, true).encode(MAGIC))?;
        Ok(greeting)
    }

    /// The handshake of the side that was started.
    pub(crate) fn worker(end: End, options: &Options) -> Greeting {
        Greeting::new(end, options, Stage::WorkerHello)
    }

    fn new(end: End, options: &Options, stage: Stage) -> Greeting {
        let until = Instant::now().checked_add(options.handshake_timeout);
        let (talk, options) = (Talk::new(end), options.clone());
        let limits = limits(&options, 0);
        Greeting { talk, options, stage, limits, fallback: None, calls: false, until }
    }

    /// The end, to wait for.
    pub(crate) fn end(&self) -> &End {
        &self.talk.end
    }

    /// When the step that it is at has to be done.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether it goes on when there is room to send.
    pub(crate) fn wants_room(&self) -> bool {
        matches!(self.stage, Stage::HostOffer(_) | Stage::WorkerOffer(..))
            || self.talk.end.unsent() > 0
    }

    /// Whether the other side answers calls.
    pub(crate) fn answers_calls(&self) -> bool {
        self.calls
    }

    /// Goes on as far as that is possible without waiting. Whether it is over.
    pub(crate) fn go_on(&mut self) -> Result<bool, Error> {
        loop {
            let stage = std::mem::replace(&mut self.stage, Stage::Failed);
            let (stage, has_moved) = self.step(stage)?;
            self.stage = stage;
            if !has_moved {
                let unsent = self.talk.end.flush()?;
                return Ok(matches!(self.stage, Stage::Over(_)) && unsent == 0);
            }
            self.until = Instant::now().checked_add(self.options.handshake_timeout);
        }
    }

    /// The connection, once it is [over](Self::go_on).
    pub(crate) fn into_line(self) -> Line {
        let ring = if let Stage::Over(ring) = self.stage { ring } else { None };
        Line::new(self.talk.end, ring, self.limits, &self.options, self.fallback)
    }

    /// The next stage, and whether it is another one.
    fn step(&mut self, stage: Stage) -> Result<(Stage, bool), Error> {
        let next = match stage {
            Stage::HostHello => match self.talk.hear(&[HELLO])? {
                Some(heard) => self.meet_worker(&heard.fields)?,
                None => return Ok((Stage::HostHello, false)),
            },
            Stage::HostOffer(offer) => match self.send_memory(&offer, None)? {
                true => Stage::HostMemory(offer),
                false => return Ok((Stage::HostOffer(offer), false)),
            },
            Stage::HostMemory(offer) => match self.talk.hear(&[MEMORY])? {
                Some(heard) => self.conclude(offer, &heard)?,
                None => return Ok((Stage::HostMemory(offer), false)),
            },
            Stage::WorkerHello => match self.talk.hear(&[HELLO])? {
                Some(heard) => self.meet_host(&heard.fields)?,
                None => return Ok((Stage::WorkerHello, false)),
            },
            Stage::WorkerMemory => match self.talk.hear(&[MEMORY, READY])? {
                Some(heard) if heard.kind == kind::READY => self.settle(None, &heard.fields)?,
                Some(heard) => {
                    let mut offer = Offer::make(&self.options);
                    let found = offer.open(&heard.fields, &heard.handle, &self.options);
                    Stage::WorkerOffer(offer, found)
                }
                None => return Ok((Stage::WorkerMemory, false)),
            },
            Stage::WorkerOffer(offer, found) => match self.send_memory(&offer, Some(&found))? {
                true => Stage::WorkerReady(offer),
                false => return Ok((Stage::WorkerOffer(offer, found), false)),
            },
            Stage::WorkerReady(offer) => match self.talk.hear(&[READY])? {
                Some(heard) => self.settle(Some(offer), &heard.fields)?,
                None => return Ok((Stage::WorkerReady(offer), false)),
            },
            stage @ (Stage::Over(_) | Stage::Failed) => return Ok((stage, false)),
        };
        Ok((next, true))
    }

    fn meet(&mut self, theirs: &Fields, us: Side) -> Result<(), Error> {
        if let Some(refusal) = Identity::of(&self.options).refusal(theirs, us) {
            return Err(self.talk.refuse(refusal));
        }
        self.limits = limits(&self.options, theirs.number("max_message_bytes").unwrap_or(0));
        self.calls = can(theirs, CALLS);
        let why = match (can(theirs, SHARED_MEMORY), self.talk.end.carries_handles()) {
            (true, true) => None,
            (true, false) => Some("no handles can be passed over this link"),
            (false, _) => Some("the other side has it off"),
        };
        let is_wanted = self.options.shared_memory != SharedMemory::Off;
        self.fallback = why.filter(|_| is_wanted).map(str::to_owned);
        Ok(())
    }

    fn meet_worker(&mut self, theirs: &Fields) -> Result<Stage, Error> {
        self.meet(theirs, Side::Host)?;
        if self.options.shared_memory != SharedMemory::Off && self.fallback.is_none() {
            return Ok(Stage::HostOffer(Offer::make(&self.options)));
        }
        self.without_memory(self.fallback.clone().unwrap_or_default())
    }

    fn meet_host(&mut self, theirs: &Fields) -> Result<Stage, Error> {
        self.meet(theirs, Side::Worker)?;
        let ours = hello(&self.options, self.talk.end.carries_handles());
        self.talk.say(kind::HELLO, &ours.encode(MAGIC))?;
        Ok(Stage::WorkerMemory)
    }

    /// `false`: there is no room now.
    fn send_memory(
        &mut self,
        offer: &Offer,
        found: Option<&Result<u64, String>>,
    ) -> Result<bool, Error> {
        let (kind, first) = MEMORY;
        let body = offer.say(found.cloned()).encode(first);
        match offer.handle() {
            Some(handle) => self.talk.say_with(kind, &body, handle),
            None => self.talk.say(kind, &body).map(|()| true),
        }
    }

    /// The host's last word, where memory was offered.
    fn conclude(&mut self, mut offer: Offer, heard: &Heard) -> Result<Stage, Error> {
        match offer.take(&heard.fields, &heard.handle, &self.options) {
            Ok(proof) => {
                self.talk.say(kind::READY, &ready(Ok(proof)).encode(READY.1))?;
                Ok(Stage::Over(offer.into_ring()))
            }
            Err(why) => self.without_memory(why),
        }
    }

    fn without_memory(&mut self, why: String) -> Result<Stage, Error> {
        if self.options.shared_memory == SharedMemory::Required {
            return Err(self.talk.refuse(no_shared_memory(Side::Host, &why)));
        }
        self.talk.say(kind::READY, &ready(Err(&why)).encode(READY.1))?;
        if self.options.shared_memory != SharedMemory::Off {
            self.fallback = Some(why);
        }
        Ok(Stage::Over(None))
    }

    /// What the host's last word means for the worker.
    fn settle(&mut self, offer: Option<Offer>, word: &Fields) -> Result<Stage, Error> {
        let ring = match (offer, word.number("shared")) {
            (Some(offer), Some(1)) if offer.is_proved(word) => offer.into_ring(),
            (_, Some(1)) => {
                return Err(Error::protocol("shared memory is on, and was not proved"));
            }
            _ => None,
        };
        if ring.is_none() {
            let fallback = self.fallback.take().or_else(|| word.get("why").map(str::to_owned));
            if self.options.shared_memory == SharedMemory::Required {
                let why = fallback.unwrap_or_default();
                return Err(self.talk.refuse(no_shared_memory(Side::Worker, &why)));
            }
            self.fallback = fallback;
        }
        Ok(Stage::Over(ring))
    }
}

fn hello(options: &Options, carries_handles: bool) -> Fields {
    let mut fields = Fields::default();
    Identity::of(options).say(&mut fields);
    fields.set("max_message_bytes", options.max_message_bytes.min(MOST_MESSAGE_BYTES));
    let mut abilities = vec![CALLS];
    if carries_handles {
        abilities.push(HANDLES);
    }
    if carries_handles && options.shared_memory != SharedMemory::Off {
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

fn limits(options: &Options, theirs: u64) -> Limits {
    Limits {
        max_message_bytes: options.max_message_bytes.min(MOST_MESSAGE_BYTES).min(theirs),
        threshold_bytes: options.threshold_bytes,
        max_backlog_bytes: options.max_backlog_bytes,
    }
}

fn can(fields: &Fields, ability: &str) -> bool {
    fields.get("can").unwrap_or_default().split(' ').any(|word| word == ability)
}
