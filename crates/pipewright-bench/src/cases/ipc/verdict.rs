//! The verdict on messages: throughput, round trips and the packets of a build.

use super::{INLINE, SHARED};
use crate::report::{Chart, Curve};
use crate::units::{Unit, sentences};

/// Sums up the figures in sentences; `None`: not measured.
pub(crate) fn verdict(charts: &[Chart]) -> Option<String> {
    let chart = |id: &str| charts.iter().find(|chart| chart.id == id);
    let curve = |id: &str, name: &str| -> Option<&Curve> {
        chart(id)?.curves.iter().find(|curve| curve.name == name)
    };
    let best = |name| curve("ipc-one-way", name)?.best(Unit::BytesPerSecond);
    let mut summary = Vec::new();
    if let Some((cell, fastest)) = best(SHARED) {
        let speed = Unit::BytesPerSecond.show(fastest.median);
        let mut words =
            format!("messages from a worker reach {speed} at best ({}, shared memory)", cell.label);
        if let Some((cell, other)) = best(INLINE) {
            let speed = Unit::BytesPerSecond.show(other.median);
            words.push_str(&format!(", and {speed} through a socket ({})", cell.label));
        }
        summary.push(words);
    }
    if let Some((cell, fastest)) =
        curve("ipc-round-trip", SHARED).and_then(|it| it.best(Unit::Seconds))
    {
        let mut words = format!("a round trip takes {}", Unit::Seconds.show(fastest.median));
        if let Some(each) = cell.percentiles {
            let p99 = Unit::Seconds.show(each.p99);
            words.push_str(&format!(", and 99 of 100 take at most {p99}"));
        }
        summary.push(words);
    }
    let build = |label: &str| {
        let mut cells = chart("ipc-build")?.curves.first()?.cells.iter();
        cells.find(|cell| cell.label == label)?.median
    };
    if let Some((shared, inline)) = build(SHARED).zip(build(INLINE)) {
        let [shared, inline] = [shared, inline].map(|time| Unit::Seconds.show(time));
        summary.push(format!("the packets of a build take {shared} instead of {inline}"));
    }
    sentences(&summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::chart;

    #[test]
    fn every_measured_chart_has_a_sentence() {
        let one_way: [(&str, &[(&str, f64)]); 2] =
            [(SHARED, &[("100 B", 0.5e9), ("64 KiB", 9.0e9)]), (INLINE, &[("1 MiB", 3.0e9)])];
        let trips: [(&str, &[(&str, f64)]); 1] = [(SHARED, &[("100 B", 0.6e-6), ("1 MiB", 1e-4)])];
        let build: [(&str, &[(&str, f64)]); 1] =
            [("pipewright", &[(SHARED, 0.018), (INLINE, 0.13)])];
        let charts = [
            chart("ipc-one-way", Unit::BytesPerSecond, &one_way),
            chart("ipc-round-trip", Unit::Seconds, &trips),
            chart("ipc-build", Unit::Seconds, &build),
        ];
        let summary = verdict(&charts).unwrap();
        let lines: Vec<&str> = summary.lines().collect();
        assert_eq!(
            lines,
            [
                "Messages from a worker reach 9.00 GB/s at best (64 KiB, shared memory), and 3.00 GB/s \
                 through a socket (1 MiB).",
                "A round trip takes 600 ns, and 99 of 100 take at most 1.20 µs.",
                "The packets of a build take 18.0 ms instead of 130 ms.",
            ]
        );
        assert_eq!(verdict(&charts[2..]).unwrap(), lines[2]);
        assert_eq!(verdict(&[]), None);
    }
}
