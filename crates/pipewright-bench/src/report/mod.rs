//! The report: the JSON object of `docs/json.md`, from which charts, tables and pages are made.

pub(crate) mod compare;
pub(crate) mod warnings;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::HostReport;
use crate::stats::SizeClass;
use crate::stats::change::Ratio;
use crate::stats::{self, Percentiles, Summary};
use crate::units::Unit;

/// The name of the schema below. Fields are only ever added to it.
pub(crate) const SCHEMA: &str = "pipewright.bench/1";

/// One run of the command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BenchReport {
    pub(crate) schema: String,
    pub(crate) tool_version: String,
    /// `pipes`, `ipc`, `disk`, `spawn`, `capture`, `all`.
    pub(crate) benchmark: String,
    pub(crate) preset: String,
    /// The run was not interrupted.
    pub(crate) complete: bool,
    pub(crate) started_unix_seconds: u64,
    pub(crate) elapsed_seconds: f64,
    pub(crate) settings: Settings,
    pub(crate) machine: HostReport,
    /// The main result, in a few sentences.
    pub(crate) verdict: String,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) charts: Vec<Chart>,
    /// The benchmarks that it consists of; none, if it is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sections: Vec<Section>,
    pub(crate) comparison: Option<Comparison>,
}

/// A benchmark as a part of another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// The result of its charts in a few sentences. Those of other sections do not matter.
    pub(crate) verdict: String,
    /// The ids of its charts.
    pub(crate) charts: Vec<String>,
}

/// The settings of the measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) series: usize,
    /// The number of blocks in each cell; `None`: as many as fit into its time.
    pub(crate) count: Option<u64>,
    /// The seed of the order of the cells.
    pub(crate) seed: u64,
    /// The received bytes were compared with the sent bytes.
    pub(crate) verify: bool,
    /// The time for the benchmark; `None`: as long as it takes.
    #[serde(default)]
    pub(crate) time_limit_seconds: Option<f64>,
    /// The number of whole series that were measured; `None` in older reports.
    #[serde(default)]
    pub(crate) measured_series: Option<usize>,
    /// The smallest part of its time that a cell got, because the benchmark would have taken too long otherwise.
    #[serde(default = "one")]
    pub(crate) shortest_share: f64,
}

fn one() -> f64 {
    1.0
}

/// A warning about the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warning {
    pub(crate) kind: String,
    /// The warning in a line, with the remedy.
    pub(crate) message: String,
}

/// Curves in one chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// The id, which is the same in every run.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) axis: Axis,
    /// The time for each cell in each series.
    pub(crate) cell_seconds: f64,
    pub(crate) references: Vec<Reference>,
    pub(crate) curves: Vec<Curve>,
}

/// The quantity in which the cells of a curve differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Axis {
    /// The block size: drawn as a line over powers of two.
    BlockBytes,
    /// Cases without an order: drawn as bars.
    Cases,
}

/// A published figure, drawn for comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) label: String,
    pub(crate) value: f64,
}

/// One way to do the work of a chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Further facts about it, by name.
    pub(crate) facts: BTreeMap<String, Value>,
    pub(crate) cells: Vec<Cell>,
}

/// One point of a curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) label: String,
    pub(crate) block_bytes: Option<u64>,
    /// One figure for each series, in their order.
    pub(crate) samples: Vec<f64>,
    /// The samples as multiples of bare starts, which were measured in turns with them. Empty for cells that do not
    /// start processes, and in older reports.
    #[serde(default)]
    pub(crate) in_bare_starts: Vec<f64>,
    pub(crate) median: Option<f64>,
    pub(crate) least: Option<f64>,
    pub(crate) most: Option<f64>,
    pub(crate) mad: Option<f64>,
    /// The MAD is more than a tenth of the median.
    pub(crate) noisy: bool,
    /// The number of samples that are far from all others.
    pub(crate) outliers: usize,
    /// The number of operations in all series.
    pub(crate) operations: u64,
    pub(crate) cpu_seconds_per_mib: Option<f64>,
    pub(crate) switches_per_mib: Option<f64>,
    /// The average size of a read.
    pub(crate) bytes_per_read: Option<f64>,
    /// The reads of all series by size, without empty classes.
    #[serde(default)]
    pub(crate) reads: Vec<SizeClass>,
    /// The percentiles of the times of single operations: the median of each over the series.
    #[serde(default)]
    pub(crate) percentiles: Option<Percentiles>,
    /// The reason why it was not measured.
    pub(crate) skipped: Option<String>,
}

