//! Drawing: scales, which map figures to positions, with their round tick values; and SVG as text, with the same
//! numbers on every system: escaped elements, and the colors, lines and marks of curves.
//!
//! All of it are pure functions of the report, so that tests can compare the output byte for byte.

pub(super) mod charts;

use std::fmt::{self, Write as _};

use crate::report::{Axis, Chart, Curve};
use crate::stats::{exponent_of_ten, log2, power_of_ten, range};
use crate::units::{Unit, short_bytes};

/// An axis of figures: linear from 0 to a round figure, or logarithmic between two round figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// The ticks, with their labels.
    pub(crate) ticks: Vec<(f64, String)>,
    /// The unit of the labels.
    pub(crate) unit: &'static str,
}

impl Scale {
    /// Creates a scale from 0 to the next round figure.
    fn linear(unit: Unit, most: f64, steps: usize) -> Scale {
        let (divisor, name) = unit.scale(most);
        let most = if most > 0.0 { most / divisor } else { 1.0 };
        let step = round_step(most / steps as f64);
        let count = (most / step - 1e-9).ceil().max(1.0);
        // As many decimals as the step has.
        let is_whole = |decimals: &i32| {
            let scaled = step * power_of_ten(*decimals);
            (scaled - scaled.round()).abs() < 1e-6
        };
        let decimals = (0..4).find(is_whole).unwrap_or(4);
        let tick = |number: usize| {
            let value = number as f64 * step;
            (value * divisor, format!("{value:.*}", decimals as usize))
        };
        let ticks = (0..=count as usize).map(tick).collect();
        Scale { low: 0.0, high: count * step * divisor, logarithmic: false, ticks, unit: name }
    }

    /// Creates a logarithmic scale between round figures. The labels are powers of ten with units.
    pub(crate) fn logarithmic(unit: Unit, least: f64, most: f64) -> Scale {
        let least = least.max(f64::MIN_POSITIVE);
        // The next round figures below and above.
        let low = 1.0 / round_step(1.0 / least);
        let high = round_step(most).max(low * 10.0);
        let first = exponent_of_ten(low);
        let first = if power_of_ten(first) < low * (1.0 - 1e-9) { first + 1 } else { first };
        let tick = |exponent: i32| {
            let value = power_of_ten(exponent);
            let (divisor, name) = unit.scale(value);
            (value, format!("{:.0} {name}", value / divisor))
        };
        Scale {
            low,
            high,
            logarithmic: true,
            ticks: (first..=exponent_of_ten(high)).map(tick).collect(),
            unit: "",
        }
    }

    /// Creates the scale of a chart. It is logarithmic if the chart has published figures for comparison, or if low
    /// curves would otherwise coincide.
    pub(crate) fn of(chart: &Chart, steps: usize) -> Scale {
        let cells = || chart.cells();
        let beside = || chart.references.iter().map(|reference| reference.value);
        let medians = cells().filter_map(|cell| cell.median);
        let (lowest, highest) = range(medians.chain(beside()));
        // One series that was disturbed would make all other figures small. Its whisker ends at the axis, with an
        // arrow.
        let bounds = lowest / FAR_OUT..=highest * FAR_OUT;
        let ends = cells().flat_map(|cell| [cell.least, cell.median, cell.most]).flatten();
        let ends = ends.filter(|end| bounds.contains(end));
        let (least, most) = range(ends.chain(beside()));
        if chart.references.is_empty() && !is_far_apart(chart) || most <= 0.0 {
            Scale::linear(chart.unit, most, steps)
        } else {
            Scale::logarithmic(chart.unit, least, most)
        }
    }

    /// Returns true if the figure is beyond the end of the scale.
    pub(crate) fn is_beyond(&self, value: f64) -> bool {
        value > self.high
    }

