//! The plan of a benchmark: charts with curves of cells, which measure themselves. And its measurement: in each series
//! every cell once, in a new order, within the time limit of the benchmark.
//!
//! A benchmark is a function that makes charts. The order, the times, the statistics and the reports are the same for
//! all benchmarks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fmt, io};

use pipewright_os::process::usage::Spent;
use serde_json::Value;

use crate::Error;
use crate::report::{self, Axis, Reference};
use crate::stats::{Percentiles, Random, ReadSizes};
use crate::units::{Unit, bytes};

/// Curves in one chart.
#[derive(Debug)]
pub(crate) struct PlannedChart {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) axis: Axis,
    /// The time for each cell in each series.
    pub(crate) time: Duration,
    pub(crate) references: Vec<Reference>,
    pub(crate) curves: Vec<PlannedCurve>,
}

/// One way to do the work of a chart.
#[derive(Debug)]
pub(crate) struct PlannedCurve {
    pub(crate) name: String,
    pub(crate) facts: BTreeMap<String, Value>,
    pub(crate) points: Vec<Point>,
}

/// A cell and its samples so far.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) label: String,
    pub(crate) block_bytes: Option<u64>,
    pub(crate) measure: Box<dyn Measure>,
    pub(crate) samples: Vec<Sample>,
    /// The reason why it is not measured any more.
    pub(crate) skipped: Option<String>,
}

/// Something that can be measured repeatedly.
pub(crate) trait Measure: fmt::Debug {
    /// Warms up, measures for about that long, and cleans up.
    fn measure(&mut self, time: Duration) -> Result<Sample, CellError>;
}

/// The measurement of a cell in one series.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    /// The figure, in the unit of the chart.
    pub(crate) value: f64,
    /// The figure as a multiple of bare starts, for cells that are measured beside those.
    pub(crate) in_bare_starts: Option<f64>,
    /// The number of operations.
    pub(crate) operations: u64,
    /// The number of transferred bytes.
    pub(crate) bytes: u64,
    /// The reads by size; empty if they are not counted.
    pub(crate) reads: ReadSizes,
    /// The times of the single operations, if each is timed.
    pub(crate) each: Option<Percentiles>,
    /// The CPU time and context switches of all processes that took part; `None`: not measured.
    pub(crate) spent: Option<Spent>,
}

/// The reason why a cell has no figure.
#[derive(Debug)]
pub(crate) enum CellError {
    /// It cannot be measured on this machine.
    Skip(String),
    /// The received data differ from the sent data. No figure of the run can be trusted then.
    Corrupt(String),
}

impl From<io::Error> for CellError {
    fn from(error: io::Error) -> CellError {
        CellError::Skip(error.to_string())
    }
}

impl From<pipewright::Error> for CellError {
    fn from(error: pipewright::Error) -> CellError {
        CellError::Skip(error.to_string())
    }
}

impl From<pipewright_disk::Error> for CellError {
    fn from(error: pipewright_disk::Error) -> CellError {
        CellError::Skip(error.to_string())
    }
}

impl From<pipewright_ipc::Error> for CellError {
    fn from(error: pipewright_ipc::Error) -> CellError {
        CellError::Skip(error.to_string())
    }
}

impl Point {
    pub(crate) fn new(
        label: String,
        block_bytes: Option<u64>,
        measure: impl Measure + 'static,
    ) -> Point {
        Point { label, block_bytes, measure: Box::new(measure), samples: Vec::new(), skipped: None }
    }

