//! SVG as text: escaped elements, with the same numbers on every system; and the colors, lines and marks of curves.

use std::fmt::{self, Write as _};

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
pub(super) fn of_curve(curve: usize, part: &str) -> Attributes {
    let attributes = class(&format!("{part} c{}", curve % CURVES));
    match dash(curve) {
        Some(dash) if part == "median" => attributes.with("stroke-dasharray", dash),
        _ => attributes,
    }
}

/// Draws the mark of a point: each curve has its own shape, and noisy points are hollow.
pub(super) fn mark(svg: &mut Svg, curve: usize, (x, y): (f64, f64), noisy: bool) {
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
pub(super) fn points(places: &[(f64, f64)]) -> String {
    let places: Vec<String> =
        places.iter().map(|(x, y)| format!("{},{}", Px(*x), Px(*y))).collect();
    places.join(" ")
}

/// Draws a straight line.
pub(super) fn line(svg: &mut Svg, class: Attributes, from: (f64, f64), to: (f64, f64)) {
    svg.empty("line", &class.px([("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)]));
}

#[cfg(test)]
mod tests {
    use super::*;

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