    /// Returns true if the scale is logarithmic.
    pub(crate) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Returns the position of a figure, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = if self.logarithmic {
            log2(value.max(self.low) / self.low) / log2(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }
}

/// A figure this many times the largest median, or this part of the smallest, does not set the axis.
const FAR_OUT: f64 = 2.0;

/// Returns true if the best figures of two curves differ by a large factor. For times all figures count, because the
/// short ones matter most.
fn is_far_apart(chart: &Chart) -> bool {
    const FAR: f64 = 4.0;
    let medians = |curve: &Curve| -> Vec<f64> {
        if chart.unit.more_is_better() {
            curve.best(chart.unit).map(|(_, best)| best.median).into_iter().collect()
        } else {
            curve.cells.iter().filter_map(|cell| cell.median).collect()
        }
    };
    let (least, most) = range(chart.curves.iter().flat_map(medians));
    chart.axis == Axis::BlockBytes && most > FAR * least
}

/// Returns the next number that is 1, 2, 2.5 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = power_of_ten(exponent_of_ten(least));
    let factor =
        [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| least <= factor * power * (1.0 + 1e-9));
    factor.unwrap_or(10.0) * power
}

/// A logarithmic axis of block sizes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BlockAxis {
    first: f64,
    last: f64,
    sizes: Vec<u64>,
}

impl BlockAxis {
    /// Creates the axis of a chart; `None`: no cell has a block size.
    pub(crate) fn of(chart: &Chart) -> Option<BlockAxis> {
        let cells = chart.cells();
        let mut sizes: Vec<u64> =
            cells.filter_map(|cell| cell.block_bytes).filter(|bytes| *bytes > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let (first, last) = (*sizes.first()? as f64, *sizes.last()? as f64);
        Some(BlockAxis { first: log2(first), last: log2(last), sizes })
    }

    /// Returns the block sizes in order.
    pub(crate) fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Returns the position of a size, from 0 to 1. A single size is in the middle.
    pub(crate) fn place(&self, bytes: u64) -> f64 {
        if self.first == self.last {
            return 0.5;
        }
        ((log2(bytes as f64) - self.first) / (self.last - self.first)).clamp(0.0, 1.0)
    }

    /// Returns at most that many powers of two, evenly spaced, with labels.
    pub(crate) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let exponents: Vec<u32> = (self.first.ceil() as u32..=self.last.floor() as u32).collect();
        let tick = |bytes| (self.place(bytes), short_bytes(bytes));
        if exponents.is_empty() {
            return self.sizes.first().into_iter().map(|bytes| tick(*bytes)).collect();
        }
        let each = exponents.len().div_ceil(most.max(1));
        exponents.iter().step_by(each).map(|exponent| tick(1_u64 << exponent)).collect()
    }
}

/// A drawing to which elements are added.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    text: String,
    depth: usize,
}

/// A length with at most one decimal: smaller differences are invisible.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Px(pub(crate) f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole}"),
            // The whole part of -0.4 has no sign.
            (0, rest) if rest < 0 => write!(f, "-0.{}", -rest),
            (whole, rest) => write!(f, "{whole}.{}", rest.abs()),
        }
    }
}

/// Escapes text for XML and HTML, also inside quotes.
pub(crate) fn escape(text: &str) -> String {
    // No XML may have them, escaped or not.
    let is_forbidden = |it: char| it.is_ascii_control() && !matches!(it, '\t' | '\n' | '\r');
    html_escape::encode_quoted_attribute(&text.replace(is_forbidden, "\u{fffd}")).into_owned()
}

/// The attributes of an element, with escaped values.
#[derive(Debug, Default)]
pub(crate) struct Attributes(String);

impl Attributes {
    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Attributes {
        // Writing to a String does not fail.
        let _ = write!(self.0, " {name}=\"{}\"", escape(&value.to_string()));
        self
    }

    /// Adds several lengths.
    pub(crate) fn px<const N: usize>(self, values: [(&str, f64); N]) -> Attributes {
        values.into_iter().fold(self, |all, (name, value)| all.with(name, Px(value)))
    }
}

pub(crate) fn class(name: &str) -> Attributes {
    Attributes::default().with("class", name)
}

