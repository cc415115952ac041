//! Pools: workers that are kept for further calls.
//!
//! | file | contents |
//! |---|---|
//! | this file | [`Pool`], a call on the connection of an idle worker, without the thread, [`Request`], [`Reply`] and [`PendingCall`] |
//! | `mailbox.rs` | what callers and the driver share: calls, commands, connections to workers, counters |
//! | `driver/` | the thread that waits for all workers, and starts and replaces them |
//! | `worker.rs` | one worker |
//! | `options.rs` | [`PoolOptions`] and [`PoolStats`] |

mod driver;
mod mailbox;
mod options;
mod worker;

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pipewright::{CancelToken, Command};
use pipewright_os::base::service_thread;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::block_on;

use crate::connection::RawMessage;
use crate::error::{Error, ErrorKind, WATCH_TOKEN};
use crate::process;
use crate::wire::kind;
use driver::PoolDriver;
use mailbox::{
    BorrowedConnection, DriverCommand, EventQueue, ItemCredit, Mailbox, OutgoingMessage,
    QueuedCall, QueuedEvent, UnfinishedCall, is_cancelled,
};

pub use options::{LogLine, OnLine, PoolOptions, PoolStats, Schedule, WorkerState, WorkerStatus};

/// A pool of workers: it starts them on demand, keeps them for further calls, and gives each call to one of them.
///
/// Any number of threads and tasks may call. One thread of the pool waits for all workers. When a worker ends, only its
/// own calls are affected: each fails with the worker's exit status and the end of its stderr, or is retried if it is
/// [idempotent](Request::idempotent).
///
/// The pool owns its workers. Besides its stdio, a worker inherits only its end of a handle channel. The pool reads the
/// workers' stdout and stderr and keeps the last part; [`PoolOptions::on_line`] receives every line. Workers end with
/// the pool, and with this process. Processes that a worker has started survive it, unless the command sets
/// [`contain(Contain::Tree)`](Command::contain) or limits: then the whole tree ends with the worker, and with this
/// process however that ends, and no cgroup is left.
///
/// # Platform
/// As for [`Channel`](crate::Channel). Unix: if other code of this process calls `fork`, the pool stays with the
/// parent. In the child, dropping and [`shut_down`](Self::shut_down) leave the workers alone, and calls are an error
/// (`Unsupported`).
///
/// # Drop
/// Kills the workers, and waits at most 100 ms for the end of each. Calls without a reply end with
/// [`ShutDown`](crate::ErrorKind::ShutDown). [`shut_down`](Self::shut_down) lets them finish. On the pool's own thread,
/// which wakes callers, neither waits.
///
/// ```no_run
/// use pipewright::Command;
/// use pipewright_ipc::{Pool, PoolOptions, Request};
///
/// let pool = Pool::new(Command::new("my-worker"), PoolOptions::default())?;
/// assert_eq!(*pool.call("hello")?, *b"olleh");
///
/// // Many at a time:
/// let calls: Vec<_> = (0..100_u8)
///     .map(|number| pool.begin(Request::new([number]).idempotent()))
///     .collect::<Result<_, _>>()?;
/// for call in calls {
///     println!("{:?}", call.wait()?.into_bytes());
/// }
/// pool.shut_down();
///
/// // The worker, in the first line of its `main`:
/// pipewright_ipc::worker::serve(&Default::default(), |question, answer| {
///     answer.extend(question.iter().rev());
/// })?;
/// # Ok::<(), pipewright_ipc::Error>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    mailbox: Arc<Mailbox>,
    options: PoolOptions,
    /// The pool was told to shut down, by code that runs on its own thread.
    is_ending: bool,
}

impl Pool {
    /// Creates a pool whose workers run this command. The pool overrides the command's stdio: stdin is null, and the
    /// pool reads stdout and stderr.
    ///
    /// Without [`min_workers`](PoolOptions::min_workers), the first call starts the first worker.
    ///
    /// # Errors
    /// [`Unclaimed`](crate::ErrorKind::Unclaimed): this process is itself a worker that has not called a function of
    /// [`worker`](crate::worker) yet. A handle or a thread cannot be created. A worker that cannot be started is an
    /// error of [`call`](Self::call).
    pub fn new(command: Command, options: PoolOptions) -> Result<Pool, Error> {
        process::check_may_start()?;
        let mailbox = Arc::new(Mailbox::new()?);
        let driver = PoolDriver::new(Arc::clone(&mailbox), command, options.clone());
        service_thread::start(c"pw-pool", move || driver.run())
            .map_err(Error::cannot("start the thread of a pool"))?;
        Ok(Pool { mailbox, options, is_ending: false })
    }