    /// Returns the cell as part of a report.
    fn report(&self) -> report::Cell {
        const MIB: f64 = 1_048_576.0;
        let values = self.samples.iter().map(|sample| sample.value).collect();
        let sum = |part: fn(&Sample) -> u64| self.samples.iter().map(part).sum::<u64>();
        let bytes = sum(|it| it.bytes);
        let mut all_reads = ReadSizes::default();
        self.samples.iter().for_each(|sample| all_reads.merge(&sample.reads));
        let reads = all_reads.count();
        let each: Option<Vec<Percentiles>> =
            self.samples.iter().map(|sample| sample.each).collect();
        let mib = (bytes > 0).then_some(bytes as f64 / MIB);
        let spent: Option<Vec<Spent>> = self.samples.iter().map(|sample| sample.spent).collect();
        let cpu_seconds =
            spent.as_ref().map(|all| all.iter().map(|it| it.cpu.as_secs_f64()).sum::<f64>());
        let switches = spent.and_then(|all| all.iter().map(|it| it.switches).sum::<Option<u64>>());
        let in_bare_starts: Option<Vec<f64>> =
            self.samples.iter().map(|sample| sample.in_bare_starts).collect();
        report::Cell {
            in_bare_starts: in_bare_starts.unwrap_or_default(),
            operations: sum(|it| it.operations),
            cpu_seconds_per_mib: cpu_seconds.zip(mib).map(|(seconds, mib)| seconds / mib),
            switches_per_mib: switches.zip(mib).map(|(switches, mib)| switches as f64 / mib),
            bytes_per_read: (reads > 0).then(|| bytes as f64 / reads as f64),
            reads: all_reads.classes(),
            percentiles: each.as_deref().and_then(Percentiles::median),
            skipped: self.skipped.clone(),
            ..report::Cell::new(&self.label, self.block_bytes, values)
        }
    }
}

impl PlannedCurve {
    /// Creates a curve with a cell for each size.
    pub(crate) fn over<M: Measure + 'static>(
        name: &str,
        facts: &[(&str, Value)],
        sizes: &[usize],
        cell: impl Fn(usize) -> M,
    ) -> PlannedCurve {
        let point = |size: usize| Point::new(bytes(size as u64), Some(size as u64), cell(size));
        PlannedCurve {
            name: name.to_owned(),
            facts: facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            points: sizes.iter().copied().map(point).collect(),
        }
    }
}

impl PlannedChart {
    /// Creates a chart of lines over block sizes.
    pub(crate) fn over_blocks(
        id: &str,
        title: &str,
        unit: Unit,
        time: Duration,
        curves: Vec<PlannedCurve>,
    ) -> PlannedChart {
        PlannedChart {
            id: id.to_owned(),
            title: title.to_owned(),
            unit,
            axis: Axis::BlockBytes,
            time,
            references: Vec::new(),
            curves,
        }
    }
}

/// Returns the plan and its samples as the charts of a report.
pub(crate) fn report(charts: &[PlannedChart]) -> Vec<report::Chart> {
    let curve = |curve: &PlannedCurve| report::Curve {
        name: curve.name.clone(),
        facts: curve.facts.clone(),
        cells: curve.points.iter().map(Point::report).collect(),
    };
    let chart = |chart: &PlannedChart| report::Chart {
        id: chart.id.clone(),
        title: chart.title.clone(),
        verdict: String::new(),
        unit: chart.unit,
        axis: chart.axis,
        cell_seconds: chart.time.as_secs_f64(),
        references: chart.references.clone(),
        curves: chart.curves.iter().map(curve).collect(),
    };
    charts.iter().map(chart).collect()
}

// The measurement of a plan.

/// The number of series, the seed of their order, and the time for all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesRules {
    pub(crate) series: usize,
    pub(crate) seed: u64,
    /// `None`: as long as it takes.
    pub(crate) limit: Option<Duration>,
}

/// The extent to which a plan was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// False if the observer stopped it.
    pub(crate) complete: bool,
    /// The number of whole series.
    pub(crate) series: usize,
    /// The smallest part of its time that a cell got.
    pub(crate) shortest_share: f64,
}

/// The observer of a measurement, which can also stop it.
pub(crate) trait Observer {
    /// Called before each series.
    fn series(&mut self, number: usize);
    /// Called before each cell.
    fn cell(&mut self, name: &str);
    /// Called after each series, with all samples so far.
    fn after_series(&mut self, charts: &[PlannedChart]);
    /// Returns true to stop. The current cell is finished first.
    fn is_stopped(&self) -> bool;
}

/// Returns the number of cells in a plan.
pub(crate) fn cells(charts: &[PlannedChart]) -> usize {
    charts.iter().flat_map(|chart| &chart.curves).map(|curve| curve.points.len()).sum()
}

