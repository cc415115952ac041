//! A cell of blocks: both sides are set up again for each series, on a thread of its own.

use std::fmt;
use std::time::Duration;

use crate::host::pin;
use crate::plan::{CellError, Measure, Sample};
use crate::transfer::{self, Rounds, on_own_thread};

/// A cell that moves blocks of one size in one way.
pub(crate) struct BlockCell<F> {
    block_bytes: usize,
    processor: Option<usize>,
    count: Option<u64>,
    /// The blocks per second of the last series.
    rate: Option<f64>,
    set_up: F,
}

impl<F> fmt::Debug for BlockCell<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCell").field("block_bytes", &self.block_bytes).finish_non_exhaustive()
    }
}

impl<F, R> BlockCell<F>
where
    F: Fn() -> Result<R, CellError> + Sync,
    R: Rounds,
{
    /// Creates a cell whose side in this process runs on `processor`.
    pub(crate) fn new(block_bytes: usize, processor: Option<usize>, set_up: F) -> BlockCell<F> {
        BlockCell { block_bytes, processor, count: None, rate: None, set_up }
    }

    /// Moves exactly `count` blocks instead of as many as fit into its time.
    pub(crate) fn with_count(self, count: Option<u64>) -> BlockCell<F> {
        BlockCell { count, ..self }
    }
}

impl<F, R> Measure for BlockCell<F>
where
    F: Fn() -> Result<R, CellError> + Sync,
    R: Rounds,
{
    fn measure(&mut self, time: Duration) -> Result<Sample, CellError> {
        let mut rate = self.rate;
        let BlockCell { block_bytes, processor, count, set_up, .. } = self;
        let sample = on_own_thread(|| {
            let mut rounds = set_up()?;
            pin(*processor)?;
            transfer::timed(&mut rounds, *block_bytes as u64, time, *count, &mut rate)
        })?;
        self.rate = rate;
        Ok(sample)
    }
}
