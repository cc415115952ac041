//! The plan of a benchmark: charts, their curves, and the cells of these, which can measure themselves.
//!
//! A benchmark is a function that makes charts. The order, the times, the statistics and the reports are the same for
//! all benchmarks.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use pipewright_os::process::usage::Spent;
use serde_json::Value;

use crate::report::{self, Axis, Reference};
use crate::stats::Percentiles;
use crate::stats::histogram::ReadSizes;
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
        unit: chart.unit,
        axis: chart.axis,
        cell_seconds: chart.time.as_secs_f64(),
        references: chart.references.clone(),
        curves: chart.curves.iter().map(curve).collect(),
    };
    charts.iter().map(chart).collect()
}
