//! The worker's side: the connection to the host that started this process.
//!
//! | function | use |
//! |---|---|
//! | [`serve`] | one answer to each request, of a [`Channel`] or a [`Pool`](crate::Pool) |
//! | [`serve_calls`] | also items (parts of a reply), questions to the host, cancellation and error messages |
//! | [`run`] | the same, for a service that can be [reset](Serve::reset) |
//! | [`channel`] | messages in any order |
//! | [`is_worker`] | a program that starts itself as its worker |
//!
//! Workers in C, Python and Node have the same functions: `docs/workers.md` in the repository.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::time::Instant;

use pipewright_os::channel::handle_channel::{self, ChannelEnd, Inheritance};

use crate::channel::{Channel, Core};
use crate::connection::{Connection, RawMessage};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::process::VARIABLE;
use crate::wire::{self, MAX_CALLS, kind};

/// Returns true if a [`Channel`] or a [`Pool`](crate::Pool) started this process as its worker. Does not connect to the
/// host.
///
/// A program that starts itself as its worker calls this first in `main`. If it returns true, the program calls
/// [`serve`] or another function of this module, which *claims* the handle channel to the host: this process connects
/// over it, and no child inherits it any more. Until then this process cannot start workers of its own
/// ([`Unclaimed`](ErrorKind::Unclaimed)). The result is the same before and after that.
///
/// Descendants of a worker inherit its environment and are not workers. A shell between host and worker passes the
/// handle channel on, so the identity of the parent is not checked. A child that a worker starts with `std::process`
/// before it claims the handle channel is therefore taken for the worker; a child that it starts with
/// [`pipewright::Command`] is not.
///
/// # Platform
/// Reads the variable `PIPEWRIGHT_IPC` and checks the handle whose number it contains. Unix: it has to be a socket
/// without
/// `FD_CLOEXEC`, and the one that `PIPEWRIGHT_IPC_ID` identifies. Windows: it has to be an inherited pipe.
///
/// ```no_run
/// use pipewright::Command;
/// use pipewright_ipc::{Pool, PoolOptions, worker};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     if worker::is_worker() {
///         return Ok(worker::serve(&Default::default(), |question, answer| {
///             answer.extend(question.iter().rev());
///         })?);
///     }
///     let pool = Pool::new(Command::new(std::env::current_exe()?), PoolOptions::default())?;
///     assert_eq!(*pool.call("hello")?, *b"olleh");
///     pool.shut_down();
///     Ok(())
/// }
/// ```
#[must_use]
pub fn is_worker() -> bool {
    handle_channel::inheritance(VARIABLE) != Inheritance::Nothing
}

/// Connects to the process that started this one with [`Channel::start`]. Works once.
///
/// # Errors
/// [`Start`](ErrorKind::Start): this process was not started as a worker, or has connected already. Those of
/// [`Channel::as_worker`].
pub fn channel<S, R>(options: &Options) -> Result<Channel<S, R>, Error> {
    Channel::connected_as_worker(inherited()?, options)
}

/// Like [`channel`], for a task of a tokio runtime: feature `tokio`.
///
/// # Cancellation
/// Dropping the future closes the connection.
///
/// # Errors
/// Those of [`channel`]; `Unsupported` outside of a tokio runtime.
#[cfg(feature = "tokio")]
pub async fn channel_async<S, R>(options: &Options) -> Result<Channel<S, R>, Error> {
    Channel::connected_async(inherited()?, options).await
}

fn inherited() -> Result<ChannelEnd, Error> {
    handle_channel::inherited(VARIABLE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::Start),
        _ => Error::caused(ErrorKind::Start, error),
    })
}

