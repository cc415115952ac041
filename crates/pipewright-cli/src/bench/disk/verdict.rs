//! What the cache brings, and what many at once do: a sentence each.

use super::super::report::{Chart, Curve};
use super::super::units::{Unit, sentences};
use super::{CACHED, SMALL_BYTES};

/// In sentences; `None`: it was not measured.
pub(in crate::bench) fn verdict(charts: &[Chart]) -> Option<String> {
    let unit = Unit::BytesPerSecond;
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let mut said = Vec::new();
    for (id, what) in [("disk-read", "reading"), ("disk-write", "writing over")] {
        let Some(chart) = chart(id) else { continue };
        let best = |curve: &Curve| {
            let (cell, best) = curve.best(unit)?;
            Some(format!("{} {} ({})", unit.show(best.median), curve.name, cell.label))
        };
        let cached = chart.curves.iter().find(|curve| curve.name == CACHED).and_then(best);
        // The way with many at once stands last.
        let direct = chart.curves.last().filter(|curve| curve.name != CACHED).and_then(best);
        let both: Vec<String> = cached.into_iter().chain(direct).collect();
        if !both.is_empty() {
            said.push(format!("{what} a file reaches {}", both.join(" and ")));
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
        said.push(format!(
            "small reads: {} a second with {} ({}), {} one at a time",
            times(most),
            cell.label,
            curve.name,
            times(alone),
        ));
    }
    sentences(&said)
}
