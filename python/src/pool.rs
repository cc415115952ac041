//! Worker processes that answer calls, through shared memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use pipewright_ipc::{CancelToken, PendingCall, PoolOptions, Request};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{Failure, guarded};
use crate::options::command;
use crate::shared::{Owner, Shared, duration, repeat};

/// A pool of workers.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Pool {
    owner: Owner,
    pool: Shared<Option<Arc<pipewright_ipc::Pool>>>,
}

/// A call that a worker answers.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct PendingReply {
    owner: Owner,
    token: CancelToken,
    call: Shared<Option<PendingCall>>,
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (options, workers, max_calls, drain, handshake_timeout=None, max_message_bytes=None))]
    fn new(
        py: Python<'_>,
        options: &Bound<'_, PyDict>,
        workers: usize,
        max_calls: usize,
        drain: f64,
        handshake_timeout: Option<f64>,
        max_message_bytes: Option<u64>,
    ) -> PyResult<Pool> {
        guarded(|| {
            let command = command(options)?;
            let mut options = PoolOptions {
                min_workers: workers,
                max_workers: workers,
                // A call that is given up costs the worker, and no other call.
                calls_per_worker: 1,
                max_waiting: max_calls,
                ..PoolOptions::default()
            };
            options.shutdown.drain = duration(drain)?;
            if let Some(timeout) = handshake_timeout {
                options.channel.handshake_timeout = duration(timeout)?;
            }
            if let Some(bytes) = max_message_bytes {
                options.channel.max_message_bytes = bytes;
            }
            let pool = py.detach(|| pipewright_ipc::Pool::new(command, options));
            let pool = Shared::new(Some(Arc::new(pool.map_err(Failure::Ipc)?)));
            Ok(Pool { owner: Owner::this_process(), pool })
        })
    }

    /// Sends a request to a worker that is free, or will be.
    #[pyo3(signature = (request, timeout=None, idempotent=false))]
    fn begin(
        &self,
        py: Python<'_>,
        request: Vec<u8>,
        timeout: Option<f64>,
        idempotent: bool,
    ) -> PyResult<PendingReply> {
        guarded(|| {
            self.owner.check()?;
            let token = CancelToken::new();
            let mut request = Request::new(request).cancel(&token);
            if idempotent {
                request = request.idempotent();
            }
            if let Some(timeout) = timeout {
                request = request.timeout(duration(timeout)?);
            }
            let pool = self.pool.lock(py).clone().ok_or(Failure::Gone)?;
            let call = py.detach(|| pool.begin(request)).map_err(Failure::Ipc)?;
            Ok(PendingReply { owner: self.owner, token, call: Shared::new(Some(call)) })
        })
    }

    /// Ends the workers, after the calls that they have. An exception of a signal handler kills them.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            let Some(pool) = self.pool.lock(py).take().and_then(Arc::into_inner) else {
                return Ok(());
            };
            let mut ending = Box::pin(pool.shut_down_async());
            let ended = repeat(py, None, |limit| Ok(poll_within(ending.as_mut(), limit)));
            // The drop of what has not ended kills the workers, and waits for their ends.
            py.detach(|| drop(ending));
            ended.map(|_| ())
        })
    }
}

#[pymethods]
impl PendingReply {
    /// Waits for the reply without the GIL, once.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        guarded(|| {
            self.owner.check()?;
            let waited = repeat(py, None, |limit| self.wait_for(limit));
            if waited.is_err() {
                // An interrupt, or the error of the call, which has ended then.
                self.token.cancel();
            }
            Ok(PyBytes::new(py, &waited?.unwrap_or_default()))
        })
    }

    /// Asks the worker to give up the call.
    fn cancel(&self) {
        self.token.cancel();
    }
}

impl PendingReply {
    fn wait_for(&self, limit: Duration) -> Result<Option<Vec<u8>>, Failure> {
        let mut call = self.call.lock_detached();
        let pending = call.as_mut().ok_or(Failure::Gone)?;
        let Some(reply) = poll_within(Pin::new(pending), limit) else { return Ok(None) };
        *call = None;
        reply.map(|reply| Some(reply.into_bytes())).map_err(Failure::Ipc)
    }
}

/// Polls a future, and once more when it has woken this thread or the time is up.
fn poll_within<F: Future + ?Sized>(mut future: Pin<&mut F>, limit: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut polled = future.as_mut().poll(&mut context);
    if polled.is_pending() {
        thread::park_timeout(limit);
        polled = future.poll(&mut context);
    }
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}