/// Returns the sum of the times of all cells in one series.
pub(crate) fn time(charts: &[PlannedChart]) -> Duration {
    let cells =
        |chart: &PlannedChart| -> usize { chart.curves.iter().map(|it| it.points.len()).sum() };
    let time = |chart: &PlannedChart| chart.time * u32::try_from(cells(chart)).unwrap_or(u32::MAX);
    charts.iter().map(time).sum()
}

/// Measures every cell in every series, until the observer stops it, or the time is over after the first series.
pub(crate) fn measure(
    charts: &mut [PlannedChart],
    rules: &SeriesRules,
    observer: &mut dyn Observer,
) -> Result<Extent, Error> {
    let mut random = Random::new(rules.seed);
    let start = Instant::now();
    let all_series = u32::try_from(rules.series).unwrap_or(u32::MAX);
    let mut budget = Budget::new(rules.limit, time(charts), all_series);
    let extent = |complete, series, budget: &Budget| {
        Ok(Extent { complete, series, shortest_share: budget.shortest_share() })
    };
    for series in 0..rules.series {
        observer.series(series);
        let mut order = all(charts);
        random.shuffle(&mut order);
        for index in order {
            if observer.is_stopped() {
                return extent(false, series, &budget);
            }
            if series > 0 && budget.is_over(start.elapsed()) {
                return extent(true, series, &budget);
            }
            let time = budget.next(charts[index.0].time, start.elapsed());
            measure_one(charts, index, time, observer)?;
        }
        observer.after_series(charts);
    }
    extent(true, rules.series, &budget)
}

/// The indices of chart, curve and cell.
type CellIndex = (usize, usize, usize);

fn all(charts: &[PlannedChart]) -> Vec<CellIndex> {
    let mut indices = Vec::new();
    for (chart, of_chart) in charts.iter().enumerate() {
        for (curve, of_curve) in of_chart.curves.iter().enumerate() {
            indices.extend((0..of_curve.points.len()).map(|point| (chart, curve, point)));
        }
    }
    indices
}

fn measure_one(
    charts: &mut [PlannedChart],
    (chart, curve, point): CellIndex,
    time: Duration,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let curve = &mut charts[chart].curves[curve];
    let point: &mut Point = &mut curve.points[point];
    observer.cell(&format!("{}, {}", curve.name, point.label));
    if point.skipped.is_some() {
        return Ok(());
    }
    match point.measure.measure(time) {
        Ok(sample) => point.samples.push(sample),
        // Ctrl-C also reaches children in the same process group. Their failure says nothing about the cell.
        Err(_) if observer.is_stopped() => {}
        Err(CellError::Skip(reason)) => point.skipped = Some(reason),
        Err(CellError::Corrupt(problem)) => {
            return Err(Error::Corrupt {
                cell: format!("{}, {}", curve.name, point.label),
                problem,
            });
        }
    }
    Ok(())
}

/// The smallest part of its time that a cell gets.
const SMALLEST_SHARE: f64 = 0.125;

/// The time for all cells of all series, as it is used up.
///
/// A cell takes longer than its own time: it is set up, warmed up, and cleaned up. By how much depends on the machine
/// and on what else runs there. So the time for the next cell is calculated again and again, from what the cells before
/// it took.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// The time for the benchmark; `None`: as long as it takes.
    limit: Option<Duration>,
    /// The sum of the times of cells that show how slow the others are.
    sample: Duration,
    /// The sum of the times of the cells that are not yet measured.
    left: Duration,
    /// The sum of the times of the measured cells, as they were shortened.
    used: Duration,
    shortest: f64,
}

impl Budget {
    /// Creates a budget for `series` series, each of cells whose times add up to `cells`.
    pub(crate) fn new(limit: Option<Duration>, cells: Duration, series: u32) -> Budget {
        // Single cells may be slow, and the first ones also pay for what all share, such as a file.
        let sample = cells / 2;
        let left = cells.saturating_mul(series);
        Budget { limit, sample, left, used: Duration::ZERO, shortest: 1.0 }
    }

