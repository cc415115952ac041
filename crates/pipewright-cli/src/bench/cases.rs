//! Cases: an operation that is done again and again, each time by the clock.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::plan::{Chart, Curve, Failed, Measure, Point, Sample};
use super::report::Axis;
use super::stats::median;
use super::units::Unit;

/// What one operation took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    pub(super) time: Duration,
    /// What went through, where that is what counts.
    pub(super) bytes: u64,
}

impl From<Duration> for Took {
    fn from(time: Duration) -> Took {
        Took { time, bytes: 0 }
    }
}

/// Something that is done by the clock: what is prepared and cleared away is not part of its time.
struct Case<F> {
    unit: Unit,
    operation: F,
}

impl<F> fmt::Debug for Case<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("unit", &self.unit).finish_non_exhaustive()
    }
}

/// A case of that name.
pub(super) fn case(
    label: impl Into<String>,
    unit: Unit,
    operation: impl FnMut() -> Result<Took, Failed> + 'static,
) -> Point {
    Point::new(label.into(), None, Case { unit, operation })
}

/// A chart of cases.
pub(super) fn chart(
    id: &str,
    title: &str,
    unit: Unit,
    time: Duration,
    points: Vec<Point>,
) -> Chart {
    let facts: BTreeMap<String, Value> = BTreeMap::new();
    Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        unit,
        axis: Axis::Cases,
        time,
        references: Vec::new(),
        curves: vec![Curve { name: "pipewright".to_owned(), facts, points }],
    }
}

impl<F: FnMut() -> Result<Took, Failed>> Measure for Case<F> {
    /// The first one warms up, unless it takes all of the time; of the others the median counts.
    fn measure(&mut self, time: Duration) -> Result<Sample, Failed> {
        let first = (self.operation)()?;
        let mut all = Vec::new();
        if first.time >= time {
            all.push(first);
        }
        let start = Instant::now();
        while all.is_empty() || start.elapsed() < time && first.time < time {
            all.push((self.operation)()?);
        }
        let values: Vec<f64> = all.iter().map(|took| self.value(took)).collect();
        Ok(Sample {
            value: median(&values).unwrap_or_default(),
            operations: all.len() as u64,
            bytes: all.iter().map(|took| took.bytes).sum(),
            ..Sample::default()
        })
    }
}

impl<F> Case<F> {
    fn value(&self, took: &Took) -> f64 {
        let seconds = took.time.as_secs_f64().max(1e-9);
        match self.unit {
            Unit::Seconds => seconds,
            Unit::BytesPerSecond => took.bytes as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(unit: Unit, took: &'static [u64], time: Duration) -> Sample {
        let mut next = took.iter().cycle();
        let mut point = case("case", unit, move || {
            let micros = *next.next().unwrap();
            Ok(Took { time: Duration::from_micros(micros), bytes: 1000 })
        });
        match point.measure.measure(time) {
            Ok(sample) => sample,
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn the_first_one_warms_up_and_of_the_others_the_median_counts() {
        let sample = measured(Unit::Seconds, &[900, 7, 7, 7, 7, 7], Duration::from_millis(2));
        assert!((sample.value - 7e-6).abs() < 1e-12, "{sample:?}");
        assert!(sample.operations > 1, "{sample:?}");
    }

    #[test]
    fn one_that_takes_all_of_the_time_is_done_once() {
        let sample = measured(Unit::BytesPerSecond, &[5000, 1], Duration::from_millis(2));
        assert_eq!((sample.operations, sample.bytes), (1, 1000));
        assert!((sample.value - 200_000.0).abs() < 1e-6, "{sample:?}");
    }
}
