//! Measures a plan: in each series every cell once, in a new order.

use std::time::{Duration, Instant};

use crate::Error;
use crate::budget::Budget;
use crate::plan::{CellError, PlannedChart, Point};
use crate::stats::shuffle::Random;

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
    /// It was not stopped by the observer.
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::plan::{Measure, PlannedCurve, Sample};
    use crate::report::Axis;
    use crate::units::Unit;

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
}