    /// Calls a worker, and waits for its reply.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost): the worker ended, and may have executed the call.
    /// [`Failed`](crate::ErrorKind::Failed): the worker reported an error. [`TimedOut`](crate::ErrorKind::TimedOut),
    /// [`Cancelled`](crate::ErrorKind::Cancelled), [`ShutDown`](crate::ErrorKind::ShutDown). If no worker can be
    /// started, the error of the last attempt: [`Start`](crate::ErrorKind::Start),
    /// [`NoHandshake`](crate::ErrorKind::NoHandshake), [`Refused`](crate::ErrorKind::Refused). The handle of the
    /// cancel token cannot be created.
    pub fn call(&self, request: impl Into<Request>) -> Result<Reply, Error> {
        let request = request.into();
        run_async_for_test!(self.call_async(request));
        request.check_token()?;
        self.mailbox.check_process()?;
        // The caller may talk to an idle worker itself if the reply comes as a whole.
        let is_plain = request.window == 0 && !request.is_cancelled();
        let borrowed = if is_plain { self.mailbox.idle.borrow() } else { None };
        let Some(borrowed) = borrowed else { return self.queue(request, usize::MAX)?.wait() };
        let (call, pending) = self.prepare(request, None);
        match call_directly(&self.mailbox, borrowed, call) {
            Some(result) => result,
            None => pending().wait(),
        }
    }

    /// Like [`call`](Self::call), for a task of any runtime. Blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future [cancels](PendingCall) the call.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub async fn call_async(&self, request: impl Into<Request>) -> Result<Reply, Error> {
        self.queue(request.into(), usize::MAX)?.await
    }

    /// Starts a call without waiting for its reply. Until a worker is free, the request waits in memory.
    ///
    /// # Errors
    /// [`Full`](crate::ErrorKind::Full): [`max_waiting`](PoolOptions::max_waiting) calls are waiting for a worker.
    /// [`ShutDown`](crate::ErrorKind::ShutDown). The handle of the cancel token cannot be created.
    pub fn begin(&self, request: impl Into<Request>) -> Result<PendingCall, Error> {
        self.queue(request.into(), self.options.max_waiting)
    }

    /// Starts a call whose request consists of these bytes and of items that follow. A worker that reads the items gets
    /// them while later ones are still being made, and the caller waits while the worker is busy with earlier ones.
    ///
    /// Such a call is not retried, also if the request is [idempotent](Request::idempotent).
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin). [`Unsupported`](crate::ErrorKind::Unsupported), an error of the call: the
    /// worker takes no items, because its library is older.
    ///
    /// ```no_run
    /// # fn example(pool: &pipewright_ipc::Pool) -> Result<(), pipewright_ipc::Error> {
    /// let (mut items, call) = pool.begin_with_items("compress")?;
    /// for block in [[1; 65536], [2; 65536]] {
    ///     items.send(block)?;
    /// }
    /// items.finish();
    /// let reply = call.wait()?;
    /// # Ok(()) }
    /// ```
    pub fn begin_with_items(
        &self,
        request: impl Into<Request>,
    ) -> Result<(ItemSender, PendingCall), Error> {
        let request = request.into();
        request.check_token()?;
        let credit = Arc::new(ItemCredit::default());
        let (call, pending) = self.prepare(request, Some(Arc::clone(&credit)));
        let id = call.id;
        self.mailbox.call(call, self.options.max_waiting)?;
        Ok((ItemSender::new(id, credit, Arc::clone(&self.mailbox)), pending()))
    }

    fn queue(&self, request: Request, most: usize) -> Result<PendingCall, Error> {
        request.check_token()?;
        let (call, pending) = self.prepare(request, None);
        self.mailbox.call(call, most)?;
        Ok(pending())
    }

    /// Returns the call, and a function that makes its [`PendingCall`] once the driver has it.
    fn prepare(
        &self,
        mut request: Request,
        items: Option<Arc<ItemCredit>>,
    ) -> (QueuedCall, impl FnOnce() -> PendingCall + '_) {
        request.timeout = request.timeout.or(self.options.call_timeout);
        let (id, window, events) = (self.mailbox.next_id(), request.window, Arc::default());
        let call = QueuedCall::new(id, request, Arc::clone(&events), items);
        (call, move || PendingCall::new(id, window, events, Arc::clone(&self.mailbox)))
    }

    /// Returns the state of the pool and its counters.
    ///
    /// The counters are current: a reply is counted before its call returns. The list of workers and their states may
    /// be slightly out of date.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.mailbox.stats()
    }

    /// Shuts the pool down and waits for the end of all workers: accepts no more calls, finishes those in progress,
    /// then ends the workers. The [schedule](PoolOptions::shutdown) bounds each step.
    pub fn shut_down(self) {
        run_async_for_test!(self.shut_down_async());
        let Some(this) = self.begin_shutdown() else { return };
        let mailbox = &this.mailbox;
        block_on(|context| mailbox.poll_ended(context));
    }

    /// Tells the driver to shut down. Returns `None` if nobody may wait for that: in a fork, and on the driver's own
    /// thread.
    fn begin_shutdown(mut self) -> Option<Pool> {
        if self.mailbox.is_forked_copy() {
            return None;
        }
        self.mailbox.send(DriverCommand::ShutDown(self.options.shutdown));
        self.is_ending = self.mailbox.is_driver();
        if self.is_ending { None } else { Some(self) }
    }

    /// Like [`shut_down`](Self::shut_down), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future drops the pool, which kills the workers.
    pub async fn shut_down_async(self) {
        let Some(this) = self.begin_shutdown() else { return };
        std::future::poll_fn(|context| this.mailbox.poll_ended(context)).await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_ending || self.mailbox.is_forked_copy() {
            return;
        }
        self.mailbox.send(DriverCommand::Stop);
        if self.mailbox.is_driver() {
            // A waker dropped it. The driver ends when it has finished what it does now.
            return;
        }
        block_on(|context| self.mailbox.poll_ended(context));
    }
}

