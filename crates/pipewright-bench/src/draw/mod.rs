//! Drawing: scales and axes, a canvas of braille dots for terminals, and SVG.
//!
//! Everything here is a pure function of the report, so that what comes out can be compared byte for
//! byte.

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
