//! Workers that are kept warm, and calls that any of them answers.
//!
//! | file | what |
//! |---|---|
//! | `driver.rs` | the thread that waits for everything |
//! | `calls.rs` | what becomes of calls |
//! | `fleet.rs`, `rules.rs` | how many workers there are; when one is replaced though it works |
//! | `worker/`, `connection.rs` | one worker, and what calls go over |
//! | `shelf.rs`, `lend.rs`, `direct.rs` | callers who talk to a worker that has nothing to do |
//! | `mailbox.rs`, `job.rs` | what callers leave for the driver |
//! | `counters.rs`, `status.rs` | the numbers of [`PoolStats`] |
//! | `pending.rs` | what the driver leaves for a caller |

mod calls;
mod connection;
mod counters;
mod direct;
mod driver;
mod fleet;
mod job;
mod lend;
mod mailbox;
mod options;
mod pending;
mod request;
mod rules;
mod shelf;
mod status;
#[cfg(feature = "serde")]
mod typed;
mod worker;

use std::sync::Arc;

use pipewright::Command;
use pipewright_os::base::generation::Generation;
use pipewright_os::base::park::block_on;
use pipewright_os::base::service_thread;

use crate::error::Error;
use crate::host;
use driver::Driver;
use job::Job;
use mailbox::{Letter, Mailbox};
pub use options::{LogLine, OnLine, PoolOptions, Schedule};
pub use pending::{CallEvent, PendingCall, Question};
pub use request::{Reply, Request};
pub use status::{PoolStats, WorkerState, WorkerStatus};

/// Workers that are started when they are needed and kept for the next call, and calls that any of them
/// answers.
///
/// Any number of threads and tasks may call. One thread of the pool does all the waiting, for all workers.
/// The end of a worker costs the calls that it had, and no others: each of them is told how it ended and
/// what it wrote last, or is tried again if it [may be](Request::idempotent).
///
/// Workers belong to the pool: they have its end of a link and no other handle, their output is read and
/// the end of it kept ([`PoolOptions::on_line`] hands it on), and they end with it, and with this process.
/// What a worker has started itself goes on after a polite end, unless the command says
/// [`contain(Contain::Tree)`](Command::contain).
///
/// # Platform
/// As [`Channel`](crate::Channel). Unix: after a `fork` by other code of this process the pool is the parent's.
/// In the child, a drop and [`shut_down`](Self::shut_down) do nothing to the workers, and a call may wait for
/// ever.
///
/// # Drop
/// Kills the workers; calls that are not answered end with [`ShutDown`](crate::ErrorKind::ShutDown).
/// [`shut_down`](Self::shut_down) is the polite way.
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
    /// The process that has its thread.
    home: Generation,
}

impl Pool {
    /// A pool of workers that this command starts. Its stdio is the pool's.
    ///
    /// Without [`min_workers`](PoolOptions::min_workers) nothing is started before the first call.
    ///
    /// # Errors
    /// [`Unclaimed`](crate::ErrorKind::Unclaimed): this process is a worker itself and has not claimed its link. No room
    /// for another handle, or another thread. A worker that cannot be started is an error of the [`call`](Self::call).
    pub fn new(command: Command, options: PoolOptions) -> Result<Pool, Error> {
        host::may_start()?;
        let mailbox = Arc::new(Mailbox::new()?);
        let driver = Driver::new(Arc::clone(&mailbox), command, options.clone());
        service_thread::start(c"pw-pool", move || driver.drive())
            .map_err(Error::cannot("start the thread of a pool"))?;
        Ok(Pool { mailbox, options, home: Generation::current() })
    }

    /// Has a worker answer that, and waits for it.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost): the worker that had it is gone, and it may have been done.
    /// [`Failed`](crate::ErrorKind::Failed): the worker says so. [`TimedOut`](crate::ErrorKind::TimedOut),
    /// [`Cancelled`](crate::ErrorKind::Cancelled), [`ShutDown`](crate::ErrorKind::ShutDown). If no worker can be
    /// started, the reason of the last attempt: [`Start`](crate::ErrorKind::Start),
    /// [`NoHandshake`](crate::ErrorKind::NoHandshake), [`Refused`](crate::ErrorKind::Refused). No room for the handle
    /// that its token takes.
    pub fn call(&self, request: impl Into<Request>) -> Result<Reply, Error> {
        let request = request.into();
        by_its_twin!(self.call_async(request));
        request.watch_token()?;
        // Where the answer comes whole, a worker that has nothing to do may be asked from here.
        let may_ask = request.window == 0 && !request.is_cancelled();
        let lent = if may_ask { self.mailbox.shelf.take() } else { None };
        let Some(lent) = lent else { return self.put(request, usize::MAX)?.wait() };
        let (job, pending) = self.job(request);
        match direct::call(&self.mailbox, lent, job) {
            Some(result) => result,
            None => pending().wait(),
        }
    }

    /// The same for a task, of whatever runtime: nothing is blocked.
    ///
    /// # Cancellation
    /// Dropping the future [cancels](PendingCall) the call.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_async(&self, request: impl Into<Request>) -> Result<Reply, Error> {
        self.put(request.into(), usize::MAX)?.await
    }

    /// Has a worker answer that, without waiting for it.
    ///
    /// # Errors
    /// [`Full`](crate::ErrorKind::Full): too many calls wait for a worker.
    /// [`ShutDown`](crate::ErrorKind::ShutDown). No room for the handle that its token takes.
    pub fn begin(&self, request: impl Into<Request>) -> Result<PendingCall, Error> {
        self.put(request.into(), self.options.max_waiting)
    }

    fn put(&self, request: Request, most: usize) -> Result<PendingCall, Error> {
        request.watch_token()?;
        let (job, pending) = self.job(request);
        self.mailbox.call(job, most)?;
        Ok(pending())
    }

    /// The call, and how to wait for it once the driver has it.
    fn job(&self, mut request: Request) -> (Job, impl FnOnce() -> PendingCall + '_) {
        request.timeout = request.timeout.or(self.options.call_timeout);
        let (id, window, cell) = (self.mailbox.number(), request.window, Arc::default());
        let job = Job::new(id, request, Arc::clone(&cell));
        (job, move || PendingCall::new(id, window, cell, Arc::clone(&self.mailbox)))
    }

    /// Whether other code has forked since: this process has no thread of the pool, which nobody would end, and a lock
    /// may be held for ever.
    fn is_a_copy(&self) -> bool {
        !self.home.is_here()
    }

    /// Returns the state of the pool and its counters.
    ///
    /// Each counter includes what a caller already knows: a reply counts before the call returns it. The list of
    /// workers and the state of each are those of a moment ago.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.mailbox.stats()
    }

    /// Takes no more calls, has those answered that were begun, and lets the workers go, each step as the
    /// [schedule](PoolOptions::shutdown) says; and waits until all that is done.
    pub fn shut_down(self) {
        if self.is_a_copy() {
            return;
        }
        by_its_twin!(self.shut_down_async());
        self.mailbox.leave(Letter::ShutDown(self.options.shutdown));
        block_on(|context| self.mailbox.poll_ended(context));
    }

    /// The same for a task, of whatever runtime.
    ///
    /// # Cancellation
    /// Dropping the future drops the pool.
    pub async fn shut_down_async(self) {
        if self.is_a_copy() {
            return;
        }
        self.mailbox.leave(Letter::ShutDown(self.options.shutdown));
        std::future::poll_fn(|context| self.mailbox.poll_ended(context)).await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_a_copy() {
            return;
        }
        self.mailbox.leave(Letter::Stop);
        block_on(|context| self.mailbox.poll_ended(context));
    }
}
