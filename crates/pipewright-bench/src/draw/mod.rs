//! Drawing: scales, which map figures to positions, with their round tick values; and SVG.
//!
//! All of it are pure functions of the report, so that tests can compare the output byte for byte.

pub(super) mod charts;
pub(super) mod svg;

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
    pub(crate) fn linear(unit: Unit, most: f64, steps: usize) -> Scale {
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
}
