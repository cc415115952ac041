//! The formats of a report: terminal, picture, page, tables and lists. Pure functions of the report, and its files.

mod csv;
mod files;
#[cfg(test)]
mod golden;
mod html;
mod markdown;
mod picture;
mod table;
mod terminal;

pub(super) use csv::csv;
pub(super) use files::{ReportFiles, load};
pub(super) use html::{html, page_style};
pub(super) use markdown::markdown;
pub(super) use picture::svg;
pub(super) use terminal::{cut, terminal};

use crate::report::BenchReport;
use crate::units::Unit;

/// The text instead of a chart without figures. The warnings have the reason.
const NOT_MEASURED: &str = "Not measured.";

/// Returns the method in a line.
fn method(report: &BenchReport) -> String {
    let settings = &report.settings;
    let series = settings.series;
    let each = match settings.count {
        Some(count) => format!("{count} blocks"),
        None => {
            let times = report.charts.iter().map(|chart| chart.cell_seconds);
            let (least, most) = times.fold((f64::INFINITY, 0.0), |(least, most), time| {
                (f64::min(least, time), f64::max(most, time))
            });
            let [shortest, longest] = [least.min(most), most].map(|time| Unit::Seconds.show(time));
            if shortest == longest { shortest } else { format!("{shortest} to {longest}") }
        }
    };
    format!(
        "{series} series, interleaved and shuffled (seed {}); each cell {each} after a warm-up; medians \
         with minimum and maximum",
        settings.seed,
    )
}

/// Returns the heading: benchmark, preset and version.
fn heading(report: &BenchReport) -> String {
    let BenchReport { benchmark, preset, tool_version, .. } = report;
    format!("pipewright bench {benchmark}, preset {preset}, version {tool_version}")
}