/// Connects to the host and answers requests until the host closes the connection or ends. The handler gets each
/// request, and an empty buffer for the answer.
///
/// A panic in the handler unwinds out of this function and usually ends the worker. The call then fails with
/// [`Lost`](ErrorKind::Lost), which has the exit status and the message of the panic, and the pool starts another
/// worker. Any other crash has the same effect.
///
/// ```no_run
/// use pipewright_ipc::{Options, worker};
///
/// fn main() -> Result<(), pipewright_ipc::Error> {
///     worker::serve(&Options::default(), |question, answer| {
///         answer.extend(question.iter().rev());
///     })
/// }
/// ```
///
/// # Errors
/// Those of [`channel`], and errors of the connection. The end of the host is not an error.
pub fn serve(options: &Options, mut handler: impl FnMut(&[u8], &mut Vec<u8>)) -> Result<(), Error> {
    let mut call_receiver = CallReceiver::new(channel(options)?);
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    let ended = loop {
        let (kind, id) = match call_receiver.next(&mut question) {
            Ok(header) => header,
            Err(error) => break error,
        };
        let kind = match kind {
            kind::MESSAGE => kind::MESSAGE,
            // Items that follow the request are not read: there is no credit for them.
            kind::CALL | kind::OPEN_CALL => kind::REPLY,
            // RESET: there is no service to reset.
            _ => kind::FAILED,
        };
        answer.clear();
        if kind != kind::FAILED {
            handler(&question, &mut answer);
        }
        if let Err(error) = call_receiver.end(kind, id, &answer) {
            break error;
        }
    };
    call_receiver.close(ended)
}