// A call on a borrowed connection: the caller talks to the worker itself. The driver handles everything but the plain
// reply.

/// Sends the call, and waits for the reply. `None`: the driver has the call now.
fn call_directly(
    mailbox: &Mailbox,
    mut borrowed: BorrowedConnection,
    call: QueuedCall,
) -> Option<Result<Reply, Error>> {
    let bytes = call.body().len();
    if let Err(error) = borrowed.connection.inner.check_length(bytes) {
        mailbox.give_back(borrowed, None);
        return Some(Err(error));
    }
    let mut outgoing = VecDeque::from([OutgoingMessage::new(kind::CALL, call.id, call.body())]);
    let answer = match exchange(&mut borrowed, &call, &mut outgoing) {
        Ok(Some(message)) if is_reply(&message, &call, &borrowed, outgoing.is_empty()) => message,
        received => {
            let connection = mailbox.idle.remove(borrowed);
            let unfinished = UnfinishedCall { connection, call, outgoing, received };
            mailbox.send(DriverCommand::Finish(Box::new(unfinished)));
            return None;
        }
    };
    let RawMessage { kind, bytes, .. } = answer;
    let (worker, has_failed) = (borrowed.worker, kind == kind::FAILED);
    mailbox.give_back(borrowed, Some(has_failed));
    Some(match has_failed {
        true => Err(Error::failed(&bytes)),
        false => Ok(Reply { body: bytes, worker, attempts: 1 }),
    })
}

/// Returns true if the message ends the call, and nothing else is on its way.
fn is_reply(
    message: &RawMessage,
    call: &QueuedCall,
    borrowed: &BorrowedConnection,
    is_sent: bool,
) -> bool {
    let is_end = matches!(message.kind, kind::REPLY | kind::FAILED);
    is_end && message.id == call.id && is_sent && borrowed.connection.is_quiet()
}

/// Sends the call, and waits for the worker's next message. `None`: the driver has to take over.
fn exchange(
    borrowed: &mut BorrowedConnection,
    call: &QueuedCall,
    outgoing: &mut VecDeque<OutgoingMessage>,
) -> Result<Option<RawMessage>, Error> {
    // A worker that has ended since, or has sent something unexpected, gets no call.
    let _ = borrowed.connection.inner.read_socket_next();
    borrowed.connection.inner.begin_turn();
    let mut message = borrowed.connection.next(|_| Err(unexpected()))?;
    while message.is_none() {
        let connection = &mut borrowed.connection;
        let is_sent = connection.send(outgoing, |_| {})?;
        // There is no reply before the call is sent.
        let has_arrived = is_sent && connection.spin();
        if connection.inner.turn_is_over() {
            if !wait_for_worker(borrowed, call, None) {
                return Ok(None);
            }
            borrowed.connection.inner.begin_turn();
        } else if !has_arrived && !wait_for_worker(borrowed, call, Some(!is_sent)) {
            return Ok(None);
        }
        message = borrowed.connection.next(|body| match body.kind {
            kind::REPLY | kind::FAILED | kind::ASK if body.id == call.id && is_sent => Ok(()),
            _ => Err(unexpected()),
        })?;
    }
    Ok(message)
}

