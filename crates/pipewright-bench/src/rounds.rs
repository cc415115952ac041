//! The measurement of a cell: a warm-up, and as many blocks as fit into the cell's time.
//!
//! Both sides know the number of blocks in advance. The clock starts when both are ready, and stops when the reader
//! has the last byte.

use std::io;
use std::thread;
use std::time::Duration;

use pipewright_os::process::usage::Spent;

use crate::plan::{CellError, Sample};
use crate::stats::Percentiles;
use crate::stats::histogram::ReadSizes;

/// Both sides of a transfer, set up and ready.
pub(crate) trait Rounds {
    /// Moves that many blocks.
    fn round(&mut self, blocks: u64) -> io::Result<Round>;
}

/// The measurement of one round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) elapsed: Duration,
    /// The reads by size; empty if they are not counted.
    pub(crate) reads: ReadSizes,
    /// The times of the single blocks, if each is timed.
    pub(crate) each: Option<Percentiles>,
    /// The CPU time and context switches of both sides; `None`: unknown.
    pub(crate) spent: Option<Spent>,
}

/// Adds the CPU time and context switches of two processes.
pub(crate) fn add_usage(ours: Spent, theirs: Spent) -> Spent {
    let switches = ours.switches.zip(theirs.switches).map(|(ours, theirs)| ours + theirs);
    Spent { cpu: ours.cpu + theirs.cpu, switches }
}

impl<R: Rounds + ?Sized> Rounds for Box<R> {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        (**self).round(blocks)
    }
}

/// The warm-up takes this part of the time of a cell.
const WARM_UP_SHARE: u32 = 8;

/// Warms up, then measures for about that long, or exactly `count` blocks.
///
/// The value is in bytes per second, or in seconds if each block is timed: the median of these.
/// `rate` keeps the number of blocks per second for the next series.
pub(crate) fn timed(
    rounds: &mut dyn Rounds,
    block_bytes: u64,
    time: Duration,
    count: Option<u64>,
    rate: &mut Option<f64>,
) -> Result<Sample, CellError> {
    let warm_up = time / WARM_UP_SHARE;
    let mut blocks = match *rate {
        Some(rate) => fitting(rate, warm_up),
        None => 1,
    };
    let blocks = loop {
        let elapsed = rounds.round(blocks).map_err(failed)?.elapsed;
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let found = blocks as f64 / seconds;
        if elapsed >= warm_up / 2 || count.is_some_and(|count| blocks >= count) {
            *rate = Some(found);
            break count.unwrap_or_else(|| fitting(found, time));
        }
        // The first blocks are slow, so approach the number in steps.
        blocks = fitting(found, warm_up).clamp(blocks * 2, blocks * 64);
    };
    let round = rounds.round(blocks).map_err(failed)?;
    let bytes = blocks * block_bytes;
    let speed = bytes as f64 / round.elapsed.as_secs_f64().max(1e-9);
    Ok(Sample {
        value: round.each.map_or(speed, |each| each.p50),
        in_bare_starts: None,
        operations: blocks,
        bytes,
        reads: round.reads,
        each: round.each,
        spent: round.spent,
    })
}

/// Returns the number of blocks that fit into a time.
fn fitting(rate: f64, time: Duration) -> u64 {
    ((rate * time.as_secs_f64()) as u64).max(1)
}

/// Runs a measurement on a thread of its own, which takes its pinning with it when it ends.
pub(crate) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, CellError> + Send,
) -> Result<T, CellError> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker
            .join()
            .unwrap_or_else(|_| Err(CellError::Skip("the measurement panicked".to_owned())))
    })
}

fn failed(error: io::Error) -> CellError {
    match error.kind() {
        io::ErrorKind::InvalidData => CellError::Corrupt(error.to_string()),
        _ => CellError::Skip(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million blocks a second, after a slow start.
    struct Steady(Vec<u64>);

    impl Rounds for Steady {
        fn round(&mut self, blocks: u64) -> io::Result<Round> {
            self.0.push(blocks);
            let late = if self.0.len() == 1 { Duration::from_micros(100) } else { Duration::ZERO };
            let elapsed = Duration::from_micros(blocks) + late;
            Ok(Round { elapsed, ..Round::default() })
        }
    }

    #[test]
    fn a_cell_fills_its_time_however_long_a_block_takes() {
        let (mut rate, mut rounds) = (None, Steady(Vec::new()));
        let time = Duration::from_millis(80);
        let sample = timed(&mut rounds, 10, time, None, &mut rate);
        let Ok(sample) = sample else { panic!("{sample:?}") };
        assert!((70_000..90_000).contains(&sample.operations), "{sample:?}");
        assert_eq!(sample.bytes, sample.operations * 10);
        assert!((sample.value / 1e7 - 1.0).abs() < 0.01, "{sample:?}");
        // The second time the rate is known: one round to warm up, one to measure.
        let mut again = Steady(vec![0]);
        timed(&mut again, 10, time, None, &mut rate).map_err(|_| ()).unwrap();
        assert_eq!(again.0.len(), 3, "{:?}", again.0);
    }

    #[test]
    fn a_given_number_of_blocks_is_measured() {
        for count in [1, 3, 500_000] {
            let mut rounds = Steady(Vec::new());
            let sample = timed(&mut rounds, 1, Duration::from_millis(8), Some(count), &mut None);
            assert_eq!(sample.map(|it| it.operations).ok(), Some(count));
            assert_eq!(rounds.0.last(), Some(&count));
        }
    }
}
