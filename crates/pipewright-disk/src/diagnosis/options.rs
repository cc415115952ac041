//! What is to be measured.

use crate::BackendKind;

/// What is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiagnoseOptions {
    /// How many requests each test makes, all at once. 500 unless said.
    pub requests: usize,
    /// How many bytes each moves. 64 KiB unless said.
    pub block_bytes: usize,
    /// Where they go.
    pub pattern: Pattern,
    /// Only tests that are synchronous on purpose (`true`), or that are not.
    pub synchronous: Option<bool>,
    /// Only tests past the cache (`true`), or through it.
    pub direct: Option<bool>,
    /// Writes too, in files of its own. For a folder they are always made.
    pub writes: bool,
    /// As `writes`, and what is written over is the file itself: with the bytes that it has, block by block.
    /// What somebody else writes to it meanwhile is lost. Nothing to a folder.
    pub write_existing: bool,
    /// What carries the asynchronous ones out.
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

/// Where requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Each block once, in an order that nothing foresees.
    #[default]
    Random,
    /// One after the other.
    Sequential,
}
