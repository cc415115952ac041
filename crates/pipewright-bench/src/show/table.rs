//! The figures of a chart as tables, for terminals, pages and Markdown; a report in Markdown, for issues and
//! documentation; and its samples as CSV.

use std::fmt::Write as _;

use crate::draw::letter;
use crate::report::compare::is_better;
use crate::report::{Axis, BenchReport, Cell, Chart, Compared, Comparison, Curve, Section};
use crate::stats::Summary;
use crate::units::{self, Unit};

/// A table with a heading.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextTable {
    /// The headings. The first names the rows.
    pub(super) heading: Vec<String>,
    /// The rows, each as long as the heading.
    pub(super) rows: Vec<Vec<String>>,
}

pub(super) fn figures(chart: &Chart, comparison: Option<&Comparison>, all: bool) -> TextTable {
    match chart.axis {
        Axis::BlockBytes => by_block(chart, comparison, all),
        Axis::Cases => by_case(chart, comparison),
    }
}

/// Returns a table with a row for each block size and a column for each curve.
fn by_block(chart: &Chart, comparison: Option<&Comparison>, all: bool) -> TextTable {
    let mut sizes: Vec<(u64, &str)> = Vec::new();
    for cell in chart.cells() {
        if let Some(bytes) = cell.block_bytes.filter(|_| cell.median.is_some()) {
            sizes.push((bytes, &cell.label));
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    const MANY: usize = 26;
    if !all && sizes.len() > MANY {
        // The files have all sizes; a screen shows powers of two.
        sizes.retain(|(bytes, _)| bytes.is_power_of_two());
    }
    let mut heading = vec!["block".to_owned()];
    let measured = if comparison.is_some() { ", change, corrected" } else { "" };
    heading.extend((0..chart.curves.len()).map(|curve| format!("{}{measured}", letter(curve))));
    let rows = sizes.iter().map(|(bytes, label)| {
        let mut row = vec![(*label).to_owned()];
        row.extend(chart.curves.iter().map(|curve| {
            let cell = curve.cells.iter().find(|cell| cell.block_bytes == Some(*bytes));
            cell.map_or(String::new(), |cell| entry(chart, curve, cell, comparison))
        }));
        row
    });
    TextTable { heading, rows: rows.collect() }
}

/// Returns a table with a row for each case.
fn by_case(chart: &Chart, comparison: Option<&Comparison>) -> TextTable {
    let mut heading = vec!["case".to_owned(), "median".to_owned(), "range".to_owned()];
    if comparison.is_some() {
        heading.extend(["before", "change", "corrected"].map(str::to_owned));
    }
    let mut rows = Vec::new();
    for curve in &chart.curves {
        for cell in &curve.cells {
            let Some(summary) = cell.summary() else { continue };
            let label = chart.case_label(curve, cell);
            let spread =
                format!("{} to {}", chart.unit.show(summary.least), chart.unit.show(summary.most));
            let mut row = vec![label, entry(chart, curve, cell, None), spread];
            if let Some(comparison) = comparison {
                row.extend(changes(chart, comparison.of_cell(chart, curve, cell)));
            }
            rows.push(row);
        }
    }
    TextTable { heading, rows }
}

/// Returns the median, `~` if it is noisy, and the change, as measured and corrected.
fn entry(chart: &Chart, curve: &Curve, cell: &Cell, comparison: Option<&Comparison>) -> String {
    let Some(Summary { median, .. }) = cell.summary() else { return String::new() };
    let mut text = chart.unit.show(median);
    text.push_str(if cell.noisy { " ~" } else { "  " });
    let Some(comparison) = comparison else { return text };
    let Some(found) = comparison.of_cell(chart, curve, cell) else { return text };
    let (change, corrected) = (units::change(measured(found)), units::change(found.ratio.ratio));
    text.push_str(&format!(" {change:>6} {corrected:>6} {}", mark(chart, found)));
    text
}

/// Returns the older median, the change of the medians, and the change without that of the machine, with its mark.
fn changes(chart: &Chart, found: Option<&Compared>) -> [String; 3] {
    let Some(found) = found else { return Default::default() };
    let corrected = units::change(found.ratio.ratio);
    [
        chart.unit.show(found.old_median),
        units::change(measured(found)),
        format!("{corrected} {}", mark(chart, found)),
    ]
}

/// Returns the medians, new by old.
fn measured(found: &Compared) -> f64 {
    found.new_median / found.old_median
}

fn mark(chart: &Chart, found: &Compared) -> &'static str {
    match (found.ratio.is_real, is_better(chart.unit, found.ratio.ratio)) {
        (false, _) if found.ratio.is_unsure => "?",
        (false, _) => " ",
        (true, true) => "▲",
        (true, false) => "▼",
    }
}

/// Returns a table with a row for each curve: its best cell, and the cost of that.
pub(super) fn curves(chart: &Chart) -> TextTable {
    let costs = match chart.unit {
        Unit::BytesPerSecond => ["speed", "CPU/MiB", "switches/MiB"],
        Unit::Seconds => ["median", "p99", "p99.9"],
    };
    let heading: Vec<&str> = ["", "", "best at"].into_iter().chain(costs).collect();
    let rows = chart.curves.iter().enumerate().map(|(index, curve)| {
        let mut row = vec![letter(index).to_string(), curve.name.clone()];
        match curve.best(chart.unit) {
            Some((cell, summary)) => {
                row.extend([cell.label.clone(), chart.unit.show(summary.median)]);
                row.extend(cost(chart, cell));
            }
            None => {
                row.extend(["not measured".to_owned(), String::new(), String::new(), String::new()])
            }
        }
        row
    });
    TextTable { heading: heading.into_iter().map(str::to_owned).collect(), rows: rows.collect() }
}

/// Returns the CPU time and switches of a cell, or its percentiles.
fn cost(chart: &Chart, cell: &Cell) -> [String; 2] {
    let unknown = || "-".to_owned();
    let time = |seconds: Option<f64>| seconds.map_or_else(unknown, |it| Unit::Seconds.show(it));
    match chart.unit {
        Unit::BytesPerSecond => [
            time(cell.cpu_seconds_per_mib),
            cell.switches_per_mib.map_or_else(unknown, units::three_digits),
        ],
        Unit::Seconds => {
            [time(cell.percentiles.map(|it| it.p99)), time(cell.percentiles.map(|it| it.p99_9))]
        }
    }
}

/// Returns a table of read sizes at the best cell of each curve, in percent of its reads; `None`: every read was a
/// whole block, or reads were not counted.
pub(super) fn reads(chart: &Chart) -> Option<TextTable> {
    let best: Vec<Option<&Cell>> =
        chart.curves.iter().map(|curve| curve.best(chart.unit).map(|(cell, _)| cell)).collect();
    let has_classes = |cell: &&Cell| cell.reads.len() > 1;
    if !best.iter().flatten().any(has_classes) {
        return None;
    }
    let mut classes: Vec<u64> =
        best.iter().flatten().flat_map(|cell| &cell.reads).map(|class| class.from_bytes).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut heading = vec!["size of a read".to_owned()];
    let names = best.iter().enumerate().map(|(index, cell)| match cell {
        Some(cell) => format!("{} at {}", letter(index), cell.label),
        None => letter(index).to_string(),
    });
    heading.extend(names);
    let share = |cell: &Option<&Cell>, from_bytes: u64| {
        let Some(cell) = cell else { return String::new() };
        let all: u64 = cell.reads.iter().map(|class| class.reads).sum();
        let found = cell.reads.iter().find(|class| class.from_bytes == from_bytes);
        found.map_or(String::new(), |class| {
            let percent = class.reads as f64 / all.max(1) as f64 * 100.0;
            if percent < 0.1 { "< 0.1 %".to_owned() } else { format!("{percent:.1} %") }
        })
    };
    let rows = classes.iter().map(|from_bytes| {
        let mut row = vec![format!("from {}", units::bytes(*from_bytes))];
        row.extend(best.iter().map(|cell| share(cell, *from_bytes)));
        row
    });
    Some(TextTable { heading, rows: rows.collect() })
}

/// Returns the tables, with verdict and warnings.
pub(crate) fn markdown(report: &BenchReport) -> String {
    let mut text = String::new();
    let when = units::date(report.started_unix_seconds);
    // Writing to a String does not fail.
    let _ = writeln!(text, "## {}\n", super::heading(report));
    if report.sections.is_empty() {
        let _ = writeln!(text, "**{}**\n", escaped(&report.verdict.replace('\n', " ")));
    }
    for line in report.sections.iter().flat_map(Section::lines) {
        let _ = writeln!(text, "* {}", escaped(&line));
    }
    if !report.sections.is_empty() {
        text.push('\n');
    }
    if let Some(comparison) = &report.comparison {
        let _ = writeln!(text, "**{}**\n", escaped(&comparison.verdict));
    }
    let machine = escaped(&report.machine.line());
    let _ = writeln!(text, "{when}; {machine}. {}.", super::method(report));
    for warning in &report.warnings {
        let _ = write!(text, "\n* {}", escaped(&warning.message));
    }
    if !report.warnings.is_empty() {
        text.push('\n');
    }
    for chart in &report.charts {
        let _ = writeln!(text, "\n### {}\n", escaped(&chart.title));
        if !chart.is_measured() {
            let _ = writeln!(text, "{}", super::NOT_MEASURED);
            continue;
        }
        if !chart.verdict.is_empty() {
            let _ = writeln!(text, "**{}**\n", escaped(&chart.verdict));
        }
        if chart.axis == Axis::BlockBytes {
            text.push_str(&markdown_table(&curves(chart)));
            text.push('\n');
        }
        text.push_str(&markdown_table(&figures(chart, report.comparison.as_ref(), true)));
        if let Some(reads) = reads(chart) {
            text.push('\n');
            text.push_str(&markdown_table(&reads));
        }
    }
    text
}

fn markdown_table(table: &TextTable) -> String {
    let mut text = String::new();
    let mut row = |entries: &[String]| {
        let entries: Vec<String> = entries.iter().map(|entry| escaped(entry.trim())).collect();
        let _ = writeln!(text, "| {} |", entries.join(" | "));
    };
    row(&table.heading);
    let rule = |(column, _): (usize, &String)| if column == 0 { "---" } else { "---:" }.to_owned();
    row(&table.heading.iter().enumerate().map(rule).collect::<Vec<_>>());
    table.rows.iter().for_each(|entries| row(entries));
    text
}

/// Escapes characters that have a meaning in tables.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('~', "\\~")
}

/// Returns the samples (RFC 4180).
pub(crate) fn csv(report: &BenchReport) -> String {
    let mut text = String::from("chart,curve,case,block_bytes,series,value,unit\r\n");
    for chart in &report.charts {
        let unit = match chart.unit {
            Unit::BytesPerSecond => "bytes_per_second",
            Unit::Seconds => "seconds",
        };
        for curve in &chart.curves {
            for cell in &curve.cells {
                let bytes = cell.block_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
                for (series, value) in cell.samples.iter().enumerate() {
                    let [chart, curve, case] =
                        [&chart.id, &curve.name, &cell.label].map(|it| quoted(it));
                    let series = series + 1;
                    // Writing to a String does not fail.
                    let _ =
                        write!(text, "{chart},{curve},{case},{bytes},{series},{value},{unit}\r\n");
                }
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn separators_are_quoted() {
        assert_eq!(quoted("two threads, pipe"), "\"two threads, pipe\"");
        assert_eq!((quoted("a\"b").as_str(), quoted("a b").as_str()), ("\"a\"\"b\"", "a b"));
    }
}
