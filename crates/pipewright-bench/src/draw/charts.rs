//! Charts as SVG: lines over block sizes, with bands for the ranges; bars for cases, with whiskers; title, legend and
//! tooltips of both.

use super::{Attributes, BlockAxis, Scale, Svg, class, letter, line, mark, of_curve, points};
use crate::report::{Cell, Chart, Comparison, Curve};
use crate::units::{self, Unit};

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
const CHARACTER: f64 = 7.0;

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
    fn old(&self, curve: &Curve, cell: &Cell) -> Option<f64> {
        Some(self.comparison?.of_cell(self.chart, curve, cell)?.old_median)
    }
}

/// Draws the title, in several rows if needed, and returns its height.
fn title(svg: &mut Svg, text: &str, format: Format) -> f64 {
    let mut bottom = 0.0;
    for row in title_rows(text, format).lines() {
        bottom += TITLE_ROW;
        svg.text("text", &class("title").px([("x", 0.0), ("y", bottom - 4.0)]), row);
    }
    bottom
}

fn title_height(text: &str, format: Format) -> f64 {
    title_rows(text, format).lines().count() as f64 * TITLE_ROW
}

fn title_rows(text: &str, format: Format) -> String {
    // Titles are larger than other text.
    units::wrap(text, (format.width() / (CHARACTER * 1.25)) as usize, "")
}

/// The legend: the positions of the names of the curves, and its height.
struct Legend {
    places: Vec<(f64, f64)>,
    height: f64,
}

const SWATCH: f64 = 26.0;
const GAP: f64 = 22.0;

impl Legend {
    fn of(chart: &Chart, format: Format) -> Legend {
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

    fn draw(&self, svg: &mut Svg, chart: &Chart, top: f64) {
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

/// The area of the curves.
#[derive(Debug, Clone, Copy)]
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// A chart with its scales, ready to be drawn.
struct ChartLayout<'a> {
    subject: Subject<'a>,
    format: Format,
    plot: Plot,
    blocks: BlockAxis,
    scale: Scale,
}

impl ChartLayout<'_> {
    /// Returns the horizontal place of a block size.
    fn x(&self, bytes: u64) -> f64 {
        self.plot.left + self.blocks.place(bytes) * (self.plot.right - self.plot.left)
    }

    /// Returns the vertical place of a figure.
    fn y(&self, value: f64) -> f64 {
        self.plot.bottom - self.scale.place(value) * (self.plot.bottom - self.plot.top)
    }

    /// Returns a figure with its unit.
    fn show(&self, value: f64) -> String {
        self.subject.chart.unit.show(value)
    }
}

/// With more points than these, not every point has a mark.
const MOST_MARKS: usize = 26;

const BELOW: f64 = 44.0;

/// The height of a row of the label of the best point.
const BEST_ROW: f64 = 16.0;

/// Returns the height of the chart.
pub(crate) fn lines_height(subject: &Subject<'_>, format: Format) -> f64 {
    plot(subject, format).bottom + BELOW
}

fn plot(subject: &Subject<'_>, format: Format) -> Plot {
    let title = title_height(&subject.chart.title, format);
    // The label of the best point may be above the highest tick.
    let above = if format == Format::Wide { 24.0 } else { 24.0 + BEST_ROW };
    let top = title + Legend::of(subject.chart, format).height + above;
    let tall = if format == Format::Wide { 330.0 } else { 270.0 };
    // Labels of a logarithmic scale include the unit.
    let left = if Scale::of(subject.chart, 5).is_logarithmic() { 70.0 } else { 42.0 };
    Plot { left, right: format.width() - 22.0, top, bottom: top + tall }
}

/// Draws the chart at the origin.
pub(crate) fn draw_lines(svg: &mut Svg, subject: Subject<'_>, format: Format) {
    let Some(blocks) = BlockAxis::of(subject.chart) else { return };
    let scale = Scale::of(subject.chart, 5);
    let chart = ChartLayout { subject, format, plot: plot(&subject, format), blocks, scale };
    let bottom = title(svg, &subject.chart.title, format);
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
    draw_spots(svg, &chart);
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
                Some((self.x(*bytes), self.y(self.subject.old(curve, cell)?)))
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

    /// Draws a ring around the best point, with its curve and its figure. A noisy point leads no chart.
    fn best(&self, svg: &mut Svg) {
        let chart = self.subject.chart;
        let Some((curve, cell, summary)) = chart.best() else { return };
        let Some(bytes) = cell.block_bytes.filter(|_| !summary.is_noisy()) else { return };
        let (x, y) = (self.x(bytes), self.y(summary.median));
        svg.empty("circle", &class("best").px([("cx", x), ("cy", y), ("r", 8.0)]));
        let figure = format!("{}, {}", units::bytes(bytes), self.show(summary.median));
        let rows = match chart.curves.len() {
            1 => vec![figure],
            _ if self.format == Format::Wide => vec![format!("{}: {figure}", curve.name)],
            _ => vec![figure, curve.name.clone()],
        };
        let longest = rows.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let half = longest as f64 * CHARACTER / 2.0;
        let middle = x.min(self.plot.right - half).max(self.plot.left + half);
        // Above every other point that it would cover.
        let points = chart.curves.iter().flat_map(|curve| self.measured(curve));
        let covered = points.filter(|(bytes, _)| (self.x(*bytes) - middle).abs() < half);
        let tops = covered.filter_map(|(_, cell)| Some(self.y(cell.median?) + 4.0));
        let near = tops.filter(|top| *top > y - 14.0 - BEST_ROW * rows.len() as f64);
        let base = near.fold(y, f64::min).max(self.plot.top) - 14.0;
        for (row, text) in rows.iter().enumerate() {
            let place = [("x", middle), ("y", base - row as f64 * BEST_ROW)];
            svg.text("text", &class("note num middle").px(place), text);
        }
    }
}

const BAR: f64 = 16.0;

struct Bar<'a> {
    curve: usize,
    label: String,
    cell: &'a Cell,
}