/// Connects to the host and answers calls until the host closes the connection or ends. The handler may return an
/// error; a panic has the effect that [`serve`] describes.
///
/// ```no_run
/// use pipewright_ipc::{Options, worker};
///
/// fn main() -> Result<(), pipewright_ipc::Error> {
///     worker::serve_calls(&Options::default(), |call| {
///         let number: u64 = std::str::from_utf8(call.request())?.parse()?;
///         Ok((number * 2).to_string().into_bytes())
///     })
/// }
/// ```
///
/// # Errors
/// Those of [`serve`]. An error that the handler returns does not end this function: the caller receives its text, as
/// [`Failed`](ErrorKind::Failed).
pub fn serve_calls(
    options: &Options,
    handler: impl FnMut(&mut Call<'_>) -> Answer,
) -> Result<(), Error> {
    run(options, &mut Handler(handler))
}

/// Like [`serve_calls`], for a service that can be [reset](Serve::reset).
///
/// # Errors
/// Those of [`serve_calls`].
pub fn run(options: &Options, service: &mut impl Serve) -> Result<(), Error> {
    let mut call_receiver = CallReceiver::new(channel(options)?);
    loop {
        if let Err(error) = answer_next(&mut call_receiver, service) {
            return call_receiver.close(error);
        }
    }
}

// A call, as the worker sees it.

/// The answer to a call: bytes, or an error whose text the host receives.
pub type Answer = Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>;

/// A service that answers calls.
pub trait Serve {
    /// Answers a call.
    ///
    /// # Errors
    /// The caller receives the text of the error. The worker continues with the next call.
    fn call(&mut self, call: &mut Call<'_>) -> Answer;

    /// Resets the worker to its state right after the start, so that no call can affect a later one
    /// ([`PoolOptions::reset_timeout`](crate::PoolOptions::reset_timeout)). Returns false if it cannot: the pool then
    /// replaces the worker.
    fn reset(&mut self) -> bool {
        false
    }
}

/// A function that answers calls.
struct Handler<F>(F);

impl<F: FnMut(&mut Call<'_>) -> Answer> Serve for Handler<F> {
    fn call(&mut self, call: &mut Call<'_>) -> Answer {
        (self.0)(call)
    }
}

/// A call that is being answered.
#[derive(Debug)]
pub struct Call<'a> {
    call_receiver: &'a mut CallReceiver,
    id: u64,
    request: Vec<u8>,
}

impl Call<'_> {
    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the same call, for a value that owns it.
    #[cfg(feature = "service")]
    pub(crate) fn reborrow(&mut self) -> Call<'_> {
        let request = self.take_request();
        Call { call_receiver: &mut *self.call_receiver, id: self.id, request }
    }

    /// Takes the request, without a copy.
    pub fn take_request(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    /// Returns true if the call was cancelled or the connection to the host has ended. The answer is then discarded.
    /// Never waits.
    pub fn is_cancelled(&mut self) -> bool {
        self.call_receiver.receive_available(self.id).is_err()
            || self.call_receiver.is_cancelled(self.id)
    }

    /// Sends an item: a part of the reply that precedes the answer. Waits until the caller has taken enough of the
    /// earlier ones ([`Request::in_pieces`](crate::Request::in_pieces)).
    ///
    /// # Errors
    /// [`Declined`](ErrorKind::Declined): the caller accepts no items. [`Cancelled`](ErrorKind::Cancelled): the call
    /// was cancelled. Errors of the connection.
    pub fn send_item(&mut self, bytes: &[u8]) -> Result<(), Error> {
        loop {
            match self.call_receiver.credits.of(self.id) {
                None => {
                    return Err(Error::declined(b"the caller accepts no items"));
                }
                Some(credit) if *credit > 0 => {
                    *credit -= 1;
                    return self.call_receiver.send(kind::ITEM, self.id, bytes);
                }
                Some(_) => {}
            }
            self.wait_for_next()?;
        }
    }

    /// Waits for the next message about the call. Not after its cancellation: nothing may follow that.
    fn wait_for_next(&mut self) -> Result<Option<(u8, Vec<u8>)>, Error> {
        if self.call_receiver.is_cancelled(self.id) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        self.call_receiver.receive_next(self.id)
    }

    /// Returns the next item of the request, or `None` after the last one and for a request that comes as a whole
    /// ([`Pool::begin_with_items`](crate::Pool::begin_with_items)). At most 16 items are on their way.
    ///
    /// # Errors
    /// [`Cancelled`](ErrorKind::Cancelled): the call was cancelled, also because the caller gave up before the last
    /// item. Errors of the connection.
    pub fn next_item(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let Some(input) = &mut self.call_receiver.input else { return Ok(None) };
            let (item, credit, has_ended) = (input.take(), input.new_credit(), input.has_ended);
            if let Some(more) = credit {
                self.call_receiver.send(kind::CREDIT, self.id, &more.to_le_bytes())?;
            }
            if item.is_some() || has_ended {
                return Ok(item);
            }
            self.wait_for_next()?;
        }
    }

    /// Asks the caller a question, and waits for the answer.
    ///
    /// # Errors
    /// [`Declined`](ErrorKind::Declined): the caller declines the question. [`Cancelled`](ErrorKind::Cancelled): the
    /// call was cancelled. Errors of the connection.
    pub fn ask(&mut self, question: &[u8]) -> Result<Vec<u8>, Error> {
        if self.call_receiver.is_cancelled(self.id) {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        self.call_receiver.send(kind::ASK, self.id, question)?;
        loop {
            match self.wait_for_next()? {
                Some((kind::ANSWER, bytes)) => return Ok(bytes),
                Some((_, reason)) => return Err(Error::declined(&reason)),
                None => {}
            }
        }
    }
}

/// Waits for the next call, and answers it.
fn answer_next(call_receiver: &mut CallReceiver, service: &mut impl Serve) -> Result<(), Error> {
    let mut request = Vec::new();
    let (kind, id) = call_receiver.next(&mut request)?;
    if kind == kind::RESET {
        let kind = if service.reset() { kind::RESET_DONE } else { kind::FAILED };
        return call_receiver.end(kind, id, &[]);
    }
    if kind == kind::OPEN_CALL {
        // Before the next message: it may be the end of the items.
        call_receiver.begin_input(id);
    }
    call_receiver.receive_available(id)?;
    if call_receiver.is_cancelled(id) {
        return call_receiver.end(kind::FAILED, id, b"cancelled before the call started");
    }
    let mut call = Call { call_receiver, id, request };
    let (kind, bytes) = match (service.call(&mut call), kind) {
        (Ok(bytes), kind::MESSAGE) => (kind::MESSAGE, bytes),
        (Ok(bytes), _) => (kind::REPLY, bytes),
        (Err(error), _) => (kind::FAILED, error.to_string().into_bytes()),
    };
    call_receiver.end(kind, id, &bytes)
}

