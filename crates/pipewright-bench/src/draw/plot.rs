//! The area of a line chart, and the place of each point in it.

use super::axis::{BlockAxis, Scale};
use super::frame::{Format, Subject};

/// The area of the curves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// A chart with its scales, ready to be drawn.
pub(super) struct ChartLayout<'a> {
    pub(super) subject: Subject<'a>,
    pub(super) format: Format,
    pub(super) plot: Plot,
    pub(super) blocks: BlockAxis,
    pub(super) scale: Scale,
}

impl ChartLayout<'_> {
    /// Returns the horizontal place of a block size.
    pub(super) fn x(&self, bytes: u64) -> f64 {
        self.plot.left + self.blocks.place(bytes) * (self.plot.right - self.plot.left)
    }

    /// Returns the vertical place of a figure.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.plot.bottom - self.scale.place(value) * (self.plot.bottom - self.plot.top)
    }

    /// Returns a figure with its unit.
    pub(super) fn show(&self, value: f64) -> String {
        self.subject.chart.unit.show(value)
    }
}