impl Svg {
    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.text.push(' ');
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Adds an empty element.
    pub(crate) fn empty(&mut self, name: &str, attributes: &Attributes) {
        self.line(&format!("<{name}{}/>", attributes.0));
    }

    /// Adds an element with text.
    pub(crate) fn text(&mut self, name: &str, attributes: &Attributes, text: &str) {
        self.line(&format!("<{name}{}>{}</{name}>", attributes.0, escape(text)));
    }

    /// Adds an element with elements inside.
    pub(crate) fn group(
        &mut self,
        name: &str,
        attributes: &Attributes,
        inner: impl FnOnce(&mut Svg),
    ) {
        self.line(&format!("<{name}{}>", attributes.0));
        self.depth += 1;
        inner(self);
        self.depth -= 1;
        self.line(&format!("</{name}>"));
    }

    /// Adds text without escaping it.
    pub(crate) fn raw(&mut self, text: &str) {
        for line in text.lines() {
            self.line(line);
        }
    }

    fn finish(self) -> String {
        self.text
    }
}

/// Returns a complete, scalable picture.
pub(crate) fn picture(
    (width, height): (f64, f64),
    label: &str,
    inner: impl FnOnce(&mut Svg),
) -> String {
    let mut svg = Svg::default();
    let attributes = Attributes::default()
        .with("xmlns", "http://www.w3.org/2000/svg")
        .with("viewBox", format!("0 0 {} {}", Px(width), Px(height)))
        .with("role", "img")
        .with("aria-label", label);
    svg.group("svg", &attributes, inner);
    svg.finish()
}

/// Returns the style of every chart: colors for light and for dark screens; print is light.
pub(crate) fn style() -> String {
    let mut css = String::new();
    let _ = writeln!(css, ":root{{color-scheme:light dark;{}}}", variables(&LIGHT));
    let _ = writeln!(css, "@media (prefers-color-scheme:dark){{:root{{{}}}}}", variables(&DARK));
    // Print is light on dark screens too.
    let _ = writeln!(css, "@media print{{:root{{color-scheme:light;{}}}}}", variables(&LIGHT));
    for curve in 0..CURVES {
        let _ = writeln!(css, ".c{curve}{{--c:var(--c{curve})}}");
    }
    css.push_str(CHART_CSS);
    css
}

fn variables(theme: &Theme) -> String {
    let mut text = String::new();
    for (name, color) in [
        ("bg", theme.background),
        ("fg", theme.text),
        ("faint", theme.faint),
        ("grid", theme.grid),
        ("raised", theme.raised),
    ] {
        let _ = write!(text, "--{name}:{};", hex(color));
    }
    for (curve, color) in theme.curves.iter().enumerate() {
        let _ = write!(text, "--c{curve}:{};", hex(*color));
    }
    text
}

const CHART_CSS: &str = "\
svg text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--fg)}
svg .title{font-size:16px;font-weight:600}
svg .tick,svg .unit,svg .reference-label{fill:var(--faint);font-size:12px}
svg .reference-label{paint-order:stroke;stroke:var(--bg);stroke-width:4px;stroke-linejoin:round}
svg .num{font-variant-numeric:tabular-nums}
svg .end{text-anchor:end}
svg .middle{text-anchor:middle}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .axis{stroke:var(--faint);stroke-width:1}
svg .reference{stroke:var(--faint);stroke-width:1;stroke-dasharray:2 4}
svg .band{fill:var(--c);fill-opacity:.13;stroke:none}
svg .series{fill:none;stroke:var(--c);stroke-width:1;stroke-opacity:.45}
svg .old{fill:none;stroke:var(--c);stroke-width:1.5;stroke-dasharray:1 4;stroke-linecap:round}
svg .median{fill:none;stroke:var(--c);stroke-width:2.5;stroke-linejoin:round;stroke-linecap:round}
svg .mark{fill:var(--c);stroke:var(--bg);stroke-width:1}
svg .noisy{fill:var(--bg);stroke:var(--c);stroke-width:1.75}
svg .best{fill:none;stroke:var(--fg);stroke-width:1.5}
svg .note{font-weight:600;paint-order:stroke;stroke:var(--bg);stroke-width:4px;stroke-linejoin:round}
svg .bar{fill:var(--c);fill-opacity:.55}
svg .whisker{stroke:var(--fg);stroke-width:1.5;fill:none}
svg .hit{fill:transparent}
svg .tip{visibility:hidden;pointer-events:none}
svg .spot:hover .tip,svg .spot:focus .tip{visibility:visible}
svg .spot:hover .hit,svg .spot:focus .hit{fill:var(--fg);fill-opacity:.04}
svg .spot:focus{outline:none}
svg .rule{stroke:var(--faint);stroke-width:1}
svg .box{fill:var(--raised);stroke:var(--grid);stroke-width:1}
@media print{svg .spot{display:none}}
";

