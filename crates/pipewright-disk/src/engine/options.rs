//! What an engine is to be.

use std::fmt;

/// What an engine is to be.
///
/// ```
/// use pipewright_disk::{BackendKind, EngineOptions};
/// let options = EngineOptions { backend: BackendKind::Threads, depth: 32, ..EngineOptions::default() };
/// assert!(!options.classes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// What carries its operations out. [`BackendKind::Auto`] unless said.
    pub backend: BackendKind,
    /// How many operations it has at most, under way or waiting to be taken back. 128 unless said; at most
    /// 2^20.
    ///
    /// More than the queue of the disk takes (`/sys/block/DISK/queue/nr_requests`) makes the submit wait.
    pub depth: usize,
    /// How many threads [`BackendKind::Threads`] has at most; `None`: as many as the depth, and 32 at most.
    pub threads: Option<usize>,
    /// How many threads the kernel may start for [`BackendKind::Uring`]; `None`: 4 for each processor.
    pub kernel_workers: Option<u32>,
    /// Whether each completion tells its class. That takes about a microsecond of a processor an operation, as
    /// each is then handed over by itself; 60 ns for a read of what is in memory that the caller waits for; and
    /// nothing where it is not asked for.
    pub classes: bool,
    /// Whether each completion tells its times.
    pub times: bool,
    /// Whether a read through the cache is first tried on the caller, without waiting: data that are in
    /// memory are then there at once; and whether what the caller waits for ([`Engine::run`](crate::Engine::run) and
    /// its kin) is a plain call on its own thread where nothing else is under way. Unless said, yes.
    ///
    /// # Platform
    /// Linux: `preadv2(RWF_NOWAIT)`. Elsewhere nothing is tried; the plain call is everywhere.
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
    /// The backends that `Auto` tries, best first.
    pub(super) const PREFERENCE: [BackendKind; 4] =
        [BackendKind::Uring, BackendKind::Aio, BackendKind::Overlapped, BackendKind::Threads];

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
    fn every_backend_is_found_by_its_name() {
        for kind in
            [BackendKind::Auto, BackendKind::Caller].into_iter().chain(BackendKind::PREFERENCE)
        {
            assert_eq!(BackendKind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(BackendKind::of_name("nope"), None);
    }
}