/// The comparison with an older report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) started_unix_seconds: u64,
    pub(crate) tool_version: String,
    /// The differences between machines and settings, in words.
    pub(crate) differences: Vec<String>,
    /// The baseline of copies in bytes per second, new by old: above 1 the machine has become faster.
    pub(crate) yardstick_ratio: Option<f64>,
    /// The baseline of wake-ups in seconds, new by old: above 1 the machine has become slower.
    #[serde(default)]
    pub(crate) wake_yardstick_ratio: Option<f64>,
    /// The same for bare starts.
    #[serde(default)]
    pub(crate) start_yardstick_ratio: Option<f64>,
    /// The number of cells that both reports have.
    pub(crate) compared: usize,
    pub(crate) faster: usize,
    pub(crate) slower: usize,
    /// The number of cells that allow no verdict.
    #[serde(default)]
    pub(crate) unsure: usize,
    /// The compared cells, in the order of the charts.
    pub(crate) cells: Vec<Compared>,
    /// The result in a few sentences.
    pub(crate) verdict: String,
}

/// A cell that both reports have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Compared {
    pub(crate) chart: String,
    pub(crate) curve: String,
    pub(crate) label: String,
    pub(crate) old_median: f64,
    pub(crate) new_median: f64,
    /// The bare starts beside it, new by old, if the ratio is corrected for their change.
    #[serde(default)]
    pub(crate) yardstick_ratio: Option<f64>,
    #[serde(flatten)]
    pub(crate) ratio: Ratio,
}

impl Comparison {
    /// Returns the comparison of a cell, if the older report has it.
    pub(crate) fn of_cell(&self, chart: &Chart, curve: &Curve, cell: &Cell) -> Option<&Compared> {
        let is_it = |it: &&Compared| {
            it.chart == chart.id && it.curve == curve.name && it.label == cell.label
        };
        self.cells.iter().find(is_it)
    }
}

impl Cell {
    /// Creates a cell with these samples.
    pub(crate) fn new(label: &str, block_bytes: Option<u64>, samples: Vec<f64>) -> Cell {
        let summary = Summary::of(&samples);
        Cell {
            label: label.to_owned(),
            block_bytes,
            median: summary.map(|it| it.median),
            least: summary.map(|it| it.least),
            most: summary.map(|it| it.most),
            mad: summary.map(|it| it.mad),
            noisy: summary.is_some_and(|it| it.is_noisy()),
            outliers: stats::outliers(&samples),
            samples,
            in_bare_starts: Vec::new(),
            operations: 0,
            cpu_seconds_per_mib: None,
            switches_per_mib: None,
            bytes_per_read: None,
            reads: Vec::new(),
            percentiles: None,
            skipped: None,
        }
    }

    /// Returns the samples of two cells for a comparison: as multiples of bare starts, if both have these.
    pub(crate) fn comparable<'a>(one: &'a Cell, other: &'a Cell) -> (&'a [f64], &'a [f64]) {
        if one.in_bare_starts.is_empty() || other.in_bare_starts.is_empty() {
            (&one.samples, &other.samples)
        } else {
            (&one.in_bare_starts, &other.in_bare_starts)
        }
    }

    /// Summarizes the samples, and ignores the other fields: a report from a file may be inconsistent.
    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}

impl Curve {
    /// Returns the cell with the best median.
    pub(crate) fn best(&self, unit: Unit) -> Option<(&Cell, Summary)> {
        let measured = self.cells.iter().filter_map(|cell| Some((cell, cell.summary()?)));
        measured.max_by(|(_, a), (_, b)| unit.rank(a.median).total_cmp(&unit.rank(b.median)))
    }
}

impl Chart {
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.curves.iter().flat_map(|curve| &curve.cells)
    }

    /// Returns true if a cell has a figure. A chart without figures would be empty axes.
    pub(crate) fn is_measured(&self) -> bool {
        self.cells().any(|cell| !cell.samples.is_empty())
    }

    /// Returns the label of a case, which names the curve if there are several.
    pub(crate) fn case_label(&self, curve: &Curve, cell: &Cell) -> String {
        if self.curves.len() > 1 {
            format!("{}, {}", curve.name, cell.label)
        } else {
            cell.label.clone()
        }
    }

    /// Returns the cell with the best median of all curves, and its curve.
    pub(crate) fn best(&self) -> Option<(&Curve, &Cell, Summary)> {
        let each = self.curves.iter().filter_map(|curve| {
            let (cell, summary) = curve.best(self.unit)?;
            Some((curve, cell, summary))
        });
        let rank = |summary: &Summary| self.unit.rank(summary.median);
        each.max_by(|(_, _, a), (_, _, b)| rank(a).total_cmp(&rank(b)))
    }
}

impl BenchReport {
    /// Returns the cells that have a figure.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Cell> {
        self.charts.iter().flat_map(Chart::cells).filter(|cell| !cell.samples.is_empty())
    }

    /// Returns the reason why no cell has a figure; `None`: one has.
    pub(crate) fn reason_for_nothing(&self) -> Option<&str> {
        if self.measured().next().is_some() {
            return None;
        }
        let mut cells = self.charts.iter().flat_map(Chart::cells);
        let reason = cells.find_map(|cell| cell.skipped.as_deref());
        Some(reason.unwrap_or("there is nothing to measure"))
    }
}
