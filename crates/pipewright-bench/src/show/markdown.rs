//! A report in Markdown, for issues and documentation.

use std::fmt::Write as _;

use super::table::{self, TextTable};
use crate::report::{Axis, BenchReport};
use crate::units;

/// Returns the tables, with verdict and warnings.
pub(crate) fn markdown(report: &BenchReport) -> String {
    let mut text = String::new();
    let when = units::date(report.started_unix_seconds);
    // Writing to a String does not fail.
    let _ = writeln!(text, "## {}\n", super::heading(report));
    let _ = writeln!(text, "**{}**\n", escaped(&report.verdict.replace('\n', " ")));
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
        if chart.axis == Axis::BlockBytes {
            text.push_str(&table(&table::curves(chart)));
            text.push('\n');
        }
        text.push_str(&table(&table::figures(chart, report.comparison.as_ref(), true)));
        if let Some(reads) = table::reads(chart) {
            text.push('\n');
            text.push_str(&table(&reads));
        }
    }
    text
}

fn table(table: &TextTable) -> String {
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
