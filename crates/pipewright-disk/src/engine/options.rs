//! The options of an engine, and the choice of its backend: the best available one, with the reasons why better ones
//! are unavailable.

use std::fmt;
use std::sync::Arc;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::io_uring::RingOptions;
use pipewright_os::disk::unavailable::UnavailableReason;

use crate::backend::{
    AioQueue, Backend, CallerBackend, MixedBackend, OverlappedQueue, PoolBackend, UringBackend,
};
use crate::{Error, ErrorKind, Result};

/// The options of an engine.
///
/// ```
/// use pipewright_disk::{BackendKind, EngineOptions};
/// let options = EngineOptions { backend: BackendKind::Threads, depth: 32, ..EngineOptions::default() };
/// assert!(!options.classes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// The backend that performs operations. Default: [`BackendKind::Auto`].
    pub backend: BackendKind,
    /// The maximum number of operations that are in flight or not fetched yet. Default: 128. Maximum: 2^20.
    ///
    /// If more operations are in flight than the disk's queue holds (`/sys/block/DISK/queue/nr_requests`),
    /// submitting blocks.
    pub depth: usize,
    /// The maximum number of threads that the engine starts: with [`BackendKind::Threads`] for all operations, with
    /// [`BackendKind::Aio`] and [`BackendKind::Overlapped`] for those that the kernel's queue does not take. Default:
    /// `None`, the depth, but at most 32.
    pub threads: Option<usize>,
    /// The maximum number of kernel threads of [`BackendKind::IoUring`]. Default: `None`, 4 per processor.
    ///
    /// The kernel has one limit for all rings of a thread. So the smallest that a living engine of this thread wants is
    /// in force; after the last engine, the limit is what it was before the first.
    pub kernel_workers: Option<u32>,
    /// Reports the class of each completion. This costs about 1 µs of CPU time per operation, because each is
    /// submitted separately, and 60 ns for a blocking read of cached data. Default: false, which costs nothing.
    pub classes: bool,
    /// Reports the timestamps of each completion. Default: false.
    pub times: bool,
    /// Tries reads through the cache on the calling thread first, without waiting, so that data in memory are
    /// returned at once. Also performs blocking calls ([`Engine::run`](crate::Engine::run) and the methods
    /// based on it) as plain calls on the calling thread if nothing else is in flight. Default: true.
    ///
    /// # Platform
    /// Reads are tried only on Linux: `preadv2(RWF_NOWAIT)`. Plain calls are used on every system.
    pub cached_first: bool,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            backend: BackendKind::Auto,
            depth: 128,
            threads: None,
            kernel_workers: None,
            classes: false,
            times: false,
            cached_first: true,
        }
    }
}

/// The mechanism that performs operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BackendKind {
    /// The first of these that is available: `Uring`, `Aio`, `Overlapped`, `Threads`.
    #[default]
    Auto,
    /// Linux: io_uring.
    IoUring,
    /// Linux: `io_submit` for direct reads and writes, threads for everything else. Most containers that
    /// forbid io_uring allow it. On overlay filesystems it is asynchronous where io_uring is not.
    Aio,
    /// Windows: overlapped reads and writes with a completion port, threads for everything else.
    Overlapped,
    /// Every system: threads owned by the engine.
    Threads,
    /// Every system: plain calls on the submitting thread. Nothing is asynchronous.
    Caller,
}

impl BackendKind {
    /// The backends that `Auto` tries, best first.
    const PREFERENCE: [BackendKind; 4] =
        [BackendKind::IoUring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];

    /// Returns a stable name for machines and command lines, such as `io_uring` or `threads`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BackendKind::Auto => "auto",
            BackendKind::IoUring => "io_uring",
            BackendKind::Aio => "aio",
            BackendKind::Overlapped => "overlapped",
            BackendKind::Threads => "threads",
            BackendKind::Caller => "caller",
        }
    }

    /// Returns the backend of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<BackendKind> {
        let all =
            [BackendKind::Auto, BackendKind::Caller].into_iter().chain(BackendKind::PREFERENCE);
        all.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
        BackendKind::IoUring => "create an engine with backend io_uring",
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
        BackendKind::IoUring => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_name_finds_every_backend() {
        for kind in
            [BackendKind::Auto, BackendKind::Caller].into_iter().chain(BackendKind::PREFERENCE)
        {
            assert_eq!(BackendKind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(BackendKind::of_name("nope"), None);
    }
}