fn unexpected() -> Error {
    Error::protocol("a reply to a call that the worker does not have")
}

/// Waits for a message, or for room. Returns false if the driver has to take over. `None`: only looks if it has to.
fn wait_for_worker(
    borrowed: &mut BorrowedConnection,
    call: &QueuedCall,
    room: Option<bool>,
) -> bool {
    let BorrowedConnection { connection, wake, .. } = borrowed;
    let token = match call.token.as_ref().map(CancelToken::wake) {
        Some(Ok(wake)) => Slot::Event(wake),
        // An error of the token is not an error of the worker.
        Some(Err(_)) => return false,
        None => Slot::Off,
    };
    let Some(wants_room) = room else {
        let now = Instant::now();
        let mut slots = [Slot::Event(&**wake), token];
        let looked = wait::any(&mut slots, Some(now));
        let [wake, token] = slots.map(Slot::detach).map(|slot| matches!(slot, Slot::EventDone));
        let is_cancelled = token && call.token.as_ref().is_some_and(is_cancelled);
        let is_late = call.until.is_some_and(|until| until <= now);
        return looked.is_ok() && !wake && !is_cancelled && !is_late;
    };
    if !connection.inner.fall_asleep() {
        connection.wake_up(false, Duration::ZERO, false);
        return true;
    }
    let began = Instant::now();
    let end = &connection.inner.end;
    let room = if wants_room { Slot::Room(end) } else { Slot::Off };
    let mut slots = [Slot::Event(end), room, Slot::Event(&**wake), token];
    let waited = wait::any(&mut slots, call.until);
    let [arrived, _, wake, token] =
        slots.map(Slot::detach).map(|slot| matches!(slot, Slot::EventDone));
    connection.wake_up(arrived, began.elapsed(), true);
    let is_cancelled = token && call.token.as_ref().is_some_and(is_cancelled);
    matches!(waited, Ok(1..)) && !wake && !is_cancelled
}

// A request, and its reply.

/// A request to a worker.
///
/// ```
/// use std::time::Duration;
/// use pipewright_ipc::Request;
/// let request = Request::new("compile it").idempotent().timeout(Duration::from_secs(10));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until it is passed to a pool"]
pub struct Request {
    body: Vec<u8>,
    /// More bytes, which follow those.
    tail: Vec<u8>,
    idempotent: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) window: u32,
}

impl Request {
    /// Creates a request with these bytes.
    pub fn new(body: impl Into<Vec<u8>>) -> Request {
        Request::in_two(body.into(), Vec::new())
    }

    /// Creates a request with bytes that follow others, which are not copied to one place.
    pub(crate) fn in_two(body: Vec<u8>, tail: Vec<u8>) -> Request {
        Request { body, tail, idempotent: false, timeout: None, cancel: None, window: 0 }
    }

    /// Allows the pool to retry the request on another worker if its worker ends, up to
    /// [`retries`](crate::PoolOptions::retries) times, as long as the caller has received no item and no question. A
    /// request that crashes every worker ends `retries` + 1 workers.
    pub fn idempotent(mut self) -> Request {
        self.idempotent = true;
        self
    }

    /// Sets the longest duration of the call, including the wait for a worker.
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = Some(timeout);
        self
    }

    /// Cancels the call when the token is cancelled. If it already is, no worker gets the request.
    pub fn cancel(mut self, token: &CancelToken) -> Request {
        self.cancel = Some(token.clone());
        self
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns an error if a wait cannot include the token, which would then have no effect.
    pub(super) fn check_token(&self) -> Result<(), Error> {
        if let Some(token) = &self.cancel {
            token.wake().map_err(Error::cannot(WATCH_TOKEN))?;
        }
        Ok(())
    }

    /// Allows the worker to [send items](crate::worker::Call::send_item) before its reply: at most `window` of them
    /// that the caller has not taken yet.
    pub fn in_pieces(mut self, window: u32) -> Request {
        self.window = window;
        self
    }
}

impl From<Vec<u8>> for Request {
    fn from(body: Vec<u8>) -> Request {
        Request::new(body)
    }
}

