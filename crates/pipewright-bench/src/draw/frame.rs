//! The common parts of charts: widths, titles and legends.

use super::marks::{mark, of_curve};
use super::palette::letter;
use super::svg::{Attributes, Svg, class};
use crate::report::{Chart, Comparison};

/// The format of a chart. Narrow screens have their own, because text must not shrink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Wide,
    Narrow,
}

/// The chart to draw, and its comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) chart: &'a Chart,
    pub(crate) comparison: Option<&'a Comparison>,
}

/// The approximate width of a character: text cannot be measured here.
pub(super) const CHARACTER: f64 = 7.0;

const LEGEND_ROW: f64 = 21.0;
const TITLE_ROW: f64 = 24.0;

impl Format {
    pub(crate) fn width(self) -> f64 {
        match self {
            Format::Wide => 880.0,
            Format::Narrow => 400.0,
        }
    }
}

impl Subject<'_> {
    /// Returns the older figure of a cell.
    pub(super) fn old(&self, curve: &str, label: &str) -> Option<f64> {
        let cells = &self.comparison?.cells;
        let is_it = |cell: &&crate::report::Compared| {
            cell.chart == self.chart.id && cell.curve == curve && cell.label == label
        };
        cells.iter().find(is_it).map(|cell| cell.old_median)
    }
}

/// Draws the title, in several rows if needed, and returns its height.
pub(super) fn title(svg: &mut Svg, text: &str, format: Format) -> f64 {
    let rows = wrap(text, (format.width() / (CHARACTER * 1.25)) as usize);
    let mut bottom = 0.0;
    for row in rows {
        bottom += TITLE_ROW;
        svg.text("text", &class("title").px([("x", 0.0), ("y", bottom - 4.0)]), &row);
    }
    bottom
}

/// Returns the height of the title.
pub(super) fn title_height(text: &str, format: Format) -> f64 {
    wrap(text, (format.width() / (CHARACTER * 1.25)) as usize).len() as f64 * TITLE_ROW
}

/// Wraps text at that many characters.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 1 + word.chars().count() <= most => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows
}

/// The legend: the positions of the names of the curves, and its height.
pub(super) struct Legend {
    places: Vec<(f64, f64)>,
    pub(super) height: f64,
}

const SWATCH: f64 = 26.0;
const GAP: f64 = 22.0;

impl Legend {
    pub(super) fn of(chart: &Chart, format: Format) -> Legend {
        let (mut x, mut y) = (0.0, 0.0);
        let mut places = Vec::new();
        for curve in &chart.curves {
            let width = SWATCH + (curve.name.chars().count() + 4) as f64 * CHARACTER + GAP;
            if x > 0.0 && (format == Format::Narrow || x + width - GAP > format.width()) {
                (x, y) = (0.0, y + LEGEND_ROW);
            }
            places.push((x, y));
            x += width;
        }
        Legend { places, height: y + LEGEND_ROW + 6.0 }
    }

    pub(super) fn draw(&self, svg: &mut Svg, chart: &Chart, top: f64) {
        for (index, (curve, (x, y))) in chart.curves.iter().zip(&self.places).enumerate() {
            let middle = top + y + LEGEND_ROW / 2.0;
            let line = of_curve(index, "median");
            let ends = [("x1", *x), ("y1", middle), ("x2", x + SWATCH - 6.0), ("y2", middle)];
            svg.empty("line", &line.px(ends));
            mark(svg, index, (x + (SWATCH - 6.0) / 2.0, middle), false);
            let label = format!("{}  {}", letter(index), curve.name);
            let place = [("x", x + SWATCH), ("y", middle + 4.5)];
            svg.text("text", &Attributes::default().px(place), &label);
        }
    }
}
