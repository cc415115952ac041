//! A report for a terminal: charts, tables, warnings, and the verdict last.

use super::NOT_MEASURED;
use super::columns::{chunks, cut, widths, wrap};
use super::graph::graph;
use super::paint::{Paint, Pen};
use super::table::{self, TextTable};
use crate::report::{Axis, BenchReport, Chart};
use crate::units;

/// Returns the report in a width of that many columns.
pub(crate) fn terminal(report: &BenchReport, columns: usize, colors: bool) -> String {
    let columns = columns.clamp(30, 200);
    let paint = Paint { colors };
    let mut text = String::new();
    let mut say = |pen, line: &str| {
        text.push_str(&paint.text(pen, line));
        text.push('\n');
    };
    say(Pen::Bold, &wrap(&super::heading(report), columns, ""));
    let when = units::date(report.started_unix_seconds);
    say(Pen::Plain, &wrap(&format!("{when}; {}", report.machine.line()), columns, ""));
    say(Pen::Plain, &wrap(&super::method(report), columns, ""));
    for chart in &report.charts {
        text.push('\n');
        text.push_str(&chart_text(chart, report, columns, paint));
    }
    let mut notes = report.warnings.iter().map(|warning| warning.message.as_str()).peekable();
    if notes.peek().is_some() {
        text.push('\n');
    }
    for note in notes {
        text.push_str(&wrap(&format!("! {note}"), columns, "  "));
        text.push('\n');
    }
    text.push('\n');
    for line in [Some(&report.verdict), report.comparison.as_ref().map(|it| &it.verdict)] {
        for line in line.into_iter().flat_map(|lines| lines.lines()) {
            text.push_str(&paint.text(Pen::Bold, &wrap(line, columns, "")));
            text.push('\n');
        }
    }
    text
}

fn chart_text(chart: &Chart, report: &BenchReport, columns: usize, paint: Paint) -> String {
    let mut text = paint.text(Pen::Bold, &wrap(&chart.title, columns, ""));
    text.push_str("\n\n");
    if !chart.is_measured() {
        text.push_str(NOT_MEASURED);
        text.push('\n');
        return text;
    }
    text.push_str(&graph(chart, columns, paint));
    let compared = report.comparison.as_ref();
    if chart.axis == Axis::Cases && compared.is_none() {
        // The bars show the figures.
        return text;
    }
    text.push('\n');
    for reference in &chart.references {
        let value = chart.unit.show(reference.value);
        text.push_str(&paint.text(Pen::Faint, &format!("{value:>10}  {}\n", reference.label)));
    }
    if !chart.references.is_empty() {
        text.push('\n');
    }
    if chart.axis == Axis::BlockBytes {
        text.push_str(&curves(&table::curves(chart), columns, paint));
        text.push('\n');
    }
    text.push_str(&figures(&table::figures(chart, compared, false), columns, paint));
    text
}

/// Returns the table of curves. In a narrow terminal it leaves out columns; the files have them all.
fn curves(table: &TextTable, columns: usize, paint: Paint) -> String {
    const LEAST_NAME: usize = 12;
    let all =
        widths([table.heading.as_slice()].into_iter().chain(table.rows.iter().map(Vec::as_slice)));
    let mut shown = all.len();
    let rest =
        |shown: usize| all.iter().skip(2).take(shown - 2).map(|width| width + 2).sum::<usize>();
    while shown > 4 && 3 + LEAST_NAME + rest(shown) > columns {
        shown -= 1;
    }
    let name = all
        .get(1)
        .copied()
        .unwrap_or(0)
        .min(columns.saturating_sub(3 + rest(shown)).max(LEAST_NAME));
    let mut text = String::new();
    let rows = std::iter::once((None, &table.heading));
    for (index, row) in
        rows.chain(table.rows.iter().enumerate().map(|(index, row)| (Some(index), row)))
    {
        let mut line = String::new();
        for (column, (entry, width)) in row.iter().zip(&all).take(shown).enumerate() {
            match column {
                0 => line.push_str(
                    &paint.text(index.map_or(Pen::Plain, Pen::Curve), &format!("{entry:<1}  ")),
                ),
                1 => line.push_str(&format!("{:<name$}", cut(entry, name))),
                _ if index.is_none() => {
                    line.push_str(&paint.text(Pen::Faint, &format!("  {entry:>width$}")))
                }
                _ => line.push_str(&format!("  {entry:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the table of figures, in several parts if it is too wide.
fn figures(table: &TextTable, columns: usize, paint: Paint) -> String {
    let all =
        widths([table.heading.as_slice()].into_iter().chain(table.rows.iter().map(Vec::as_slice)));
    let Some((first, rest)) = all.split_first() else { return String::new() };
    let first = (*first).min(columns / 2);
    let mut text = String::new();
    for (part, chunk) in chunks(first, rest, columns).into_iter().enumerate() {
        if part > 0 {
            text.push('\n');
        }
        let rows = std::iter::once((true, &table.heading));
        for (is_heading, row) in rows.chain(table.rows.iter().map(|row| (false, row))) {
            let label = row.first().map_or("", String::as_str);
            let mut line = format!("{:<first$}", cut(label, first));
            for (entry, width) in row.iter().skip(1).zip(rest).skip(chunk.start).take(chunk.len()) {
                // No heading above the marks of noise and change.
                let entry = if is_heading { format!("{entry}  ") } else { entry.clone() };
                line.push_str(&format!("  {entry:>width$}"));
            }
            let pen = if is_heading { Pen::Faint } else { Pen::Plain };
            text.push_str(&paint.text(pen, line.trim_end()));
            text.push('\n');
        }
    }
    text
}
