//! What was measured, as data: the JSON object of `docs/json.md`, which all that is shown is made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change::Ratio;
use super::histogram::Class;
use super::stats::{self, Percentiles, Summary};
use super::units::Unit;

/// The name of the shape below. Fields are only ever added to it.
pub(super) const SCHEMA: &str = "pipewright.bench/1";

/// One run of the command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) schema: String,
    pub(super) tool_version: String,
    /// `pipes`, `ipc`, `disk`, `spawn`, `capture`, `all`.
    pub(super) benchmark: String,
    pub(super) preset: String,
    /// Not interrupted.
    pub(super) complete: bool,
    pub(super) started_unix_seconds: u64,
    pub(super) elapsed_seconds: f64,
    pub(super) settings: Settings,
    pub(super) machine: Machine,
    /// One sentence, or a few.
    pub(super) verdict: String,
    pub(super) warnings: Vec<Warning>,
    pub(super) charts: Vec<Chart>,
    pub(super) comparison: Option<Comparison>,
}

/// How it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) series: usize,
    /// Where each cell was so many blocks, and not as many as fit into its time.
    pub(super) count: Option<u64>,
    /// Of the order of the cells.
    pub(super) seed: u64,
    /// What came through was compared with what was sent.
    pub(super) verify: bool,
}

/// Where it was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) system: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) processor: Option<String>,
    /// How many this process may use.
    pub(super) processors: usize,
    pub(super) governor: Option<String>,
    pub(super) quota_processors: Option<f64>,
    pub(super) virtual_machine: Option<String>,
    /// Why threads cannot be kept on different cores here.
    #[serde(default)]
    pub(super) not_pinned: Option<String>,
    /// Wine: its speed says nothing about Windows.
    pub(super) imitation: bool,
    pub(super) memory_bytes: Option<u64>,
    pub(super) load_before: Option<f64>,
    pub(super) load_after: Option<f64>,
    /// The share of all CPU time that others used, in each series; empty where nobody can tell.
    #[serde(default)]
    pub(super) others_share: Vec<f64>,
    /// The same small measurement before each cell, of each series the median: what it spreads by is the
    /// machine's own drift. Here of copies.
    pub(super) yardstick_bytes_per_second: Vec<f64>,
    /// The same of wake-ups: a byte to another thread and back. Older reports have none.
    #[serde(default)]
    pub(super) yardstick_wake_seconds: Vec<f64>,
    /// What bare starts start. Older reports have none.
    #[serde(default)]
    pub(super) bare_start_program: Option<String>,
}

/// Something about the figures that a reader has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Warning {
    pub(super) kind: String,
    /// One line, and what to do about it.
    pub(super) message: String,
}

/// Curves that are to be seen together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Chart {
    /// The same from run to run.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) unit: Unit,
    pub(super) axis: Axis,
    /// For how long each cell was measured in each series.
    pub(super) cell_seconds: f64,
    pub(super) references: Vec<Reference>,
    pub(super) curves: Vec<Curve>,
}

/// What the points of a curve differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Axis {
    /// The size of a block: a line over powers of two.
    BlockBytes,
    /// Cases without an order: bars.
    Cases,
}

/// Somebody else's figure, drawn beside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Reference {
    pub(super) label: String,
    pub(super) value: f64,
}

/// One way of doing it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Curve {
    pub(super) name: String,
    /// What it is exactly, by name.
    pub(super) facts: BTreeMap<String, Value>,
    pub(super) cells: Vec<Cell>,
}

/// One point of a curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) label: String,
    pub(super) block_bytes: Option<u64>,
    /// One for each series, in their order.
    pub(super) samples: Vec<f64>,
    /// The samples again, each as so many bare starts, which went in turns with what was measured. None
    /// where that is no start, and in older reports.
    #[serde(default)]
    pub(super) in_bare_starts: Vec<f64>,
    pub(super) median: Option<f64>,
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
    pub(super) mad: Option<f64>,
    /// The MAD is more than a tenth of the median.
    pub(super) noisy: bool,
    /// How many samples are far away from all others.
    pub(super) outliers: usize,
    /// In all series together.
    pub(super) operations: u64,
    pub(super) cpu_seconds_per_mib: Option<f64>,
    pub(super) switches_per_mib: Option<f64>,
    /// How much came with one read, on average.
    pub(super) bytes_per_read: Option<f64>,
    /// The reads of all series together, by what they brought; without those of which there were none.
    #[serde(default)]
    pub(super) reads: Vec<Class>,
    /// What single operations took: of each figure the median over the series.
    #[serde(default)]
    pub(super) percentiles: Option<Percentiles>,
    /// Why it was not measured.
    pub(super) skipped: Option<String>,
}