// Values in requests and answers, by serde and postcard.

#[cfg(feature = "serde")]
impl Call<'_> {
    /// Returns the value of the request.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type.
    pub fn value<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        crate::codec::decode(self.request())
    }

    /// Serializes a value as the answer: a handler returns `Call::answer(&value)`.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the value cannot be serialized.
    pub fn answer(value: &impl serde::Serialize) -> Answer {
        Ok(crate::codec::encode(value)?)
    }
}

// The messages of the host, sorted: calls in their order, and messages about the call that is being answered.

/// A connection that receives calls.
#[derive(Debug)]
struct CallReceiver {
    core: Core,
    /// Calls that arrived while another one was being answered.
    waiting: VecDeque<RawMessage>,
    credits: Credits,
    cancelled: HashSet<u64>,
    /// The items of the call that is being answered, if items follow its request.
    input: Option<CallInput>,
    /// Calls that wait, and whose items have ended.
    without_items: HashSet<u64>,
    /// The violation of the protocol after which nothing more is received, also if a handler ignored it.
    violation: Option<ErrorKind>,
}

impl CallReceiver {
    fn new(channel: Channel) -> CallReceiver {
        CallReceiver {
            core: channel.core,
            waiting: VecDeque::new(),
            credits: Credits::default(),
            cancelled: HashSet::new(),
            input: None,
            without_items: HashSet::new(),
            violation: None,
        }
    }