// The colors are distinguishable with red-green color blindness, and have enough contrast to the background. After
// Okabe and Ito, "Color Universal Design" (2008); darker for white paper and lighter for a dark screen, because the
// original colors are meant for large areas.

/// A color as red, green and blue.
pub(crate) type Rgb = [u8; 3];

/// The colors for one background.
#[derive(Debug, Clone, Copy)]
struct Theme {
    pub(crate) background: Rgb,
    pub(crate) text: Rgb,
    /// The color of secondary text: tick labels, notes.
    pub(crate) faint: Rgb,
    pub(crate) grid: Rgb,
    /// The background of a tooltip.
    pub(crate) raised: Rgb,
    /// The colors of the curves, in turn.
    pub(crate) curves: [Rgb; CURVES],
}

/// The number of colors. Further curves repeat them with other dashes.
pub(crate) const CURVES: usize = 6;

const LIGHT: Theme = Theme {
    background: [255, 255, 255],
    text: [28, 32, 38],
    faint: [92, 100, 112],
    grid: [226, 229, 234],
    raised: [246, 247, 249],
    curves: [[0, 94, 162], [196, 70, 0], [0, 128, 96], [150, 40, 120], [84, 60, 0], [96, 104, 118]],
};

const DARK: Theme = Theme {
    background: [18, 21, 26],
    text: [232, 235, 240],
    faint: [154, 163, 176],
    grid: [48, 54, 63],
    raised: [29, 33, 40],
    curves: [
        [96, 178, 240],
        [255, 140, 70],
        [64, 208, 164],
        [240, 158, 206],
        [244, 216, 96],
        [168, 178, 190],
    ],
};

/// The colors of the curves in a terminal, of the 256: readable on black and on white.
pub(crate) const TERMINAL: [u8; CURVES] = [33, 166, 36, 169, 136, 245];

/// Returns a color as `#rrggbb`.
fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns the dash of a curve whose color is already in use.
fn dash(curve: usize) -> Option<&'static str> {
    match curve / CURVES {
        0 => None,
        1 => Some("7 4"),
        _ => Some("2 3"),
    }
}

pub(crate) fn letter(curve: usize) -> char {
    let letters = ('A'..='Z').chain('a'..='z');
    letters.cycle().nth(curve).unwrap_or('?')
}

/// Returns the classes of a part of a curve: the part, and the color of the curve.
fn of_curve(curve: usize, part: &str) -> Attributes {
    let attributes = class(&format!("{part} c{}", curve % CURVES));
    match dash(curve) {
        Some(dash) if part == "median" => attributes.with("stroke-dasharray", dash),
        _ => attributes,
    }
}

