//! Drawing: scales and axes, a canvas of braille dots for terminals, and SVG.
//!
//! All of it are pure functions of the report, so that tests can compare the output byte for byte.

pub(super) mod axis;
pub(super) mod bars;
pub(super) mod braille;
pub(super) mod frame;
pub(super) mod lines;
mod marks;
pub(super) mod palette;
mod plot;
pub(super) mod svg;
mod tips;