    /// Returns the kind and the call of the next request or reset, and reads it into the buffer.
    fn next(&mut self, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                *buffer = message.bytes;
                return Ok((message.kind, message.id));
            }
            let (kind, id) = self.receive(buffer)?;
            if !self.handle(0, kind, id, buffer)? {
                return Ok((kind, id));
            }
        }
    }

    fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        self.check()?;
        let until = self.core.until();
        self.core.drive(until, Connection::begin)?;
        self.read(until, buffer)
    }

    fn read(&mut self, until: Option<Instant>, buffer: &mut Vec<u8>) -> Result<(u8, u64), Error> {
        let header = self.core.connection.body().map_or((0, 0), |body| (body.kind, body.id));
        self.core.read_into(buffer, until)?;
        Ok(header)
    }

    fn check(&self) -> Result<(), Error> {
        self.violation.as_ref().map_or(Ok(()), |kind| Err(Error::new(kind.clone())))
    }

    /// Handles a message about a call: the current one, or one that waits. Returns false if the message is a call
    /// itself.
    fn handle(&mut self, call: u64, kind: u8, id: u64, bytes: &[u8]) -> Result<bool, Error> {
        match kind {
            kind::MESSAGE | kind::CALL | kind::OPEN_CALL | kind::RESET => return Ok(false),
            kind::CANCEL => {
                // A CANCEL that comes after the answer would be kept forever. Plain messages and resets have the id 0.
                if id != 0 && (id == call || self.is_waiting(id)) {
                    self.cancelled.insert(id);
                }
            }
            kind::CREDIT => {
                let waiting = &self.waiting;
                let is_open =
                    |id| id == call || waiting.iter().any(|message: &RawMessage| message.id == id);
                self.credits.add(id, wire::credit(bytes), is_open);
            }
            // Also one of a request that came as a whole. A plain message and a reset have the id 0.
            kind::ITEM if self.is_waiting(id) || id == call && id != 0 => {
                return Err(without_credit());
            }
            // An item of a call that has ended. `sort` takes the others.
            kind::ITEM => {}
            kind::ITEMS_END if self.is_waiting(id) => drop(self.without_items.insert(id)),
            kind::ITEMS_END => {
                if let Some(input) = self.input.as_mut().filter(|input| input.call == id) {
                    input.has_ended = true;
                }
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} from a host"))),
        }
        Ok(true)
    }

    fn is_waiting(&self, id: u64) -> bool {
        self.waiting.iter().any(|message| message.id == id)
    }

    /// Prepares for the items that follow the request of the call.
    fn begin_input(&mut self, call: u64) {
        self.input = Some(CallInput::new(call, self.without_items.remove(&call)));
    }

    /// Waits for the next message, and sorts it. Returns the answer to a question of this call.
    fn receive_next(&mut self, call: u64) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let mut bytes = Vec::new();
        let (kind, id) = self.receive(&mut bytes)?;
        self.sort(call, RawMessage { kind, id, bytes })
    }

    /// Sorts the messages that have arrived, without waiting for others.
    fn receive_available(&mut self, call: u64) -> Result<(), Error> {
        self.check()?;
        while self.core.try_begin(Connection::begin)? {
            let mut bytes = Vec::new();
            // The rest of a long message is on its way.
            let until = self.core.until();
            let (kind, id) = self.read(until, &mut bytes)?;
            self.sort(call, RawMessage { kind, id, bytes })?;
        }
        Ok(())
    }

    fn sort(&mut self, call: u64, message: RawMessage) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let sorted = self.try_sort(call, message);
        sorted.inspect_err(|error| self.violation = Some(error.kind().clone()))
    }

    fn try_sort(&mut self, call: u64, message: RawMessage) -> Result<Option<(u8, Vec<u8>)>, Error> {
        let RawMessage { kind, id, bytes } = message;
        if matches!(kind, kind::ANSWER | kind::DECLINED) {
            // An answer that no question waits for belongs to a call that has ended.
            return Ok((id == call).then_some((kind, bytes)));
        }
        match &mut self.input {
            Some(input) if kind == kind::ITEM && input.call == id => {
                return input.add(bytes).map(|()| None);
            }
            _ => {}
        }
        if !self.handle(call, kind, id, &bytes)? {
            if self.waiting.len() >= MAX_CALLS {
                return Err(Error::protocol("too many calls at a time"));
            }
            self.waiting.push_back(RawMessage { kind, id, bytes });
        }
        Ok(None)
    }

    /// Returns true if the host has cancelled the call.
    fn is_cancelled(&self, call: u64) -> bool {
        self.cancelled.contains(&call)
    }

    /// Sends a message of a call.
    fn send(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send((kind, call), bytes, until)
    }

    /// Sends the last message of a call.
    fn end(&mut self, kind: u8, call: u64, bytes: &[u8]) -> Result<(), Error> {
        self.credits.end(call);
        self.input = None;
        self.without_items.remove(&call);
        self.cancelled.remove(&call);
        match self.send(kind, call, bytes) {
            // Nothing was sent, so the call of a pool can fail with this error.
            Err(error) if is_too_long(&error) && kind != kind::MESSAGE => {
                self.send(kind::FAILED, call, error.to_string().as_bytes())
            }
            sent => sent,
        }
    }

    /// Ends the connection after this error.
    fn close(mut self, error: Error) -> Result<(), Error> {
        match error.kind() {
            ErrorKind::Closed => self.core.close().map(drop),
            _ if error.is_disconnect() => Ok(()),
            _ => Err(error),
        }
    }
}

fn is_too_long(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLong { .. })
}

// The numbers of items that calls may send to the host.

/// The most calls with credit: those of the host, and as many that it has withdrawn.
const MAX_CREDITS: usize = 2 * MAX_CALLS;

/// The credit of calls whose host accepts items.
#[derive(Debug, Default)]
struct Credits {
    counts: HashMap<u64, u32>,
    /// The calls in the order of their first credit. Includes calls that have ended since.
    order: VecDeque<u64>,
    /// The last answered calls that could send items: more credit for them may be on its way. As many as the host can
    /// have open at a time, so that none is missed.
    answered: VecDeque<u64>,
}