impl From<&[u8]> for Request {
    fn from(body: &[u8]) -> Request {
        Request::new(body)
    }
}

impl<const COUNT: usize> From<&[u8; COUNT]> for Request {
    fn from(body: &[u8; COUNT]) -> Request {
        Request::new(body)
    }
}

impl From<&str> for Request {
    fn from(body: &str) -> Request {
        Request::new(body)
    }
}

impl From<String> for Request {
    fn from(body: String) -> Request {
        Request::new(body)
    }
}

/// The reply of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    body: Vec<u8>,
    pub(super) worker: u64,
    pub(super) attempts: u32,
}

impl Reply {
    /// Returns the bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// Returns the number of the worker in the pool, from 1.
    #[must_use]
    pub fn worker(&self) -> u64 {
        self.worker
    }

    /// Returns the number of workers that got the request: more than one if it was [retried](Request::idempotent).
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.body
    }
}

// Values in requests and replies, by serde and postcard.

#[cfg(feature = "serde")]
impl Request {
    /// Creates a request with this value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the value cannot be serialized.
    ///
    /// ```
    /// use pipewright_ipc::Request;
    /// let request = Request::of(&(1_u32, "two"))?.idempotent();
    /// # Ok::<(), pipewright_ipc::Error>(())
    /// ```
    pub fn of(value: &impl serde::Serialize) -> Result<Request, Error> {
        crate::codec::encode(value).map(Request::new)
    }
}

#[cfg(feature = "serde")]
impl Reply {
    /// Returns the value.
    ///
    /// # Errors
    /// [`Codec`](crate::ErrorKind::Codec): the bytes are not a value of this type.
    pub fn value<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        crate::codec::decode(self)
    }
}

// A call in progress, for its caller: its events, and the items that follow its request.

/// A call in progress. [`wait`](Self::wait) waits for its reply; so does `.await`. [`next`](Self::next) returns its
/// events one by one.
///
/// # Drop
/// Cancels the call. The pool kills a worker that does not answer a cancelled call within
/// [`cancel_grace`](PoolOptions::cancel_grace).
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct PendingCall {
    id: u64,
    events: Arc<EventQueue>,
    mailbox: Arc<Mailbox>,
    /// The number of items that the worker may send ahead of the caller.
    window: u32,
    /// The number of items taken since the last credit for the worker.
    taken: u32,
}

/// An event during a call.
#[derive(Debug)]
pub enum CallEvent {
    /// An item: a part of the reply, if the request [allows them](crate::Request::in_pieces).
    Item(Vec<u8>),
    /// A question that the worker [asks](crate::worker::Call::ask) during the call.
    Question(Question),
    /// The reply, which ends the call.
    Reply(Reply),
}

/// A question of a worker to its caller. The worker waits for the answer.
///
/// If the answer takes another call of the same pool, that call needs another worker. If all workers ask such
/// questions, or [`max_workers`](PoolOptions::max_workers) is 1, the calls deadlock until one times out.
///
/// # Drop
/// Declines the question, unless it was answered.
#[derive(Debug)]
pub struct Question {
    call: u64,
    bytes: Vec<u8>,
    mailbox: Arc<Mailbox>,
    answered: bool,
}

impl Question {
    /// Returns the question.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Answers the question.
    pub fn answer(mut self, bytes: impl Into<Vec<u8>>) {
        self.send(Ok(bytes.into()));
    }

    /// Declines the question with this reason.
    pub fn decline(mut self, reason: impl Into<String>) {
        self.send(Err(reason.into()));
    }

    fn send(&mut self, answer: Result<Vec<u8>, String>) {
        self.answered = true;
        self.mailbox.send(DriverCommand::Answer(self.call, answer));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.answered {
            self.send(Err("the caller does not answer questions".to_owned()));
        }
    }
}

impl PendingCall {
    fn new(id: u64, window: u32, events: Arc<EventQueue>, mailbox: Arc<Mailbox>) -> PendingCall {
        PendingCall { id, events, mailbox, window, taken: 0 }
    }

