//! The figures of a chart as a table, which terminals, pages and Markdown show.

use super::super::compare::is_better;
use super::super::draw::palette::letter;
use super::super::report::{Axis, Cell, Chart, Compared, Comparison, Curve};
use super::super::stats::Summary;
use super::super::units::{self, Unit};

/// A table with a heading.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    /// The first names what the rows are.
    pub(super) heading: Vec<String>,
    /// Each is as long as the heading.
    pub(super) rows: Vec<Vec<String>>,
}

/// The figures of a chart.
pub(super) fn figures(chart: &Chart, comparison: Option<&Comparison>, all: bool) -> Table {
    match chart.axis {
        Axis::BlockBytes => by_block(chart, comparison, all),
        Axis::Cases => by_case(chart, comparison),
    }
}

/// A row for each block size, a column for each curve.
fn by_block(chart: &Chart, comparison: Option<&Comparison>, all: bool) -> Table {
    let mut sizes: Vec<(u64, &str)> = Vec::new();
    for cell in chart.curves.iter().flat_map(|curve| &curve.cells) {
        if let Some(bytes) = cell.block_bytes.filter(|_| cell.median.is_some()) {
            sizes.push((bytes, &cell.label));
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    const MANY: usize = 26;
    if !all && sizes.len() > MANY {
        // The rest is in the files: a screen shows the octaves.
        sizes.retain(|(bytes, _)| bytes.is_power_of_two());
    }
    let mut heading = vec!["block".to_owned()];
    heading.extend((0..chart.curves.len()).map(|curve| letter(curve).to_string()));
    let rows = sizes.iter().map(|(bytes, label)| {
        let mut row = vec![(*label).to_owned()];
        row.extend(chart.curves.iter().map(|curve| {
            let cell = curve.cells.iter().find(|cell| cell.block_bytes == Some(*bytes));
            cell.map_or(String::new(), |cell| entry(chart, curve, cell, comparison))
        }));
        row
    });
    Table { heading, rows: rows.collect() }
}

/// A row for each case.
fn by_case(chart: &Chart, comparison: Option<&Comparison>) -> Table {
    let several = chart.curves.len() > 1;
    let mut heading = vec!["case".to_owned(), "median".to_owned(), "least to most".to_owned()];
    if comparison.is_some() {
        heading.push("before".to_owned());
    }
    let mut rows = Vec::new();
    for curve in &chart.curves {
        for cell in &curve.cells {
            let Some(summary) = cell.summary() else { continue };
            let label = if several {
                format!("{}, {}", curve.name, cell.label)
            } else {
                cell.label.clone()
            };
            let spread =
                format!("{} to {}", chart.unit.show(summary.least), chart.unit.show(summary.most));
            let mut row = vec![label, entry(chart, curve, cell, comparison), spread];
            if let Some(comparison) = comparison {
                let old = compared(chart, curve, cell, comparison)
                    .map(|it| chart.unit.show(it.old_median));
                row.push(old.unwrap_or_default());
            }
            rows.push(row);
        }
    }
    Table { heading, rows }
}

/// The median, `~` where it is noisy, and what has changed.
fn entry(chart: &Chart, curve: &Curve, cell: &Cell, comparison: Option<&Comparison>) -> String {
    let Some(Summary { median, .. }) = cell.summary() else { return String::new() };
    let mut text = chart.unit.show(median);
    text.push_str(if cell.noisy { " ~" } else { "  " });
    let Some(comparison) = comparison else { return text };
    let Some(found) = compared(chart, curve, cell, comparison) else { return text };
    let change = units::change(found.ratio.ratio);
    text.push_str(&match (found.ratio.is_real, is_better(chart.unit, found.ratio.ratio)) {
        (false, _) => format!(" {change:>6}  "),
        (true, true) => format!(" {change:>6} ▲"),
        (true, false) => format!(" {change:>6} ▼"),
    });
    text
}

fn compared<'a>(
    chart: &Chart,
    curve: &Curve,
    cell: &Cell,
    comparison: &'a Comparison,
) -> Option<&'a Compared> {
    comparison
        .cells
        .iter()
        .find(|it| it.chart == chart.id && it.curve == curve.name && it.label == cell.label)
}

/// A row for each curve: where it is at its best, and what that costs.
pub(super) fn curves(chart: &Chart) -> Table {
    let heading = ["", "", "best at", "speed", "CPU/MiB", "switches/MiB"];
    let rows = chart.curves.iter().enumerate().map(|(index, curve)| {
        let mut row = vec![letter(index).to_string(), curve.name.clone()];
        match curve.best(chart.unit) {
            Some((cell, summary)) => row.extend([
                cell.label.clone(),
                chart.unit.show(summary.median),
                cell.cpu_seconds_per_mib.map_or("-".to_owned(), |it| Unit::Seconds.show(it)),
                cell.switches_per_mib.map_or("-".to_owned(), units::three_digits),
            ]),
            None => {
                row.extend(["not measured".to_owned(), String::new(), String::new(), String::new()])
            }
        }
        row
    });
    Table { heading: heading.map(str::to_owned).to_vec(), rows: rows.collect() }
}
