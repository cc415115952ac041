//! What was measured, as data: the JSON object of `docs/json.md`, which all that is shown is made of.

pub(crate) mod baseline_drift;
pub(crate) mod compare;
pub(crate) mod warnings;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::HostInfo;
use crate::stats::change::Ratio;
use crate::stats::histogram::Class;
use crate::stats::{self, Percentiles, Summary};
use crate::units::Unit;

/// The name of the shape below. Fields are only ever added to it.
pub(crate) const SCHEMA: &str = "pipewright.bench/1";

/// One run of the command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    pub(crate) tool_version: String,
    /// `pipes`, `ipc`, `disk`, `spawn`, `capture`, `all`.
    pub(crate) benchmark: String,
    pub(crate) preset: String,
    /// Not interrupted.
    pub(crate) complete: bool,
    pub(crate) started_unix_seconds: u64,
    pub(crate) elapsed_seconds: f64,
    pub(crate) settings: Settings,
    pub(crate) machine: HostInfo,
    /// One sentence, or a few.
    pub(crate) verdict: String,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) comparison: Option<Comparison>,
}

/// How it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) series: usize,
    /// Where each cell was so many blocks, and not as many as fit into its time.
    pub(crate) count: Option<u64>,
    /// Of the order of the cells.
    pub(crate) seed: u64,
    /// What came through was compared with what was sent.
    pub(crate) verify: bool,
}

/// Something about the figures that a reader has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warning {
    pub(crate) kind: String,
    /// One line, and what to do about it.
    pub(crate) message: String,
}

/// Curves that are to be seen together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// The same from run to run.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) axis: Axis,
    /// For how long each cell was measured in each series.
    pub(crate) cell_seconds: f64,
    pub(crate) references: Vec<Reference>,
    pub(crate) curves: Vec<Curve>,
}

/// What the points of a curve differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Axis {
    /// The size of a block: a line over powers of two.
    BlockBytes,
    /// Cases without an order: bars.
    Cases,
}

/// Somebody else's figure, drawn beside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) label: String,
    pub(crate) value: f64,
}

/// One way of doing it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// What it is exactly, by name.
    pub(crate) facts: BTreeMap<String, Value>,
    pub(crate) cells: Vec<Cell>,
}

/// One point of a curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) label: String,
    pub(crate) block_bytes: Option<u64>,
    /// One for each series, in their order.
    pub(crate) samples: Vec<f64>,
    /// The samples again, each as so many bare starts, which went in turns with what was measured. None
    /// where that is no start, and in older reports.
    #[serde(default)]
    pub(crate) in_bare_starts: Vec<f64>,
    pub(crate) median: Option<f64>,
    pub(crate) least: Option<f64>,
    pub(crate) most: Option<f64>,
    pub(crate) mad: Option<f64>,
    /// The MAD is more than a tenth of the median.
    pub(crate) noisy: bool,
    /// How many samples are far away from all others.
    pub(crate) outliers: usize,
    /// In all series together.
    pub(crate) operations: u64,
    pub(crate) cpu_seconds_per_mib: Option<f64>,
    pub(crate) switches_per_mib: Option<f64>,
    /// How much came with one read, on average.
    pub(crate) bytes_per_read: Option<f64>,
    /// The reads of all series together, by what they brought; without those of which there were none.
    #[serde(default)]
    pub(crate) reads: Vec<Class>,
    /// What single operations took: of each figure the median over the series.
    #[serde(default)]
    pub(crate) percentiles: Option<Percentiles>,
    /// Why it was not measured.
    pub(crate) skipped: Option<String>,
}

/// What has changed since an older report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) started_unix_seconds: u64,
    pub(crate) tool_version: String,
    /// What differs between the machines and settings, in words.
    pub(crate) differences: Vec<String>,
    /// The yardstick of copies, new by old: how much faster the machine itself was.
    pub(crate) yardstick_ratio: Option<f64>,
    /// The same of wake-ups and of bare starts, in seconds: how much slower it was.
    #[serde(default)]
    pub(crate) wake_yardstick_ratio: Option<f64>,
    #[serde(default)]
    pub(crate) start_yardstick_ratio: Option<f64>,
    /// Cells that both have.
    pub(crate) compared: usize,
    pub(crate) faster: usize,
    pub(crate) slower: usize,
    /// About which no verdict would be honest.
    #[serde(default)]
    pub(crate) unsure: usize,
    /// Those cells, in the order of the charts.
    pub(crate) cells: Vec<Compared>,
    /// In a sentence.
    pub(crate) verdict: String,
}

/// One cell that both have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Compared {
    pub(crate) chart: String,
    pub(crate) curve: String,
    pub(crate) label: String,
    pub(crate) old_median: f64,
    pub(crate) new_median: f64,
    /// The bare starts beside it, new by old, where the ratio is without what those have changed by.
    #[serde(default)]
    pub(crate) yardstick_ratio: Option<f64>,
    #[serde(flatten)]
    pub(crate) ratio: Ratio,
}

impl Cell {
    /// A point of which these figures are known.
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

    /// The samples of two cells as they are compared best: in bare starts, where both have gone beside those.
    pub(crate) fn comparable<'a>(one: &'a Cell, other: &'a Cell) -> (&'a [f64], &'a [f64]) {
        if one.in_bare_starts.is_empty() || other.in_bare_starts.is_empty() {
            (&one.samples, &other.samples)
        } else {
            (&one.in_bare_starts, &other.in_bare_starts)
        }
    }

    /// From the samples, not from what else the object says: it may be somebody's own.
    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}

impl Curve {
    /// The cell with the best median.
    pub(crate) fn best(&self, unit: Unit) -> Option<(&Cell, Summary)> {
        let measured = self.cells.iter().filter_map(|cell| Some((cell, cell.summary()?)));
        measured.max_by(|(_, a), (_, b)| unit.rank(a.median).total_cmp(&unit.rank(b.median)))
    }
}

impl Chart {
    /// Whether any cell has a figure: a chart of none has axes and nothing else.
    pub(crate) fn is_measured(&self) -> bool {
        self.curves.iter().flat_map(|curve| &curve.cells).any(|cell| !cell.samples.is_empty())
    }

    /// The cell with the best median of all, and its curve.
    pub(crate) fn best(&self) -> Option<(&Curve, &Cell, Summary)> {
        let each = self.curves.iter().filter_map(|curve| {
            let (cell, summary) = curve.best(self.unit)?;
            Some((curve, cell, summary))
        });
        let rank = |summary: &Summary| self.unit.rank(summary.median);
        each.max_by(|(_, _, a), (_, _, b)| rank(a).total_cmp(&rank(b)))
    }
}

impl Report {
    /// Every cell that has a figure.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &Cell> {
        let cells = self.charts.iter().flat_map(|chart| &chart.curves).flat_map(|it| &it.cells);
        cells.filter(|cell| !cell.samples.is_empty())
    }

    /// Why no cell has a figure; `None`: one has.
    pub(crate) fn reason_for_nothing(&self) -> Option<&str> {
        if self.measured().next().is_some() {
            return None;
        }
        let mut cells = self.charts.iter().flat_map(|chart| &chart.curves).flat_map(|it| &it.cells);
        let why = cells.find_map(|cell| cell.skipped.as_deref());
        Some(why.unwrap_or("there is nothing to measure"))
    }
}