    /// Returns the id of the call, which is unique in the pool.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the reply. Declines questions of the worker, and discards items.
    ///
    /// # Errors
    /// Those of [`Pool::call`](Pool::call).
    pub fn wait(mut self) -> Result<Reply, Error> {
        run_async_for_test!(self);
        loop {
            if let CallEvent::Reply(reply) = self.next()? {
                return Ok(reply);
            }
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Those of [`Pool::call`](Pool::call); [`Closed`](crate::ErrorKind::Closed) after the last event.
    #[expect(
        clippy::should_implement_trait,
        reason = "it ends with a reply or an error, not with a None"
    )]
    pub fn next(&mut self) -> Result<CallEvent, Error> {
        run_async_for_test!(self.next_async());
        block_on(|context| self.poll_next(context))
    }

    /// Like [`next`](Self::next), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<CallEvent, Error> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Cancels the call. It ends with [`Cancelled`](crate::ErrorKind::Cancelled) after the events that have already
    /// arrived.
    pub fn cancel(&self) {
        self.mailbox.send(DriverCommand::Cancel(self.id));
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Result<CallEvent, Error>> {
        self.mailbox.check_process()?;
        let Some(event) = self.events.poll(context) else { return Poll::Pending };
        Poll::Ready(match event {
            QueuedEvent::Item(bytes) => {
                self.taken += 1;
                // Half a window at a time: each command wakes the driver.
                if self.taken >= self.window.div_ceil(2) {
                    self.mailbox.send(DriverCommand::Credit(self.id, mem::take(&mut self.taken)));
                }
                Ok(CallEvent::Item(bytes))
            }
            QueuedEvent::Question(bytes) => {
                let (call, mailbox) = (self.id, Arc::clone(&self.mailbox));
                Ok(CallEvent::Question(Question { call, bytes, mailbox, answered: false }))
            }
            QueuedEvent::End(result) => result.map(CallEvent::Reply),
        })
    }
}

impl Future for PendingCall {
    type Output = Result<Reply, Error>;

    /// Like [`wait`](PendingCall::wait).
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        loop {
            match self.poll_next(context) {
                Poll::Ready(Ok(CallEvent::Reply(reply))) => return Poll::Ready(Ok(reply)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.mailbox.is_forked_copy() && self.events.close() {
            self.mailbox.send(DriverCommand::Cancel(self.id));
        }
    }
}

/// The sender of the items that follow a request: [`Pool::begin_with_items`](Pool::begin_with_items). The worker
/// gets them with [`Call::next_item`](crate::worker::Call::next_item), and decides how many may be on their way.
///
/// If the worker also sends items, receive them in another thread or task than that of the sender: otherwise both sides
/// may wait for each other.
///
/// # Drop
/// Cancels the call, unless it has ended or the sender was [finished](Self::finish): a worker never takes the beginning
/// of a request for all of it.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct ItemSender {
    call: u64,
    credit: Arc<ItemCredit>,
    mailbox: Arc<Mailbox>,
    is_finished: bool,
}

impl ItemSender {
    fn new(call: u64, credit: Arc<ItemCredit>, mailbox: Arc<Mailbox>) -> ItemSender {
        ItemSender { call, credit, mailbox, is_finished: false }
    }

    /// Sends an item. Waits until the worker accepts one.
    ///
    /// # Errors
    /// [`CallEnded`](ErrorKind::CallEnded): the result of the [`PendingCall`] has the reason. A
    /// worker may reply before it has taken all items. An item longer than the agreed maximum ends the call with
    /// [`TooLong`](ErrorKind::TooLong).
    pub fn send(&mut self, item: impl Into<Vec<u8>>) -> Result<(), Error> {
        let item = item.into();
        self.mailbox.check_process()?;
        run_async_for_test!(self.send_async(item));
        let may_send = block_on(|context| self.credit.poll_take(context));
        self.send_if(may_send, item)
    }

    /// Like [`send`](Self::send), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future sends nothing.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn send_async(&mut self, item: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.mailbox.check_process()?;
        let may_send = std::future::poll_fn(|context| self.credit.poll_take(context)).await;
        self.send_if(may_send, item.into())
    }

    fn send_if(&self, may_send: bool, item: Vec<u8>) -> Result<(), Error> {
        if !may_send {
            return Err(Error::new(ErrorKind::CallEnded));
        }
        self.mailbox.send(DriverCommand::Item(self.call, item));
        Ok(())
    }

    /// Ends the items. The worker then finds the end of the request.
    pub fn finish(mut self) {
        self.is_finished = true;
        self.mailbox.send(DriverCommand::EndItems(self.call));
    }
}

impl Drop for ItemSender {
    fn drop(&mut self) {
        if !self.is_finished {
            // Without effect on a call that has ended.
            self.mailbox.send(DriverCommand::Cancel(self.call));
        }
    }
}
