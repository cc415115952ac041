//! A line chart over block sizes as SVG: bands for the ranges, and thick lines for the medians.

use super::axis::{BlockAxis, Scale};
use super::frame::{self, CHARACTER, Format, Legend, Subject};
use super::marks::{mark, of_curve, points};
use super::palette::letter;
use super::plot::{ChartLayout, Plot};
use super::svg::{Svg, class};
use super::tips;
use crate::report::{Cell, Curve};
use crate::units;

/// With more points than these, not every point has a mark.
const MOST_MARKS: usize = 26;

const BELOW: f64 = 44.0;

/// Returns the height of the chart.
pub(crate) fn height(subject: &Subject<'_>, format: Format) -> f64 {
    plot(subject, format).bottom + BELOW
}

fn plot(subject: &Subject<'_>, format: Format) -> Plot {
    let title = frame::title_height(&subject.chart.title, format);
    let top = title + Legend::of(subject.chart, format).height + 24.0;
    let tall = if format == Format::Wide { 330.0 } else { 270.0 };
    // Labels of a logarithmic scale include the unit.
    let left = if Scale::of(subject.chart, 5).is_logarithmic() { 70.0 } else { 42.0 };
    Plot { left, right: format.width() - 22.0, top, bottom: top + tall }
}

/// Draws the chart at the origin.
pub(crate) fn draw(svg: &mut Svg, subject: Subject<'_>, format: Format) {
    let Some(blocks) = BlockAxis::of(subject.chart) else { return };
    let scale = Scale::of(subject.chart, 5);
    let chart = ChartLayout { subject, format, plot: plot(&subject, format), blocks, scale };
    let bottom = frame::title(svg, &subject.chart.title, format);
    Legend::of(subject.chart, format).draw(svg, subject.chart, bottom);
    chart.grid(svg);
    chart.references(svg);
    let curves = || subject.chart.curves.iter().enumerate();
    for (index, curve) in curves() {
        chart.spread(svg, index, curve);
    }
    for (index, curve) in curves() {
        chart.median(svg, index, curve);
    }
    chart.letters(svg);
    chart.best(svg);
    tips::draw(svg, &chart);
}