/// What has changed since an older report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Comparison {
    pub(super) started_unix_seconds: u64,
    pub(super) tool_version: String,
    /// What differs between the machines and settings, in words.
    pub(super) differences: Vec<String>,
    /// The yardstick of copies, new by old: how much faster the machine itself was.
    pub(super) yardstick_ratio: Option<f64>,
    /// The same of wake-ups and of bare starts, in seconds: how much slower it was.
    #[serde(default)]
    pub(super) wake_yardstick_ratio: Option<f64>,
    #[serde(default)]
    pub(super) start_yardstick_ratio: Option<f64>,
    /// Cells that both have.
    pub(super) compared: usize,
    pub(super) faster: usize,
    pub(super) slower: usize,
    /// About which no verdict would be honest.
    #[serde(default)]
    pub(super) unsure: usize,
    /// Those cells, in the order of the charts.
    pub(super) cells: Vec<Compared>,
    /// In a sentence.
    pub(super) verdict: String,
}

/// One cell that both have.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Compared {
    pub(super) chart: String,
    pub(super) curve: String,
    pub(super) label: String,
    pub(super) old_median: f64,
    pub(super) new_median: f64,
    /// The bare starts beside it, new by old, where the ratio is without what those have changed by.
    #[serde(default)]
    pub(super) yardstick_ratio: Option<f64>,
    #[serde(flatten)]
    pub(super) ratio: Ratio,
}

impl Cell {
    /// A point of which these figures are known.
    pub(super) fn new(label: &str, block_bytes: Option<u64>, samples: Vec<f64>) -> Cell {
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
    pub(super) fn comparable<'a>(one: &'a Cell, other: &'a Cell) -> (&'a [f64], &'a [f64]) {
        if one.in_bare_starts.is_empty() || other.in_bare_starts.is_empty() {
            (&one.samples, &other.samples)
        } else {
            (&one.in_bare_starts, &other.in_bare_starts)
        }
    }

    /// From the samples, not from what else the object says: it may be somebody's own.
    pub(super) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}

impl Curve {
    /// The cell with the best median.
    pub(super) fn best(&self, unit: Unit) -> Option<(&Cell, Summary)> {
        let measured = self.cells.iter().filter_map(|cell| Some((cell, cell.summary()?)));
        measured.max_by(|(_, a), (_, b)| unit.rank(a.median).total_cmp(&unit.rank(b.median)))
    }
}

impl Chart {
    /// Whether any cell has a figure: a chart of none has axes and nothing else.
    pub(super) fn is_measured(&self) -> bool {
        self.curves.iter().flat_map(|curve| &curve.cells).any(|cell| !cell.samples.is_empty())
    }

    /// The cell with the best median of all, and its curve.
    pub(super) fn best(&self) -> Option<(&Curve, &Cell, Summary)> {
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
    pub(super) fn measured(&self) -> impl Iterator<Item = &Cell> {
        let cells = self.charts.iter().flat_map(|chart| &chart.curves).flat_map(|it| &it.cells);
        cells.filter(|cell| !cell.samples.is_empty())
    }

    /// Why no cell has a figure; `None`: one has.
    pub(super) fn why_nothing(&self) -> Option<&str> {
        if self.measured().next().is_some() {
            return None;
        }
        let mut cells = self.charts.iter().flat_map(|chart| &chart.curves).flat_map(|it| &it.cells);
        let why = cells.find_map(|cell| cell.skipped.as_deref());
        Some(why.unwrap_or("there is nothing to measure"))
    }
}
