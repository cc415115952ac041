//! Pools: workers that are kept for further calls.
//!
//! | file | contents |
//! |---|---|
//! | this file | [`Pool`], and a call on the connection of an idle worker, without the thread |
//! | `call.rs`, `pending.rs` | a call for the driver and for its caller |
//! | `mailbox.rs` | what both share: commands, connections of idle workers, counters |
//! | `driver/` | the thread that waits for all workers, and starts and replaces them |
//! | `worker.rs`, `connection.rs` | one worker, and its connection |
//! | `options.rs` | [`PoolOptions`] and [`PoolStats`] |

mod call;
mod connection;
mod driver;
mod mailbox;
mod options;
mod pending;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{CancelToken, Command};
use pipewright_os::base::park::block_on;
use pipewright_os::base::service_thread;
use pipewright_os::base::wait::{self, Slot};

use crate::connection::RawMessage;
use crate::error::Error;
use crate::process;
use crate::wire::kind;
use call::{ItemCredit, QueuedCall, is_cancelled};
use connection::OutgoingMessage;
use driver::PoolDriver;
use mailbox::{BorrowedConnection, DriverCommand, Mailbox, UnfinishedCall};

pub use call::{Reply, Request};
pub use options::{LogLine, OnLine, PoolOptions, PoolStats, Schedule, WorkerState, WorkerStatus};
pub use pending::{CallEvent, ItemSender, PendingCall, Question};

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
    let bytes = call.body().len() as u64;
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