impl ChartLayout<'_> {
    fn grid(&self, svg: &mut Svg) {
        let Plot { left, right, top, bottom } = self.plot;
        svg.text("text", &class("unit").px([("x", 0.0), ("y", top - 14.0)]), self.scale.unit);
        for (value, text) in &self.scale.ticks {
            let y = self.y(*value);
            svg.empty(
                "line",
                &class("grid").px([("x1", left), ("y1", y), ("x2", right), ("y2", y)]),
            );
            let place = [("x", left - 8.0), ("y", y + 4.0)];
            svg.text("text", &class("tick num end").px(place), text);
        }
        let most = if self.format == Format::Wide { 16 } else { 8 };
        for (place, text) in self.blocks.ticks(most) {
            let x = left + place * (right - left);
            let ends = [("x1", x), ("y1", bottom), ("x2", x), ("y2", bottom + 5.0)];
            svg.empty("line", &class("axis").px(ends));
            svg.text("text", &class("tick num middle").px([("x", x), ("y", bottom + 19.0)]), &text);
        }
        let ends = [("x1", left), ("y1", bottom), ("x2", right), ("y2", bottom)];
        svg.empty("line", &class("axis").px(ends));
        let place = [("x", right), ("y", bottom + 37.0)];
        svg.text("text", &class("unit end").px(place), "block size in bytes");
    }

    fn references(&self, svg: &mut Svg) {
        let mut free = f64::NEG_INFINITY;
        let mut references: Vec<_> = self.subject.chart.references.iter().collect();
        references.sort_by(|a, b| b.value.total_cmp(&a.value));
        for reference in references {
            let y = self.y(reference.value);
            let Plot { left, right, .. } = self.plot;
            let ends = [("x1", left), ("y1", y), ("x2", right), ("y2", y)];
            svg.empty("line", &class("reference").px(ends));
            let label = format!("{}, {}", reference.label, self.show(reference.value));
            // Labels that are close together go below each other, on the left, away from rising curves.
            let base = (y - 4.0).max(free);
            free = base + 14.0;
            let place = [("x", left + 8.0), ("y", base)];
            svg.text("text", &class("reference-label").px(place), &label);
        }
    }

    /// Returns the measured points of a curve.
    fn measured<'c>(&self, curve: &'c Curve) -> Vec<(u64, &'c Cell)> {
        let cells = curve.cells.iter().filter(|cell| cell.median.is_some());
        cells.filter_map(|cell| Some((cell.block_bytes?, cell))).collect()
    }

    /// Draws the band of the range, and the single series if there are few curves.
    fn spread(&self, svg: &mut Svg, index: usize, curve: &Curve) {
        let cells = self.measured(curve);
        let edge = |of: fn(&Cell) -> Option<f64>| {
            let places =
                cells.iter().filter_map(|(bytes, cell)| Some((self.x(*bytes), self.y(of(cell)?))));
            places.collect::<Vec<_>>()
        };
        let mut band = edge(|cell| cell.most);
        band.extend(edge(|cell| cell.least).into_iter().rev());
        if cells.len() > 1 {
            svg.empty("polygon", &of_curve(index, "band").with("points", points(&band)));
        }
        const FEW_CURVES: usize = 2;
        const FEW_SERIES: usize = 5;
        let series = cells.iter().map(|(_, cell)| cell.samples.len()).min().unwrap_or(0);
        if self.subject.chart.curves.len() > FEW_CURVES || !(2..=FEW_SERIES).contains(&series) {
            return;
        }
        for number in 0..series {
            let places = cells.iter().filter_map(|(bytes, cell)| {
                Some((self.x(*bytes), self.y(*cell.samples.get(number)?)))
            });
            let places: Vec<_> = places.collect();
            svg.empty("polyline", &of_curve(index, "series").with("points", points(&places)));
        }
    }

    fn median(&self, svg: &mut Svg, index: usize, curve: &Curve) {
        let cells = self.measured(curve);
        let old: Vec<_> = cells
            .iter()
            .filter_map(|(bytes, cell)| {
                Some((self.x(*bytes), self.y(self.subject.old(&curve.name, &cell.label)?)))
            })
            .collect();
        if old.len() > 1 {
            svg.empty("polyline", &of_curve(index, "old").with("points", points(&old)));
        }
        let places: Vec<_> = cells
            .iter()
            .filter_map(|(bytes, cell)| Some((self.x(*bytes), self.y(cell.median?))))
            .collect();
        svg.empty("polyline", &of_curve(index, "median").with("points", points(&places)));
        let each = cells.len().div_ceil(MOST_MARKS).max(1);
        for (number, ((_, cell), place)) in cells.iter().zip(places).enumerate() {
            if number % each == 0 || cell.noisy {
                mark(svg, index, place, cell.noisy);
            }
        }
    }

    /// Draws a letter at the end of each curve, with a minimum distance.
    fn letters(&self, svg: &mut Svg) {
        const APART: f64 = 13.0;
        let mut ends: Vec<(f64, f64, usize)> = Vec::new();
        for (index, curve) in self.subject.chart.curves.iter().enumerate() {
            if let Some((bytes, cell)) = self.measured(curve).last() {
                ends.push((self.x(*bytes), self.y(cell.median.unwrap_or(0.0)), index));
            }
        }
        ends.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut free = f64::NEG_INFINITY;
        for (x, y, index) in ends {
            let y = y.max(free);
            free = y + APART;
            let place = [("x", x + 9.0), ("y", y + 4.5)];
            let attributes = of_curve(index, "note").px(place).with("style", "fill:var(--c)");
            svg.text("text", &attributes, &letter(index).to_string());
        }
    }

    /// Draws a ring around the best point, with its figure.
    fn best(&self, svg: &mut Svg) {
        let chart = self.subject.chart;
        let Some((_, cell, summary)) = chart.best() else { return };
        let Some(bytes) = cell.block_bytes else { return };
        let (x, y) = (self.x(bytes), self.y(summary.median));
        svg.empty("circle", &class("best").px([("cx", x), ("cy", y), ("r", 8.0)]));
        let text = format!("{}, {}", units::bytes(bytes), self.show(summary.median));
        let half = text.chars().count() as f64 * CHARACTER / 2.0;
        let middle = x.clamp(self.plot.left + half, self.plot.right - half);
        let place = [("x", middle), ("y", y - 14.0)];
        svg.text("text", &class("note num middle").px(place), &text);
    }
}
