//! The options of a diagnosis.

use crate::BackendKind;

/// The options of a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnoseOptions {
    /// The number of requests per test. An asynchronous test submits all of them at once. Default: 500.
    pub requests: usize,
    /// The number of bytes per request. Default: 64 KiB.
    pub block_bytes: usize,
    /// The order of the requests' offsets. Default: [`Pattern::Random`].
    pub pattern: Pattern,
    /// Selects only synchronous tests (`true`) or only asynchronous ones (`false`). Default: `None`, both.
    pub synchronous: Option<bool>,
    /// Selects only tests with direct I/O (`true`) or only tests through the cache (`false`). Default: `None`, both.
    pub direct: Option<bool>,
    /// Includes writes to temporary files. They are always included for a folder. Default: false.
    pub writes: bool,
    /// Includes writes that overwrite the file itself, block by block, with its own contents. Concurrent changes by
    /// other programs are lost. Has no effect on a folder. Default: false.
    pub write_existing: bool,
    /// The backend for asynchronous tests. Default: [`BackendKind::Auto`].
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
