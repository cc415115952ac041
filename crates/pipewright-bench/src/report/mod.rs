//! The report: the JSON object of `docs/json.md`, from which charts, tables and pages are made.

pub(crate) mod compare;
pub(crate) mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::HostReport;
use crate::stats::{self, Percentiles, Ratio, SizeClass, Summary};
use crate::units::{Unit, three_digits};

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
    /// The best curve or case, if its range is apart from others; otherwise the reason why there is no verdict. Empty
    /// before the end of the measurement, and if there is nothing to compare.
    #[serde(default)]
    pub(crate) verdict: String,
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

impl Section {
    /// Returns the sentences of its verdict, each behind its name.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.verdict.lines().map(|sentence| format!("{}: {sentence}", self.name))
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
    /// Returns the best cell: see [`best_of`].
    pub(crate) fn best(&self, unit: Unit) -> Option<(&Cell, Summary)> {
        let measured = self.cells.iter().filter_map(|cell| Some((cell, cell.summary()?)));
        best_of(measured.collect(), unit)
    }
}

/// Returns the worst figure of a range.
fn worst(range: &Summary, unit: Unit) -> f64 {
    if unit.more_is_better() { range.least } else { range.most }
}

/// Returns the best figure of a range.
fn reach(range: &Summary, unit: Unit) -> f64 {
    if unit.more_is_better() { range.most } else { range.least }
}

/// Returns what has the best median. Another run may not show a noisy figure again, so one that is not noisy comes
/// before it, if their ranges overlap.
fn best_of<T: Copy>(measured: Vec<(T, Summary)>, unit: Unit) -> Option<(T, Summary)> {
    let rank = |summary: &Summary| unit.rank(summary.median);
    let best = |it: &[(T, Summary)]| {
        it.iter().copied().max_by(|(_, a), (_, b)| rank(a).total_cmp(&rank(b)))
    };
    let first = best(&measured)?;
    if !first.1.is_noisy() {
        return Some(first);
    }
    let worst = unit.rank(worst(&first.1, unit));
    let is_steady = |(_, it): &(T, Summary)| !it.is_noisy() && unit.rank(reach(it, unit)) >= worst;
    let steady: Vec<(T, Summary)> = measured.into_iter().filter(is_steady).collect();
    Some(best(&steady).unwrap_or(first))
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

    /// Returns the best cell of all curves, and its curve: see [`best_of`].
    pub(crate) fn best(&self) -> Option<(&Curve, &Cell, Summary)> {
        let each = self.curves.iter().filter_map(|curve| {
            let (cell, summary) = curve.best(self.unit)?;
            Some(((curve, cell), summary))
        });
        best_of(each.collect(), self.unit).map(|((curve, cell), summary)| (curve, cell, summary))
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

/// If more than this share of the cells is noisy, the machine is too noisy for a verdict.
const TOO_NOISY_SHARE: f64 = 1.0 / 3.0;

/// If the baseline varies by more than this share, the speed of the machine drifts.
const DRIFT_SHARE: f64 = 0.15;

/// If other processes use more than this share of the CPU, they disturb the measurement.
const OTHERS_SHARE: f64 = 0.1;

/// Returns true if other processes disturbed more than a third of the series, and so possibly the medians.
pub(crate) fn is_disturbed(report: &BenchReport) -> bool {
    let shares = &report.machine.others_share;
    let disturbed = shares.iter().filter(|share| **share > OTHERS_SHARE).count();
    3 * disturbed > shares.len()
}

/// Returns true if the report is too noisy for a verdict.
pub(crate) fn is_too_noisy(report: &BenchReport) -> bool {
    let (noisy, measured) = noisy(report);
    are_too_many_noisy(noisy, measured)
}

/// Returns true if too many of all cells are noisy.
pub(crate) fn are_too_many_noisy(noisy: usize, all: usize) -> bool {
    noisy as f64 > TOO_NOISY_SHARE * all as f64
}

fn noisy(report: &BenchReport) -> (usize, usize) {
    let noisy = report.measured().filter(|cell| cell.noisy).count();
    (noisy, report.measured().count())
}

/// Returns the share by which the speed of the machine varied during the run.
pub(crate) fn drift(report: &BenchReport) -> Option<f64> {
    let baseline = Summary::of(&report.machine.yardstick_bytes_per_second)?;
    (baseline.median > 0.0).then(|| (baseline.most - baseline.least) / baseline.median)
}

pub(crate) fn warnings(report: &BenchReport) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind: &str, message: String| {
        warnings.push(Warning { kind: kind.to_owned(), message });
    };
    let machine = &report.machine;
    if machine.imitation {
        let words = "Wine: not representative of Windows; compare only with other runs under Wine";
        warn("imitation", words.to_owned());
    }
    if !report.complete {
        warn("interrupted", "interrupted: these are the results so far".to_owned());
    }
    if let Some(message) = about_time(report) {
        warn("short", message);
    }
    let others = machine.others_share.iter().copied().reduce(f64::max);
    if let Some(others) = others {
        if others > OTHERS_SHARE {
            let percent = others * 100.0;
            let words = format!("other processes used up to {percent:.0} % of the CPU; stop them",);
            warn("others", words);
        }
    } else if let Some(load) =
        // A high bound: the average of the last minute may contain work of our own.
        machine.load_before.filter(|load| *load > machine.processors as f64 / 2.0)
    {
        warn(
            "load",
            format!(
                "the load average was {} on {} before the first measurement; stop other processes",
                three_digits(load),
                processors(machine.processors),
            ),
        );
    }
    if machine.processors == 1 {
        let words = "only one processor: reader and writer, parent and child take turns";
        warn("one_processor", words.to_owned());
    } else if let Some(reason) = machine.not_pinned.as_ref().filter(|_| has_two_sides(report)) {
        let words = format!("reader and writer are not pinned to processors: {reason}");
        warn("not_pinned", words);
    }
    if let Some(quota) = machine.quota_processors.filter(|quota| *quota < machine.processors as f64)
    {
        let quota = three_digits(quota);
        warn(
            "quota",
            format!(
                "the control group is limited to {quota} of {}: processes that use more are paused",
                processors(machine.processors),
            ),
        );
    }
    if let Some(governor) = machine.governor.as_deref().filter(|it| *it == "powersave") {
        warn(
            "governor",
            format!(
                "the CPU governor is {governor}: short measurements may end before the processor is at full speed",
            ),
        );
    }
    if let Some(drift) = drift(report).filter(|drift| *drift > DRIFT_SHARE) {
        warn(
            "drift",
            format!(
                "the speed of the machine drifted by {:.0} % during the run: trust the order of the curves \
                 more than their height",
                drift * 100.0,
            ),
        );
    }
    for (kind, message) in about_samples(report) {
        warn(kind, message);
    }
    for (kind, message) in about_curves(report) {
        warn(kind, message);
    }
    warnings
}

/// Returns a warning if the time was too short for all that was planned.
fn about_time(report: &BenchReport) -> Option<String> {
    let settings = &report.settings;
    let limit = settings.time_limit_seconds.filter(|_| report.complete)?;
    let series = settings.measured_series.filter(|series| *series < settings.series);
    let percent = (settings.shortest_share * 100.0).round();
    let what = match series {
        Some(series) => format!("{series} of {} series were measured", settings.series),
        // A little less time changes no figure.
        None if percent < 50.0 => {
            format!("cells were measured for as little as {percent} % of their time")
        }
        None => return None,
    };
    let remedy = format!("--runs {} measures all, as long as it takes", settings.series);
    Some(format!("this machine is too slow or busy for {limit:.0} s: {what}; {remedy}"))
}

/// Returns true if a curve has a reader and a writer that can be pinned.
fn has_two_sides(report: &BenchReport) -> bool {
    let mut curves = report.charts.iter().flat_map(|chart| &chart.curves);
    curves.any(|curve| curve.facts.contains_key("reader_processor"))
}

fn processors(count: usize) -> String {
    if count == 1 { "1 processor".to_owned() } else { format!("{count} processors") }
}

fn about_samples(report: &BenchReport) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let (noisy, measured) = noisy(report);
    let settings = &report.settings;
    if noisy > 0 {
        let mut remedies = vec!["stop other processes".to_owned()];
        if settings.series < 5 {
            remedies.push("--runs 5".to_owned());
        }
        let shortest =
            report.charts.iter().map(|chart| chart.cell_seconds).fold(f64::INFINITY, f64::min);
        if shortest < 0.2 && settings.count.is_none() {
            remedies.push("--time 200ms".to_owned());
        }
        found.push((
            "noisy",
            format!(
                "spread above 10 % in {noisy} of {measured} cells (marked ~); remedies: {}",
                remedies.join(", "),
            ),
        ));
    }
    let outliers: usize = report.measured().map(|cell| cell.outliers).sum();
    if outliers > 0 {
        let samples = if outliers == 1 {
            "1 sample was".to_owned()
        } else {
            format!("{outliers} samples were")
        };
        let words = "far from all others of their cell: something interfered for a moment";
        found.push(("outliers", format!("{samples} {words}")));
    }
    if settings.series < 3 {
        found.push(("few_series", "fewer than 3 series do not show the spread".to_owned()));
    }
    if settings.verify {
        let words = "every byte was compared (--verify), which the figures include";
        found.push(("verify", words.to_owned()));
    }
    found
}