impl Credits {
    /// Adds credit to a call. Credit for a call that was answered would be kept forever, and so would that of a call
    /// that never comes because its caller has withdrawn it. So the oldest goes, unless its call is open.
    fn add(&mut self, call: u64, more: u32, is_open: impl Fn(u64) -> bool) {
        if self.answered.contains(&call) {
            return;
        }
        if let Some(credit) = self.counts.get_mut(&call) {
            *credit = credit.saturating_add(more);
            return;
        }
        if self.counts.len() >= MAX_CREDITS {
            self.drop_oldest(is_open);
        }
        self.counts.insert(call, more);
        self.order.push_back(call);
    }

    fn drop_oldest(&mut self, is_open: impl Fn(u64) -> bool) {
        // At most `MAX_CALLS` are open, so another one is found.
        for _ in 0..self.order.len() {
            let Some(oldest) = self.order.pop_front() else { return };
            if is_open(oldest) {
                self.order.push_back(oldest);
            } else if self.counts.remove(&oldest).is_some() {
                return;
            }
        }
    }

    /// Returns the number of items that the call may send. `None`: the host accepts no items.
    fn of(&mut self, call: u64) -> Option<&mut u32> {
        self.counts.get_mut(&call)
    }

    /// Records that a call was answered.
    fn end(&mut self, call: u64) {
        if self.counts.remove(&call).is_none() {
            return;
        }
        if self.answered.len() >= MAX_CALLS {
            self.answered.pop_front();
        }
        self.answered.push_back(call);
        // Answered in their order, mostly: then it is the first.
        if self.order.front() == Some(&call) {
            self.order.pop_front();
        } else if self.order.len() > 2 * MAX_CREDITS {
            let counts = &self.counts;
            self.order.retain(|call| counts.contains_key(call));
        }
    }
}

// The items that follow the request of the call that is being answered.

/// The number of items that may be on their way.
const INPUT_WINDOW: u32 = 16;

/// The items of one call.
#[derive(Debug)]
struct CallInput {
    call: u64,
    arrived: VecDeque<Vec<u8>>,
    /// The host has sent the last one.
    has_ended: bool,
    /// The number that the host may still send.
    credit: u32,
}

impl CallInput {
    fn new(call: u64, has_ended: bool) -> CallInput {
        CallInput { call, arrived: VecDeque::new(), has_ended, credit: 0 }
    }

    /// Adds an item that has arrived.
    fn add(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        let left = self.credit.checked_sub(1).filter(|_| !self.has_ended);
        self.credit = left.ok_or_else(without_credit)?;
        self.arrived.push_back(bytes);
        Ok(())
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        self.arrived.pop_front()
    }

    /// Returns the credit that the host gets now, half a window at a time: each costs a message.
    fn new_credit(&mut self) -> Option<u32> {
        let open = self.credit + u32::try_from(self.arrived.len()).unwrap_or(u32::MAX);
        let more = INPUT_WINDOW.saturating_sub(open);
        if self.has_ended || more < INPUT_WINDOW / 2 {
            return None;
        }
        self.credit += more;
        Some(more)
    }
}

fn without_credit() -> Error {
    Error::protocol("an item without credit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_of_answered_and_withdrawn_calls_is_not_kept() {
        let mut credits = Credits::default();
        for call in 1..=MAX_CALLS as u64 * 3 {
            credits.add(call, 1, |_| false);
            assert_eq!(credits.of(call).copied(), Some(1));
            credits.end(call);
            credits.add(call, 1, |_| false);
            assert_eq!(credits.of(call), None);
        }
        assert!(credits.counts.is_empty() && credits.order.is_empty());
        assert_eq!(credits.answered.len(), MAX_CALLS);
        // The first thousand are open, in any order; the others never come.
        let first = 1_000_000;
        let is_open = |call: u64| call < first + 1_000;
        for call in first..first + 100_000 {
            credits.add(call, 2, is_open);
            assert!(credits.counts.len() <= MAX_CREDITS && credits.order.len() <= 3 * MAX_CREDITS);
        }
        for call in (first..first + 1_000).rev() {
            assert_eq!(credits.of(call).copied(), Some(2));
            credits.end(call);
        }
        assert!(credits.order.len() <= 3 * MAX_CREDITS);
    }
}
