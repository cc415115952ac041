//! The benchmarks: each makes charts, and sums up their figures in a verdict. Here is what they share: block sizes,
//! cells of blocks, and timed cases.

pub(crate) mod capture;
pub(crate) mod disk;
pub(crate) mod ipc;
pub(crate) mod pipes;
pub(crate) mod spawn;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::pin;
use crate::plan::{CellError, Measure, PlannedChart, PlannedCurve, Point, Sample};
use crate::report::Axis;
use crate::stats::median;
use crate::transfer::{self, Rounds, on_own_thread};
use crate::units::Unit;
use crate::{Error, baseline};

/// The block sizes of the article's `pipespeed` scripts.
#[rustfmt::skip]
const IBM_2001: [usize; 62] = [
    1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96,
    104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480, 512,
    576, 640, 704, 768, 832, 896, 960, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
];

/// The largest block: both sides keep one in memory, and two if they verify.
const MOST_BLOCK_BYTES: usize = 256 << 20;

/// Returns the sizes sorted and without duplicates, or an error for a size that is not possible.
pub(crate) fn checked(mut blocks: Vec<usize>) -> Result<Vec<usize>, Error> {
    blocks.sort_unstable();
    blocks.dedup();
    let refuse =
        |problem: &str| Error::Option { option: "--bs".to_owned(), problem: problem.to_owned() };
    if blocks.first() == Some(&0) {
        return Err(refuse("a block must have at least 1 byte"));
    }
    if blocks.last().is_some_and(|block| *block > MOST_BLOCK_BYTES) {
        return Err(refuse("a block must have at most 256 MiB"));
    }
    Ok(blocks)
}

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

/// The time of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) time: Duration,
    /// The transferred bytes, for cases that measure throughput.
    pub(crate) bytes: u64,
}

impl From<Duration> for Timing {
    fn from(time: Duration) -> Timing {
        Timing { time, bytes: 0 }
    }
}

/// An operation with its own timing, so that it can leave out preparation and cleanup.
struct TimedCase<F> {
    unit: Unit,
    operation: F,
    /// Measures a bare start, for operations that start processes.
    bare_start: Option<fn() -> Option<Duration>>,
}

impl<F> fmt::Debug for TimedCase<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedCase").field("unit", &self.unit).finish_non_exhaustive()
    }
}

pub(crate) fn case(
    label: impl Into<String>,
    unit: Unit,
    operation: impl FnMut() -> Result<Timing, CellError> + 'static,
) -> Point {
    Point::new(label.into(), None, TimedCase { unit, operation, bare_start: None })
}

/// Creates a case that starts processes, measured in turns with bare starts.
pub(crate) fn starting(
    label: impl Into<String>,
    operation: impl FnMut() -> Result<Timing, CellError> + 'static,
) -> Point {
    let bare_start = Some(baseline::bare_start as fn() -> _);
    Point::new(label.into(), None, TimedCase { unit: Unit::Seconds, operation, bare_start })
}

/// Creates a chart of cases.
pub(crate) fn chart(
    id: &str,
    title: &str,
    unit: Unit,
    time: Duration,
    points: Vec<Point>,
) -> PlannedChart {
    let facts: BTreeMap<String, Value> = BTreeMap::new();
    PlannedChart {
        id: id.to_owned(),
        title: title.to_owned(),
        unit,
        axis: Axis::Cases,
        time,
        references: Vec::new(),
        curves: vec![PlannedCurve { name: "pipewright".to_owned(), facts, points }],
    }
}

impl<F: FnMut() -> Result<Timing, CellError>> Measure for TimedCase<F> {
    /// Returns the median. The first operation is the warm-up, unless it takes all of the time.
    fn measure(&mut self, time: Duration) -> Result<Sample, CellError> {
        let mut all = Vec::new();
        let mut bare = self.bare_starts(Duration::ZERO);
        let first = self.one(&mut bare)?;
        let takes_all = first.0.time >= time;
        if takes_all {
            all.push(first);
        }
        let start = Instant::now();
        while all.is_empty() || start.elapsed() < time && !takes_all {
            all.push(self.one(&mut bare)?);
        }
        let values: Vec<f64> = all.iter().map(|(took, _)| self.value(took)).collect();
        let in_bare_starts: Option<Vec<f64>> =
            all.iter().map(|(_, bare_starts)| *bare_starts).collect();
        Ok(Sample {
            value: median(&values).unwrap_or_default(),
            in_bare_starts: in_bare_starts.as_deref().and_then(median),
            operations: all.len() as u64,
            bytes: all.iter().map(|(took, _)| took.bytes).sum(),
            ..Sample::default()
        })
    }
}

