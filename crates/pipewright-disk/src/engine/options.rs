//! The options of an engine, and the kinds of backends.

use std::fmt;

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
    /// The maximum number of kernel threads of [`BackendKind::Uring`]. Default: `None`, 4 per processor.
    ///
    /// The kernel has one limit for all rings of a thread. So the smallest that a living engine of this thread wants is in force;
    /// after the last engine, the limit is what it was before the first.
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
    Uring,
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
    pub(super) const PREFERENCE: [BackendKind; 4] =
        [BackendKind::Uring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];

    /// Returns a stable name for machines and command lines, such as `uring` or `threads`.
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
