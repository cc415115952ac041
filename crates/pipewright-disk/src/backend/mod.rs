//! The backends, which perform operations behind one trait.

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

use pipewright_os::disk::file::{FileRequest, FinishedRequest};

use crate::class::Observation;

pub(crate) use aio::AioQueue;
pub(crate) use caller::CallerBackend;
pub(crate) use io_uring::UringBackend;
pub(crate) use mixed::MixedBackend;
pub(crate) use overlapped::OverlappedQueue;
pub(crate) use pool::PoolBackend;

/// A function that interrupts a wait from another thread.
pub(crate) type WakeFn = Box<dyn Fn() + Send + Sync>;

/// A mechanism that performs requests. It owns each request until it returns it, which it always does.
pub(crate) trait Backend: fmt::Debug {
    /// Takes a request for the next [`submit`](Backend::submit). The token is less than the depth and not in
    /// use.
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest>;

    /// Submits the pushed requests. Those that are not accepted stay pushed.
    fn submit(&mut self) -> io::Result<()>;

    /// Waits until a request is finished or another thread interrupts the wait. Can return early.
    fn wait(&mut self) -> io::Result<()>;

    /// Takes a finished request, if there is one. Doesn't wait.
    fn take(&mut self) -> Option<(FinishedRequest, Observation)>;

    /// Cancels a request that has not started. Every request finishes, cancelled or not.
    fn cancel(&mut self, token: usize);

    /// Returns a function that interrupts the current or next wait. `None` if the calling thread does the work
    /// itself.
    fn waker(&self) -> Option<WakeFn>;
}

/// Removes a request that has not started.
fn remove(queue: &mut VecDeque<(usize, FileRequest)>, token: usize) -> Option<FileRequest> {
    let place = queue.iter().position(|(other, _)| *other == token)?;
    queue.remove(place).map(|(_, request)| request)
}

/// Finishes a request that has not started.
fn cancelled(token: usize, request: FileRequest) -> FinishedRequest {
    let result = Err(pipewright_os::base::errno::cancelled());
    FinishedRequest { token, request, result, ran: false }
}
