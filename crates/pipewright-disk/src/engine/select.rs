//! The choice of the backend: the best available one, and the reasons why better ones are unavailable.

use std::fmt;
use std::sync::Arc;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::io_uring::RingOptions;
use pipewright_os::disk::unavailable::UnavailableReason;

use super::options::{BackendKind, EngineOptions};
use crate::backend::{
    AioQueue, Backend, CallerBackend, MixedBackend, OverlappedQueue, PoolBackend, UringBackend,
};
use crate::{Error, ErrorKind, Result};

/// A backend that is unavailable here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnavailableBackend {
    /// The backend.
    pub backend: BackendKind,
    /// The reason.
    pub reason: UnavailableReason,
}

impl fmt::Display for UnavailableBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}", self.backend, self.reason)
    }
}

type Selected = (Box<dyn Backend>, BackendKind, Vec<UnavailableBackend>);

/// Creates the requested backend or, for `Auto`, the first available one.
pub(super) fn select(options: &EngineOptions, wakes: bool) -> Result<Selected> {
    let action = match options.backend {
        BackendKind::Auto => "create an engine",
        BackendKind::Uring => "create an engine with backend uring",
        BackendKind::Aio => "create an engine with backend aio",
        BackendKind::Overlapped => "create an engine with backend overlapped",
        BackendKind::Threads => "create an engine with backend threads",
        BackendKind::Caller => "create an engine with backend caller",
    };
    let no_backend = |reason| Error::new(action, None, ErrorKind::NoBackend { reason });
    if options.backend != BackendKind::Auto {
        let backend = make(options.backend, options, wakes).map_err(no_backend)?;
        return Ok((backend, options.backend, Vec::new()));
    }
    let mut unavailable_backends = Vec::new();
    for kind in BackendKind::PREFERENCE {
        match make(kind, options, wakes) {
            Ok(backend) => return Ok((backend, kind, unavailable_backends)),
            // This system never has that backend, so there is nothing to report.
            Err(UnavailableReason::NotThisSystem) => {}
            Err(reason) => unavailable_backends.push(UnavailableBackend { backend: kind, reason }),
        }
    }
    let last = unavailable_backends
        .last()
        .map_or(UnavailableReason::NotThisSystem, |unavailable| unavailable.reason);
    Err(no_backend(last))
}

fn make(
    kind: BackendKind,
    options: &EngineOptions,
    wakes: bool,
) -> Result<Box<dyn Backend>, UnavailableReason> {
    let EngineOptions { depth, classes, times, .. } = *options;
    let threads = threads_of(options);
    Ok(match kind {
        BackendKind::Uring => {
            let wake = wakes.then(Wake::new).transpose().map_err(|_| UnavailableReason::Limit)?;
            let ring = RingOptions { depth, workers: options.kernel_workers };
            Box::new(UringBackend::new(ring, classes, times, wake.map(Arc::new))?)
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

/// Returns the maximum number of threads of the engine.
fn threads_of(options: &EngineOptions) -> usize {
    const MAX_THREADS: usize = 32;
    options.threads.unwrap_or(options.depth.min(MAX_THREADS)).max(1)
}