impl<F: FnMut() -> Result<Timing, CellError>> TimedCase<F> {
    /// Times one operation, also as a multiple of the bare starts right before it (`bare`) and right after it: the
    /// speed of the machine may change within a cell.
    fn one(&mut self, bare: &mut Option<f64>) -> Result<(Timing, Option<f64>), CellError> {
        let took = (self.operation)()?;
        let after = self.bare_starts(took.time);
        let before = std::mem::replace(bare, after);
        let in_bare_starts = before
            .zip(after)
            .map(|(before, after)| took.time.as_secs_f64() / ((before + after) / 2.0));
        Ok((took, in_bare_starts))
    }
}

impl<F> TimedCase<F> {
    /// Measures bare starts for a tenth of the time of the operation beside them, at least one, and returns the
    /// median.
    fn bare_starts(&self, beside: Duration) -> Option<f64> {
        let bare_start = self.bare_start?;
        let (mut times, mut spent) = (Vec::new(), Duration::ZERO);
        while times.is_empty() || spent < beside / 10 {
            let time = bare_start()?;
            times.push(time.as_secs_f64());
            spent += time;
        }
        median(&times)
    }

    fn value(&self, took: &Timing) -> f64 {
        let seconds = took.time.as_secs_f64().max(1e-9);
        match self.unit {
            Unit::Seconds => seconds,
            Unit::BytesPerSecond => took.bytes as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn measured(unit: Unit, took: &'static [u64], time: Duration) -> Sample {
        let mut next = took.iter().cycle();
        let mut point = case("case", unit, move || {
            let micros = *next.next().unwrap();
            Ok(Timing { time: Duration::from_micros(micros), bytes: 1000 })
        });
        match point.measure.measure(time) {
            Ok(sample) => sample,
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn the_first_operation_is_the_warm_up_and_the_median_of_the_others_counts() {
        let sample = measured(Unit::Seconds, &[900, 7, 7, 7, 7, 7], Duration::from_millis(2));
        assert!((sample.value - 7e-6).abs() < 1e-12, "{sample:?}");
        assert!(sample.operations > 1, "{sample:?}");
    }

    #[test]
    fn a_start_is_measured_in_bare_starts_of_the_same_moment() {
        // The machine becomes three times as slow in between.
        fn slowness() -> u64 {
            static CALLS: AtomicU64 = AtomicU64::new(0);
            if CALLS.fetch_add(1, Ordering::Relaxed) < 8 { 1 } else { 3 }
        }
        fn bare_start() -> Option<Duration> {
            Some(Duration::from_micros(100 * slowness()))
        }
        let operation = || Ok(Duration::from_micros(200 * slowness()).into());
        let bare_start = Some(bare_start as fn() -> _);
        let mut case = TimedCase { unit: Unit::Seconds, operation, bare_start };
        let mut bare = case.bare_starts(Duration::ZERO);
        let all: Vec<_> = (0..10).map(|_| case.one(&mut bare).unwrap()).collect();
        let micros = all.iter().map(|(took, _)| took.time.as_micros()).collect::<BTreeSet<_>>();
        assert_eq!(micros, [200, 600].into());
        let in_bare_starts: Vec<f64> = all.iter().filter_map(|(_, it)| *it).collect();
        assert_eq!(in_bare_starts.len(), 10);
        assert!((median(&in_bare_starts).unwrap() - 2.0).abs() < 1e-9, "{in_bare_starts:?}");
    }

    #[test]
    fn bare_starts_take_a_tenth_of_the_time_of_the_operation() {
        static STARTS: AtomicU64 = AtomicU64::new(0);
        fn bare_start() -> Option<Duration> {
            STARTS.fetch_add(1, Ordering::Relaxed);
            Some(Duration::from_micros(100))
        }
        let operation = || Ok(Duration::from_millis(10).into());
        let bare_start = Some(bare_start as fn() -> _);
        let mut case = TimedCase { unit: Unit::Seconds, operation, bare_start };
        let sample = case.measure(Duration::from_millis(1));
        let Ok(sample) = sample else { panic!("{sample:?}") };
        assert_eq!((sample.operations, sample.in_bare_starts), (1, Some(100.0)));
        assert_eq!(STARTS.load(Ordering::Relaxed), 11);
        // Without bare starts there is only the time.
        case.bare_start = Some(|| None);
        assert_eq!(
            case.measure(Duration::from_millis(1)).map(|it| it.in_bare_starts).ok(),
            Some(None)
        );
    }

    #[test]
    fn an_operation_that_takes_all_of_the_time_is_done_once() {
        let sample = measured(Unit::BytesPerSecond, &[5000, 1], Duration::from_millis(2));
        assert_eq!((sample.operations, sample.bytes), (1, 1000));
        assert!((sample.value - 200_000.0).abs() < 1e-6, "{sample:?}");
    }
}