/// Draws the mark of a point: each curve has its own shape, and noisy points are hollow.
fn mark(svg: &mut Svg, curve: usize, (x, y): (f64, f64), noisy: bool) {
    let attributes = of_curve(curve, if noisy { "noisy" } else { "mark" });
    let polygon = |corners: &[(f64, f64)]| {
        let corners: Vec<(f64, f64)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        points(&corners)
    };
    let corners: &[(f64, f64)] = match curve % 6 {
        0 => return svg.empty("circle", &attributes.px([("cx", x), ("cy", y), ("r", 4.0)])),
        1 => &[(-3.7, -3.7), (3.7, -3.7), (3.7, 3.7), (-3.7, 3.7)],
        2 => &[(0.0, -5.0), (4.8, 3.6), (-4.8, 3.6)],
        3 => &[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)],
        4 => &[(0.0, 5.0), (4.8, -3.6), (-4.8, -3.6)],
        _ => &[(-5.0, -2.2), (5.0, -2.2), (5.0, 2.2), (-5.0, 2.2)],
    };
    svg.empty("polygon", &attributes.with("points", polygon(corners)));
}

/// Returns the attribute `points` of polygons and polylines.
fn points(places: &[(f64, f64)]) -> String {
    let places: Vec<String> =
        places.iter().map(|(x, y)| format!("{},{}", Px(*x), Px(*y))).collect();
    places.join(" ")
}

