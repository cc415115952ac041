//! Measures a plan: series by series, every cell once in each, in an order that is new each time.

use crate::Failure;

use super::plan::{Chart, Failed, Point};
use super::shuffle::Random;

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) series: usize,
    pub(super) seed: u64,
}

/// Who wants to know how far it is, and may end it.
pub(super) trait Watch {
    /// A series begins.
    fn series(&mut self, number: usize);
    /// A cell is measured next.
    fn cell(&mut self, name: &str);
    /// A series has ended: what there is can be saved.
    fn after_series(&mut self, charts: &[Chart]);
    /// Whether to end now. A cell that is under way is finished first.
    fn stops(&self) -> bool;
}

/// How many cells there are to be measured.
pub(super) fn cells(charts: &[Chart]) -> usize {
    charts.iter().flat_map(|chart| &chart.curves).map(|curve| curve.points.len()).sum()
}

/// Measures everything, or until it is stopped; `false` then.
pub(super) fn measure(
    charts: &mut [Chart],
    rules: &Rules,
    watch: &mut dyn Watch,
) -> Result<bool, Failure> {
    let mut random = Random::new(rules.seed);
    for series in 0..rules.series {
        watch.series(series);
        let mut order = all(charts);
        random.shuffle(&mut order);
        for place in order {
            if watch.stops() {
                return Ok(false);
            }
            measure_one(charts, place, watch)?;
        }
        watch.after_series(charts);
    }
    Ok(true)
}

/// Where a cell is.
type Place = (usize, usize, usize);

fn all(charts: &[Chart]) -> Vec<Place> {
    let mut places = Vec::new();
    for (chart, of_chart) in charts.iter().enumerate() {
        for (curve, of_curve) in of_chart.curves.iter().enumerate() {
            places.extend((0..of_curve.points.len()).map(|point| (chart, curve, point)));
        }
    }
    places
}

fn measure_one(
    charts: &mut [Chart],
    (chart, curve, point): Place,
    watch: &mut dyn Watch,
) -> Result<(), Failure> {
    let time = charts[chart].time;
    let curve = &mut charts[chart].curves[curve];
    let point: &mut Point = &mut curve.points[point];
    watch.cell(&format!("{}, {}", curve.name, point.label));
    if point.skipped.is_some() {
        return Ok(());
    }
    match point.measure.measure(time) {
        Ok(sample) => point.samples.push(sample),
        // Ctrl-C reaches whoever is in our group: what it broke is no finding.
        Err(_) if watch.stops() => {}
        Err(Failed::Skip(why)) => point.skipped = Some(why),
        Err(Failed::Wrong(what)) => {
            return Err(Failure(format!("{}, {}: {what}", curve.name, point.label)));
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

    use super::super::plan::{Curve, Measure, Sample};
    use super::super::report::Axis;
    use super::super::units::Unit;
    use super::*;

    type Log = Rc<RefCell<Vec<u64>>>;

    #[derive(Debug)]
    struct Noted {
        number: u64,
        log: Log,
    }

    impl Measure for Noted {
        fn measure(&mut self, time: Duration) -> Result<Sample, Failed> {
            self.log.borrow_mut().push(self.number);
            assert_eq!(time, Duration::from_millis(7));
            match self.number {
                3 => Err(Failed::Skip("not here".to_owned())),
                number => Ok(Sample { value: number as f64, ..Sample::default() }),
            }
        }
    }

    /// Counts, and stops when so many cells were begun.
    struct Counting {
        cells: usize,
        saved: usize,
        most: usize,
    }

    impl Watch for Counting {
        fn series(&mut self, _: usize) {}
        fn cell(&mut self, _: &str) {
            self.cells += 1;
        }
        fn after_series(&mut self, _: &[Chart]) {
            self.saved += 1;
        }
        fn stops(&self) -> bool {
            self.cells >= self.most
        }
    }

    fn plan(log: &Log) -> Vec<Chart> {
        let point = |number: u64| {
            Point::new(number.to_string(), None, Noted { number, log: Rc::clone(log) })
        };
        let curve = |numbers: std::ops::Range<u64>| Curve {
            name: "curve".to_owned(),
            facts: BTreeMap::new(),
            points: numbers.map(point).collect(),
        };
        let chart = |curves| Chart {
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

    const RULES: Rules = Rules { series: 3, seed: 1 };

    #[test]
    fn every_series_has_every_cell_once_in_an_order_of_its_own() {
        let log = Log::default();
        let mut charts = plan(&log);
        let mut watch = Counting { cells: 0, saved: 0, most: usize::MAX };
        assert!(measure(&mut charts, &RULES, &mut watch).unwrap_or(false));
        assert_eq!((watch.cells, watch.saved), (30, 3));
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
        let cells = super::super::plan::report(&charts);
        assert_eq!(cells[0].curves[0].cells[2].samples, [2.0, 2.0, 2.0]);
        assert_eq!(cells[0].curves[0].cells[3].skipped.as_deref(), Some("not here"));
        assert_eq!(cells[0].curves[0].cells[3].median, None);
    }

    #[test]
    fn what_was_measured_before_a_stop_is_kept() {
        let log = Log::default();
        let mut charts = plan(&log);
        let mut watch = Counting { cells: 0, saved: 0, most: 14 };
        assert!(!measure(&mut charts, &RULES, &mut watch).unwrap_or(true));
        assert_eq!((watch.cells, watch.saved), (14, 1));
        let samples = charts.iter().flat_map(|chart| &chart.curves).flat_map(|it| &it.points);
        let samples: usize = samples.map(|point| point.samples.len()).sum();
        assert!((12..=13).contains(&samples), "{samples}");
    }
}
