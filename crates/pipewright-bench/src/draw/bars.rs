//! A bar chart as SVG: a bar for the median of each case, with a whisker for the range.

use super::axis::Scale;
use super::frame::{self, CHARACTER, Format, Subject};
use super::marks::{line, of_curve};
use super::svg::{Attributes, Svg, class};
use super::tips::{self, Card};
use crate::report::{Cell, Chart};

const BAR: f64 = 16.0;

/// One bar.
struct Bar<'a> {
    curve: usize,
    label: String,
    cell: &'a Cell,
}

/// Returns the measured cases with their labels, which name the curve if there are several.
fn cases(chart: &Chart) -> Vec<Bar<'_>> {
    let several = chart.curves.len() > 1;
    let curves = chart.curves.iter().enumerate();
    let cases = curves.flat_map(|(index, curve)| {
        curve.cells.iter().map(move |cell| {
            let label = if several {
                format!("{}, {}", curve.name, cell.label)
            } else {
                cell.label.clone()
            };
            Bar { curve: index, label, cell }
        })
    });
    cases.filter(|case| case.cell.median.is_some()).collect()
}

/// The layout of labels, bars and figures.
struct Columns {
    bars_left: f64,
    bars_right: f64,
    row: f64,
    /// The label is above its bar.
    stacked: bool,
}

const FIGURE: f64 = 90.0;

fn columns(chart: &Chart, format: Format) -> Columns {
    match format {
        Format::Wide => {
            let longest =
                cases(chart).iter().map(|case| case.label.chars().count()).max().unwrap_or(0);
            let bars_left = (longest as f64 * CHARACTER + 16.0).clamp(80.0, 400.0);
            Columns { bars_left, bars_right: format.width() - FIGURE, row: 30.0, stacked: false }
        }
        Format::Narrow => Columns {
            bars_left: 0.0,
            bars_right: format.width() - FIGURE,
            row: 48.0,
            stacked: true,
        },
    }
}

/// Returns the height of the chart.
pub(crate) fn height(subject: &Subject<'_>, format: Format) -> f64 {
    let rows = cases(subject.chart).len() as f64 * columns(subject.chart, format).row;
    frame::title_height(&subject.chart.title, format) + 10.0 + rows + 30.0
}

/// Draws the chart at the origin.
pub(crate) fn draw(svg: &mut Svg, subject: Subject<'_>, format: Format) {
    let chart = subject.chart;
    let top = frame::title(svg, &chart.title, format) + 10.0;
    let cases = cases(chart);
    let columns = columns(chart, format);
    let steps = if format == Format::Wide { 5 } else { 3 };
    let scale = Scale::of(chart, steps);
    let x = |value: f64| {
        columns.bars_left + scale.place(value) * (columns.bars_right - columns.bars_left)
    };
    let bottom = top + cases.len() as f64 * columns.row;
    for (value, text) in &scale.ticks {
        line(svg, class("grid"), (x(*value), top), (x(*value), bottom));
        let shown = if *value == 0.0 { "0".to_owned() } else { format!("{text} {}", scale.unit) };
        let anchor = if *value == 0.0 { "tick num" } else { "tick num middle" };
        svg.text("text", &class(anchor).px([("x", x(*value)), ("y", bottom + 18.0)]), &shown);
    }
    for (row, case) in cases.iter().enumerate() {
        let top = top + row as f64 * columns.row;
        let label = Attributes::default().px(if columns.stacked {
            [("x", 0.0), ("y", top + 16.0)]
        } else {
            [("x", 0.0), ("y", top + columns.row / 2.0 + 4.5)]
        });
        svg.text("text", &label, &case.label);
        let middle = if columns.stacked { top + 32.0 } else { top + columns.row / 2.0 };
        bar(svg, subject, case, (x(0.0), &x), &scale, middle);
    }
    // After all bars, so that none covers a tooltip.
    for (row, case) in cases.iter().enumerate() {
        let top = top + row as f64 * columns.row;
        let card = card(subject, case);
        let hit = [("x", 0.0), ("y", top), ("width", format.width()), ("height", columns.row)];
        tips::spot(svg, hit, &card, |svg| {
            // Below the bar, or above it at the end of the chart.
            let below = top + columns.row;
            let is_last = below + card.height() > bottom + 30.0;
            let top = if is_last { (top - card.height()).max(0.0) } else { below };
            card.draw(svg, (columns.bars_left + 24.0, top), format);
        });
    }
}

/// Returns the tooltip of a bar.
fn card(subject: Subject<'_>, case: &Bar<'_>) -> Card {
    let (unit, cell) = (subject.chart.unit, case.cell);
    let series = cell.samples.len();
    let mut rows = vec![tips::words(unit, cell)];
    // Older reports have none.
    if cell.operations > 0 {
        rows.push(format!("measured {} times in {series} series", cell.operations));
    }
    let curve = &subject.chart.curves[case.curve];
    rows.extend(
        subject.old(&curve.name, &cell.label).map(|old| format!("{} before", unit.show(old))),
    );
    Card { heading: case.label.clone(), rows: rows.into_iter().map(|row| (None, row)).collect() }
}

fn bar(
    svg: &mut Svg,
    subject: Subject<'_>,
    case: &Bar<'_>,
    (zero, x): (f64, &dyn Fn(f64) -> f64),
    scale: &Scale,
    middle: f64,
) {
    let Some(summary) = case.cell.summary() else { return };
    let unit = subject.chart.unit;
    let (left, right) = (x(summary.least), x(summary.most));
    svg.group("g", &class("case"), |svg| {
        let width = (x(summary.median) - zero).max(1.0);
        let place = [
            ("x", zero),
            ("y", middle - BAR / 2.0),
            ("width", width),
            ("height", BAR),
            ("rx", 2.0),
        ];
        svg.empty("rect", &of_curve(case.curve, "bar").px(place));
        line(svg, class("whisker"), (left, middle), (right, middle));
        for (end, value) in [(left, summary.least), (right, summary.most)] {
            if scale.is_beyond(value) {
                // An arrow: the range goes on beyond the axis.
                line(svg, class("whisker"), (end - 5.0, middle - 4.0), (end, middle));
                line(svg, class("whisker"), (end - 5.0, middle + 4.0), (end, middle));
            } else {
                line(svg, class("whisker"), (end, middle - 4.0), (end, middle + 4.0));
            }
        }
        let curve = &subject.chart.curves[case.curve];
        if let Some(old) = subject.old(&curve.name, &case.cell.label) {
            let old = x(old);
            line(svg, of_curve(case.curve, "old"), (old, middle - 12.0), (old, middle + 12.0));
        }
        let noisy = if case.cell.noisy { " ~" } else { "" };
        let figure = format!("{}{noisy}", unit.show(summary.median));
        let place = [("x", right.max(zero + width) + 8.0), ("y", middle + 4.5)];
        svg.text("text", &class("note num").px(place), &figure);
    });
}
