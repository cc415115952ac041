//! Which backend: the best that works here, and why the better ones do not.

use std::fmt;
use std::sync::Arc;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::io_uring::RingOptions;
use pipewright_os::disk::unavailable::WhyNot;

use super::EngineOptions;
use crate::backend::{
    AioQueue, Backend, CallerBackend, MixedBackend, OverlappedQueue, PoolBackend, RingBackend,
};
use crate::{Error, ErrorKind, Result};

/// What carries operations out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BackendKind {
    /// The first of the following that can be used here: `Uring`, `Aio`, `Overlapped`, `Threads`.
    #[default]
    Auto,
    /// Linux: io_uring.
    Uring,
    /// Linux: `io_submit` for direct reads and writes, threads for everything else. Containers that refuse
    /// io_uring mostly allow it; on overlay filesystems it is asynchronous where io_uring is not.
    Aio,
    /// Windows: overlapped reads and writes and a completion port, threads for everything else.
    Overlapped,
    /// Everywhere: threads of the engine's own.
    Threads,
    /// Everywhere: plain calls on the thread that submits. Nothing is asynchronous.
    Caller,
}

impl BackendKind {
    /// A name for machines and command lines, which stays as it is: `uring`, `threads`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BackendKind::Auto => "auto",
            BackendKind::Uring => "uring",
            BackendKind::Aio => "aio",
            BackendKind::Overlapped => "overlapped",
            BackendKind::Threads => "threads",
            BackendKind::Caller => "caller",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<BackendKind> {
        let all = [BackendKind::Auto, BackendKind::Caller].into_iter().chain(LADDER);
        all.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A backend that cannot be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The backend.
    pub backend: BackendKind,
    /// Why not.
    pub why_not: WhyNot,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}", self.backend, self.why_not)
    }
}

const LADDER: [BackendKind; 4] =
    [BackendKind::Uring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];

type Chosen = (Box<dyn Backend>, BackendKind, Vec<Step>);

/// Makes the backend that was asked for, or the first of the ladder that can be made.
pub(super) fn choose(options: &EngineOptions, wakes: bool) -> Result<Chosen> {
    let no_backend = |why_not| Error::new("make an engine", None, ErrorKind::NoBackend { why_not });
    if options.backend != BackendKind::Auto {
        let backend = make(options.backend, options, wakes).map_err(no_backend)?;
        return Ok((backend, options.backend, Vec::new()));
    }
    let mut steps = Vec::new();
    for kind in LADDER {
        match make(kind, options, wakes) {
            Ok(backend) => return Ok((backend, kind, steps)),
            // That is no rung of this system's ladder.
            Err(WhyNot::NotThisSystem) => {}
            Err(why_not) => steps.push(Step { backend: kind, why_not }),
        }
    }
    let last = steps.last().map_or(WhyNot::NotThisSystem, |step| step.why_not);
    Err(no_backend(last))
}

fn make(
    kind: BackendKind,
    options: &EngineOptions,
    wakes: bool,
) -> Result<Box<dyn Backend>, WhyNot> {
    let EngineOptions { depth, classes, times, .. } = *options;
    let threads = threads_of(options);
    Ok(match kind {
        BackendKind::Uring => {
            let wake = wakes.then(Wake::new).transpose().map_err(|_| WhyNot::Limit)?;
            let ring = RingOptions { depth, workers: options.kernel_workers };
            Box::new(RingBackend::new(ring, classes, times, wake.map(Arc::new))?)
        }
        BackendKind::Aio => {
            let queue = AioQueue::new(depth)?;
            Box::new(MixedBackend::new(queue, depth, threads, classes, times))
        }
        BackendKind::Overlapped => {
            let queue = OverlappedQueue::new(depth)?;
            Box::new(MixedBackend::new(queue, depth, threads, classes, times))
        }
        BackendKind::Caller => Box::new(CallerBackend::new(classes, times)),
        BackendKind::Auto | BackendKind::Threads => Box::new(PoolBackend::new(threads, times)),
    })
}

/// How many threads the engine may have.
fn threads_of(options: &EngineOptions) -> usize {
    const MOST_THREADS: usize = 32;
    options.threads.unwrap_or(options.depth.min(MOST_THREADS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_found_by_its_name() {
        for kind in [BackendKind::Auto, BackendKind::Caller].into_iter().chain(LADDER) {
            assert_eq!(BackendKind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(BackendKind::of_name("nope"), None);
    }
}
