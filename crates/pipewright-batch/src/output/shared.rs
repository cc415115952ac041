//! The parts that the outputs of all attempts share.

use std::sync::Arc;

use super::content::Content;
use super::memory::Memory;
use super::queue::Queue;
use super::spool::Spool;

/// The memory, the temporary file and the queue of the thread that prints.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) memory: Arc<Memory>,
    pub(super) spool: Arc<Spool>,
    pub(super) queue: Arc<Queue>,
}

impl Shared {
    /// Returns content without bytes.
    pub(super) fn content(&self) -> Content {
        Content::new(&self.memory, &self.spool)
    }
}
