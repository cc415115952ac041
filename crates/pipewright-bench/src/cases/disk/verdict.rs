//! The verdict on files: throughput through the cache and past it, and small reads.

use super::{CACHED, SMALL_BYTES};
use crate::report::{Chart, Curve};
use crate::units::{Unit, sentences};

/// Sums up the figures in sentences; `None`: not measured.
pub(crate) fn verdict(charts: &[Chart]) -> Option<String> {
    let unit = Unit::BytesPerSecond;
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let mut summary = Vec::new();
    for (id, what) in [("disk-read", "reading"), ("disk-write", "overwriting")] {
        let Some(chart) = chart(id) else { continue };
        let best = |curve: &Curve| {
            let (cell, best) = curve.best(unit)?;
            Some(format!("{} {} ({})", unit.show(best.median), curve.name, cell.label))
        };
        let cached = chart.curves.iter().find(|curve| curve.name == CACHED).and_then(best);
        // The curve with many operations at once is the last one.
        let direct = chart.curves.last().filter(|curve| curve.name != CACHED).and_then(best);
        let both: Vec<String> = cached.into_iter().chain(direct).collect();
        if !both.is_empty() {
            summary.push(format!("{what} a file reaches {}", both.join(" and ")));
        }
    }
    let best =
        chart("disk-depth").into_iter().flat_map(|chart| &chart.curves).filter_map(|curve| {
            let alone = curve.cells.first()?.median?;
            let (cell, best) = curve.best(unit)?;
            Some((curve, cell, best.median, alone))
        });
    if let Some((curve, cell, most, alone)) = best.max_by(|a, b| a.2.total_cmp(&b.2)) {
        let times = |speed: f64| format!("{:.0}", speed / SMALL_BYTES as f64);
        summary.push(format!(
            "small reads: {} per second with {} ({}), {} one at a time",
            times(most),
            cell.label,
            curve.name,
            times(alone),
        ));
    }
    sentences(&summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::chart;

    #[test]
    fn the_cache_and_the_queue_depth_have_sentences() {
        let unit = Unit::BytesPerSecond;
        let reads: [(&str, &[(&str, f64)]); 2] = [
            (CACHED, &[("4 KiB", 6e9), ("64 KiB", 19e9)]),
            ("direct, 32 at once", &[("1 MiB", 1.1e9)]),
        ];
        let depths: [(&str, &[(&str, f64)]); 2] = [
            ("uring", &[("1 at a time", 40.96e6), ("64 at once", 409.6e6)]),
            ("threads", &[("1 at a time", 4.096e6)]),
        ];
        let charts = [chart("disk-read", unit, &reads), chart("disk-depth", unit, &depths)];
        let summary = verdict(&charts).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(
            lines,
            [
                "Reading a file reaches 19.0 GB/s through the cache (64 KiB) and 1.10 GB/s direct, 32 at \
                 once (1 MiB).",
                "Small reads: 100000 per second with 64 at once (uring), 10000 one at a time.",
            ]
        );
        // Without direct I/O the sentence leaves it out.
        let cached = chart("disk-read", unit, &reads[..1]);
        let summary = verdict(&[cached]).unwrap();
        assert_eq!(summary, "Reading a file reaches 19.0 GB/s through the cache (64 KiB).");
        assert_eq!(verdict(&[]), None);
    }
}