    /// Returns the time for the next cell, which should be measured for `time`, that long after the start.
    pub(crate) fn next(&mut self, time: Duration, elapsed: Duration) -> Duration {
        let share = self.share(elapsed);
        self.left = self.left.saturating_sub(time);
        let shortened = time.mul_f64(share);
        self.used += shortened;
        self.shortest = self.shortest.min(share);
        shortened
    }

    /// Returns true if no time is left.
    fn is_over(&self, elapsed: Duration) -> bool {
        self.limit.is_some_and(|limit| elapsed >= limit)
    }

    /// Returns the smallest part of its time that a cell got.
    pub(crate) fn shortest_share(&self) -> f64 {
        self.shortest
    }

    fn share(&self, elapsed: Duration) -> f64 {
        let Some(limit) = self.limit else { return 1.0 };
        if self.used < self.sample || self.used.is_zero() || self.left.is_zero() {
            return 1.0;
        }
        // As slow as the cells so far, the others take this long.
        let slowness = elapsed.as_secs_f64() / self.used.as_secs_f64();
        let expected = slowness * self.left.as_secs_f64();
        let remaining = limit.saturating_sub(elapsed).as_secs_f64();
        (remaining / expected.max(f64::MIN_POSITIVE)).clamp(SMALLEST_SHARE, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<u64>>>;

    #[derive(Debug)]
    struct Recorded {
        number: u64,
        log: Log,
    }

    impl Measure for Recorded {
        fn measure(&mut self, time: Duration) -> Result<Sample, CellError> {
            self.log.borrow_mut().push(self.number);
            assert!(time <= Duration::from_millis(7));
            match self.number {
                3 => Err(CellError::Skip("not here".to_owned())),
                number => Ok(Sample { value: number as f64, ..Sample::default() }),
            }
        }
    }

    /// Counts, and stops when that many cells were started.
    struct CellCounter {
        cells: usize,
        saved: usize,
        most: usize,
    }

    impl Observer for CellCounter {
        fn series(&mut self, _: usize) {}
        fn cell(&mut self, _: &str) {
            self.cells += 1;
        }
        fn after_series(&mut self, _: &[PlannedChart]) {
            self.saved += 1;
        }
        fn is_stopped(&self) -> bool {
            self.cells >= self.most
        }
    }

    fn plan(log: &Log) -> Vec<PlannedChart> {
        let point = |number: u64| {
            Point::new(number.to_string(), None, Recorded { number, log: Rc::clone(log) })
        };
        let curve = |numbers: std::ops::Range<u64>| PlannedCurve {
            name: "curve".to_owned(),
            facts: BTreeMap::new(),
            points: numbers.map(point).collect(),
        };
        let chart = |curves| PlannedChart {
            id: "chart".to_owned(),
            title: "Chart".to_owned(),
            unit: Unit::Seconds,
            axis: Axis::Cases,
            time: Duration::from_millis(7),
            references: Vec::new(),
            curves,
        };
        vec![chart(vec![curve(0..4), curve(4..6)]), chart(vec![curve(6..10)])]
    }

    const RULES: SeriesRules = SeriesRules { series: 3, seed: 1, limit: None };

    #[test]
    fn every_series_has_every_cell_once_in_its_own_order() {
        let log = Log::default();
        let mut charts = plan(&log);
        let mut observer = CellCounter { cells: 0, saved: 0, most: usize::MAX };
        let extent = measure(&mut charts, &RULES, &mut observer).unwrap();
        assert!(extent.complete && extent.series == 3);
        assert_eq!((observer.cells, observer.saved), (30, 3));
        let log = log.borrow();
        // The cell that cannot be measured is not tried again.
        assert_eq!(log.len(), 28);
        let series: Vec<Vec<u64>> = [&log[..10], &log[10..19], &log[19..]]
            .map(|series| series.iter().copied().filter(|number| *number != 3).collect())
            .to_vec();
        assert!(series[0] != series[1] && series[1] != series[2], "{series:?}");
        for mut series in series {
            series.sort_unstable();
            assert_eq!(series, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        }
        let cells = crate::plan::report(&charts);
        assert_eq!(cells[0].curves[0].cells[2].samples, [2.0, 2.0, 2.0]);
        assert_eq!(cells[0].curves[0].cells[3].skipped.as_deref(), Some("not here"));
        assert_eq!(cells[0].curves[0].cells[3].median, None);
    }

    #[test]
    fn samples_before_a_stop_are_kept() {
        let log = Log::default();
        let mut charts = plan(&log);
        let mut observer = CellCounter { cells: 0, saved: 0, most: 14 };
        let extent = measure(&mut charts, &RULES, &mut observer).unwrap();
        assert!(!extent.complete && extent.series == 1);
        assert_eq!((observer.cells, observer.saved), (14, 1));
        let samples = charts.iter().flat_map(|chart| &chart.curves).flat_map(|it| &it.points);
        let samples: usize = samples.map(|point| point.samples.len()).sum();
        assert!((12..=13).contains(&samples), "{samples}");
    }

    #[test]
    fn the_first_series_is_whole_even_if_the_time_is_over() {
        let log = Log::default();
        let mut charts = plan(&log);
        let mut observer = CellCounter { cells: 0, saved: 0, most: usize::MAX };
        let rules = SeriesRules { limit: Some(Duration::ZERO), ..RULES };
        let extent = measure(&mut charts, &rules, &mut observer).unwrap();
        assert!(extent.complete && extent.series == 1);
        assert_eq!((observer.cells, observer.saved), (10, 1));
    }

    const CELL: Duration = Duration::from_millis(100);

    /// Measures 100 cells that take that long beyond their time, and returns the whole time in seconds.
    fn run(limit: Option<u64>, beyond: Duration) -> (f64, Budget) {
        let mut budget = Budget::new(limit.map(Duration::from_secs), 25 * CELL, 4);
        let mut elapsed = Duration::ZERO;
        for _ in 0..100 {
            elapsed += budget.next(CELL, elapsed) + beyond;
        }
        (elapsed.as_secs_f64(), budget)
    }

    #[test]
    fn cells_have_their_time_if_all_fit() {
        let (seconds, budget) = run(Some(20), CELL / 2);
        assert!((seconds - 15.0).abs() < 1e-6, "{seconds}");
        assert!(budget.shortest_share() >= 1.0);
    }

    #[test]
    fn cells_are_shortened_until_all_fit() {
        let (seconds, budget) = run(Some(12), CELL / 2);
        assert!(seconds < 12.2, "{seconds}");
        assert!(budget.shortest_share() < 1.0);
    }

    #[test]
    fn a_slow_beginning_shortens_nothing_if_all_fit() {
        let mut budget = Budget::new(Some(Duration::from_secs(20)), 25 * CELL, 4);
        let mut elapsed = Duration::from_secs(1);
        for _ in 0..100 {
            elapsed += budget.next(CELL, elapsed);
        }
        assert!(budget.shortest_share() >= 1.0, "{}", budget.shortest_share());
    }

    #[test]
    fn a_slow_cell_shortens_no_others_if_all_fit() {
        let mut budget = Budget::new(Some(Duration::from_secs(30)), 50 * CELL, 2);
        let mut elapsed = Duration::ZERO;
        for number in 0..100 {
            let slow = if number % 50 == 31 { 50 * CELL } else { Duration::ZERO };
            elapsed += budget.next(CELL, elapsed) + slow;
        }
        assert!(elapsed < Duration::from_secs(30));
        assert!(budget.shortest_share() >= 1.0, "{}", budget.shortest_share());
    }

    #[test]
    fn a_cell_keeps_an_eighth_of_its_time() {
        let (seconds, budget) = run(Some(12), 3 * CELL);
        assert!(seconds > 30.0, "{seconds}");
        assert!(budget.shortest_share() >= SMALLEST_SHARE);
        assert!(budget.is_over(Duration::from_secs(12)));
    }

    #[test]
    fn without_a_limit_cells_take_as_long_as_they_take() {
        let (seconds, budget) = run(None, 3 * CELL);
        assert!((seconds - 40.0).abs() < 1e-6, "{seconds}");
        assert!(!budget.is_over(Duration::MAX));
    }
}
