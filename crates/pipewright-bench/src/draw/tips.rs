//! Tooltips: the figures of a block size or a case, shown for the pointer and for the keyboard focus. They use CSS alone,
//! so that they work without scripts.

use super::frame::{CHARACTER, Format};
use super::marks::{line, mark, of_curve};
use super::palette::letter;
use super::plot::ChartLayout;
use super::svg::{Attributes, Svg, class};
use crate::report::Cell;
use crate::units::{self, Unit};

const ROW: f64 = 19.0;
const PADDING: f64 = 10.0;
/// The space for the letter of a curve.
const LETTER: f64 = 22.0;

/// Draws a column over each block size, with its tooltip.
pub(super) fn draw(svg: &mut Svg, chart: &ChartLayout<'_>) {
    let sizes = chart.blocks.sizes();
    for (index, bytes) in sizes.iter().enumerate() {
        let x = chart.x(*bytes);
        // From halfway to the previous size to halfway to the next.
        let before = index.checked_sub(1).and_then(|index| sizes.get(index));
        let left = before.map_or(chart.plot.left - 12.0, |before| (chart.x(*before) + x) / 2.0);
        let next = sizes.get(index + 1);
        let right = next.map_or(chart.plot.right + 12.0, |next| (chart.x(*next) + x) / 2.0);
        column(svg, chart, *bytes, (left, right));
    }
}

fn column(svg: &mut Svg, chart: &ChartLayout<'_>, bytes: u64, (left, right): (f64, f64)) {
    let curves = chart.subject.chart.curves.iter().enumerate();
    let cells: Vec<(usize, &Cell, f64)> = curves
        .filter_map(|(index, curve)| {
            let cell = curve.cells.iter().find(|cell| cell.block_bytes == Some(bytes))?;
            Some((index, cell, cell.median?))
        })
        .collect();
    let unit = chart.subject.chart.unit;
    let rows = cells.iter().map(|(curve, cell, _)| (Some(*curve), words(unit, cell)));
    let card = Card { heading: units::bytes(bytes), rows: rows.collect() };
    let (top, bottom) = (chart.plot.top, chart.plot.bottom);
    let hit = [("x", left), ("y", top), ("width", right - left), ("height", bottom - top)];
    spot(svg, hit, &card, |svg| {
        let x = chart.x(bytes);
        line(svg, class("rule"), (x, top), (x, bottom));
        for (curve, cell, median) in &cells {
            mark(svg, *curve, (x, chart.y(*median)), cell.noisy);
        }
        // Beside the line, on the side with more space.
        let is_left = x > (chart.plot.left + chart.plot.right) / 2.0;
        let left = if is_left { x - 14.0 - card.width() } else { x + 14.0 };
        // At the top: most curves have low ends, which it would cover at the bottom.
        card.draw(svg, (left, top + 6.0), chart.format);
    });
}

/// Formats a figure with its range.
pub(super) fn words(unit: Unit, cell: &Cell) -> String {
    let [median, least, most] = [cell.median, cell.least, cell.most].map(Option::unwrap_or_default);
    let spread = format!("({} to {})", unit.show(least), unit.show(most));
    format!("{}{} {spread}", unit.show(median), if cell.noisy { " ~" } else { "" })
}

/// Draws an area that shows a tooltip for pointer and keyboard, and has its text for screen readers.
pub(super) fn spot(svg: &mut Svg, hit: [(&str, f64); 4], card: &Card, tip: impl FnOnce(&mut Svg)) {
    let group = class("spot").with("tabindex", 0).with("role", "img");
    svg.group("g", &group.with("aria-label", card.label()), |svg| {
        svg.empty("rect", &class("hit").px(hit));
        svg.group("g", &class("tip"), tip);
    });
}

/// A tooltip: a heading, and lines that may belong to curves.
pub(super) struct Card {
    pub(super) heading: String,
    pub(super) rows: Vec<(Option<usize>, String)>,
}

impl Card {
    fn label(&self) -> String {
        let rows: Vec<&str> = self.rows.iter().map(|(_, words)| words.as_str()).collect();
        format!("{}: {}", self.heading, rows.join("; "))
    }

    /// Returns the indentation of the lines.
    fn indent(&self) -> f64 {
        if self.rows.iter().any(|(curve, _)| curve.is_some()) { LETTER } else { 0.0 }
    }

    pub(super) fn width(&self) -> f64 {
        let longest = self.rows.iter().map(|(_, words)| words.chars().count()).max().unwrap_or(0);
        // Bold, so a little wider.
        let heading = self.heading.chars().count() as f64 * CHARACTER * 1.1;
        2.0 * PADDING + heading.max(self.indent() + longest as f64 * CHARACTER)
    }

    pub(super) fn height(&self) -> f64 {
        2.0 * PADDING + (self.rows.len() + 1) as f64 * ROW - 6.0
    }

    /// Draws the tooltip at a position, moved so that it stays inside the picture.
    pub(super) fn draw(&self, svg: &mut Svg, (left, top): (f64, f64), format: Format) {
        let (width, height) = (self.width(), self.height());
        let left = left.clamp(0.0, (format.width() - width).max(0.0));
        let place = [("x", left), ("y", top), ("width", width), ("height", height), ("rx", 6.0)];
        svg.empty("rect", &class("box").px(place));
        let x = left + PADDING;
        let base = |row: usize| top + PADDING + 10.0 + row as f64 * ROW;
        let bold = Attributes::default().with("font-weight", 600).px([("x", x), ("y", base(0))]);
        svg.text("text", &bold, &self.heading);
        for (row, (curve, words)) in self.rows.iter().enumerate() {
            let y = base(row + 1);
            if let Some(curve) = curve {
                let colored =
                    of_curve(*curve, "num").with("style", "fill:var(--c);font-weight:600");
                let at = [("x", x), ("y", y)];
                svg.text("text", &colored.px(at), &letter(*curve).to_string());
            }
            let at = [("x", x + self.indent()), ("y", y)];
            svg.text("text", &class("num").px(at), words);
        }
    }
}
