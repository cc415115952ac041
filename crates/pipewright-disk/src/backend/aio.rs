//! Linux AIO for direct reads and writes, and the pool for everything else.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use pipewright_os::aio::Aio;
use pipewright_os::file::{Action, Finished, Request};
use pipewright_os::wake::Wake;
use pipewright_os::why_not::WhyNot;

use super::Backend;
use super::pool::PoolBackend;
use super::witness::Witness;
use crate::class::Seen;

#[derive(Debug)]
pub(crate) struct AioBackend {
    aio: Aio,
    /// What the kernel would do inside the call that hands it over.
    pool: PoolBackend,
    /// How many of its operations are under way.
    in_pool: usize,
    in_aio: usize,
    /// Raised by the pool, and by who wants to end a wait.
    wake: Arc<Wake>,
    witness: Option<Witness>,
    pushed: VecDeque<(usize, Request)>,
    seen: Vec<Seen>,
}

impl AioBackend {
    pub(crate) fn new(
        depth: usize,
        threads: usize,
        classes: bool,
        times: bool,
    ) -> Result<AioBackend, WhyNot> {
        let wake = Arc::new(Wake::new().map_err(|_| WhyNot::Limit)?);
        let aio = Aio::new(depth, Some(Arc::clone(&wake)))?;
        let mut pool = PoolBackend::new(threads, times);
        let raised = Arc::clone(&wake);
        pool.tell(Box::new(move || raised.raise()));
        let witness = classes.then(Witness::new);
        let seen = vec![Seen::Nothing; depth];
        Ok(AioBackend {
            aio,
            pool,
            in_pool: 0,
            in_aio: 0,
            wake,
            witness,
            pushed: VecDeque::new(),
            seen,
        })
    }

    /// One after the other: what the call does besides is then known of each.
    fn submit_to_kernel(&mut self) -> io::Result<()> {
        while let Some((token, request)) = self.pushed.pop_front() {
            let before = self.witness.as_mut().map(Witness::look);
            if let Err(request) = self.aio.push(token, request) {
                self.pushed.push_front((token, request));
                return Err(io::ErrorKind::InvalidInput.into());
            }
            // Where the kernel has no room now the queue keeps it.
            self.aio.submit()?;
            let seen = match (&mut self.witness, before) {
                (Some(witness), Some(before)) => witness.queued_since(before),
                _ => Seen::Nothing,
            };
            if let Some(place) = self.seen.get_mut(token) {
                *place = seen;
            }
        }
        Ok(())
    }
}

impl Backend for AioBackend {
    fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        let is_transfer = matches!(request.action, Action::Read | Action::Write);
        if is_transfer && request.direct {
            self.in_aio += 1;
            if self.witness.is_some() {
                self.pushed.push_back((token, request));
                return Ok(());
            }
            return self.aio.push(token, request);
        }
        self.in_pool += 1;
        self.pool.push(token, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.pool.submit()?;
        self.submit_to_kernel()?;
        self.aio.submit()
    }

    fn wait(&mut self) -> io::Result<()> {
        self.submit()?;
        self.aio.wait()
    }

    fn take(&mut self) -> Option<(Finished, Seen)> {
        if self.in_pool > 0 {
            if let Some(done) = self.pool.take() {
                self.in_pool -= 1;
                return Some(done);
            }
        }
        if self.in_aio == 0 {
            return None;
        }
        let finished = self.aio.take()?;
        self.in_aio -= 1;
        let seen = self.seen.get(finished.token).copied().unwrap_or(Seen::Nothing);
        Some((finished, seen))
    }

    fn cancel(&mut self, token: usize) {
        // What the kernel has it finishes: its filesystems cancel nothing.
        if self.in_pool > 0 {
            self.pool.cancel(token);
        }
    }

    fn waker(&self) -> Option<Box<dyn Fn() + Send + Sync>> {
        let wake = Arc::clone(&self.wake);
        Some(Box::new(move || wake.raise()))
    }
}
