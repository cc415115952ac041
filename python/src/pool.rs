//! Worker processes that answer calls, through shared memory.

use std::future::Future;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake as TaskWake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use pipewright_ipc::{CancelToken, PendingCall, PoolOptions, Request};
use pipewright_os::base::wake::{EventSource, WaitEvent as _, Wake};
use pyo3::exceptions::PyTypeError;
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
    /// Raised when the call has news, for an event loop.
    wake: Shared<Option<Arc<Wake>>>,
}

#[pymethods]
impl Pool {
    #[new]
    fn new(
        py: Python<'_>,
        options: &Bound<'_, PyDict>,
        workers: usize,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Pool> {
        guarded(|| {
            let command = command(options)?;
            let mut options = PoolOptions {
                min_workers: workers,
                max_workers: workers,
                // A call that is given up costs the worker, and no other call.
                calls_per_worker: 1,
                ..PoolOptions::default()
            };
            for (key, value) in settings {
                set(&mut options, &key.extract::<String>()?, &value)?;
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
            let (call, wake) = (Shared::new(Some(call)), Shared::new(None));
            Ok(PendingReply { owner: self.owner, token, call, wake })
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

/// Sets an option of the pool.
fn set(options: &mut PoolOptions, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let time = || duration(value.extract()?);
    match key {
        "max_waiting" => options.max_waiting = value.extract()?,
        "drain" => options.shutdown.drain = time()?,
        "handshake_timeout" => options.channel.handshake_timeout = time()?,
        "max_message_bytes" => options.channel.max_message_bytes = value.extract()?,
        "max_jobs" => options.max_jobs = Some(value.extract()?),
        "max_age" => options.max_age = Some(time()?),
        "max_memory_bytes" => options.max_rss_bytes = Some(value.extract()?),
        _ => return Err(PyTypeError::new_err(format!("a pool has no option {key:?}"))),
    }
    Ok(())
}

#[pymethods]
impl PendingReply {
    /// Returns the descriptor that becomes readable when `poll` has something to do. It is closed with this object.
    fn descriptor(&self, py: Python<'_>) -> PyResult<i32> {
        guarded(|| {
            self.owner.check()?;
            let mut wake = self.wake.lock(py);
            let wake = match &*wake {
                Some(wake) => wake,
                None => {
                    let new = Wake::new();
                    wake.insert(Arc::new(new.map_err(|it| Failure::Io("wait for the call", it))?))
                }
            };
            match wake.source() {
                EventSource::Readable(descriptor) => Ok(descriptor.as_raw_fd()),
                _ => Err(Failure::Gone.into()),
            }
        })
    }

    /// Returns the reply, or `None` if there is none yet. Needs the `descriptor`.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        guarded(|| {
            self.owner.check()?;
            let wake = self.wake.lock(py).clone().ok_or(Failure::Gone)?;
            wake.lower();
            let waker = Waker::from(Arc::new(Raise(wake)));
            let polled = py.detach(|| {
                let mut call = self.call.lock_detached();
                let pending = call.as_mut().ok_or(Failure::Gone)?;
                let polled = Pin::new(pending).poll(&mut Context::from_waker(&waker));
                if polled.is_ready() {
                    *call = None;
                }
                Ok::<_, Failure>(polled)
            })?;
            match polled {
                Poll::Pending => Ok(None),
                Poll::Ready(reply) => {
                    let reply = reply.map_err(Failure::Ipc)?.into_bytes();
                    Ok(Some(PyBytes::new(py, &reply)))
                }
            }
        })
    }

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

/// Raises a flag that an event loop waits for.
struct Raise(Arc<Wake>);

impl TaskWake for Raise {
    fn wake(self: Arc<Raise>) {
        self.0.raise();
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl TaskWake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}
