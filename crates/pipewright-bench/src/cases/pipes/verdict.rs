//! The verdict on pipes: the best block size, and the loss with a usual one.

use crate::report::{Chart, Curve};
use crate::stats::Summary;
use crate::units::bytes;

/// Sums up the figures in sentences; `None`: not measured.
pub(crate) fn verdict(charts: &[Chart]) -> Option<String> {
    // Nobody uses a pipe within one thread, so that chart counts only if it is the only one.
    let between = charts.iter().find(|chart| chart.id.starts_with("between-"));
    let chart = between.or_else(|| charts.iter().find(|chart| chart.id == "one-thread"))?;
    let curve = chart.curves.iter().find(|curve| curve.best(chart.unit).is_some())?;
    let mut summary = of_curve(chart, curve)?;
    if let Some(fastest) = fastest(chart, curve) {
        summary.push('\n');
        summary.push_str(&fastest);
    }
    Some(summary)
}

/// Returns a sentence like `Best block size: 8 KiB, 2.31 GB/s (two threads, pipe 64 KiB); 64 KiB is 47 % slower.`
fn of_curve(chart: &Chart, curve: &Curve) -> Option<String> {
    let (_, best) = curve.best(chart.unit)?;
    let measured: Vec<(u64, Summary)> =
        curve.cells.iter().filter_map(|cell| Some((cell.block_bytes?, cell.summary()?))).collect();
    let good: Vec<u64> =
        measured.iter().filter(|(_, it)| is_as_good(it, &best)).map(|(bytes, _)| *bytes).collect();
    let (least, most) = (*good.first()?, *good.last()?);
    let sizes =
        if least == most { bytes(least) } else { format!("{} to {}", bytes(least), bytes(most)) };
    let speed = chart.unit.show(best.median);
    let mut summary = format!("Best block size: {sizes}, {speed} ({})", curve.name);
    // The usual size of buffers; if it was not measured, the largest.
    const USUAL_BYTES: u64 = 64 << 10;
    let beyond = measured.iter().filter(|(bytes, _)| *bytes > most);
    let other =
        beyond.clone().find(|(bytes, _)| *bytes == USUAL_BYTES).or(beyond.clone().next_back());
    if let Some((size, other)) = other {
        let loss = (1.0 - other.median / best.median) * 100.0;
        summary.push_str(&format!("; {} is {loss:.0} % slower", bytes(*size)));
    }
    summary.push('.');
    Some(summary)
}

/// Returns true if another run could reverse the order of this cell and the best.
fn is_as_good(cell: &Summary, best: &Summary) -> bool {
    const SAME_SHARE: f64 = 0.03;
    cell.most >= best.least && cell.median >= best.median * (1.0 - SAME_SHARE)
}

/// Names another curve that is clearly faster.
fn fastest(chart: &Chart, curve: &Curve) -> Option<String> {
    let (_, own) = curve.best(chart.unit)?;
    let (other, cell, best) = chart.best()?;
    if best.least <= own.most || best.median < own.median * 1.1 {
        return None;
    }
    let speed = chart.unit.show(best.median);
    Some(format!("Fastest: {} at {}, {speed}.", other.name, cell.label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;
    use crate::sample;

    #[test]
    fn the_best_size_and_the_loss_with_the_usual_one() {
        let summary = verdict(&sample::pipes().charts).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(
            lines,
            [
                "Best block size: 8 KiB, 2.31 GB/s (two threads, pipe 64 KiB); 64 KiB is 47 % slower.",
                "Fastest: two threads, Unix socket at 128 KiB, 5.60 GB/s.",
            ]
        );
    }

    #[test]
    fn sizes_that_cannot_be_told_apart_are_a_range() {
        let mut charts = sample::pipes().charts;
        charts[0].curves.truncate(1);
        let cells = &mut charts[0].curves[0].cells;
        cells[6] = Cell::new("16 KiB", Some(16 << 10), vec![2.28e9, 2.33e9, 2.27e9]);
        cells.truncate(7);
        let summary = verdict(&charts).unwrap();
        assert_eq!(
            summary,
            "Best block size: 8 KiB to 16 KiB, 2.31 GB/s (two threads, pipe 64 KiB)."
        );
    }

    #[test]
    fn nothing_measured_is_no_verdict() {
        let mut charts = sample::pipes().charts;
        charts.iter_mut().for_each(|chart| chart.curves.clear());
        assert_eq!(verdict(&charts), None);
        assert_eq!(verdict(&[]), None);
    }
}
