//! What is to be measured: charts of curves of points, each of which knows how to measure itself.
//!
//! A benchmark is a function that makes charts. The order, the time boxes, the statistics and the
//! reports are the same for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use pipewright_os::process::usage::Spent;
use serde_json::Value;

use super::histogram::Reads;
use super::report::{self, Axis, Reference};
use super::stats::Percentiles;
use super::units::{Unit, bytes};

/// Curves that are to be seen together.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) axis: Axis,
    /// For how long each cell is measured in each series.
    pub(super) time: Duration,
    pub(super) references: Vec<Reference>,
    pub(super) curves: Vec<Curve>,
}

/// One way of doing it.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) facts: BTreeMap<String, Value>,
    pub(super) points: Vec<Point>,
}

/// One cell, and what has come of it so far.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) label: String,
    pub(super) block_bytes: Option<u64>,
    pub(super) measure: Box<dyn Measure>,
    pub(super) samples: Vec<Sample>,
    /// Why there will be no more samples.
    pub(super) skipped: Option<String>,
}

/// Something that can be measured again and again.
pub(super) trait Measure: fmt::Debug {
    /// Measures for about that long, warmed up, and leaves nothing behind.
    fn measure(&mut self, time: Duration) -> Result<Sample, Failed>;
}

/// One measurement of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample {
    /// In the unit of the chart.
    pub(super) value: f64,
    /// As so many bare starts, where those went beside.
    pub(super) in_bare_starts: Option<f64>,
    /// How many operations it took.
    pub(super) operations: u64,
    /// How many bytes went through.
    pub(super) bytes: u64,
    /// With which reads; none where nobody counted.
    pub(super) reads: Reads,
    /// What single operations took, where each went by the clock.
    pub(super) each: Option<Percentiles>,
    /// What all processes that were part of it have used; `None`: it was not asked.
    pub(super) spent: Option<Spent>,
}

/// Why a cell has no figure.
#[derive(Debug)]
pub(super) enum Failed {
    /// It cannot be measured here.
    Skip(String),
    /// What came out is not what went in, and then no figure of this run is worth anything.
    Wrong(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Skip(error.to_string())
    }
}

impl From<pipewright::Error> for Failed {
    fn from(error: pipewright::Error) -> Failed {
        Failed::Skip(error.to_string())
    }
}

impl From<pipewright_disk::Error> for Failed {
    fn from(error: pipewright_disk::Error) -> Failed {
        Failed::Skip(error.to_string())
    }
}

impl From<pipewright_ipc::Error> for Failed {
    fn from(error: pipewright_ipc::Error) -> Failed {
        Failed::Skip(error.to_string())
    }
}

impl Point {
    pub(super) fn new(
        label: String,
        block_bytes: Option<u64>,
        measure: impl Measure + 'static,
    ) -> Point {
        Point { label, block_bytes, measure: Box::new(measure), samples: Vec::new(), skipped: None }
    }

    /// As data.
    fn report(&self) -> report::Cell {
        const MIB: f64 = 1_048_576.0;
        let values = self.samples.iter().map(|sample| sample.value).collect();
        let sum = |part: fn(&Sample) -> u64| self.samples.iter().map(part).sum::<u64>();
        let bytes = sum(|it| it.bytes);
        let mut all_reads = Reads::default();
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

impl Curve {
    /// A cell for each size.
    pub(super) fn over<M: Measure + 'static>(
        name: &str,
        facts: &[(&str, Value)],
        sizes: &[usize],
        cell: impl Fn(usize) -> M,
    ) -> Curve {
        let point = |size: usize| Point::new(bytes(size as u64), Some(size as u64), cell(size));
        Curve {
            name: name.to_owned(),
            facts: facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            points: sizes.iter().copied().map(point).collect(),
        }
    }
}

impl Chart {
    /// Lines over the sizes of blocks.
    pub(super) fn over_blocks(
        id: &str,
        title: &str,
        unit: Unit,
        time: Duration,
        curves: Vec<Curve>,
    ) -> Chart {
        Chart {
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

/// The plan and what has come of it, as data.
pub(super) fn report(charts: &[Chart]) -> Vec<report::Chart> {
    let curve = |curve: &Curve| report::Curve {
        name: curve.name.clone(),
        facts: curve.facts.clone(),
        cells: curve.points.iter().map(Point::report).collect(),
    };
    let chart = |chart: &Chart| report::Chart {
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