fn about_curves(report: &BenchReport) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for curve in report.charts.iter().flat_map(|chart| &chart.curves) {
        let bytes = |name: &str| curve.facts.get(name).and_then(serde_json::Value::as_u64);
        let requested = bytes("holds_bytes_asked").zip(bytes("holds_bytes"));
        if let Some((requested, got)) = requested.filter(|(requested, got)| got < requested) {
            found.push((
                "capacity",
                format!("{}: asked for {requested} bytes, got {got}", curve.name),
            ));
        }
    }
    found.extend(about_skipped_cells(report).into_iter().map(|words| ("skipped", words)));
    found
}

/// Names the cells that were not measured, with each reason once.
fn about_skipped_cells(report: &BenchReport) -> Vec<String> {
    // Each reason with its first curve or cell, and with the number of its curves.
    let mut reasons: Vec<(&str, String, usize)> = Vec::new();
    for curve in report.charts.iter().flat_map(|chart| &chart.curves) {
        let skipped: Vec<(&str, &str)> = curve
            .cells
            .iter()
            .filter_map(|cell| Some((cell.label.as_str(), cell.skipped.as_deref()?)))
            .collect();
        for same in skipped.chunk_by(|(_, a), (_, b)| a == b) {
            let Some((first, reason)) = same.first() else { continue };
            let which = match same.len() {
                count if count == curve.cells.len() => String::new(),
                1 => format!(", {first}"),
                count => format!(", {first} and {} more", count - 1),
            };
            match reasons.iter_mut().find(|(known, ..)| known == reason) {
                Some((_, _, curves)) => *curves += 1,
                None => reasons.push((reason, format!("{}{which}", curve.name), 1)),
            }
        }
    }
    let words = |(reason, first, curves): (&str, String, usize)| {
        let others = match curves {
            1 => String::new(),
            2 => " and another curve".to_owned(),
            _ => format!(" and {} more curves", curves - 1),
        };
        format!("not measured: {first}{others}: {reason}")
    };
    reasons.into_iter().map(words).collect()
}