/// Draws a straight line.
fn line(svg: &mut Svg, class: Attributes, from: (f64, f64), to: (f64, f64)) {
    svg.empty("line", &class.px([("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;
    use crate::sample;

    fn texts(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn low_curves_beside_a_high_one_get_a_logarithmic_scale() {
        let mut chart = sample::pipes().charts.swap_remove(0);
        assert!(!Scale::of(&chart, 5).is_logarithmic());
        for cell in &mut chart.curves[0].cells {
            let faster = cell.samples.iter().map(|sample| sample * 9.0).collect();
            *cell = Cell::new(&cell.label, cell.block_bytes, faster);
        }
        assert!(Scale::of(&chart, 5).is_logarithmic());
        assert!(Scale::of(&sample::trips().charts[0], 5).is_logarithmic());
    }

    #[test]
    fn an_outlier_does_not_set_the_axis() {
        let mut chart = sample::spawn().charts.swap_remove(0);
        let scale = Scale::of(&chart, 5);
        let cell = &mut chart.curves[0].cells[0];
        cell.most = cell.most.map(|most| most * 100.0);
        let with_outlier = Scale::of(&chart, 5);
        assert_eq!(scale, with_outlier);
        assert!(with_outlier.is_beyond(chart.curves[0].cells[0].most.unwrap()));
    }

    #[test]
    fn tick_labels_are_round() {
        for (most, figures, unit) in [
            (2.31e9, &["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"][..], "GB/s"),
            (9.8e9, &["0", "2", "4", "6", "8", "10"], "GB/s"),
            (10e9, &["0", "2", "4", "6", "8", "10"], "GB/s"),
            (12e9, &["0.0", "2.5", "5.0", "7.5", "10.0", "12.5"], "GB/s"),
            (123e6, &["0", "25", "50", "75", "100", "125"], "MB/s"),
        ] {
            let scale = Scale::linear(Unit::BytesPerSecond, most, 5);
            assert_eq!((texts(&scale).as_slice(), scale.unit), (figures, unit), "{most}");
            assert!(scale.place(most) <= 1.0 && scale.place(most) > 0.7, "{most}");
        }
        let nothing = Scale::linear(Unit::Seconds, 0.0, 4);
        assert_eq!(nothing.place(0.0), 0.0);
    }

    #[test]
    fn powers_of_ten_are_equally_far_apart() {
        let scale = Scale::logarithmic(Unit::BytesPerSecond, 2.5e6, 8e9);
        assert_eq!(texts(&scale), ["10 MB/s", "100 MB/s", "1 GB/s", "10 GB/s"]);
        assert_eq!((scale.place(0.0), scale.place(1e12)), (0.0, 1.0));
        let step = scale.place(1e8) - scale.place(1e7);
        assert!((scale.place(1e9) - scale.place(1e8) - step).abs() < 1e-9);
        assert!(scale.place(8e9) > 0.9 && scale.place(2.5e6) < 0.1);
    }

    #[test]
    fn powers_of_two_are_equally_far_apart() {
        let blocks = BlockAxis::of(&sample::pipes().charts[0]).unwrap();
        assert_eq!((blocks.place(64), blocks.place(1 << 20)), (0.0, 1.0));
        let ticks: Vec<String> = blocks.ticks(8).into_iter().map(|(_, text)| text).collect();
        assert_eq!(ticks, ["64", "256", "1k", "4k", "16k", "64k", "256k", "1M"]);
        assert_eq!(blocks.ticks(1).len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn a_scale_contains_its_largest_figure(most in 1e-9..1e12_f64, steps in 1_usize..12) {
            for unit in [Unit::Seconds, Unit::BytesPerSecond] {
                let scale = Scale::linear(unit, most, steps);
                let place = scale.place(most);
                assert!(place > 0.4 && place <= 1.0, "{place}");
                assert!(scale.ticks.len() <= steps + 2, "{scale:?}");
                assert!((scale.place(scale.ticks.last().unwrap().0) - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn numbers_are_short_and_never_in_scientific_notation() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.25, "1.3"),
            (-0.4, "-0.4"),
            (-0.04, "0"),
            (-12.34, "-12.3"),
            (1e7, "10000000"),
            (99.96, "100"),
        ] {
            assert_eq!(Px(value).to_string(), text);
        }
    }

    #[test]
    fn characters_with_a_meaning_are_escaped() {
        let picture = picture((10.0, 20.0), "a<b>\"c\"&\u{1}", |svg| {
            svg.text("text", &class("x").px([("x", 1.5)]), "<script>");
        });
        let expected = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 10 20\" role=\"img\" \
            aria-label=\"a&lt;b&gt;&quot;c&quot;&amp;\u{fffd}\">\n <text class=\"x\" x=\"1.5\">&lt;script&gt;\
            </text>\n</svg>\n";
        assert_eq!(picture, expected);
    }

    /// The relative luminance (WCAG 2.2).
    fn light(color: Rgb) -> f64 {
        let linear = color.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_curves_stand_out_from_their_background() {
        for theme in [LIGHT, DARK] {
            for background in [theme.background, theme.raised] {
                assert!(contrast(theme.text, background) >= 7.0);
                assert!(contrast(theme.faint, background) >= 4.5);
                for curve in theme.curves {
                    // As for text: letters and figures have the color of their curve.
                    assert!(contrast(curve, background) >= 4.5, "{}", hex(curve));
                }
            }
        }
    }

    /// The color as seen without one kind of cone (Viénot, Brettel and Mollon, 1999).
    fn seen_without([red, green, blue]: Rgb, cone: char) -> [f64; 3] {
        let [red, green, blue] = [red, green, blue].map(|part| (f64::from(part) / 255.0).powf(2.2));
        match cone {
            'r' => [0.112 * red + 0.888 * green, 0.112 * red + 0.888 * green, blue],
            _ => [0.293 * red + 0.707 * green, 0.293 * red + 0.707 * green, blue],
        }
    }

    #[test]
    fn colors_differ_with_red_green_color_blindness() {
        for theme in [LIGHT, DARK] {
            for cone in ['r', 'g'] {
                for (index, a) in theme.curves.iter().enumerate() {
                    for b in &theme.curves[index + 1..] {
                        let [a, b] = [a, b].map(|color| seen_without(*color, cone));
                        let far = a.iter().zip(b).map(|(a, b)| (a.powf(0.4) - b.powf(0.4)).abs());
                        let far: f64 = far.sum();
                        assert!(far > 0.08, "{cone}: {a:?} and {b:?} are {far} apart");
                    }
                }
            }
        }
    }

    #[test]
    fn every_curve_has_its_own_letter() {
        let letters: std::collections::HashSet<char> = (0..52).map(letter).collect();
        assert_eq!((letters.len(), letter(0), letter(26)), (52, 'A', 'a'));
    }
}
