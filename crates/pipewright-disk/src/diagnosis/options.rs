//! The options of a diagnosis.

use crate::BackendKind;

/// The options of a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnoseOptions {
    /// The number of requests per test, all submitted at once. Default: 500.
    pub requests: usize,
    /// The number of bytes per request. Default: 64 KiB.
    pub block_bytes: usize,
    /// The order of the requests' offsets.
    pub pattern: Pattern,
    /// Selects only synchronous tests (`true`) or only asynchronous ones (`false`).
    pub synchronous: Option<bool>,
    /// Selects only tests with direct I/O (`true`) or only tests through the cache (`false`).
    pub direct: Option<bool>,
    /// Includes writes to temporary files. They are always included for a folder.
    pub writes: bool,
    /// Includes writes and overwrites the file itself, block by block, with its own contents. Concurrent
    /// changes by other programs are lost. No effect on a folder.
    pub write_existing: bool,
    /// The backend for asynchronous tests.
    pub backend: BackendKind,
}

impl Default for DiagnoseOptions {
    fn default() -> DiagnoseOptions {
        DiagnoseOptions {
            requests: 500,
            block_bytes: 64 << 10,
            pattern: Pattern::Random,
            synchronous: None,
            direct: None,
            writes: false,
            write_existing: false,
            backend: BackendKind::Auto,
        }
    }
}

/// The order of the requests' offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Every block once, in a pseudo-random order.
    #[default]
    Random,
    /// Ascending.
    Sequential,
}
