//! SVG as text: escaped elements, with the same numbers on every system.

use std::fmt::{self, Write as _};

use super::palette::{self, CURVES, DARK, LIGHT, Theme};

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

/// Escapes characters that have a meaning in XML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML.
            '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
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

/// Returns attributes with a class.
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

    pub(crate) fn finish(self) -> String {
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
        let _ = write!(text, "--{name}:{};", palette::hex(color));
    }
    for (curve, color) in theme.curves.iter().enumerate() {
        let _ = write!(text, "--c{curve}:{};", palette::hex(*color));
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
}
