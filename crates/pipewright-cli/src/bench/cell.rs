//! A cell of rounds: both sides are set up anew for each series, on a thread of its own.

use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use pipewright_os::base::cpu;

use super::plan::{Failed, Measure, Sample};
use super::rounds::{self, Rounds};

/// Blocks of one size, moved in one way.
pub(super) struct BlockCell<F> {
    block_bytes: usize,
    processor: Option<usize>,
    count: Option<u64>,
    /// How many blocks a second it made last time.
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
    F: Fn() -> Result<R, Failed> + Sync,
    R: Rounds,
{
    /// `processor`: where our side is to run.
    pub(super) fn new(block_bytes: usize, processor: Option<usize>, set_up: F) -> BlockCell<F> {
        BlockCell { block_bytes, processor, count: None, rate: None, set_up }
    }

    /// So many blocks, and not as many as fit into its time.
    pub(super) fn with_count(self, count: Option<u64>) -> BlockCell<F> {
        BlockCell { count, ..self }
    }
}

impl<F, R> Measure for BlockCell<F>
where
    F: Fn() -> Result<R, Failed> + Sync,
    R: Rounds,
{
    fn measure(&mut self, time: Duration) -> Result<Sample, Failed> {
        let mut rate = self.rate;
        let BlockCell { block_bytes, processor, count, set_up, .. } = self;
        // A thread of its own, which takes its processor with it when it ends.
        let sample = alone(|| {
            let mut rounds = set_up()?;
            pin(*processor)?;
            rounds::timed(&mut rounds, *block_bytes as u64, time, *count, &mut rate)
        })?;
        self.rate = rate;
        Ok(sample)
    }
}

/// Runs that on a thread of its own.
pub(super) fn alone<T: Send>(work: impl FnOnce() -> Result<T, Failed> + Send) -> Result<T, Failed> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|_| Err(Failed::Skip("the measurement panicked".to_owned())))
    })
}

/// Pins this thread, where it is to be.
pub(super) fn pin(processor: Option<usize>) -> io::Result<()> {
    let Some(processor) = processor else { return Ok(()) };
    cpu::pin_this_thread(processor).map_err(|error| {
        let words = format!("cannot pin a thread to processor {processor}: {error}");
        io::Error::new(error.kind(), words)
    })
}
