//! The ways to have operations carried out, behind one contract.

mod aio;
mod call_monitor;
mod caller;
mod io_uring;
mod mixed;
mod observed;
mod overlapped;
mod pool;

use std::collections::VecDeque;
use std::fmt;
use std::io;

use pipewright_os::disk::file::{Finished, Request};

use crate::class::Observation;

pub(crate) use aio::AioQueue;
pub(crate) use caller::CallerBackend;
pub(crate) use io_uring::UringBackend;
pub(crate) use mixed::MixedBackend;
pub(crate) use overlapped::OverlappedQueue;
pub(crate) use pool::PoolBackend;

/// What ends a wait from elsewhere.
pub(crate) type WakeFn = Box<dyn Fn() + Send + Sync>;

/// Carries out requests, each of which it owns meanwhile and gives back in every case.
pub(crate) trait Backend: fmt::Debug {
    /// Takes a request for the next [`submit`](Backend::submit). Its token is less than the depth and not in
    /// use.
    fn push(&mut self, token: usize, request: Request) -> Result<(), Request>;

    /// Hands over what was pushed. What is not handed over stays pushed.
    fn submit(&mut self) -> io::Result<()>;

    /// Waits until something is done, or somebody woke it, or for no reason.
    fn wait(&mut self) -> io::Result<()>;

    /// One request that is done, if one is; without waiting.
    fn take(&mut self) -> Option<(Finished, Observation)>;

    /// Prevents what has not begun. It is done in any case.
    fn cancel(&mut self, token: usize);

    /// Ends waits from elsewhere, those to come included; `None` where this thread does the work itself.
    fn waker(&self) -> Option<WakeFn>;
}

/// Takes a request out that nobody has begun.
fn remove(queue: &mut VecDeque<(usize, Request)>, token: usize) -> Option<Request> {
    let place = queue.iter().position(|(other, _)| *other == token)?;
    queue.remove(place).map(|(_, request)| request)
}

/// What becomes of a request that nobody began.
fn cancelled(token: usize, request: Request) -> Finished {
    Finished { token, request, result: Err(pipewright_os::base::errno::cancelled()) }
}
