//! The figures at a block size, which appear when the pointer or the keyboard is there: by CSS alone,
//! so that they work where no script does.

use super::super::report::Cell;
use super::super::units;
use super::frame::of_curve;
use super::lines::{Chart, line, mark};
use super::palette::letter;
use super::svg::{Attributes, Svg, class};

const ROW: f64 = 19.0;
const PADDING: f64 = 10.0;

/// A column over each block size.
pub(super) fn draw(svg: &mut Svg, chart: &Chart<'_>) {
    let sizes = chart.blocks.sizes();
    for (index, bytes) in sizes.iter().enumerate() {
        let x = chart.x(*bytes);
        // From half-way to the one before to half-way to the next.
        let before = index.checked_sub(1).and_then(|index| sizes.get(index));
        let left = before.map_or(chart.plot.left - 12.0, |before| (chart.x(*before) + x) / 2.0);
        let next = sizes.get(index + 1);
        let right = next.map_or(chart.plot.right + 12.0, |next| (chart.x(*next) + x) / 2.0);
        column(svg, chart, *bytes, (left, right));
    }
}

fn column(svg: &mut Svg, chart: &Chart<'_>, bytes: u64, (left, right): (f64, f64)) {
    let curves = chart.subject.chart.curves.iter().enumerate();
    let cells: Vec<(usize, &Cell, f64)> = curves
        .filter_map(|(index, curve)| {
            let cell = curve.cells.iter().find(|cell| cell.block_bytes == Some(bytes))?;
            Some((index, cell, cell.median?))
        })
        .collect();
    let said: Vec<String> = cells.iter().map(|(_, cell, _)| words(chart, cell)).collect();
    let label = format!("{}: {}", units::bytes(bytes), said.join("; "));
    let group = class("column").with("tabindex", 0).with("role", "img").with("aria-label", label);
    svg.group("g", &group, |svg| {
        let (top, bottom) = (chart.plot.top, chart.plot.bottom);
        let hit = [("x", left), ("y", top), ("width", right - left), ("height", bottom - top)];
        svg.empty("rect", &class("hit").px(hit));
        svg.group("g", &class("tip"), |svg| tip(svg, chart, bytes, &cells));
    });
}

fn words(chart: &Chart<'_>, cell: &Cell) -> String {
    let [median, least, most] = [cell.median, cell.least, cell.most].map(Option::unwrap_or_default);
    let spread = format!("({} to {})", chart.show(least), chart.show(most));
    format!("{}{} {spread}", chart.show(median), if cell.noisy { " ~" } else { "" })
}

fn tip(svg: &mut Svg, chart: &Chart<'_>, bytes: u64, cells: &[(usize, &Cell, f64)]) {
    let x = chart.x(bytes);
    line(svg, class("rule"), (x, chart.plot.top), (x, chart.plot.bottom));
    for (index, cell, median) in cells {
        mark(svg, *index, (x, chart.y(*median)), cell.noisy);
    }
    let rows: Vec<String> = cells.iter().map(|(_, cell, _)| words(chart, cell)).collect();
    let longest = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
    let width = 2.0 * PADDING + 22.0 + longest as f64 * 7.0;
    let height = 2.0 * PADDING + (rows.len() + 1) as f64 * ROW - 6.0;
    // Beside the line, on the side where there is more room, and never beyond the picture.
    let is_left = x > (chart.plot.left + chart.plot.right) / 2.0;
    let left = if is_left { x - 14.0 - width } else { x + 14.0 };
    let left = left.clamp(0.0, (chart.format.width() - width).max(0.0));
    // At the bottom it would lie on the low ends of the curves, which most have.
    let top = chart.plot.top + 6.0;
    let place = [("x", left), ("y", top), ("width", width), ("height", height), ("rx", 6.0)];
    svg.empty("rect", &class("box").px(place));
    let heading = [("x", left + PADDING), ("y", top + PADDING + 10.0)];
    let bold = Attributes::default().with("font-weight", 600).px(heading);
    svg.text("text", &bold, &units::bytes(bytes));
    for (row, ((index, ..), text)) in cells.iter().zip(&rows).enumerate() {
        let base = top + PADDING + 10.0 + (row + 1) as f64 * ROW;
        let at = [("x", left + PADDING), ("y", base)];
        let coloured =
            of_curve(*index, "num").with("style", "fill:var(--c);font-weight:600").px(at);
        svg.text("text", &coloured, &letter(*index).to_string());
        svg.text("text", &class("num").px([("x", left + PADDING + 22.0), ("y", base)]), text);
    }
}
