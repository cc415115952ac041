//! One cell: rounds of so many blocks, as many as fit into its time.
//!
//! The number of blocks is known to both sides before the clock starts, which it does when both are
//! ready, and it stops when the reader has the last byte.

use std::io;
use std::time::Duration;

use pipewright_os::process::usage::Spent;

use super::histogram::Reads;
use super::plan::{Failed, Sample};
use super::stats::Percentiles;

/// Both sides, set up and warm.
pub(super) trait Rounds {
    /// Moves so many blocks.
    fn round(&mut self, blocks: u64) -> io::Result<Round>;
}

/// What one round took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Round {
    pub(super) elapsed: Duration,
    /// Nothing where nobody counted.
    pub(super) reads: Reads,
    /// What each block took, where each went by the clock.
    pub(super) each: Option<Percentiles>,
    /// By both sides; `None`: it cannot be told.
    pub(super) spent: Option<Spent>,
}

/// What two processes have used together.
pub(super) fn both(ours: Spent, theirs: Spent) -> Spent {
    let switches = ours.switches.zip(theirs.switches).map(|(ours, theirs)| ours + theirs);
    Spent { cpu: ours.cpu + theirs.cpu, switches }
}

impl<R: Rounds + ?Sized> Rounds for Box<R> {
    fn round(&mut self, blocks: u64) -> io::Result<Round> {
        (**self).round(blocks)
    }
}

/// The part of its time for which a cell warms up.
const WARM_UP_SHARE: u32 = 8;

/// Warms up, then measures for about that long, or for exactly so many blocks.
///
/// The value is in bytes a second, or in seconds where each block went by the clock: the median of these.
/// `rate` is how many blocks a second the cell made last time, so that it need not be found again.
pub(super) fn timed(
    rounds: &mut dyn Rounds,
    block_bytes: u64,
    time: Duration,
    count: Option<u64>,
    rate: &mut Option<f64>,
) -> Result<Sample, Failed> {
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
        // The first few are slow: not all of what they promise at once.
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

fn fitting(rate: f64, time: Duration) -> u64 {
    ((rate * time.as_secs_f64()) as u64).max(1)
}

fn failed(error: io::Error) -> Failed {
    match error.kind() {
        io::ErrorKind::InvalidData => Failed::Wrong(error.to_string()),
        _ => Failed::Skip(error.to_string()),
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
    fn a_cell_fills_its_time_whatever_a_block_takes() {
        let (mut rate, mut rounds) = (None, Steady(Vec::new()));
        let time = Duration::from_millis(80);
        let sample = timed(&mut rounds, 10, time, None, &mut rate);
        let Ok(sample) = sample else { panic!("{sample:?}") };
        assert!((70_000..90_000).contains(&sample.operations), "{sample:?}");
        assert_eq!(sample.bytes, sample.operations * 10);
        assert!((sample.value / 1e7 - 1.0).abs() < 0.01, "{sample:?}");
        // The second time it knows: one round to warm up, one to measure.
        let mut again = Steady(vec![0]);
        timed(&mut again, 10, time, None, &mut rate).map_err(|_| ()).unwrap();
        assert_eq!(again.0.len(), 3, "{:?}", again.0);
    }

    #[test]
    fn a_count_is_kept_to() {
        for count in [1, 3, 500_000] {
            let mut rounds = Steady(Vec::new());
            let sample = timed(&mut rounds, 1, Duration::from_millis(8), Some(count), &mut None);
            assert_eq!(sample.map(|it| it.operations).ok(), Some(count));
            assert_eq!(rounds.0.last(), Some(&count));
        }
    }
}
