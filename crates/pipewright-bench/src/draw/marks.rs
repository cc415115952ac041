//! The lines and marks of curves, in their colors.

use super::palette::{CURVES, dash};
use super::svg::{Attributes, Px, Svg, class};

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