/// Returns the measured cases with their labels, which name the curve if there are several.
fn cases(chart: &Chart) -> Vec<Bar<'_>> {
    let curves = chart.curves.iter().enumerate();
    let cases = curves.flat_map(|(index, curve)| {
        curve.cells.iter().map(move |cell| Bar {
            curve: index,
            label: chart.case_label(curve, cell),
            cell,
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
pub(crate) fn bars_height(subject: &Subject<'_>, format: Format) -> f64 {
    let rows = cases(subject.chart).len() as f64 * columns(subject.chart, format).row;
    title_height(&subject.chart.title, format) + 10.0 + rows + 30.0
}

/// Draws the chart at the origin.
pub(crate) fn draw_bars(svg: &mut Svg, subject: Subject<'_>, format: Format) {
    let chart = subject.chart;
    let top = title(svg, &chart.title, format) + 10.0;
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
        spot(svg, hit, &card, |svg| {
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
    let mut rows = vec![words(unit, cell)];
    // Older reports have none.
    if cell.operations > 0 {
        rows.push(format!("measured {} times in {series} series", cell.operations));
    }
    let curve = &subject.chart.curves[case.curve];
    rows.extend(subject.old(curve, cell).map(|old| format!("{} before", unit.show(old))));
    let row = |words: String| Row { curve: None, shown: words.clone(), said: words };
    Card { heading: case.label.clone(), rows: rows.into_iter().map(row).collect() }
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
        if let Some(old) = subject.old(curve, case.cell) {
            let old = x(old);
            line(svg, of_curve(case.curve, "old"), (old, middle - 12.0), (old, middle + 12.0));
        }
        let noisy = if case.cell.noisy { " ~" } else { "" };
        let figure = format!("{}{noisy}", unit.show(summary.median));
        let place = [("x", right.max(zero + width) + 8.0), ("y", middle + 4.5)];
        svg.text("text", &class("note num").px(place), &figure);
    });
}

// Tooltips: the figures of a block size or a case, shown for the pointer and for the keyboard focus. They use CSS
// alone, so that they work without scripts.

const ROW: f64 = 19.0;
const PADDING: f64 = 10.0;
/// The space for the letter of a curve.
const LETTER: f64 = 22.0;

/// Draws a column over each block size, with its tooltip.
fn draw_spots(svg: &mut Svg, chart: &ChartLayout<'_>) {
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
    let rows = cells.iter().map(|(curve, cell, _)| {
        let figure = words(unit, cell);
        let name = &chart.subject.chart.curves[*curve].name;
        let said = format!("{name}, {figure}");
        // A narrow tooltip has room for the letter only.
        let shown = if chart.format == Format::Wide { said.clone() } else { figure };
        Row { curve: Some(*curve), shown, said }
    });
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
fn words(unit: Unit, cell: &Cell) -> String {
    let [median, least, most] = [cell.median, cell.least, cell.most].map(Option::unwrap_or_default);
    let spread = format!("({} to {})", unit.show(least), unit.show(most));
    format!("{}{} {spread}", unit.show(median), if cell.noisy { " ~" } else { "" })
}

/// Draws an area that shows a tooltip for pointer and keyboard, and has its text for screen readers.
fn spot(svg: &mut Svg, hit: [(&str, f64); 4], card: &Card, tip: impl FnOnce(&mut Svg)) {
    let group = class("spot").with("tabindex", 0).with("role", "img");
    svg.group("g", &group.with("aria-label", card.label()), |svg| {
        svg.empty("rect", &class("hit").px(hit));
        svg.group("g", &class("tip"), tip);
    });
}

/// A tooltip: a heading, and lines that may belong to curves.
struct Card {
    heading: String,
    rows: Vec<Row>,
}

/// A line of a tooltip.
struct Row {
    /// The curve whose letter it begins with.
    curve: Option<usize>,
    shown: String,
    /// The words for a screen reader, which does not see letters beside a legend.
    said: String,
}

impl Card {
    fn label(&self) -> String {
        let rows: Vec<&str> = self.rows.iter().map(|row| row.said.as_str()).collect();
        format!("{}: {}", self.heading, rows.join("; "))
    }

    /// Returns the indentation of the lines.
    fn indent(&self) -> f64 {
        if self.rows.iter().any(|row| row.curve.is_some()) { LETTER } else { 0.0 }
    }

    fn width(&self) -> f64 {
        let longest = self.rows.iter().map(|row| row.shown.chars().count()).max().unwrap_or(0);
        // Bold, so a little wider.
        let heading = self.heading.chars().count() as f64 * CHARACTER * 1.1;
        2.0 * PADDING + heading.max(self.indent() + longest as f64 * CHARACTER)
    }

    fn height(&self) -> f64 {
        2.0 * PADDING + (self.rows.len() + 1) as f64 * ROW - 6.0
    }

    /// Draws the tooltip at a position, moved so that it stays inside the picture.
    fn draw(&self, svg: &mut Svg, (left, top): (f64, f64), format: Format) {
        let (width, height) = (self.width(), self.height());
        let left = left.clamp(0.0, (format.width() - width).max(0.0));
        let place = [("x", left), ("y", top), ("width", width), ("height", height), ("rx", 6.0)];
        svg.empty("rect", &class("box").px(place));
        let x = left + PADDING;
        let base = |row: usize| top + PADDING + 10.0 + row as f64 * ROW;
        let bold = Attributes::default().with("font-weight", 600).px([("x", x), ("y", base(0))]);
        svg.text("text", &bold, &self.heading);
        for (index, Row { curve, shown, .. }) in self.rows.iter().enumerate() {
            let y = base(index + 1);
            if let Some(curve) = curve {
                let colored =
                    of_curve(*curve, "num").with("style", "fill:var(--c);font-weight:600");
                let at = [("x", x), ("y", y)];
                svg.text("text", &colored.px(at), &letter(*curve).to_string());
            }
            let at = [("x", x + self.indent()), ("y", y)];
            svg.text("text", &class("num").px(at), shown);
        }
    }
}
